"""Which intents are known by early facts only, in order, so that parking stays bounded per partition.

It must not hold the facts: they are part of the state and survive a crash; this is an index of it.
"""

from __future__ import annotations

PARKED_INTENTS_MAX = 10_000  # per partition: 10 000 × 16 facts × 0.5 KiB = 80 MiB at worst, 5 MiB as a rule


class Parking:
    """Keys by arrival; those with an end (completion, cancellation) are given up last."""

    __slots__ = ("_ends", "_plain", "limit")

    def __init__(self, limit: int = PARKED_INTENTS_MAX) -> None:
        self.limit = limit
        self._plain: dict[bytes, None] = {}
        self._ends: dict[bytes, None] = {}

    def keep(self, key: bytes, *, has_end: bool) -> bytes | None:
        """Note a parked intent; the key to give up when there are too many."""
        if has_end:
            self._plain.pop(key, None)
            self._ends[key] = None
        elif key not in self._ends:
            self._plain[key] = None
        if len(self) <= self.limit:
            return None
        return next(iter(self._plain or self._ends))

    def drop(self, key: bytes) -> None:
        self._plain.pop(key, None)
        self._ends.pop(key, None)

    def __len__(self) -> int:
        return len(self._plain) + len(self._ends)
