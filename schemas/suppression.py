"""A destination that must not be written to, by fingerprint: it survives a provider and a database."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from schemas.ids import AccountName, Channel, FingerprintText, Instant, IntentId, RecordId
from schemas.reasons import Reason
from schemas.record import Record


class SuppressionAction(StrEnum):
    SUPPRESS = "suppress"
    LIFT = "lift"


class Suppression(Record):
    """Keyed by fingerprint and channel. `cause` is the record that caused it."""

    record: Literal["suppression"] = "suppression"
    version: Literal[1] = 1
    fingerprint: FingerprintText
    channel: Channel
    action: SuppressionAction = SuppressionAction.SUPPRESS
    reason: Reason
    provider_account: AccountName | None = None
    intent_id: IntentId | None = None
    cause: RecordId
    at_ms: Instant

    @property
    def key(self) -> str:
        return f"{self.fingerprint}/{self.channel.value}"
