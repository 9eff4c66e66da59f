"""The port between the engine and the meaning of a record.

The engine side must not look into keys or values; the other side must not keep a View beyond its chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from streams.engine.timers import Due, PartitionTimers

__all__ = ["Due", "InputRecord", "Output", "Processor", "View"]


class InputRecord(Protocol):
    """A record as read: the shape of aiokafka's ConsumerRecord. Any of key and value may be None."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # milliseconds since the epoch, set by the broker (log append time)
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


class Output(NamedTuple):
    """A record to write, in the transaction of the record that caused it."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None


@dataclass(slots=True, eq=False)
class Step:
    """What one step of a partition adds to the transaction."""

    outputs: list[Output]
    changes: dict[str, dict[bytes, bytes | None]]  # table -> key -> last value, None = tombstone


class View:
    """One partition number during one chunk; a change is seen by the next record at once."""

    __slots__ = ("_changes", "_outputs", "_tables", "_timers", "partition")

    def __init__(
        self, partition: int, tables: dict[str, dict[bytes, bytes]], timers: PartitionTimers
    ) -> None:
        self.partition = partition
        self._tables = tables
        self._timers = timers
        self._outputs: list[Output] = []
        self._changes: dict[str, dict[bytes, bytes | None]] = {name: {} for name in tables}

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value of `key` now, or None."""
        return self._tables[table].get(key)

    def put(self, table: str, key: bytes, value: bytes | None) -> None:
        """Set `key`, or remove it with None. A None key has no place in a compacted topic: TypeError."""
        if key is None:
            raise TypeError("a table key is bytes, not None")
        part = self._tables[table]
        if value is None:
            # Nothing to remove means nothing in the changelog either: no tombstone is needed.
            if part.pop(key, None) is None:
                return
        else:
            part[key] = value
        self._changes[table][key] = value

    def emit(self, output: Output) -> None:
        """Write `output` with this chunk."""
        self._outputs.append(output)

    def arm(self, key: bytes, due: Due | None, *, again: bool = False) -> None:
        """When `key` wants a tick; None disarms. The same due instant fires once unless `again`."""
        self._timers.arm(key, due, again=again)

    def items(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """All keys of a table in this partition; do not put while iterating."""
        return iter(self._tables[table].items())

    def take(self) -> Step:
        """For the engine: what was added since the last take."""
        changes = {name: changed for name, changed in self._changes.items() if changed}
        step = Step(self._outputs, changes)
        self._outputs = []
        for name in changes:
            self._changes[name] = {}
        return step


class Processor(Protocol):
    """What a worker does with bytes. An exception out of any of these ends the process un-committed."""

    inputs: tuple[str, ...]  # co-partitioned input topics
    tables: tuple[str, ...]  # names; the changelog of a table is `<app id>-<table>-changelog`
    timer_table: str  # the table `due_of` reads

    def process(self, record: InputRecord, view: View) -> None:
        """One record; called in offset order within a topic partition."""
        ...

    def end_of_chunk(self, topic: str, view: View) -> None:
        """After the last record of `topic` in this step, in the same transaction."""
        ...

    def due_of(self, key: bytes, value: bytes) -> Due | None:
        """The tick that state wants. Pure: called from a thread while timers are rebuilt."""
        ...

    def tick(
        self,
        partition: int,
        key: bytes,
        due: Due,
        *,
        emitted_at_ms: int,
        evidence_until_ms: int,
        generation: int,
    ) -> Output:
        """The record that says "look at this key"; one of the inputs reads it back."""
        ...

    def restored(self, view: View) -> None:
        """A partition's tables were loaded; called before its first record. Must only read."""
        ...
