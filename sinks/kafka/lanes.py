"""Work on records in parallel, in order per key, with offsets that only ever cover finished work.

Shared by the loops that call providers. It must not know what a record means or commit by itself.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from sinks.kafka.consumer import Message, Place

Key = bytes
Urgency = tuple[int, int]
Entry = tuple[Urgency, int, Message]  # the count keeps messages from being compared


class Offsets:
    """Per partition, the contiguous prefix of finished records, and what the broker did not take of it."""

    RETRY_S = 1.0

    def __init__(self) -> None:
        self._open: dict[Place, deque[int]] = {}
        self._done: dict[Place, set[int]] = {}
        self._owed: dict[Place, int] = {}
        self._owed_since_s = 0.0
        self._lock = threading.Lock()

    def began(self, message: Message) -> None:
        with self._lock:
            self._open.setdefault((message.topic, message.partition), deque()).append(message.offset)

    def finished(self, message: Message) -> None:
        with self._lock:
            self._done.setdefault((message.topic, message.partition), set()).add(message.offset)

    def commit(self, commit: Callable[[Mapping[Place, int]], bool], now_s: float) -> bool:
        """Commit what is finished. `commit` says whether the broker took it; what it did not take is said
        again with what comes next, or after `RETRY_S`: a quiet partition would show a lag for ever.
        False while something is left to say."""
        taken = self.take()
        if taken or (self._owed and now_s >= self._owed_since_s + self.RETRY_S):
            wanted = self._owed | taken
            self._owed, self._owed_since_s = ({} if commit(wanted) else wanted), now_s
        return not self._owed

    def take(self) -> dict[Place, int]:
        """Next offsets that may be committed; each is returned once."""
        found: dict[Place, int] = {}
        with self._lock:
            for place, waiting in self._open.items():
                done = self._done.get(place, set())
                while waiting and waiting[0] in done:
                    done.discard(waiting[0])
                    found[place] = waiting.popleft() + 1
        return found

    def forget(self) -> None:
        """The partitions went to somebody else."""
        with self._lock:
            self._open.clear()
            self._done.clear()
            self._owed = {}

    @property
    def in_flight(self) -> int:
        with self._lock:
            return sum(map(len, self._open.values()))

    def in_flight_of(self, topic: str) -> int:
        """Records of one topic read and not yet covered by `take`."""
        with self._lock:
            return sum(len(waiting) for (name, _), waiting in self._open.items() if name == topic)


class Lanes:
    """One lane per key: its records run one after another; lanes run side by side, most urgent first.

    `work(message)` runs in a thread and must not raise for what the world does. It returns None when the
    record is finished with, else the monotonic instant (s) to come back at: the lane is parked until then and
    its thread serves others.
    """

    def __init__(self, work: Callable[[Message], float | None], *, concurrency: int) -> None:
        self._work, self._pool = work, ThreadPoolExecutor(concurrency, thread_name_prefix="lane")
        self._lock = threading.Lock()
        self._waiting: list[Entry] = []
        self._parked: list[tuple[float, Entry]] = []
        self._busy: dict[Key, deque[tuple[Urgency, Message]]] = {}
        self._count = 0
        self.failure: BaseException | None = None

    def offer(self, message: Message, urgency: Urgency) -> None:
        """Queue a record; the smaller urgency runs first, first come first served within one."""
        with self._lock:
            key = message.key or b""
            if key in self._busy:
                self._busy[key].append((urgency, message))
                return
            self._busy[key] = deque()
            self._queue(urgency, message)
        self._pool.submit(self._next)

    def wake(self, now_s: float) -> None:
        """Let parked lanes run whose instant has come. Called by whoever offers, from the same thread."""
        due = 0
        with self._lock:
            while self._parked and self._parked[0][0] <= now_s:
                heapq.heappush(self._waiting, heapq.heappop(self._parked)[1])
                due += 1
        for _ in range(due):
            self._pool.submit(self._next)

    def forget(self) -> None:
        """Drop what waits or is parked: its partitions went to somebody else, or are read again from what
        was committed. Without this every rebalance would queue the same records once more."""
        with self._lock:
            for _, _, message in [*self._waiting, *(entry for _, entry in self._parked)]:
                del self._busy[message.key or b""]
            self._waiting.clear()
            self._parked.clear()
            for behind in self._busy.values():  # of lanes that run
                behind.clear()

    def _queue(self, urgency: Urgency, message: Message) -> None:
        self._count += 1
        heapq.heappush(self._waiting, (urgency, self._count, message))

    def _next(self) -> None:
        with self._lock:
            if not self._waiting:
                return
            entry = heapq.heappop(self._waiting)
        while True:
            try:
                again_s = self._work(entry[2])
            except BaseException as exc:  # noqa: BLE001  the loop ends the process; nothing is committed
                self.failure = exc
                return
            with self._lock:
                if again_s is not None:
                    heapq.heappush(self._parked, (again_s, entry))
                    return
                key = entry[2].key or b""
                if not self._busy[key]:
                    del self._busy[key]
                    return
                urgency, message = self._busy[key].popleft()
                self._count += 1
                entry = (urgency, self._count, message)

    def close(self) -> None:
        """Wait for what runs; what waits is dropped and read again."""
        self._pool.shutdown(wait=True, cancel_futures=True)
