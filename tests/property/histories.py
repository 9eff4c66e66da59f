"""Generated histories of one intent: any records in any order, at times that jump both ways.

It must not hold a law; those are in the tests. A history is plain values, so hypothesis can shrink it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from schemas.accounts import Capabilities
from schemas.attempt import AttemptState
from schemas.control import Controls
from schemas.ids import Channel
from schemas.instruction import InstructionAction
from schemas.observation import LookupAnswer, ProviderState
from schemas.policy import Policy
from schemas.reasons import Reason
from schemas.record import Record
from schemas.tick import TickCause
from streams.core.draft import Context
from streams.core.effects import Step
from tests.builders import (
    T0,
    Play,
    attempt,
    cancelled,
    completed,
    context,
    instruction,
    observation,
    policy,
    request,
    tick,
)

CAPABILITIES = st.builds(
    Capabilities,
    idempotent_submit=st.booleans(),
    idempotency_window_ms=st.sampled_from([0, 5_000, 82_800_000]),
    lookup_by_message_id=st.booleans(),
    lookup_by_reference=st.booleans(),
    visibility_delay_ms=st.sampled_from([0, 2_000, 30_000]),
)
RULES = st.fixed_dictionaries(
    {
        "when_unsure": st.sampled_from(["wait", "risk_duplicate"]),
        "bounce_after_delivered": st.sampled_from(["keep", "fallback"]),
        "undispatched_email": st.sampled_from(["skip_email", "extend"]),
        "extend_ms_max": st.just(20_000),
        "look_wait_ms": st.sampled_from([0, 3_000, 40_000]),
        "fresh_ms": st.sampled_from([0, 10_000]),
        "late_evidence_ms": st.sampled_from([0, 600_000]),
        "email__submissions_max": st.sampled_from([1, 3]),
        "sms__submissions_max": st.sampled_from([1, 3]),
        "sms__allowed": st.sampled_from([True, True, True, False]),
        "sms__consent_required": st.booleans(),
        "sms__consent_age_ms_min": st.sampled_from([0, 0, 1_000, 1_001]),
        "sms__phone_age_ms_min": st.sampled_from([0, 0, 1_000]),
    }
)


def _policy_of(rules: dict[str, Any]) -> Policy:
    """An age of what is not required would be no policy."""
    return policy(**rules | ({} if rules["sms__consent_required"] else {"sms__consent_age_ms_min": 0}))


POLICIES: st.SearchStrategy[Policy] = RULES.map(_policy_of)
REQUESTS = st.fixed_dictionaries(
    {
        "deadline_ms": st.sampled_from([T0 + 1_000, T0 + 60_000, T0 + 600_000]),
        "expiry_ms": st.sampled_from([T0 + 700_000, T0 + 900_000]),
    },
    optional={
        "sms_consent": st.none(),
        "sms_fingerprint": st.none(),
        "phone_verified_at_ms": st.sampled_from([T0, T0 - 999, T0 - 1_000, T0 - 90_000]),
    },
)

_JUMPS = st.sampled_from(  # ms since the input before; log time may jump both ways
    [
        0,
        1,
        100,
        100,
        1_000,
        1_000,
        5_000,
        5_000,
        5_000,
        20_000,
        60_000,
        300_000,
        1_000_000,
        -1,
        -30_000,
        -500_000,
    ]
)
_CHANNELS = st.sampled_from(list(Channel))
_NUMBERS = st.sampled_from([0] * 6 + [-1, -2, 1])  # relative to the last one ordered
_RETRIES = st.none() | st.integers(-5_000, 1_000_000)
_PAUSES = st.none() | st.integers(0, 1_000_000)
_ATTEMPT_REASONS = st.sampled_from(
    [
        *[None] * 6,
        *[Reason.THROTTLED] * 4,
        Reason.CONTROL_PAUSED,
        Reason.KEY_UNKNOWN,
        Reason.INVALID_RECIPIENT,
        Reason.SUPPRESSED,
        Reason.COMPLAINT,
        Reason.NO_CONSENT,
        Reason.EXPIRED,
        Reason.EMAIL_SKIPPED,
        Reason.BINDING_MISMATCH,
        Reason.COMPLETED,
    ]
)
_SEEN_REASONS = st.sampled_from([None, Reason.PERMANENT_BOUNCE, Reason.COMPLAINT, Reason.BLOCKED])
_ORDERS = [InstructionAction.RELEASE] * 9 + list(InstructionAction)

_TICKS = st.tuples(st.just("ticks"), _JUMPS)
_ATTEMPT = st.tuples(
    st.just("attempt"),
    _JUMPS,
    _CHANNELS,
    st.sampled_from([AttemptState.ACCEPTED, AttemptState.UNKNOWN] * 3 + list(AttemptState)),
    _NUMBERS,
    _ATTEMPT_REASONS,
    _RETRIES,
)
_OBSERVATION = st.tuples(
    st.just("observation"),
    _JUMPS,
    _CHANNELS,
    st.sampled_from(list(ProviderState)),
    st.sampled_from([LookupAnswer.ANSWERED] * 6 + list(LookupAnswer)),
    _NUMBERS,
    _SEEN_REASONS,
    _PAUSES,
)
_RARE = st.one_of(
    st.tuples(st.just("tick"), _JUMPS, st.sampled_from(list(TickCause))),
    st.tuples(st.just("request"), _JUMPS),
    st.tuples(st.just("conflict"), _JUMPS),
    st.tuples(st.sampled_from(["complete", "cancel"]), _JUMPS),
    st.tuples(st.just("instruct"), _JUMPS, st.sampled_from(_ORDERS)),
    st.tuples(st.just("again"), _JUMPS, st.integers(0, 30)),
    st.tuples(st.just("controls"), st.sampled_from([(), (), ("all",), ("channel:sms",), ("country:GB",)])),
)
# By weight: an end in every history would leave little else to see.
OPERATIONS = st.sampled_from([_TICKS] * 5 + [_ATTEMPT] * 4 + [_OBSERVATION] * 4 + [_RARE] * 2).flatmap(
    lambda s: s
)


@dataclass(frozen=True)
class History:
    """What to play: the rules of the game and the operations in order."""

    rules: Policy
    asked: dict[str, Any]
    mail: Capabilities
    text: Capabilities
    early: bool  # the request is not the first record
    operations: list[tuple[Any, ...]]


HISTORIES = st.builds(
    History,
    rules=POLICIES,
    asked=REQUESTS,
    mail=CAPABILITIES,
    text=CAPABILITIES,
    early=st.sampled_from([False] * 9 + [True]),
    operations=st.lists(OPERATIONS, min_size=12, max_size=40),
)


@dataclass
class Given:
    """One input as it was given, with what came of it and the state before it (bytes)."""

    at: int
    record: Record
    before: bytes | None
    found: list[Step]
    paused: tuple[str, ...]
    controls_offset: int


@dataclass
class Player:
    """Plays a history and keeps every input given."""

    history: History
    game: Play = field(init=False)
    given: list[Given] = field(default_factory=list)
    at: int = 0
    latest: int = 0
    paused: tuple[str, ...] = ()
    controls_offset: int = 0

    def __post_init__(self) -> None:
        self.game = Play(self.context())

    def context(self) -> Context:
        h = self.history
        controls = Controls(self.paused, offset=self.controls_offset)
        return context(h.rules, mail=h.mail, text=h.text, controls=controls)

    def play(self) -> Player:
        if not self.history.early:
            self._give(request(**self.history.asked))
        for operation in self.history.operations:
            self._do(operation)
        return self

    def drain(self, ticks_max: int = 400) -> int:
        """Give due ticks until nothing is remembered; how many it took."""
        for count in range(ticks_max):
            state = self.game.state
            if state is None:
                return count
            self.at = max(self.at, state.due_ms - T0)
            self._give(tick(self.at))
        raise AssertionError(f"still alive after {ticks_max} ticks")

    def _give(self, record: Record) -> None:
        before = self.game.state_bytes
        if before is None:
            self.at = max(self.at, self.latest)  # what was forgotten stays in the past
        found = self.game.give(self.at, record)
        self.latest = max([self.latest, self.at, *(s.state.last_now_ms - T0 for s in found if s.state)])
        self.given.append(Given(self.at, record, before, found, self.paused, self.controls_offset))

    def _do(self, operation: tuple[Any, ...]) -> None:
        name, *rest = operation
        if name == "controls":
            self.paused, self.controls_offset = rest[0], self.controls_offset + 1
            self.game.context = self.context()
            return
        self.at = max(0, self.at + rest[0])
        if name == "ticks":
            self._due_ticks()
        elif name == "again" and self.given:
            self._give(self.given[rest[1] % len(self.given)].record)
        elif name != "again":
            self._give(self._record(name, rest[1:]))

    def _due_ticks(self) -> None:
        """Every tick that is due by now, as the timer gives them; a bounded number per instant."""
        for _ in range(200):
            state = self.game.state
            if state is None or not state.due_ms or state.due_ms > T0 + self.at:
                return
            self._give(tick(self.at))
        raise AssertionError("ticks without end at one instant")

    def _record(self, name: str, rest: list[Any]) -> Record:
        at = self.at
        match name:
            case "tick":
                return tick(at, cause=rest[0])
            case "request":
                return request(**self.history.asked)
            case "conflict":
                return request(**self.history.asked | {"locale": "fr"})
            case "complete":
                return completed(at)
            case "cancel":
                return cancelled(at)
            case "instruct":
                return instruction(at, rest[0])
            case "attempt":
                return self._attempt(*rest)
            case _:
                return self._observation(*rest)

    def _numbers(self, channel: Channel, relative: int) -> tuple[int, int]:
        state = self.game.state
        track = None if state is None else state.email if channel is Channel.EMAIL else state.sms
        last, poll = (1, 1) if track is None else (track.submission_no, track.poll_no)
        return max(0, last + relative), max(0, poll + relative)

    def _attempt(
        self, channel: Channel, state: AttemptState, relative: int, reason: Reason | None, retry: int | None
    ) -> Record:
        number, _ = self._numbers(channel, relative)
        at = None if retry is None else T0 + max(0, self.at + retry)
        said = {} if reason is None else {"reason": reason}
        return attempt(self.at, state, channel, submission_no=number, retry_at_ms=at, **said)

    def _observation(
        self,
        channel: Channel,
        state: ProviderState,
        answer: LookupAnswer,
        relative: int,
        reason: Reason | None,
        pause: int | None,
    ) -> Record:
        number, poll = self._numbers(channel, relative)
        told = answer is LookupAnswer.ANSWERED
        return observation(
            self.at,
            state if told else None,
            channel,
            answer=answer,
            submission_no=max(1, number),
            poll_no=poll,
            reason=reason if told and state is ProviderState.FAILED_PERMANENT else None,
            paused_until_ms=None if pause is None else T0 + self.at + pause,
        )
