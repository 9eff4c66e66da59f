"""The contests: three competitors over the same records, two over the same changelog.

One competitor runs at a time. It must not print; `tests.benchmarks.report` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from compose.clock import SystemClock, random_id
from schemas.record import TopicKind
from streams.worker.accounting import FATES
from tests.benchmarks import bare_engine, load, plain_loop, stock_faust
from tests.benchmarks.machine import LOADED
from tests.benchmarks.measure import Recovery, Runner, Throughput, recovery, throughput
from tests.integration.workers import Deployment

ROOT = Path(__file__).parents[2]  # competitors run in the temporary folder: Faust leaves a folder behind
PARTITIONS = 4
RUN_S = 600.0  # a competitor that is not done by then is measured as far as it came
RECOVERY_S = 240.0
TOPIC_S = 30.0
PREFIX_CHARS = 10
WORKER = ["compose.cli", "worker"]
STOCK = ["tests.benchmarks.stock_faust"]
PLAIN = ["tests.benchmarks.plain_loop"]
BARE = ["tests.benchmarks.bare_engine"]

READY = r"worker ready: .*\[0, 1, 2, 3\]"  # all partitions, and what they hold, are back

Say = Callable[[str], None]


@dataclass(slots=True)
class Books:
    """The worker's own counters after the run, against what lies on the topics."""

    inputs: int = 0
    counted: int = 0
    decisions_counted: int = 0
    decisions_read: int = 0
    fates: dict[str, int] = field(default_factory=dict)
    ticks: int = 0

    @property
    def balanced(self) -> bool:
        return (
            self.inputs == self.counted
            and self.decisions_counted == self.decisions_read
            and self.counted + self.ticks == sum(self.fates.values())
        )


class Arena(Deployment):
    """A deployment with the worker's own timing instead of the tests' impatient one."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        folder.mkdir()
        super().__init__(bootstrap, f"b{random_id()[:PREFIX_CHARS]}.", folder, partitions=PARTITIONS)
        changelogs = [
            NewTopic(name, PARTITIONS, 1, config={"cleanup.policy": "compact"})
            for name in (
                stock_faust.changelog_of(self.names.prefix),
                f"{bare_engine.app_id_of(self.names.prefix)}-{bare_engine.TABLE}-changelog",
            )
        ]
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        for created in admin.create_topics(changelogs).values():
            created.result(TOPIC_S)

    @property
    def environment(self) -> dict[str, str]:
        calm = {"BACKSTOP_SESSION_TIMEOUT_MS": "30000", "BACKSTOP_TICK_INTERVAL_MS": "1000"}
        return super().environment | calm | {"PYTHONPATH": str(ROOT)} | {"BACKSTOP_WORKER_SLOT": "a"}

    def run(self, command: list[str]) -> Runner:
        return Runner(command, self.environment, self.folder / f"{command[0]}.log")

    def preload(self, records: int, intents: int) -> None:
        loader = load.Loader(self.bootstrap)
        for kind, key, value in load.stories(records, intents, SystemClock().now_ms()):
            loader.put(self.names[kind], key, value)
        loader.close()

    def measure(self, command: list[str], group: str, total: int) -> Throughput:
        with self.run(command) as runner:
            return throughput(
                runner, self.bootstrap, group, self.names.of(LOADED), partitions=PARTITIONS, total=total,
                within_s=RUN_S,
            )  # fmt: skip

    def books(self) -> Books:
        """Read before any other competitor writes decisions."""
        progress, lie = self.progress(), self.inputs()
        loaded = self.names.of(LOADED)
        found = Books(decisions_read=len(self.read(TopicKind.DECISIONS)))
        found.inputs = sum(lie[topic] for topic in loaded)
        found.counted = sum(progress.get(topic, Counter())["inputs"] for topic in loaded)
        for topic, counted in progress.items():
            for fate in FATES:
                found.fates[fate] = found.fates.get(fate, 0) + counted[fate]
            found.ticks += 0 if topic in loaded else counted["inputs"]
        found.decisions_counted = found.fates["decided"]
        return found


@dataclass(frozen=True, slots=True)
class Race:
    """Throughput by competitor, and whether the worker's books balance."""

    worker: Throughput
    stock: Throughput
    plain: Throughput
    engine: Throughput
    books: Books


def race(bootstrap: str, folder: Path, *, records: int, intents: int, stock_records: int, say: Say) -> Race:
    """`stock_records` fewer than `records`: stock Faust runs over a smaller load of the same shape."""
    arena = Arena(bootstrap, folder / "race")
    say(f"loading {records} records")
    arena.preload(records, intents)
    say("the worker")
    worker = arena.measure(WORKER, arena.names.worker_app_id, records)
    books = arena.books()
    say("a plain loop")
    plain = arena.measure(PLAIN, plain_loop.group_of(arena.names.prefix), records)
    say("the engine with a step of the prototype's size")
    engine = arena.measure(BARE, bare_engine.app_id_of(arena.names.prefix), records)
    if stock_records < records:
        say(f"loading {stock_records} records for stock Faust")
        arena = Arena(bootstrap, folder / "race-stock")
        arena.preload(stock_records, max(1, intents * stock_records // records))
    say("stock Faust")
    stock = arena.measure(STOCK, stock_faust.group_of(arena.names.prefix), stock_records)
    return Race(worker, stock, plain, engine, books)


@dataclass(frozen=True, slots=True)
class Comeback:
    """Start to ready by competitor."""

    worker: Recovery
    stock: Recovery


def comeback(bootstrap: str, folder: Path, *, states: int, stock_states: int, say: Say) -> Comeback:
    """Both read the same states back, each from the changelog of its own name."""
    arena = Arena(bootstrap, folder / "comeback")
    say(f"writing changelogs: {states} states for the worker, {stock_states} for stock Faust")
    loader = load.Loader(bootstrap)
    for topic, count in (
        (arena.names.changelog("intents"), states),
        (stock_faust.changelog_of(arena.names.prefix), stock_states),
    ):
        for key, value in load.states(count, SystemClock().now_ms()):
            loader.put(topic, key, value)
    loader.close()
    say("the worker comes back")
    with arena.run(WORKER) as runner:
        worker = recovery(runner, READY, states=states, within_s=RECOVERY_S)
    say("stock Faust comes back")
    with arena.run(STOCK) as runner:
        said = f"{stock_faust.RECOVERED} {stock_states}\\b"
        stock = recovery(runner, said, states=stock_states, within_s=RECOVERY_S)
    return Comeback(worker, stock)
