"""A log in memory and the worker on it: one partition, one record a transaction, virtual time.

The worker's meaning (`IntentProcessor`) is the real one; only arrival and commit are replaced. It must
not be used for anything that has to survive.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from schemas.control import Controls
from streams.engine.processor import Due, Output
from streams.worker.processor import IntentProcessor

COMMIT_MS = 2  # what a transaction takes on a quiet broker
# A day of look-ups every 20 ms would be 4.3 million; a story that needs more goes round in circles.
EVENTS_MAX = 5_000_000


@dataclass(frozen=True, slots=True)
class Stored:
    """One record in the log, in the shape the engine hands out."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Agenda:
    """What happens when, on a virtual clock that only this moves."""

    def __init__(self, start_ms: int) -> None:
        self.now_ms = start_ms
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = self._done = 0

    def at(self, when_ms: int, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(when_ms, self.now_ms), self._count, act))

    def run(self, until_ms: int) -> None:
        """Everything that is due up to and including `until_ms`, in order. `RuntimeError`: it never ends."""
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, act = heapq.heappop(self._heap)
            act()
            self._done += 1
            if self._done > EVENTS_MAX:
                raise RuntimeError(f"more than {EVENTS_MAX} events: something goes round in circles")
        self.now_ms = until_ms


class MemoryView:
    """`streams.engine.processor.View` over dictionaries."""

    def __init__(self, tables: dict[str, dict[bytes, bytes]], timers: dict[bytes, Due]) -> None:
        self.partition = 0
        self.outputs: list[Output] = []
        self._tables, self._timers = tables, timers

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._tables[table].get(key)

    def put(self, table: str, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._tables[table].pop(key, None)
        else:
            self._tables[table][key] = value

    def emit(self, output: Output) -> None:
        self.outputs.append(output)

    def arm(self, key: bytes, due: Due | None, *, again: bool = False) -> None:  # noqa: ARG002
        if due is None:
            self._timers.pop(key, None)
        else:
            self._timers[key] = due

    def items(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._tables[table].items())


@dataclass
class MemoryLog:
    """Topics by name, and who wants to know about a new record."""

    agenda: Agenda
    records: dict[str, list[Stored]] = field(default_factory=lambda: defaultdict(list))
    readers: list[Callable[[Stored], None]] = field(default_factory=list)

    def append(
        self, topic: str, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes], ...] = ()
    ) -> Stored:
        found = self.records[topic]
        stored = Stored(topic, 0, len(found), self.agenda.now_ms, key, value, headers)
        found.append(stored)
        for reader in self.readers:
            reader(stored)
        return stored


class MemoryWorker:
    """Feeds the real processor record by record and emits ticks once everything before them was read."""

    def __init__(self, log: MemoryLog, processor: IntentProcessor) -> None:
        self._log, self._processor, self._agenda = log, processor, log.agenda
        self._tables: dict[str, dict[bytes, bytes]] = {t: {} for t in processor.tables}
        self._timers: dict[bytes, Due] = {}
        self._waiting: deque[Stored] = deque()
        self.is_up, self._has_news = True, False
        log.readers.append(self._arrived)

    def up(self) -> None:
        self.is_up = True
        self._work()
        if self._has_news:
            self._retick()
        for key in list(self._timers):
            self._remind(key)

    def down(self) -> None:
        self.is_up = False

    def use_controls(self, controls: Controls) -> None:
        """A control changed: what is held is looked at now, or as soon as the worker is up."""
        self._processor.use_controls(controls)
        self._has_news = True
        if self.is_up:
            self._retick()

    def _retick(self) -> None:
        self._has_news = False
        for key in self._processor.held_keys().get(0, ()):
            due = self._timers.get(key)
            if due is not None:
                self._tick(key, due)

    def _arrived(self, stored: Stored) -> None:
        if stored.topic in self._processor.inputs:
            self._waiting.append(stored)
            self._agenda.at(self._agenda.now_ms, self._work)

    def _work(self) -> None:
        while self.is_up and self._waiting:
            record = self._waiting.popleft()
            view = MemoryView(self._tables, self._timers)
            self._processor.process(record, view)  # type: ignore[arg-type]
            self._processor.end_of_chunk(record.topic, view)  # type: ignore[arg-type]
            if view.outputs:
                outputs = view.outputs
                self._agenda.at(self._agenda.now_ms + COMMIT_MS, lambda o=outputs: self._commit(o))  # type: ignore[misc]
            if record.key is not None and record.key in self._timers:
                self._plan(record.key)

    def _commit(self, outputs: list[Output]) -> None:
        for output in outputs:
            self._log.append(output.topic, output.key, output.value, tuple(output.headers or ()))

    def _plan(self, key: bytes) -> None:
        self._agenda.at(self._timers[key].at_ms, lambda: self._remind(key))

    def _remind(self, key: bytes) -> None:
        due = self._timers.get(key)
        if due is not None and self.is_up and due.at_ms <= self._agenda.now_ms:
            self._work()
            if self._timers.get(key) == due:
                self._tick(key, due)

    def _tick(self, key: bytes, due: Due) -> None:
        now = self._agenda.now_ms
        output = self._processor.tick(0, key, due, emitted_at_ms=now, evidence_until_ms=now, generation=1)
        self._commit([output])
