"""The engine as a Faust app: exactly once between topics.

Theory of operation, each step needed:

1. A *lease* (group generation, member id) is captured at assignment. A chunk carries its lease; a step is
   decided and submitted without an await; a chunk of another lease is dropped.
2. A *transaction* holds outputs, the last state per key and consumed offsets, committed under the lease's
   group metadata (KIP-447): the broker refuses a stale generation, and the process ends.
3. At *revocation* the lease ends and the writer flushes (the old generation is valid until we rejoin).
4. The new owner *first* reads stable committed offsets (EndTxn is not checked against the generation, so
   accepted but undecided offsets are waited for),
5. *then* the changelogs up to the high watermark: committed records may lie behind an open transaction.
6. Seek, then resume; a seek epoch drops what was fetched before.
7. Memory is kept only for partitions owned in the generation before this one.
8. Any failure ends the process; memory is never rolled back. A guard ends a process whose stop hangs.

It must not know what a record means: `Processor` does. `build_app` makes one, `run` runs it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import faust
import mode

from streams.engine import blockers, selfcheck, transport
from streams.engine.changelog import ChangelogReader, Loaded, Partition
from streams.engine.chunk import ChunkSchema, Lease
from streams.engine.errors import EngineError, ExitCode, ProcessingFailed, RestoreFailed
from streams.engine.health import Health
from streams.engine.logs import calm_broker_logs
from streams.engine.processing import Processing, Ticker
from streams.engine.processor import Processor, View
from streams.engine.settings import EngineSettings
from streams.engine.store import PartitionedState, Tables
from streams.engine.timers import Timers, find_due
from streams.engine.transactions import TransactionWriter

HELD_ALARM_EVERY_S = 60.0


class EngineApp(faust.App):
    """Made by `build_app`. `health` is for probes, `retick` for whoever reads controls."""

    def __init__(self, processor: Processor, settings: EngineSettings) -> None:
        self.processor, self.settings = processor, settings
        self.inputs = frozenset(processor.inputs)
        self.health = Health(settings.stuck_after_s)
        self.timers = Timers(settings.reticks_per_s_max, settings.retick_hold_ms_max)
        self.partitions = PartitionedState(processor.tables)
        self.processing = Processing(
            settings.app_id, processor, settings, timers=self.timers, health=self.health
        )
        self.failure: BaseException | None = None
        self.writer: TransactionWriter | None = None
        self._held_alarm_at = float("-inf")
        super().__init__(
            settings.app_id,
            store="partitioned://",
            Table="streams.engine.store:StateTable",
            TableManager="streams.engine.recovery:TableManager",
            agent_supervisor=mode.CrashingSupervisor,
            **settings.faust_options(),
        )
        self.state_tables = [self.Table(name, key_type=bytes, value_type=bytes) for name in processor.tables]
        self.agent(self._input_channel(), name="engine")(self._consume)

    def _input_channel(self) -> Any:
        return self.topic(*self.processor.inputs, schema=ChunkSchema(), acks=False)

    async def _consume(self, stream: Any) -> None:
        try:
            async for chunk in stream:
                await self.processing.work(chunk)
        except Exception as exc:
            await self.crash(exc)
            raise

    # life cycle

    async def on_start(self) -> None:
        selfcheck.check_settings(self.conf, self.settings.faust_options())
        await super().on_start()
        self.writer = TransactionWriter(
            self.settings, self.health, on_failure=self.crash, loop=self.loop, beacon=self.beacon
        )
        self.processing.writer = self.writer
        await self.add_runtime_dependency(self.writer)
        ticker = Ticker(
            self.processing, self.settings.tick_interval_ms / 1000.0,
            on_failure=self.crash, loop=self.loop, beacon=self.beacon,
        )  # fmt: skip
        await self.add_runtime_dependency(ticker)

    async def crash(self, reason: BaseException) -> None:
        """Remember the first reason; it decides the exit code."""
        if self.failure is None:
            self.failure = reason
            self.health.failure = type(reason).__name__
            remedy = reason.remedy if isinstance(reason, EngineError) else EngineError.remedy
            self.log.critical("The engine ends: %s. %s", reason, remedy)
        if self.writer is not None:
            self.writer.refuse(reason)
        await super().crash(reason)

    async def stop(self) -> None:
        """Stop in order; a worker process ends for certain, as nothing uncommitted is ever lost."""
        if self.in_worker:
            guard = threading.Timer(self.settings.stop_within_s, os._exit, (int(ExitCode.HARD),))
            guard.daemon = True
            guard.start()
        await super().stop()

    # leases, called by consumer and recovery

    async def end_lease(self) -> None:
        """Commit what was decided under the ended lease, forget its timers."""
        self.processing.lease = None
        self.health.begin_rebalance()
        if self.writer is not None:
            try:
                await self.writer.flush()
            except Exception as exc:
                await self.crash(exc)
                raise
        self.timers.clear()

    def begin_lease(self, lease: Lease) -> None:
        """Everything is in place: chunks and ticks of `lease` count from now on."""
        if lease.revoked:
            return
        self.processing.lease = lease
        numbers = tuple(sorted(self.partitions.partitions))
        self.health.finish_restore(numbers)
        self.log.info("worker ready: generation %s, partitions %s", lease.generation, list(numbers))

    async def flush_quietly(self) -> None:
        """Before Faust stops: a failure was already reported."""
        if self.writer is None:
            return
        try:
            await self.writer.flush()
        except EngineError as exc:
            self.log.warning("not flushed: %s", exc)

    def note_held(self, held: dict[tuple[str, int], float]) -> None:
        """Inputs held by a transaction that stays open: readers wait, nothing is lost."""
        now = time.monotonic()
        if now - self._held_alarm_at < HELD_ALARM_EVERY_S:
            return
        self._held_alarm_at = now
        names = ", ".join(f"{t}/{p} for {s:.0f} s" for (t, p), s in sorted(held.items()))
        sentence = f"an open transaction holds back readers of {names}"
        self.log.warning(sentence)
        self.settings.alarm("unstable_partition", sentence)

    def retick(self, keys: dict[int, set[bytes]]) -> int:
        """One extra tick for each key, paced; partitions of others are ignored. Returns how many."""
        now_ms = self.settings.now_ms()
        return sum(self.timers.arm_all(number, wanted, now_ms) for number, wanted in keys.items())

    # restore

    async def restore(self, lease: Lease) -> dict[Any, int]:
        """Bring the state of the assigned partitions into memory; the offsets to go on from.

        Returns {} when the lease ended meanwhile. Raises RestoreFailed.
        """
        sources = sorted(
            (tp.topic, tp.partition) for tp in self.consumer.assignment() if tp.topic in self.inputs
        )
        wanted = _complete_numbers(sources, self.inputs)
        missing = self.partitions.keep_only(wanted, lease.generation)
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        reader = ChangelogReader(
            self.settings.bootstrap, self.conf.id,
            deadline=started + self.settings.restore_timeout_s, report_s=self.settings.restore_report_s,
            on_blocked=lambda waiting: self._report_blocked(loop, waiting),
        )  # fmt: skip
        try:
            offsets, loaded, count = await asyncio.to_thread(self._read_back, reader, sources, missing)
        finally:
            reader.cancelled = True  # ends the thread after a cancellation
        if lease.revoked:
            return {}
        self.partitions.install(loaded, wanted, lease.generation)
        parts = {n: self.partitions.partitions[n] for n in sorted(wanted)}
        timer_table = self.processor.timer_table
        due = await asyncio.to_thread(
            find_due, {n: t[timer_table] for n, t in parts.items()}, self.processor.due_of
        )
        if lease.revoked:
            return {}
        views = {n: View(n, tables, self.timers.install(n, due[n])) for n, tables in parts.items()}
        for number in missing:
            self._show_restored(views[number])
            await asyncio.sleep(0)
        self.processing.begin(views, dict(offsets))
        self.health.counters.restored += count
        self.log.info(
            "restored %d partitions, %d records, %.2f s", len(missing), count, time.monotonic() - started
        )
        return {faust.types.TP(*tp): offset for tp, offset in offsets.items()}

    def _read_back(
        self, reader: ChangelogReader, sources: list[Partition], missing: list[int]
    ) -> tuple[dict[Partition, int], dict[int, Tables], int]:
        """In a thread. Order matters: once offsets are stable, all state they cover is decided."""
        offsets = reader.stable_offsets(sources)
        topics = self.processing.changelogs
        ends = reader.ends([(topic, n) for n in missing for topic in topics.values()])
        for number in missing:
            empty = not any(ends[topic, number] for topic in topics.values())
            if topics and empty and any(offsets[t, p] for t, p in sources if p == number):
                raise RestoreFailed(
                    f"partition {number}: offsets are committed but all changelogs are empty: state was lost",
                    code="changelog_empty",
                )
        loaded, count = reader.load(ends)
        return offsets, _by_number(loaded, missing, topics), count

    def _report_blocked(self, loop: asyncio.AbstractEventLoop, waiting: list[Partition] | None) -> None:
        """In the reader's thread: find out, then tell on the loop."""
        if waiting is None:
            sentence = blockers.describe_offsets(self.settings.bootstrap, self.conf.id)
        else:
            sentence = blockers.describe(self.settings.bootstrap, waiting)
        loop.call_soon_threadsafe(self._note_blocked, f"restore is waiting: {sentence}")

    def _note_blocked(self, sentence: str) -> None:
        self.health.blocked = sentence
        self.log.warning(sentence)
        self.settings.alarm("restore_blocked", sentence)

    def _show_restored(self, view: View) -> None:
        try:
            self.processor.restored(view)
        except Exception as exc:
            raise ProcessingFailed(f"the restore of partition {view.partition}", exc) from exc
        step = view.take()
        if step.outputs or step.changes:
            raise AssertionError("Processor.restored must only read")


def build_app(processor: Processor, settings: EngineSettings) -> EngineApp:
    """A new app; call again for another one. Raises SelfCheckFailed before anything is started."""
    selfcheck.check_libraries()
    calm_broker_logs()
    transport.register()
    return EngineApp(processor, settings)


def _complete_numbers(sources: list[Partition], inputs: frozenset[str]) -> set[int]:
    """The assigned partition numbers; every input topic must have each of them. Raises RestoreFailed."""
    topics_of: dict[int, set[str]] = {}
    for topic, number in sources:
        topics_of.setdefault(number, set()).add(topic)
    torn = sorted(number for number, topics in topics_of.items() if topics != inputs)
    if torn:
        raise RestoreFailed(
            f"input topics are not co-partitioned: partitions {torn} are not assigned of every topic",
            code="not_co_partitioned",
        )
    return set(topics_of)


def _by_number(loaded: Loaded, numbers: list[int], topics: dict[str, str]) -> dict[int, Tables]:
    return {number: {table: loaded[topic, number] for table, topic in topics.items()} for number in numbers}
