"""The working copy of a step: what was changed, ordered and noted so far, and the decision made of it.

It must not decide; it keeps the books of what `streams.core.machine` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from schemas.accounts import Account, Capabilities
from schemas.control import Controls
from schemas.decision import (
    Ages,
    ChannelOutcome,
    CloseKind,
    Decision,
    Evidence,
    GateResult,
    InputKind,
    Order,
    OrderKind,
    Outcome,
    Phase,
)
from schemas.ids import Channel
from schemas.policy import Policy
from schemas.reasons import Reason
from schemas.record import Coordinates, Record
from schemas.rows import encode, row_of
from schemas.subject import SubjectSeen
from streams.core.effects import (
    DispatchOrder,
    Fate,
    GivenUp,
    LookupOrder,
    Step,
    SuppressionOrder,
)
from streams.core.refusals import pointer_of, publisher_of
from streams.core.state import NEVER, IntentState, Track, working_copy
from streams.core.table import CLAIMS, TABLE, Move

NO_CAPABILITIES = Capabilities()

_decision, _order, _ages_row = row_of(Decision), row_of(Order), row_of(Ages)
_outcome, _channel_outcome = row_of(Outcome), row_of(ChannelOutcome)
_where, _evidence = row_of(Coordinates), row_of(Evidence)


def where(topic: str, partition: int, offset: int) -> Coordinates:
    """Coordinates of a record that was read: valid by construction, so nothing is checked (3 µs saved)."""
    found: Coordinates = _where(topic=topic, partition=partition, offset=offset)
    return found


@dataclass(frozen=True, slots=True)
class Input:
    """One record and what is known about its arrival. `at_ms` is its log-append time."""

    record: Record
    kind: InputKind
    trigger: Coordinates
    at_ms: int


@dataclass(frozen=True, slots=True)
class Context:
    """Everything else a step depends on; recorded, so that a replay can be given the same."""

    policies: Mapping[str, Policy]
    accounts: Mapping[str, Account]
    controls: Controls
    # (template, variable names) -> None when they fit, else why not
    template_problem: Callable[[str, tuple[str, ...]], Reason | None] = field(default=lambda _t, _v: None)


class Draft:
    """One step in the making. `now_ms` is max(log-append time, the state's last now)."""

    __slots__ = (
        "context",
        "dispatches",
        "drop_sealed",
        "evidence",
        "gates",
        "given_up",
        "input",
        "keep_sealed",
        "lookups",
        "notes",
        "now_ms",
        "policy",
        "prior_phase",
        "reason",
        "silent",
        "state",
        "subject",
        "suppressions",
        "via",
    )

    def __init__(self, state: IntentState, given: Input, context: Context) -> None:
        self.state = working_copy(state)
        self.input = given
        self.context = context
        self.now_ms = max(given.at_ms, state.last_now_ms)
        self.policy = context.policies.get(state.policy)
        self.prior_phase: Phase | None = state.phase if state.request_digest else None
        self.via: list[Phase] = []
        self.reason: Reason | None = None
        self.silent = False  # bookkeeping changed, but there is nothing to decide
        self.notes: list[Reason] = []
        self.evidence: Evidence | None = None
        self.gates: tuple[GateResult, ...] = ()
        self.dispatches: list[DispatchOrder] = []
        self.lookups: list[LookupOrder] = []
        self.suppressions: list[SuppressionOrder] = []
        self.given_up: list[GivenUp] = []
        self.drop_sealed = False
        self.keep_sealed = False
        self.subject: SubjectSeen | None = None

    # what happens

    def move(self, move: Move) -> None:
        """Go to the next phase of the table; `KeyError` when the table has no such move."""
        state = self.state
        state.phase = TABLE[state.phase, move]
        self.via.append(state.phase)
        if move in CLAIMS:
            state.claimed_ms = self.now_ms

    def because(self, reason: Reason) -> None:
        """The first reason given is the decision's; later ones are notes."""
        if self.reason is None:
            self.reason = reason
        elif reason is not self.reason and reason not in self.notes:
            self.notes.append(reason)

    def above_all(self, reason: Reason) -> None:
        """This reason is the decision's, whatever was given before."""
        prior = self.reason
        self.reason = reason
        if prior is not None and prior is not reason:
            self.notes.insert(0, prior)
        self.notes = [n for n in self.notes if n is not reason]

    def rely_on(self, channel: Channel, submission_no: int, **said: object) -> None:
        """What the input says about this submission is what the decision rests on."""
        self.evidence = _evidence(
            channel=channel, submission_no=submission_no, source=self.input.trigger, **said
        )

    def capabilities(self, track: Track) -> Capabilities:
        account = self.context.accounts.get(track.account)
        return NO_CAPABILITIES if account is None else account.capabilities

    # what comes of it

    def absorbed(self, original: IntentState | None) -> Step:
        """Nothing changed."""
        return Step(Fate.ABSORBED, original, self.input.trigger, suppressions=self.suppressions)

    def remembered(self, fate: Fate) -> Step:
        """Bookkeeping changed, but there is nothing to tell."""
        self.state.last_now_ms = self.now_ms
        return Step(
            fate,
            self.state,
            self.input.trigger,
            lookups=self.lookups,
            suppressions=self.suppressions,
            given_up=self.given_up,
            drop_sealed=self.drop_sealed,
        )

    def decided(self) -> Step:
        """A decision with everything it rests on, chained to the one before."""
        state = self.state
        state.seq += 1
        state.last_now_ms = self.now_ms
        decision = self._decision()
        value = encode(decision)
        state.prev_digest = sha256(value).hexdigest()
        return Step(
            Fate.DECIDED,
            state,
            self.input.trigger,
            decision,
            value,
            self.dispatches,
            self.lookups,
            self.suppressions,
            self.given_up,
            drop_sealed=self.drop_sealed,
            keep_sealed=self.keep_sealed,
            subject=self.subject,
        )

    def _decision(self) -> Decision:
        state, reason = self.state, self.reason
        if reason is None:
            raise AssertionError("a decision without a reason")
        tick = self.input.record if self.input.kind is InputKind.TICK else None
        trigger = self.input.trigger
        pointer = pointer_of(reason, self.input.kind, state, self.policy)
        made: Decision = _decision(
            record="decision",
            version=1,
            decision_id=f"{state.intent_id}:{state.seq}{state.life}",
            intent_id=state.intent_id,
            seq=state.seq,
            prev_digest=state.prev_digest,
            tenant=state.tenant or None,
            purpose=state.purpose or None,
            policy=state.policy or None,
            template=state.template or None,
            prior_phase=self.prior_phase,
            next_phase=state.phase,
            via=tuple(self.via[:-1]),
            closed=state.closed,
            reason=reason,
            reason_class=reason.reason_class,
            notes=tuple(self.notes),
            publisher=publisher_of(self.input.record, state, is_refusal=pointer is not None),
            pointer=pointer,
            now_ms=self.now_ms,
            input=self.input.kind,
            trigger=trigger,
            evidence=self.evidence,
            evidence_until_ms=None if tick is None else tick.evidence_until_ms,  # type: ignore[attr-defined]
            looked=state.looked if self.gates else None,
            gates=self.gates,
            controls_offset=self.context.controls.offset,
            orders=self._orders(),
            next_due_ms=state.due_ms or None,
            ages=_ages(state, self.now_ms),
            outcome=outcome(state) if Phase.CLOSED in self.via else None,
        )
        return made

    def _orders(self) -> tuple[Order, ...]:
        found = [
            _order(
                order=OrderKind.DISPATCH,
                channel=d.channel,
                number=d.submission_no,
                provider_account=d.account,
            )
            for d in self.dispatches
        ]
        found += [
            _order(order=OrderKind.LOOKUP, channel=q.channel, number=q.poll_no, provider_account=q.account)
            for q in self.lookups
        ]
        found += [
            _order(order=OrderKind.SUPPRESSION, channel=s.channel, number=0, reason=s.reason)
            for s in self.suppressions
        ]
        return tuple(found)


def _ages(state: IntentState, now_ms: int) -> Ages | None:
    email = state.email
    if email is None or not email.first_ordered_ms:
        return None
    answered = max(email.last_answer_ms, state.sms.last_answer_ms if state.sms else NEVER)
    found: Ages = _ages_row(
        since_email_request_ms=max(0, now_ms - email.first_ordered_ms),
        since_last_answer_ms=max(0, now_ms - answered) if answered else None,
        since_sms_claim_ms=max(0, now_ms - state.claimed_ms) if state.claimed_ms else None,
    )
    return found


def _channel(track: Track) -> ChannelOutcome:
    found: ChannelOutcome = _channel_outcome(
        state=track.state,
        reason=track.reason or track.facts.failed_reason,
        submissions=track.real_submissions,
        polls=track.poll_no,
        answers=track.answers,
        accepted_at_ms=track.facts.accepted_ms or None,
        delivered_at_ms=track.facts.delivered_ms or None,
    )
    return found


def outcome(state: IntentState) -> Outcome:
    """The summary of a closed intent. An intent refused at intake has an e-mail that was never ordered."""
    email, sms = state.email or Track(account="none"), state.sms
    usable = [
        (track.facts.delivered_ms, channel)
        for track, channel in ((email, Channel.EMAIL), (sms, Channel.SMS))
        if track is not None and track.facts.delivered_ms
    ]
    first = min(usable, default=None)
    found: Outcome = _outcome(
        ended=state.closed or CloseKind.INVALID,
        email=_channel(email),
        sms=None if sms is None else _channel(sms),
        fallback=state.claimed_ms != NEVER,
        needless_fallback=state.needless,
        overlap=state.overlap,
        first_usable=None if first is None else first[1],
        time_to_first_usable_ms=None if first is None else max(0, first[0] - state.requested_ms),
    )
    return found
