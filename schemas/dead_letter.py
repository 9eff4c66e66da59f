"""A record that could not be used: where it lies and why, never its bytes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.ids import Count, Instant, IntentId, PublisherName, TemplateRef
from schemas.reasons import Reason, ReasonClass
from schemas.record import Coordinates, Record


class DeadLetter(Record):
    """`letter_id` is the coordinates. `pointer` is a JSON pointer (RFC 6901) of field names only.

    `publisher` is the `ce_source` of a record on intents, when that is the name of one.
    `value_hmac` is a keyed hash of the bytes: it can confirm a suspicion, not reveal a value.
    """

    record: Literal["dead_letter"] = "dead_letter"
    version: Literal[1] = 1
    letter_id: Annotated[str, Field(max_length=160)]
    source: Coordinates
    by: Annotated[str, Field(pattern=r"^[a-z]{3,20}$")]
    reason: Reason
    reason_class: ReasonClass
    pointer: Annotated[str, Field(max_length=120)] = ""
    detail: Annotated[str, Field(max_length=120, pattern=r"^[A-Za-z0-9_ .,:()-]*$")] = ""
    size: Count
    value_hmac: Annotated[str, Field(max_length=64)] | None = None
    intent_id: IntentId | None = None
    publisher: PublisherName | None = None
    template: TemplateRef | None = None
    at_ms: Instant
