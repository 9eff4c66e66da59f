"""When keys want a tick: heaps per partition, rebuilt from the state.

A tick is only a hint "look at this key": whoever reads it decides, with the state of that moment.
Sending one twice, or late, is harmless; so the heaps must not be made durable.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

STALE_ENTRIES_MAX = 1_000  # beyond twice the armed keys; a rebuild of 1 000 entries costs under 1 ms
_NEVER_MS = -1


@dataclass(frozen=True, slots=True)
class Due:
    """A wanted tick (ms): at `at_ms` if the evidence is complete up to there, else at `latest_ms`."""

    at_ms: int
    latest_ms: int

    def __post_init__(self) -> None:
        if self.latest_ms < self.at_ms:
            raise ValueError("latest_ms lies before at_ms")


class PartitionTimers:
    """The timers of one partition number. A fired timer stays known until it is armed `again` or changed."""

    __slots__ = ("_armed", "_at", "_extra", "_fired", "_latest", "evidence_until_ms")

    def __init__(self, due: dict[bytes, Due] | None = None) -> None:
        self._armed: dict[bytes, Due] = due if due is not None else {}
        self._fired: dict[bytes, Due] = {}
        self._extra: list[tuple[int, int, bytes]] = []  # (at, latest, key): asked for besides the state
        self.evidence_until_ms = _NEVER_MS
        self._rebuild()

    def arm(self, key: bytes, due: Due | None, *, again: bool = False) -> None:
        """Set, move or remove (None) the timer of `key`; `again` re-arms one that has fired."""
        if due is None:
            self._armed.pop(key, None)
            self._fired.pop(key, None)
            return
        if self._armed.get(key) == due:
            return
        if self._fired.get(key) == due and not again:
            return
        self._fired.pop(key, None)
        self._armed[key] = due
        heapq.heappush(self._at, (due.at_ms, key))
        heapq.heappush(self._latest, (due.latest_ms, key))
        if len(self._at) + len(self._latest) > 4 * len(self._armed) + STALE_ENTRIES_MAX:
            self._rebuild()

    def also(self, key: bytes, due: Due) -> None:
        """One more tick for `key`, besides the one its state wants."""
        heapq.heappush(self._extra, (due.at_ms, due.latest_ms, key))

    def pop(self, now_ms: int, limit: int) -> list[tuple[bytes, Due]]:
        """At most `limit` keys to tick at `now_ms`, each once."""
        until_ms = min(now_ms, self.evidence_until_ms)
        armed, fired = self._armed, self._fired
        out: list[tuple[bytes, Due]] = []
        for heap, bound_ms, instant_of in (
            (self._at, until_ms, _at),
            (self._latest, now_ms, _latest),
        ):
            while len(out) < limit and heap and heap[0][0] <= bound_ms:
                instant, key = heapq.heappop(heap)
                due = armed.get(key)
                if due is not None and instant_of(due) == instant:
                    fired[key] = armed.pop(key)
                    out.append((key, due))
        extra = self._extra
        while len(out) < limit and extra and (extra[0][0] <= until_ms or extra[0][1] <= now_ms):
            at_ms, latest_ms, key = heapq.heappop(extra)
            out.append((key, Due(at_ms, latest_ms)))
        return out

    def __len__(self) -> int:
        return len(self._armed) + len(self._extra)

    def _rebuild(self) -> None:
        self._at = [(due.at_ms, key) for key, due in self._armed.items()]
        self._latest = [(due.latest_ms, key) for key, due in self._armed.items()]
        heapq.heapify(self._at)
        heapq.heapify(self._latest)


class Timers:
    """The timers of all owned partitions."""

    def __init__(self, reticks_per_s_max: int, retick_hold_ms_max: int) -> None:
        self._partitions: dict[int, PartitionTimers] = {}
        self._reticks_per_s_max = reticks_per_s_max
        self._retick_hold_ms_max = retick_hold_ms_max

    def clear(self) -> None:
        """At revocation: nobody may be reminded by us any more."""
        self._partitions.clear()

    def install(self, partition: int, due: dict[bytes, Due]) -> PartitionTimers:
        """Replace a partition's timers by what its state wants."""
        timers = self._partitions[partition] = PartitionTimers(due)
        return timers

    def arm_all(self, partition: int, keys: Iterable[bytes], now_ms: int) -> int:
        """One extra tick for each key, from `now_ms` on, spread so that no burst results.

        A partition we do not own is ignored: its owner saw the same cause. Returns how many were armed.
        """
        timers = self._partitions.get(partition)
        if timers is None:
            return 0
        count = 0
        for key in keys:
            at_ms = now_ms + count * 1000 // self._reticks_per_s_max
            timers.also(key, Due(at_ms, at_ms + self._retick_hold_ms_max))
            count += 1
        return count

    def note_evidence(self, marks: dict[int, int]) -> None:
        """Everything that was in the input logs at these instants (ms) has been processed."""
        for partition, until_ms in marks.items():
            timers = self._partitions.get(partition)
            if timers is not None and until_ms > timers.evidence_until_ms:
                timers.evidence_until_ms = until_ms

    def items(self) -> list[tuple[int, PartitionTimers]]:
        """Partition number and timers, a snapshot."""
        return list(self._partitions.items())

    def __len__(self) -> int:
        return sum(map(len, self._partitions.values()))


def find_due(
    tables: dict[int, dict[bytes, bytes]], due_of: Callable[[bytes, bytes], Due | None]
) -> dict[int, dict[bytes, Due]]:
    """{partition: {key: due}} out of the timer table; nothing may write to it meanwhile."""
    return {
        number: {key: due for key, value in part.items() if (due := due_of(key, value)) is not None}
        for number, part in tables.items()
    }


def _at(due: Due) -> int:
    return due.at_ms


def _latest(due: Due) -> int:
    return due.latest_ms
