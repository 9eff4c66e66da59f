"""A dated piece of evidence from a provider, in our words, with the provider's own word kept.

It must not be read as truth that arrived in order: the machine joins observations by a lattice.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from schemas.ids import (
    AccountName,
    Channel,
    Count,
    FingerprintText,
    Instant,
    IntentId,
    OpaqueToken,
    RawToken,
    RecordId,
)
from schemas.reasons import Reason
from schemas.record import Record


class LookupAnswer(StrEnum):
    """How the asking went; every order yields exactly one."""

    ANSWERED = "answered"  # the provider described the message
    NOT_FOUND = "not_found"  # 404 or empty
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"  # timeout, 5xx, no connection
    MALFORMED = "malformed"  # an answer that is not one
    CREDENTIALS = "credentials"  # 401 or 403
    SKIPPED = "skipped"  # not asked: too old, overflow, paused


class ProviderState(StrEnum):
    """Normalised states (PROVIDERS.md §0)."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    FAILED_PERMANENT = "failed_permanent"
    FAILED_TEMPORARY = "failed_temporary"
    UNKNOWN = "unknown"


class Observation(Record):
    """`provider_time_ms` is when the provider says it happened, `observed_at_ms` when we learnt it."""

    record: Literal["observation"] = "observation"
    version: Literal[1] = 1
    observation_id: RecordId
    intent_id: IntentId
    channel: Channel
    submission_no: Count
    poll_no: Count | None = None
    answer: LookupAnswer
    provider_state: ProviderState | None = None
    reason: Reason | None = None
    raw_token: RawToken | None = None
    provider_account: AccountName
    message_id: OpaqueToken | None = None
    fingerprint: FingerprintText | None = None
    provider_time_ms: Instant | None = None
    observed_at_ms: Instant
    paused_until_ms: Instant | None = None
