"""State in memory, per partition; its durability is the changelog and nothing else.

It must not write: changes go through the transaction (`transactions.py`), reading back through
`recovery.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import faust
from faust.stores.base import Store

Tables = dict[str, dict[bytes, bytes]]  # table -> key -> value, of one partition number


class PartitionedState:
    """All tables of all owned partition numbers, and in which generation each was owned last."""

    def __init__(self, tables: tuple[str, ...]) -> None:
        self.tables = tables
        self.partitions: dict[int, Tables] = {}
        self.generations: dict[int, int] = {}

    def keep_only(self, wanted: set[int], generation: int) -> list[int]:
        """Drop what is not ours or may be stale; the partition numbers that must be read back.

        Owned in the generation before this one means that nobody else can have owned it since.
        """
        for number in list(self.partitions):
            if number not in wanted or self.generations.get(number) != generation - 1:
                del self.partitions[number]
                self.generations.pop(number, None)
        return sorted(wanted - self.partitions.keys())

    def install(self, loaded: dict[int, Tables], wanted: set[int], generation: int) -> None:
        """Take over what was read back; all of `wanted` is ours in `generation`."""
        self.partitions.update(loaded)
        for number in wanted:
            self.generations[number] = generation

    def of(self, table: str) -> Iterator[dict[bytes, bytes]]:
        """The partitions of one table."""
        return (tables[table] for tables in self.partitions.values())

    def __len__(self) -> int:
        return sum(len(part) for tables in self.partitions.values() for part in tables.values())


class PartitionStore(Store):
    """The mapping face Faust wants of a table's store: a read-only view of `app.partitions`."""

    def _parts(self) -> Iterator[dict[bytes, bytes]]:
        return self.app.partitions.of(self.table.name)

    def __getitem__(self, key: bytes) -> bytes:
        for part in self._parts():
            if key in part:
                return part[key]
        raise KeyError("no such key in the owned partitions")

    def __setitem__(self, key: bytes, value: bytes) -> None:
        raise TypeError("state changes go through View.put")

    def __delitem__(self, key: bytes) -> None:
        raise TypeError("state changes go through View.put")

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts():
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self._parts()))

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self._parts())

    def keys(self) -> Any:
        return iter(self)

    def values(self) -> Any:
        for part in self._parts():
            yield from part.values()

    def items(self) -> Any:
        for part in self._parts():
            yield from part.items()

    def clear(self) -> None:
        raise TypeError("state changes go through View.put")

    def apply_changelog_batch(self, batch: Any, to_key: Any, to_value: Any) -> None:
        if batch:
            raise RuntimeError("Faust's recovery must find nothing to do; engine.recovery reads state back")

    def persisted_offset(self, tp: Any) -> None:
        return None

    def reset_state(self) -> None: ...

    async def backup_partition(
        self, tp: Any, flush: bool = True, purge: bool = False, keep: int = 1
    ) -> None: ...

    def restore_backup(self, tp: Any, latest: bool = True, backup_id: int = 0) -> None: ...


class StateTable(faust.Table):
    """A Faust table (name, changelog topic, assignment) over PartitionStore."""

    def send_changelog(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("changelog records are part of the engine's transaction")
