"""From chunks to steps, from due keys to ticks: the only place that calls the processor.

A step is decided and submitted without an await, so no rebalance can come between. It must not know
what a record means, and must not go on after the processor raised: memory is then ahead of the log.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from mode import Service

from streams.engine.chunk import Chunk, Lease
from streams.engine.errors import EngineError, ProcessingFailed
from streams.engine.health import Health
from streams.engine.processor import Processor, Step, View
from streams.engine.settings import EngineSettings
from streams.engine.timers import PartitionTimers, Timers
from streams.engine.transactions import TransactionWriter

TICKS_PER_STEP_MAX = 500  # 500 ticks of 20 µs are 10 ms of the event loop


class Processing:
    """One per app. `lease` tells which lease is valid now."""

    def __init__(
        self, app_id: str, processor: Processor, settings: EngineSettings, *, timers: Timers, health: Health
    ) -> None:
        self._processor, self._settings = processor, settings
        self._timers, self._health = timers, health
        self._changelogs = {name: f"{app_id}-{name}-changelog" for name in processor.tables}
        self._where: dict[int, dict[str, tuple[str, int]]] = {}  # partition -> table -> changelog partition
        self._views: dict[int, View] = {}
        self._positions: dict[tuple[str, int], int] = {}  # next offset of every owned input partition
        self.lease: Lease | None = None
        self.writer: TransactionWriter | None = None

    @property
    def changelogs(self) -> dict[str, str]:
        """Table -> changelog topic."""
        return self._changelogs

    def begin(self, views: dict[int, View], positions: dict[tuple[str, int], int]) -> None:
        """Take over the partitions of a new lease; nothing is processed before `lease` is set."""
        self._views, self._positions = views, positions
        self._where = {
            number: {table: (topic, number) for table, topic in self._changelogs.items()} for number in views
        }

    async def work(self, chunk: Chunk) -> None:
        """Process a chunk in steps; drops it, or its rest, when its lease has ended."""
        start, count = 0, len(chunk.records)
        while start < count or chunk.marks is not None:
            writer = self._require_writer()
            if not await writer.room() or chunk.lease is not self.lease:
                return  # its next owner reads it again
            if chunk.marks is not None:
                self._note(chunk.marks)
                return
            start = self._step(writer, chunk, start)
            if start < count:
                await asyncio.sleep(0)  # a slow processor must not hold the loop for a whole chunk

    def _step(self, writer: TransactionWriter, chunk: Chunk, start: int) -> int:
        """Process records from `start` until the time is up, and submit them. No await in here."""
        records, process, monotonic = chunk.records, self._processor.process, time.monotonic
        view, at = self._views[chunk.partition], start
        until = monotonic() + self._settings.step_s_max
        try:
            for at in range(start, len(records)):
                process(records[at], view)
                if monotonic() >= until:
                    break
            self._processor.end_of_chunk(chunk.topic, view)
        except BaseException as exc:
            failed = ProcessingFailed(f"{chunk.topic}/{chunk.partition} offset {records[at].offset}", exc)
            writer.refuse(failed)
            raise failed from exc
        source = (chunk.topic, chunk.partition)
        self._positions[source] = next_offset = records[at].offset + 1
        writer.submit(
            chunk.lease, view.take(), offsets={source: next_offset},
            changelogs=self._where[chunk.partition], inputs=at + 1 - start,
        )  # fmt: skip
        return at + 1

    def _note(self, marks: dict[int, int]) -> None:
        before = {number: timers.evidence_until_ms for number, timers in self._timers.items()}
        self._timers.note_evidence(marks)
        if before and all(t.evidence_until_ms > before.get(n, 0) for n, t in self._timers.items()):
            self._health.progressed()

    async def emit_due(self) -> int:
        """Submit ticks for due keys, in steps; silent unless we own partitions and there is room."""
        writer, lease = self._require_writer(), self.lease
        sent, ended = 0, False
        while not ended:
            ended = True
            for number, timers in self._timers.items():
                if lease is None or self.lease is not lease or not writer.has_room:
                    return sent
                count = self._emit_of(number, timers, writer, lease)
                sent += count
                ended = ended and count < TICKS_PER_STEP_MAX
                if count:
                    await asyncio.sleep(0)
        return sent

    def _emit_of(self, number: int, timers: PartitionTimers, writer: TransactionWriter, lease: Lease) -> int:
        """Ticks of one partition. Its present offset goes along: without one nothing fences them."""
        now_ms = self._settings.now_ms()
        due = timers.pop(now_ms, TICKS_PER_STEP_MAX)
        if not due:
            return 0
        tick, evidence_ms = self._processor.tick, max(timers.evidence_until_ms, 0)
        try:
            outputs = [
                tick(
                    number, key, instant, emitted_at_ms=now_ms, evidence_until_ms=evidence_ms,
                    generation=lease.generation,
                )
                for key, instant in due
            ]  # fmt: skip
        except BaseException as exc:
            failed = ProcessingFailed(f"a tick of partition {number}", exc)
            writer.refuse(failed)
            raise failed from exc
        source = (self._processor.inputs[0], number)
        writer.submit(lease, Step(outputs, {}), offsets={source: self._positions[source]}, changelogs={})
        self._health.counters.ticks += len(outputs)
        return len(outputs)

    def _require_writer(self) -> TransactionWriter:
        if self.writer is None:
            raise EngineError("the engine has not been started")
        return self.writer


class Ticker(Service):
    """Looks for due keys once per interval; a failure ends the process."""

    def __init__(self, processing: Processing, interval_s: float, *, on_failure: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._processing, self._interval_s, self._on_failure = processing, interval_s, on_failure

    @Service.task  # type: ignore[untyped-decorator]
    async def _tick(self) -> None:
        while not self.should_stop:
            await self.sleep(self._interval_s)
            try:
                await self._processing.emit_due()
            except Exception as exc:
                await self._on_failure(exc)
                raise
