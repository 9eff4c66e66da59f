"""What came of a submission, said by the dispatcher.

It must not guess: what was not seen is `unknown`, and stays so until evidence comes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

from pydantic import model_validator

from schemas.ids import (
    AccountName,
    Channel,
    Count,
    Digest,
    FingerprintText,
    Instant,
    IntentId,
    LimitName,
    OpaqueToken,
    RecordId,
    TemplateRef,
)
from schemas.reasons import Reason
from schemas.record import Record


class AttemptState(StrEnum):
    """`held` and `not_accepted` ask for another order; the others end this submission."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    FAILED = "failed"  # the provider refused it for good, by code
    UNKNOWN = "unknown"  # bytes left us and no usable answer came back
    NOT_ACCEPTED = "not_accepted"  # known not to be taken: throttled, or no connection
    HELD = "held"  # nothing was sent, for a reason of ours
    REFUSED = "refused"  # nothing was sent and nothing will be: suppressed, closed, expired, …


# How far a submission is known: a later record of the same submission counts only when it ranks higher.
ATTEMPT_RANK = {
    AttemptState.PENDING: 0,
    AttemptState.HELD: 1,
    AttemptState.NOT_ACCEPTED: 1,
    AttemptState.UNKNOWN: 2,
    AttemptState.ACCEPTED: 3,
    AttemptState.REFUSED: 4,
    AttemptState.FAILED: 4,
    AttemptState.DELIVERED: 5,
}


# What was not sent, or was refused, says why: the machine decides by the reason's class.
NEEDS_REASON = frozenset(
    {AttemptState.HELD, AttemptState.NOT_ACCEPTED, AttemptState.REFUSED, AttemptState.FAILED}
)


class Attempt(Record):
    """One result of one submission (intent, channel, `submission_no`).

    `reason` is there whenever nothing was sent or the provider refused (`NEEDS_REASON`).
    `retry_at_ms` is when another order makes sense (held, not_accepted). `request_digest` is a keyed
    hash of the rendered request. `unrecorded` says the database was away when this was published.
    `limits` names the limits on SMS that were reached when it asked (`schemas.budget`), whatever they did.
    """

    record: Literal["attempt"] = "attempt"
    version: Literal[1] = 1
    attempt_id: RecordId
    intent_id: IntentId
    channel: Channel
    submission_no: Count
    state: AttemptState
    reason: Reason | None = None
    retry_at_ms: Instant | None = None
    provider_account: AccountName
    message_id: OpaqueToken | None = None
    fingerprint: FingerprintText | None = None
    template: TemplateRef
    request_digest: Digest | None = None
    claim_id: RecordId | None = None
    submitted_at_ms: Instant | None = None
    lease_until_ms: Instant | None = None
    at_ms: Instant
    unrecorded: bool = False
    limits: tuple[LimitName, ...] | None = None

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if self.state in NEEDS_REASON and self.reason is None:
            raise ValueError(f"an attempt that is {self.state.value} has a reason")
        return self
