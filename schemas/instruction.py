"""An operator's order about one intent: decided by the machine, never an edit of history."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, StringConstraints

from schemas.ids import Instant, IntentId, RecordId
from schemas.record import Record

# Seven digits with whatever people write between them are a number somebody could be called at.
_DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
_PRIVATE = re.compile(r"@|%40|://|www\.|(?:\d[ ().\-/]{0,2}){6}\d", re.IGNORECASE)


def _says_nobody(text: str) -> str:
    """An operator's words stand in the open: no address, number or link (SYSTEM.md §9)."""
    if _PRIVATE.search(_DATE.sub("", text)):
        raise ValueError("must not hold an address, a number or a link: name the intent instead")
    return text


OperatorText = Annotated[
    str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{3,200}$"), AfterValidator(_says_nobody)
]
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
