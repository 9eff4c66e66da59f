"""What a step asks the shell to do. The shell does it, in this order, and decides nothing.

Effects must not hold the sealed payload: the shell adds it to a dispatch from its table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from schemas.decision import Decision
from schemas.ids import Channel
from schemas.lookup import LookupPurpose
from schemas.reasons import Reason
from schemas.record import Coordinates
from schemas.subject import SubjectSeen
from streams.core.state import EarlyFact, IntentState


class Fate(StrEnum):
    """What became of an input: each has exactly one."""

    DECIDED = "decided"
    ABSORBED = "absorbed"
    PARKED = "parked"
    DEAD_LETTERED = "dead_lettered"


@dataclass(frozen=True, slots=True)
class DispatchOrder:
    """Submit this channel, this number, until `not_after_ms`."""

    channel: Channel
    submission_no: int
    account: str
    not_after_ms: int
    unless_sms_claimed: bool
    after_unknown: bool  # the one before may have left: a look-up, a key or the policy allows this one
    key_until_ms: int = 0  # until when only the key makes it safe; 0: it does not rest on the key


@dataclass(frozen=True, slots=True)
class LookupOrder:
    """Ask what became of it, by `answer_by_ms`."""

    channel: Channel
    submission_no: int
    poll_no: int
    purpose: LookupPurpose
    account: str
    message_id: str | None
    submitted_ms: int
    answer_by_ms: int


@dataclass(frozen=True, slots=True)
class SuppressionOrder:
    """Never write to this destination on this channel again."""

    fingerprint: str
    channel: Channel
    reason: Reason
    account: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A parked fact that is dead-lettered: its intent never came, or there were too many."""

    fact: EarlyFact
    reason: Reason


@dataclass(slots=True)
class Step:
    """One input, accounted for. `state` None: nothing is remembered any more."""

    fate: Fate
    state: IntentState | None
    trigger: Coordinates
    decision: Decision | None = None
    decision_bytes: bytes = b""
    dispatches: list[DispatchOrder] = field(default_factory=list)
    lookups: list[LookupOrder] = field(default_factory=list)
    suppressions: list[SuppressionOrder] = field(default_factory=list)
    given_up: list[GivenUp] = field(default_factory=list)
    drop_sealed: bool = False
    keep_sealed: bool = False  # a request was accepted: remember its payload
    subject: SubjectSeen | None = None  # a request about somebody: whoever keeps the subject must know
    was_parked: bool = False
