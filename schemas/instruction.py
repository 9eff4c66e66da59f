"""An operator's order about one intent: decided by the machine, never an edit of history."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import StringConstraints

from schemas.ids import Instant, IntentId, RecordId
from schemas.record import Record

OperatorText = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{3,200}$")]
OperatorName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{1,39}$")]


class InstructionAction(StrEnum):
    COMPLETE = "complete"
    CANCEL = "cancel"
    RELEASE = "release"  # from a hold or from quarantine
    FORCE_CLOSE = "force_close"


class Instruction(Record):
    record: Literal["instruction"] = "instruction"
    version: Literal[1] = 1
    instruction_id: RecordId
    intent_id: IntentId
    action: InstructionAction
    operator: OperatorName
    why: OperatorText
    at_ms: Instant
