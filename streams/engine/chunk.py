"""What travels from the consumer to the processing loop, and the right to process it.

It must not carry anything a record means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import faust

from streams.engine.processor import InputRecord


@dataclass(slots=True, eq=False)
class Lease:
    """Right to process the assigned partitions: one group generation of this member."""

    generation: int
    member_id: str
    metadata: bytes  # for send_offsets_to_transaction
    epoch: int = 0  # seek epoch the fetched records must belong to
    revoked: bool = False


@dataclass(slots=True, eq=False)
class Chunk:
    """Consecutive records of one topic partition, or, when `marks` is set, news about the evidence."""

    topic: str
    partition: int
    records: Sequence[InputRecord]
    lease: Lease
    # Partition number -> instant (ms) up to which all that was in the input logs came before this chunk.
    marks: dict[int, int] | None = None


class ChunkSchema(faust.Schema):
    """Hands a chunk to the stream as it is: nothing is decoded here, so nothing can fail here."""

    def compile(self, app: Any, **_unused: Any) -> Any:
        create_event = app.create_event

        async def decode(message: Any, *, propagate: bool = False) -> Any:
            return create_event(message.key, message.value, message.headers, message)

        return decode
