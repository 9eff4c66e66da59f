"""Hostile records through a live worker, neighbours counted: `python -m tests.fuzz.flood --records N`.

A real broker and one real worker process; the same good intents once alone and once inside the flood. Then
the books: every input has exactly one fate, each dead letter the reason its record was made for, every good
intent the decisions it has alone, no hostile byte where it must not be, and one worker that never died.
It must not excuse a difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from compose.local.broker import Broker
from compose.releases import put_policies
from schemas.decision import Decision, InputKind
from schemas.dispatch import Dispatch
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.topics import WORKER_INPUTS
from sinks.kafka.consumer import read_all
from streams.worker.accounting import FATES
from tests.builders import POLICY_REF, POLICY_TEXT
from tests.canaries import found_in
from tests.fuzz.flood_load import FAMILIES, HUGE_BYTES, Hostile, Maker, Phase, neighbours
from tests.fuzz.records import CANARY
from tests.integration.workers import Deployment, deployment

K = TopicKind
PARTITIONS = 4
SEED = 7
NEIGHBOURS_MIN, NEIGHBOURS_MAX, RECORDS_PER_NEIGHBOUR = 60, 3_000, 200
DRAIN_S_PER_RECORD, DRAIN_S_MIN = 0.004, 90.0  # 250 records a second: ten times slower than a loaded machine
SAMPLE_EVERY = 5_000  # records between two looks at the worker's memory
QUEUE_MAX = 20_000  # records; librdkafka's default is 100 000, this process need not be large
OUTPUTS = (K.DECISIONS, K.DISPATCHES_URGENT, K.DISPATCHES_BULK, K.LOOKUPS, K.SUPPRESSIONS, K.DEAD_LETTERS)
GIVEN_UP = (Reason.PARKING_FULL, Reason.ORPHAN_EXPIRED)  # how a parked fact ends
# No look-up, no deadline and no expiry falls into the run: what is decided follows from records alone.
POLICY = (
    POLICY_TEXT.replace("initial_ms = 5000", "initial_ms = 3600000")
    .replace("interval_ms_max = 60000", "interval_ms_max = 86400000")
    .replace("deadline_ms_max = 600000", "deadline_ms_max = 86000000")
    .replace("expiry_ms_max = 3600000", "expiry_ms_max = 172800000")
)


@dataclass
class Report:
    """What was published, what became of it, and every sentence that does not hold."""

    records: int
    neighbours: int
    published: Counter[str] = field(default_factory=Counter)
    letters: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    megabytes: tuple[float, float] = (0.0, 0.0)  # of the worker: before the first record, at its highest
    wrong: list[str] = field(default_factory=list)

    def holds(self, sentence: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.wrong.append(f"{sentence}: {found}, not {wanted}")

    def table(self) -> str:
        lines = [f"{'hostile records':34} {'published':>10}"]
        lines += [f"  {name:32} {count:>10,}" for name, count in sorted(self.published.items())]
        lines += [f"{'fate of every input':34} {'records':>10}"]
        lines += [f"  {name:32} {self.fates[name]:>10,}" for name in ("inputs", *FATES, "rerouted")]
        lines += [f"{'dead letters':34} {'records':>10}"]
        lines += [f"  {name:32} {count:>10,}" for name, count in sorted(self.letters.items())]
        rate = self.fates["inputs"] / self.seconds if self.seconds else 0.0
        lines += [
            f"{'neighbours, decided as if alone':34} {self.neighbours:>10,}",
            f"{'from the first record to the last':34} {self.seconds:>8.1f} s",
            f"{'inputs a second':34} {rate:>10,.0f}",
            f"{'worker, before and at most':34} {self.megabytes[0]:>4.0f} → {self.megabytes[1]:.0f} MB",
        ]
        return "\n".join([*lines, *(f"WRONG: {w}" for w in self.wrong)])


class Feed:
    """Publishes what it is given, counts it by topic, and looks at the worker's memory meanwhile."""

    def __init__(self, one: Deployment, pid: int) -> None:
        common = {
            "bootstrap.servers": one.bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "queue.buffering.max.messages": QUEUE_MAX,
            "message.max.bytes": HUGE_BYTES + 100_000,
        }
        self._names, self._worker = one.names, psutil.Process(pid)
        self._plain = Producer(common)
        # Squeezed, two megabytes pass a broker that takes one; a batch of them would not.
        self._squeezed = Producer(
            common | {"compression.type": "zstd", "linger.ms": 0, "batch.num.messages": 1}
        )
        self.by_topic: Counter[TopicKind] = Counter()
        self.failed = 0
        self.first_mb = self.peak_mb = self._memory_mb()

    def _memory_mb(self) -> float:
        return float(self._worker.memory_info().rss) / 1_048_576

    def sample(self) -> None:
        self.peak_mb = max(self.peak_mb, self._memory_mb())

    def give(self, record: Hostile) -> None:
        producer = self._squeezed if record.is_huge else self._plain
        place = {} if record.partition is None else {"partition": record.partition}
        while True:
            try:
                producer.produce(
                    self._names[record.kind],
                    record.value,
                    record.key,
                    headers=record.headers,
                    on_delivery=self._delivered,
                    **place,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        self.by_topic[record.kind] += 1
        if self.by_topic.total() % SAMPLE_EVERY == 0:
            self.sample()

    def _delivered(self, error: object, _message: object) -> None:
        self.failed += error is not None

    def flush(self) -> None:
        for producer in (self._plain, self._squeezed):
            assert producer.flush(DRAIN_S_MIN) == 0


def _mixed(good: Iterable[Hostile], hostile: Iterator[Hostile], per_good: int) -> Iterator[Hostile]:
    for record in good:
        yield record
        yield from islice(hostile, per_good)
    yield from hostile


def _as_records(phase: Phase) -> list[Hostile]:
    return [Hostile("neighbour", kind, key, value, None) for kind, key, value in phase]


def play(one: Deployment, phases: list[Phase], maker: Maker | None, report: Report) -> Counter[Reason]:
    """Every phase with its share of the flood, each until all of it has a fate. What letters to expect."""
    put_policies(one.folder / "policies", {POLICY_REF: POLICY})
    worker = one.start("a")
    expected: Counter[Reason] = Counter()
    _ready(one)
    feed, began = Feed(one, worker.pid), time.monotonic()
    for phase in phases:
        share = report.records // len(phases) if maker is not None else 0
        hostile = maker.some(share) if maker is not None else iter(())
        for record in _mixed(_as_records(phase), hostile, share // max(1, len(phase))):
            feed.give(record)
            if record.name != "neighbour":
                report.published[record.name.partition(":")[0]] += 1
                expected[record.reason or Reason.PARKING_FULL] += record.reason is not None
        feed.flush()
        _drain(one, feed, report.records)
    report.seconds = time.monotonic() - began
    report.megabytes = (feed.first_mb, feed.peak_mb)
    report.holds("records the broker refused", feed.failed, 0)
    report.holds("the worker runs", worker.poll(), None)
    report.holds("exit code of the worker", one.stop(), {"a": 0})
    return +expected


def _ready(one: Deployment) -> None:
    """The first record of all, so that memory and time begin with a worker that works."""
    until = time.monotonic() + DRAIN_S_MIN
    while "worker ready" not in one.log("a"):
        if time.monotonic() > until or one.processes["a"].poll() is not None:
            raise RuntimeError("the worker did not come up")
        time.sleep(0.2)


def _drain(one: Deployment, feed: Feed, records: int) -> None:
    """Until every published record, and every one that was sent home, is counted as an input."""
    until = time.monotonic() + max(DRAIN_S_MIN, records * DRAIN_S_PER_RECORD)
    while True:
        feed.sample()
        progress = one.progress()
        missing = 0
        for kind, count in feed.by_topic.items():
            counted = progress.get(one.names[kind], Counter())
            missing += max(0, count + counted["rerouted"] - counted["inputs"])
        if not missing:
            return
        if time.monotonic() > until:
            raise RuntimeError(f"{missing} records have no fate yet")
        time.sleep(0.5)


def decided(one: Deployment) -> dict[str, list[dict[str, Any]]]:
    """Per intent what was decided and why, without what differs by nature: places, instants, digests."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in one.records(K.DECISIONS):
        assert isinstance(record, Decision)
        assert record.input is not InputKind.TICK, "a tick fell into the run"
        kept = record.model_dump(mode="json", exclude=_BY_NATURE)
        kept["evidence"] = record.evidence and (record.evidence.says, record.evidence.reason)
        kept["outcome"] = record.outcome and record.outcome.ended
        found.setdefault(record.intent_id, []).append(kept)
    return found


_BY_NATURE = {
    "prev_digest",
    "now_ms",
    "trigger",
    "evidence",
    "next_due_ms",
    "ages",
    "outcome",
    "evidence_until_ms",
}


def ordered(one: Deployment) -> Counter[tuple[str, str, int]]:
    """Submissions by intent, channel and number."""
    found = [r for r in one.records(K.DISPATCHES_URGENT) if isinstance(r, Dispatch)]
    return Counter((d.intent_id, d.channel.value, d.submission_no) for d in found)


def balance(one: Deployment, report: Report) -> None:
    """`inputs = decided + absorbed + parked + dead-lettered`, for every topic, as counted by reading it."""
    progress = one.progress()
    for kind in WORKER_INPUTS:
        counted = progress.get(one.names[kind], Counter())
        there = sum(1 for _ in read_all(one.bootstrap, one.names[kind]))
        report.holds(f"{kind.value}: inputs", counted["inputs"], there)
        report.holds(f"{kind.value}: fates", sum(counted[f] for f in FATES), there)
        report.fates.update(counted)


def letters(one: Deployment, expected: Counter[Reason], report: Report) -> None:
    """One letter per unusable record and with its reason; nothing of any record in them."""
    found: Counter[Reason] = Counter()
    ids = set()
    for letter in one.records(K.DEAD_LETTERS):
        ids.add(letter.letter_id)  # type: ignore[attr-defined]
        found[letter.reason] += 1  # type: ignore[attr-defined]
    report.letters = Counter({r.value: n for r, n in found.items()})
    report.holds("letters about one record each", len(ids), found.total())
    report.holds("letters and counters", found.total(), report.fates["dead_lettered"])
    given_up = sum(found.pop(r, 0) for r in GIVEN_UP)
    report.holds("letters by reason", found, expected)
    facts = report.published["fact without an intent"]
    report.holds("facts beyond the parked", given_up <= facts, True)


def leaks(one: Deployment, report: Report) -> None:
    """Where a canary must not be: outputs and the log."""
    for kind in OUTPUTS:
        written = 0
        for message in read_all(one.bootstrap, one.names[kind]):
            text = b"\n".join(
                [message.key or b"", message.value or b"", *(v or b"" for _, v in message.headers)]
            )
            written += bool(found_in(text, [CANARY]))
        report.holds(f"{kind.value}: records with a hostile byte", written, 0)
    log = one.log("a")
    report.holds("the log's hostile bytes", found_in(log.encode(), [CANARY]), [])
    report.holds("traces in the log", log.count("Traceback"), 0)


def run(bootstrap: str, prefix: str, folder: Path, records: int) -> Report:
    """Alone first, then in the flood. The report says what does not hold."""
    now_ms = time.time_ns() // 1_000_000
    count = min(max(records // RECORDS_PER_NEIGHBOUR, NEIGHBOURS_MIN), NEIGHBOURS_MAX) // FAMILIES * FAMILIES
    report, phases = Report(records, count), neighbours(count, now_ms)
    with deployment(bootstrap, f"alone.{prefix}", folder / "alone", partitions=PARTITIONS) as one:
        play(one, phases, None, Report(0, count))
        wanted, wanted_orders = decided(one), ordered(one)
    maker = Maker(seed=SEED, now_ms=now_ms, partitions=PARTITIONS, neighbours=count)
    with deployment(bootstrap, f"flood.{prefix}", folder / "flood", partitions=PARTITIONS) as one:
        expected = play(one, phases, maker, report)
        balance(one, report)
        letters(one, expected, report)
        leaks(one, report)
        report.holds("neighbours decided alone", len(wanted), count)
        report.holds("submissions", ordered(one) == wanted_orders, True)
        found = decided(one)
        differing = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
        report.holds("intents decided otherwise than alone", sorted(differing)[:5], [])
    return report


def main() -> int:
    """A broker of its own in a folder that goes away; 0 when everything holds."""
    asked = argparse.ArgumentParser(prog="python -m tests.fuzz.flood", description=__doc__)
    asked.add_argument("--records", type=int, default=20_000, help="hostile records (20 000)")
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder, "kafka"))
        broker.start()
        try:
            report = run(broker.bootstrap, "fuzz.", Path(folder), asked.parse_args().records)
        finally:
            broker.stop()
    sys.stdout.write(report.table() + "\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
