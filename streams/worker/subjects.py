"""The subjects of a partition: their rows in the table, told records out, rows forgotten in time.

It must not decide who is newer: `streams.core.subjects` does. Forgetting is housekeeping: a row goes once no
older request can be alive, so that it changes nothing when it goes a little earlier or later.
"""

from __future__ import annotations

import heapq

from schemas.subject import SubjectSeen
from schemas.topics import WORKER_TABLES
from streams.core import subjects
from streams.core.subjects import Superseded
from streams.engine.processor import View

TABLE = WORKER_TABLES[3]
FORGOTTEN_COUNT_MAX = 200  # per chunk: 200 tombstones of 5 µs are 1 ms, and more than one chunk can add


class SubjectKeeper:
    """One instance serves all partitions of a worker; the heaps are an index of the table by time."""

    __slots__ = ("_forget",)

    def __init__(self) -> None:
        self._forget: dict[int, list[tuple[int, bytes]]] = {}  # partition -> (forget at, key)

    def restored(self, view: View) -> None:
        """Rebuild the index of a partition from its rows."""
        heap = [(subjects.from_bytes(value).forget_ms, key) for key, value in view.items(TABLE)]
        heapq.heapify(heap)
        self._forget[view.partition] = heap

    def take(self, seen: SubjectSeen, key: bytes, view: View, *, at_ms: int) -> Superseded | None:
        """Remember the newest; who is over by it."""
        stored = view.get(TABLE, key)
        known = None if stored is None else subjects.from_bytes(stored)
        row, over = subjects.take(known, seen, at_ms=at_ms)
        if row is not known:
            view.put(TABLE, key, subjects.to_bytes(row))
            heapq.heappush(self._forget.setdefault(view.partition, []), (row.forget_ms, key))
        return over

    def forget(self, view: View, *, now_ms: int) -> None:
        """Remove rows whose time is over, a bounded number."""
        heap = self._forget.get(view.partition)
        for _ in range(FORGOTTEN_COUNT_MAX):
            if not heap or heap[0][0] > now_ms:
                return
            forget_ms, key = heapq.heappop(heap)
            stored = view.get(TABLE, key)
            if stored is not None and subjects.from_bytes(stored).forget_ms == forget_ms:
                view.put(TABLE, key, None)
