"""An order to ask a provider what became of one submission."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from schemas.ids import AccountName, Channel, Count, FingerprintText, Instant, IntentId, OpaqueToken
from schemas.record import Record


class LookupPurpose(StrEnum):
    """Why we ask; the poller serves the earliest `answer_by_ms` first whatever the purpose."""

    SCHEDULE = "schedule"
    RESOLVE = "resolve"  # an answer to a submission was lost
    LAST_LOOK = "last_look"  # before deciding at the deadline
    AUDIT = "audit"  # after an SMS claim or an end, for the record


class Lookup(Record):
    """Ask by `message_id` when there is one, else by `reference` (our dispatch key)."""

    record: Literal["lookup"] = "lookup"
    version: Literal[1] = 1
    intent_id: IntentId
    channel: Channel
    submission_no: Count
    poll_no: Count
    purpose: LookupPurpose
    provider_account: AccountName
    message_id: OpaqueToken | None = None
    reference: OpaqueToken
    fingerprint: FingerprintText | None = None
    submitted_at_ms: Instant | None = None
    ordered_at_ms: Instant
    answer_by_ms: Instant
