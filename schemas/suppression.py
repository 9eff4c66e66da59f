"""A destination that must not be written to, by fingerprint: it survives a provider and a database."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from schemas.ids import AccountName, Channel, FingerprintText, Instant, IntentId, RecordId
from schemas.instruction import OperatorName, OperatorText
from schemas.reasons import Reason
from schemas.record import Record


class SuppressionAction(StrEnum):
    SUPPRESS = "suppress"
    LIFT = "lift"  # by an operator; what a person opted out of only with reason `consent_given`


class Suppression(Record):
    """Keyed by fingerprint and channel, on every account and for every purpose.

    `cause` is the record that caused it, `provider_account` says where it was seen; `operator` and `why`
    stand in what was done by hand.
    """

    record: Literal["suppression"] = "suppression"
    version: Literal[1] = 1
    fingerprint: FingerprintText
    channel: Channel
    action: SuppressionAction = SuppressionAction.SUPPRESS
    reason: Reason
    provider_account: AccountName | None = None
    intent_id: IntentId | None = None
    cause: RecordId
    operator: OperatorName | None = None
    why: OperatorText | None = None
    at_ms: Instant

    @property
    def key(self) -> str:
        return f"{self.fingerprint}/{self.channel.value}"
