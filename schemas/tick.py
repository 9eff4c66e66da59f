"""Time has passed for this intent: the only way time enters a decision."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from schemas.ids import Count, Instant, IntentId, Milliseconds
from schemas.record import Record


class TickCause(StrEnum):
    DUE = "due"
    CONTROL = "control"


class Tick(Record):
    """A hint, re-checked and idempotent. Everything that lay in the partition's inputs at
    `evidence_until_ms` was read before this was written."""

    record: Literal["tick"] = "tick"
    version: Literal[1] = 1
    intent_id: IntentId
    cause: TickCause = TickCause.DUE
    due_ms: Instant
    emitted_at_ms: Instant
    evidence_until_ms: Milliseconds
    generation: Count
