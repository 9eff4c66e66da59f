"""Is a step decided under the present lease only, whole, and never after a failure?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streams.engine.chunk import Chunk, Lease
from streams.engine.errors import ProcessingFailed
from streams.engine.health import Health
from streams.engine.processing import Processing
from streams.engine.processor import Due, InputRecord, Output, Step, View
from streams.engine.settings import EngineSettings
from streams.engine.timers import Timers
from streams.engine.transactions import TransactionWriter

NOW_MS = 1_790_000_000_000
SEEN = "seen"


class Noting:
    """Notes every record in its table; fails on the value `bad`."""

    inputs: tuple[str, ...] = ("in", "ticks")
    tables: tuple[str, ...] = (SEEN,)
    timer_table = SEEN

    def process(self, record: InputRecord, view: View) -> None:
        if record.value == b"bad":
            raise RuntimeError("failed on purpose")
        view.put(SEEN, str(record.offset).encode(), record.value)

    def end_of_chunk(self, topic: str, view: View) -> None:
        view.put(SEEN, topic.encode(), b"ended")

    def due_of(self, key: bytes, value: bytes) -> Due | None:
        return None

    def tick(self, partition: int, key: bytes, due: Due, **about: int) -> Output:
        return Output("ticks", partition, key, b"", None)

    def restored(self, view: View) -> None: ...


@dataclass
class Writer:
    """Takes steps as the real one does. `after_submit`: what happens to the worker meanwhile."""

    after_submit: Callable[[], None] = lambda: None
    submitted: list[tuple[Lease, Step, dict[tuple[str, int], int], int]] = field(default_factory=list)
    refused: BaseException | None = None
    has_room: bool = True

    async def room(self) -> bool:
        return self.refused is None

    def submit(
        self,
        lease: Lease,
        step: Step,
        *,
        offsets: dict[tuple[str, int], int],
        changelogs: dict[str, tuple[str, int]],
        inputs: int = 0,
    ) -> None:
        assert set(step.changes) <= set(changelogs)
        self.submitted.append((lease, step, offsets, inputs))
        self.after_submit()

    def refuse(self, cause: BaseException) -> None:
        self.refused = cause


@dataclass
class Bench:
    """A worker that owns partitions 0 and 1 under `lease`."""

    processing: Processing
    writer: Writer
    timers: Timers
    tables: dict[int, dict[str, dict[bytes, bytes]]]
    lease: Lease

    def lose(self) -> None:
        """The lease ends."""
        self.processing.lease = None

    def work(self, chunk: Chunk) -> None:
        asyncio.run(self.processing.work(chunk))


def lease(generation: int) -> Lease:
    return Lease(generation, "member", b"")


@pytest.fixture
def bench() -> Bench:
    settings = EngineSettings(
        app_id="app",
        bootstrap="127.0.0.1:9",
        slot="slot-0",
        now_ms=lambda: NOW_MS,
        step_s_max=1e-9,  # a step of one record
    )
    timers, health = Timers(1_000, 1_000), Health(stuck_after_s=60.0)
    made = Processing("app", Noting(), settings, timers=timers, health=health)
    tables: dict[int, dict[str, dict[bytes, bytes]]] = {n: {SEEN: {}} for n in (0, 1)}
    views = {n: View(n, tables[n], timers.install(n, {})) for n in tables}
    made.begin(views, {(topic, n): 0 for topic in Noting.inputs for n in tables})
    writer = Writer()
    made.writer, made.lease = cast(TransactionWriter, writer), lease(7)
    return Bench(made, writer, timers, tables, made.lease)


def chunk(of: Lease, *values: bytes, marks: dict[int, int] | None = None) -> Chunk:
    records: list[Any] = [
        SimpleNamespace(topic="in", partition=0, offset=n, timestamp=NOW_MS, key=b"k", value=v, headers=())
        for n, v in enumerate(values)
    ]
    return Chunk("in", 0, records, of, marks)


def test_a_chunk_is_submitted_in_steps_each_with_its_next_offset(bench: Bench) -> None:
    bench.work(chunk(bench.lease, b"a", b"b"))
    assert [(of, offsets, n) for of, _, offsets, n in bench.writer.submitted] == [
        (bench.lease, {("in", 0): 1}, 1),
        (bench.lease, {("in", 0): 2}, 1),
    ]
    assert [step.changes[SEEN] for _, step, _, _ in bench.writer.submitted] == [
        {b"0": b"a", b"in": b"ended"},
        {b"1": b"b", b"in": b"ended"},
    ]


@pytest.mark.parametrize("now", [None, 8])
def test_a_chunk_of_another_lease_is_dropped_and_touches_no_state(bench: Bench, now: int | None) -> None:
    """Fetched before a rebalance, delivered after it: its next owner reads it again."""
    bench.processing.lease = None if now is None else lease(now)
    bench.work(chunk(bench.lease, b"a"))
    assert bench.writer.submitted == []
    assert bench.tables[0] == {SEEN: {}}


def test_the_rest_of_a_chunk_is_dropped_when_its_lease_ends_between_two_steps(bench: Bench) -> None:
    bench.writer.after_submit = bench.lose
    bench.work(chunk(bench.lease, b"a", b"b", b"c"))
    assert [offsets for _, _, offsets, _ in bench.writer.submitted] == [{("in", 0): 1}]
    assert b"1" not in bench.tables[0][SEEN]


def test_marks_of_another_lease_say_nothing_about_the_evidence(bench: Bench) -> None:
    bench.work(chunk(lease(6), marks={0: NOW_MS, 1: NOW_MS}))
    assert [t.evidence_until_ms < NOW_MS for _, t in bench.timers.items()] == [True, True]
    bench.work(chunk(bench.lease, marks={0: NOW_MS, 1: NOW_MS}))
    assert [t.evidence_until_ms for _, t in bench.timers.items()] == [NOW_MS, NOW_MS]


def test_a_record_that_fails_ends_everything_and_its_step_is_not_submitted(bench: Bench) -> None:
    with pytest.raises(ProcessingFailed, match="in/0 offset 1"):
        bench.work(chunk(bench.lease, b"a", b"bad", b"c"))
    assert [offsets for _, _, offsets, _ in bench.writer.submitted] == [{("in", 0): 1}]
    assert isinstance(bench.writer.refused, ProcessingFailed)


def test_due_keys_are_ticked_with_the_present_offset_of_their_partition(bench: Bench) -> None:
    bench.work(chunk(bench.lease, b"a"))
    bench.timers.arm_all(0, [b"k"], NOW_MS - 1_000)
    assert asyncio.run(bench.processing.emit_due()) == 1
    of, step, offsets, _ = bench.writer.submitted[-1]
    assert (of, offsets, [o.key for o in step.outputs]) == (bench.lease, {("in", 0): 1}, [b"k"])


def test_nothing_is_ticked_without_a_lease_nor_once_it_ends_between_two_partitions(bench: Bench) -> None:
    for number in (0, 1):
        bench.timers.arm_all(number, [b"k"], NOW_MS - 1_000)
    bench.lose()
    assert asyncio.run(bench.processing.emit_due()) == 0
    bench.processing.lease = bench.lease
    bench.writer.after_submit = bench.lose
    assert asyncio.run(bench.processing.emit_due()) == 1
    assert len(bench.writer.submitted) == 1
