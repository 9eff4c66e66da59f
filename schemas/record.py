"""What every record has in common: frozen, versioned, strict, one canonical byte form.

It must not know which records exist (`schemas.codec`) or where they go (`schemas.topics`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from schemas.ids import Count, Offset

RECORD_BYTES_MAX = 262_144  # 256 KiB: sealed payload ≤ 64 KiB, everything else ≤ 20 KiB, ×3 to be roomy


class Model(BaseModel):
    """Strict and frozen; extra fields are ignored and dropped (a newer writer may know more)."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class Record(Model):
    """One JSON object on one topic. Canonical bytes: declared field order, no nulls, UTF-8, no spaces."""

    def to_bytes(self) -> bytes:
        """The canonical bytes; the same record always gives the same bytes."""
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class TopicKind(StrEnum):
    """The topics by role; names with their prefix are in `schemas.topics`."""

    INTENTS = "intents"
    ATTEMPTS = "attempts"
    OBSERVATIONS = "observations"
    TICKS = "ticks"
    INSTRUCTIONS = "instructions"
    DECISIONS = "decisions"
    DISPATCHES_URGENT = "dispatches.urgent"
    DISPATCHES_BULK = "dispatches.bulk"
    LOOKUPS = "lookups"
    SUPPRESSIONS = "suppressions"
    SUBJECTS = "subjects"
    CONTROLS = "controls"
    DEAD_LETTERS = "dead-letters"


class Coordinates(Model):
    """Where a record lies: the only identity a log gives."""

    topic: Annotated[str, Field(max_length=120)]
    partition: Count
    offset: Offset
