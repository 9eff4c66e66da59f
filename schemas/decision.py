"""What the machine did and why: the public contract of the decision topic.

It must not hold a secret, and nothing in it is a guess: what was unknown is said to be.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from schemas.attempt import AttemptState
from schemas.ids import (
    POINTER_PATTERN,
    AccountName,
    Channel,
    Count,
    Instant,
    IntentId,
    Milliseconds,
    Offset,
    PolicyRef,
    PublisherName,
    Purpose,
    RecordId,
    TemplateRef,
    TenantId,
)
from schemas.reasons import Reason, ReasonClass
from schemas.record import Coordinates, Model, Record


class Phase(StrEnum):
    """Where an intent stands (SYSTEM.md §5)."""

    EMAIL_PENDING = "email_pending"
    EMAIL_DELIVERED = "email_delivered"
    EMAIL_INVALID = "email_invalid"
    SMS_CLAIMED = "sms_claimed"
    SMS_ACCEPTED = "sms_accepted"
    SMS_DELIVERED = "sms_delivered"
    EXHAUSTED = "exhausted"
    CLOSED = "closed"


class CloseKind(StrEnum):
    """How an intent ended. `invalid`: a reason of class intent other than those named."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    SETTLED = "settled"
    UNRESOLVED = "unresolved"
    INVALID = "invalid"


class InputKind(StrEnum):
    """What made the machine look."""

    REQUEST = "request"
    COMPLETION = "completion"
    CANCELLATION = "cancellation"
    SUPERSESSION = "supersession"
    ATTEMPT = "attempt"
    OBSERVATION = "observation"
    TICK = "tick"
    INSTRUCTION = "instruction"


class Looked(StrEnum):
    """What the last look before a deadline claim gave."""

    ANSWERED = "answered"
    NO_ANSWER = "no_answer"
    IMPOSSIBLE = "impossible"
    FRESH = "fresh"  # the last answer was recent enough; no extra look was needed


class Verdict(StrEnum):
    OPEN = "open"
    REFUSE = "refuse"
    HOLD = "hold"


class GateResult(Model):
    """What one gate said. `detail` names the control, the country or the ages, never a person."""

    gate: Annotated[str, Field(pattern=r"^[a-z_]{3,20}$")]
    verdict: Verdict
    reason: Reason | None = None
    detail: Annotated[str, Field(max_length=80)] | None = None


class OrderKind(StrEnum):
    DISPATCH = "dispatch"
    LOOKUP = "lookup"
    SUPPRESSION = "suppression"


class Order(Model):
    """What the decision ordered; `number` is the submission or poll number."""

    order: OrderKind
    channel: Channel
    number: Count
    provider_account: AccountName | None = None
    reason: Reason | None = None


class Evidence(Model):
    """The evidence the decision relied on, in normalised words."""

    channel: Channel
    submission_no: Count
    says: Annotated[str, Field(max_length=32)]  # an attempt state, provider state or lookup answer
    reason: Reason | None = None
    raw_token: Annotated[str, Field(max_length=64)] | None = None
    observed_at_ms: Instant
    source: Coordinates


class Ages(Model):
    """Milliseconds: three ages that tell scheduler lag, polling lag and downstream doubt apart (seed 003)."""

    since_email_request_ms: Milliseconds
    since_last_answer_ms: Milliseconds | None = None
    since_sms_claim_ms: Milliseconds | None = None


class ChannelOutcome(Model):
    """How one channel ended. `state` is pending when it was never settled."""

    state: AttemptState
    reason: Reason | None = None
    submissions: Count
    polls: Count
    answers: Count
    accepted_at_ms: Instant | None = None
    delivered_at_ms: Instant | None = None


class Outcome(Model):
    """On the decision that closes: the summary an analyst counts."""

    ended: CloseKind
    email: ChannelOutcome
    sms: ChannelOutcome | None = None
    fallback: bool
    needless_fallback: bool
    overlap: bool
    first_usable: Channel | None = None
    time_to_first_usable_ms: Milliseconds | None = None


class Decision(Record):
    """One change or one refusal. `decision_id` is `intent:seq`; `prev_digest` is the SHA-256 of the bytes
    of the one before, so a chain per intent can be verified by anyone who reads the topic.

    A refusal, or a hold that the publisher could end, says whom it is for and what in the request is meant:
    `publisher` as the request named itself, `pointer` into that request (RFC 6901), of field names only."""

    record: Literal["decision"] = "decision"
    version: Literal[1] = 1
    decision_id: RecordId
    intent_id: IntentId
    seq: Count
    prev_digest: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
    tenant: TenantId | None = None
    purpose: Purpose | None = None
    policy: PolicyRef | None = None
    template: TemplateRef | None = None
    prior_phase: Phase | None = None
    next_phase: Phase | None = None
    via: tuple[Phase, ...] = ()
    closed: CloseKind | None = None
    reason: Reason
    reason_class: ReasonClass
    notes: tuple[Reason, ...] = ()
    publisher: PublisherName | None = None
    pointer: Annotated[str, Field(pattern=POINTER_PATTERN)] | None = None
    now_ms: Instant
    input: InputKind
    trigger: Coordinates
    evidence: Evidence | None = None
    evidence_until_ms: Milliseconds | None = None
    looked: Looked | None = None
    gates: tuple[GateResult, ...] = ()
    controls_offset: Offset
    orders: tuple[Order, ...] = ()
    next_due_ms: Instant | None = None
    ages: Ages | None = None
    outcome: Outcome | None = None
