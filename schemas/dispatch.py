"""An order to submit one channel of one intent. Only the machine issues one, with its number.

It must not carry a destination in clear; the dispatcher unseals `sealed`.
"""

from __future__ import annotations

from typing import Literal

from schemas.ids import (
    AccountName,
    Channel,
    Count,
    Country,
    FingerprintText,
    Instant,
    IntentId,
    Locale,
    OpaqueToken,
    PolicyRef,
    Purpose,
    RecordId,
    TemplateRef,
    TenantId,
)
from schemas.intent import Sealed
from schemas.record import Record


class Dispatch(Record):
    """`dispatch_key` never changes; `not_after_ms` is the last instant a first byte may leave.

    `unless_sms_claimed` asks the dispatcher to refuse an e-mail whose SMS has a claim (policy
    `undispatched_email = skip_email`). `after_unknown`: the submission before this one may have left, and the
    machine gave this order knowing so; otherwise a row that may have left answers it as unknown.
    `key_until_ms`: nothing but the provider's memory of the key makes this order safe, and it ends then: from
    there on a row that may have left answers it as unknown (case F08).
    """

    record: Literal["dispatch"] = "dispatch"
    version: Literal[1] = 1
    decision_id: RecordId
    intent_id: IntentId
    tenant: TenantId
    purpose: Purpose
    policy: PolicyRef
    template: TemplateRef
    channel: Channel
    dispatch_key: OpaqueToken
    submission_no: Count
    provider_account: AccountName
    locale: Locale
    country: Country | None = None
    email_fingerprint: FingerprintText
    sms_fingerprint: FingerprintText | None = None
    deadline_ms: Instant
    expiry_ms: Instant
    not_after_ms: Instant
    ordered_at_ms: Instant
    unless_sms_claimed: bool = False
    after_unknown: bool = False
    key_until_ms: Instant | None = None
    sealed: Sealed
