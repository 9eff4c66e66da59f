"""Builders: valid records with one thing changed, and a driver that plays inputs through the real core.

It must not hold an expectation; those are in the tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from schemas.accounts import Account, Capabilities
from schemas.attempt import Attempt, AttemptState
from schemas.control import Controls
from schemas.decision import Decision, InputKind, Phase
from schemas.ids import Channel
from schemas.instruction import Instruction, InstructionAction
from schemas.intent import IntentCancelled, IntentCompleted, IntentRequested, IntentSuperseded, SmsConsent
from schemas.observation import LookupAnswer, Observation, ProviderState
from schemas.policy import Policy, parse, released, table
from schemas.reasons import Reason
from schemas.record import Coordinates, Record
from schemas.subject import SubjectSeen
from schemas.tick import Tick
from streams.core.draft import Context, Input
from streams.core.effects import DispatchOrder, LookupOrder, Step, SuppressionOrder
from streams.core.machine import steps
from streams.core.state import IntentState, from_bytes, to_bytes

T0 = 1_790_000_000_000  # 2026-09-21T14:13:20Z; the instant every test intent is requested
ID = "int-0001-test"
NEWER_ID = "int-0002-test"
SUBJECT = "k1.u." + "c" * 32
EMAIL_FP = "k1.e." + "a" * 32
SMS_FP = "k1.s." + "b" * 32
SEALED = "eyJhbGciOiJub25lIn0..AAAA.BBBB.CCCC"
DEADLINE_MS = 60_000
EXPIRY_MS = 900_000
OVER_MS = EXPIRY_MS + 4_400_000  # late evidence, then an hour for orders nobody answered

FULL = Capabilities(
    idempotent_submit=True,
    idempotency_window_ms=82_800_000,
    lookup_by_message_id=True,
    lookup_by_reference=True,
    visibility_delay_ms=2_000,
)

POLICY_REF = "password_reset:v7"
POLICY_TEXT = """
policy = "password_reset:v7"
purpose = "password_reset"
urgency = "urgent"
template = "password_reset:v1"
fresh_ms = 10000
look_wait_ms = 3000
claim_hold_ms_max = 5000
late_evidence_ms = 600000
[bounds]
deadline_ms_min = 1000
deadline_ms_max = 600000
expiry_ms_max = 3600000
min_useful_window_ms = 30000
[email]
account = "mail-a"
[email.poll]
initial_ms = 5000
interval_ms_max = 60000
answers_max = 20
answer_within_ms = 15000
[sms]
account = "text-a"
allowed = true
countries = ["GB", "US"]
[sms.poll]
initial_ms = 5000
interval_ms_max = 60000
answers_max = 20
answer_within_ms = 15000
"""


def policy(**changes: Any) -> Policy:
    """The policy of the tests with top-level fields changed; `sms__allowed=False` reaches inside."""
    found = parse(POLICY_TEXT, name="test").model_dump()
    for name, value in changes.items():
        place, *inner = name.split("__")
        if inner:
            found[place][inner[0]] = value
        else:
            found[place] = value
    return Policy.model_validate(found, strict=False)


def account(name: str, channel: Channel, capabilities: Capabilities = FULL) -> Account:
    return Account(name=name, provider="simulated", channel=channel, capabilities=capabilities)


def context(
    *policies: Policy,
    mail: Capabilities = FULL,
    text: Capabilities = FULL,
    controls: Controls | None = None,
    template_problem: Reason | None = None,
) -> Context:
    accounts = [account("mail-a", Channel.EMAIL, mail), account("text-a", Channel.SMS, text)]
    return Context(
        policies=table(policies or (policy(),)) | dict(released()),
        accounts={a.name: a for a in accounts},
        controls=controls or Controls(),
        template_problem=lambda _template, _names: template_problem,
    )


def request(**changes: Any) -> IntentRequested:
    fields: dict[str, Any] = {
        "intent_id": ID,
        "tenant": "tenant-0001",
        "purpose": "password_reset",
        "policy": "password_reset:v7",
        "locale": "en",
        "country": "GB",
        "email_fingerprint": EMAIL_FP,
        "sms_fingerprint": SMS_FP,
        "sms_consent": SmsConsent(granted_at_ms=T0 - 1000, text_ref="consent-3"),
        "challenge_ref": "ch-1",
        "variables": ("link", "name"),
        "requested_at_ms": T0,
        "deadline_ms": T0 + DEADLINE_MS,
        "expiry_ms": T0 + EXPIRY_MS,
        "sealed": SEALED,
    }
    return IntentRequested.model_validate(fields | changes)


def completed(at: int, **changes: Any) -> IntentCompleted:
    fields: dict[str, Any] = {"intent_id": ID, "completed_at_ms": T0 + at, "source": "reset-form"}
    return IntentCompleted.model_validate(fields | changes)


def cancelled(at: int, **changes: Any) -> IntentCancelled:
    fields: dict[str, Any] = {"intent_id": ID, "cancelled_at_ms": T0 + at, "source": "service"}
    return IntentCancelled.model_validate(fields | changes)


def superseded(at: int, **changes: Any) -> IntentSuperseded:
    fields: dict[str, Any] = {"intent_id": ID, "by_intent_id": NEWER_ID, "superseded_at_ms": T0 + at}
    return IntentSuperseded.model_validate(fields | changes)


def subject_seen(at: int, intent_id: str = ID, **changes: Any) -> SubjectSeen:
    """Of a request asked for at `at`, with the test policy's longest life."""
    fields: dict[str, Any] = {
        "tenant": "tenant-0001",
        "purpose": "password_reset",
        "subject_key": SUBJECT,
        "intent_id": intent_id,
        "requested_at_ms": T0 + at,
        "expiry_ms": T0 + at + EXPIRY_MS,
        "forget_at_ms": T0 + at + 3_900_000,
    }
    return SubjectSeen.model_validate(fields | changes)


REASONS = {
    AttemptState.HELD: Reason.CONTROL_PAUSED,
    AttemptState.NOT_ACCEPTED: Reason.PROVIDER_UNREACHABLE,
    AttemptState.REFUSED: Reason.SUPPRESSED,
    AttemptState.FAILED: Reason.INVALID_RECIPIENT,
}


def attempt(at: int, state: AttemptState, channel: Channel = Channel.EMAIL, **changes: Any) -> Attempt:
    number = changes.get("submission_no", 1)
    fields: dict[str, Any] = {
        "attempt_id": f"{ID}:{channel.value}:{number}:{state.value}",
        "intent_id": ID,
        "channel": channel,
        "submission_no": number,
        "state": state,
        "provider_account": "mail-a" if channel is Channel.EMAIL else "text-a",
        "template": "password_reset:v1",
        "submitted_at_ms": T0 + at,
        "at_ms": T0 + at,
    }
    if state is AttemptState.ACCEPTED:
        fields["message_id"] = f"m-{channel.value}"
    if state in REASONS:
        fields["reason"] = REASONS[state]
    return Attempt.model_validate(fields | changes)


def observation(
    at: int, state: ProviderState | None, channel: Channel = Channel.EMAIL, **changes: Any
) -> Observation:
    number, poll = changes.get("submission_no", 1), changes.get("poll_no", 1)
    fields: dict[str, Any] = {
        "observation_id": f"{ID}:{channel.value}:{number}:{poll}",
        "intent_id": ID,
        "channel": channel,
        "submission_no": number,
        "poll_no": poll,
        "answer": LookupAnswer.ANSWERED,
        "provider_state": state,
        "provider_account": "mail-a" if channel is Channel.EMAIL else "text-a",
        "observed_at_ms": T0 + at,
    }
    return Observation.model_validate(fields | changes)


def tick(at: int, **changes: Any) -> Tick:
    fields: dict[str, Any] = {
        "intent_id": ID,
        "due_ms": T0 + at,
        "emitted_at_ms": T0 + at,
        "evidence_until_ms": T0 + at,
        "generation": 1,
    }
    return Tick.model_validate(fields | changes)


def instruction(at: int, action: InstructionAction) -> Instruction:
    return Instruction(
        instruction_id=f"ins-{at}",
        intent_id=ID,  # type: ignore[arg-type]
        action=action,
        operator="op-1",
        why="as agreed with support",
        at_ms=T0 + at,
    )


KINDS = {
    "intent_requested": InputKind.REQUEST,
    "intent_completed": InputKind.COMPLETION,
    "intent_cancelled": InputKind.CANCELLATION,
    "intent_superseded": InputKind.SUPERSESSION,
    "attempt": InputKind.ATTEMPT,
    "observation": InputKind.OBSERVATION,
    "tick": InputKind.TICK,
    "instruction": InputKind.INSTRUCTION,
}


def given(at: int, record: Record, *, offset: int = 0) -> Input:
    """The record as an input, appended to the log at T0 + `at` ms."""
    where = Coordinates(topic="backstop.test", partition=0, offset=offset)
    return Input(record, KINDS[record.record], where, T0 + at)  # type: ignore[attr-defined]


@dataclass
class Play:
    """Plays inputs of one intent through the real core; state goes through its bytes each time."""

    context: Context
    state_bytes: bytes | None = None
    offset: int = 0
    steps: list[Step] = field(default_factory=list)

    def give(self, at: int, record: Record) -> list[Step]:
        """One record, appended to the log at T0 + `at` ms."""
        asked = given(at, record, offset=self.offset)
        self.offset += 1
        found = steps(self.state, asked, self.context)
        last = found[-1].state
        self.state_bytes = None if last is None else to_bytes(last)
        self.steps += found
        return found

    def then(self, at: int, record: Record) -> list[Step]:
        """The ticks that fall due before T0 + `at`, then the record."""
        self.until(at - 1)
        return self.give(at, record)

    def until(self, at: int, limit: int = 500) -> int:
        """Give every tick that falls due up to T0 + `at`, as the timer would; how many there were."""
        for count in range(limit):
            state = self.state
            if state is None or not state.due_ms or state.due_ms > T0 + at:
                return count
            due = max(state.due_ms, state.last_now_ms) - T0
            self.give(due, tick(due))
        raise AssertionError("ticks without end")

    @property
    def state(self) -> IntentState | None:
        return None if self.state_bytes is None else from_bytes(self.state_bytes)

    @property
    def live(self) -> IntentState:
        state = self.state
        assert state is not None
        return state

    def phase(self) -> Phase:
        return self.live.phase

    @property
    def decisions(self) -> list[Decision]:
        """Read back from their bytes, as any reader of the topic would."""
        return [Decision.model_validate_json(s.decision_bytes) for s in self.steps if s.decision is not None]

    @property
    def reasons(self) -> list[Reason]:
        return [d.reason for d in self.decisions]

    @property
    def notes(self) -> list[Reason]:
        return [n for d in self.decisions for n in d.notes]

    @property
    def last(self) -> Decision:
        return self.decisions[-1]

    @property
    def dispatches(self) -> list[DispatchOrder]:
        return [d for s in self.steps for d in s.dispatches]

    @property
    def lookups(self) -> list[LookupOrder]:
        return [d for s in self.steps for d in s.lookups]

    @property
    def suppressions(self) -> list[SuppressionOrder]:
        return [d for s in self.steps for d in s.suppressions]

    def sent(self, channel: Channel) -> int:
        return sum(d.channel is channel for d in self.dispatches)


def play(*inputs: tuple[int, Record], ctx: Context | None = None) -> Play:
    """A new intent, requested at T0, and these inputs; no ticks but those given."""
    game = Play(ctx or context())
    for at, record in inputs:
        game.give(at, record)
    return game


def started(ctx: Context | None = None, extra: Iterable[tuple[int, Record]] = (), **changes: Any) -> Play:
    return play((0, request(**changes)), *extra, ctx=ctx)


def emails(game: Play) -> list[int]:
    return [d.submission_no for d in game.dispatches if d.channel is Channel.EMAIL]


def missed(game: Play, after_ms: int, *, times: int = 2, about: int | None = None) -> int:
    """The provider does not know the message, so many times in a row, each `after_ms` after its look-up was
    ordered; ms since the request."""
    at = 0
    for _ in range(times):
        while game.live.email is None or not game.live.email.asked_until_ms:
            game.until(game.live.due_ms - T0)
        at = game.live.last_now_ms - T0 + after_ms
        fields: dict[str, Any] = {"answer": LookupAnswer.NOT_FOUND, "poll_no": game.lookups[-1].poll_no}
        if about is not None:
            fields["submission_no"] = about
        game.give(at, observation(at, None, **fields))
    game.until(at)
    return at


def first_look(game: Play) -> int:
    while not game.lookups:
        game.until(game.live.due_ms - T0)
    return game.live.last_now_ms - T0
