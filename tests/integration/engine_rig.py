"""Topics, load, worker processes and the count at the end, for the engine's integration tests.

It must not know how the engine works: it starts processes and reads topics as an outsider would.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compose.local.broker import Broker
from tests.integration.engine_worker import Options

PARTITIONS = 4
UNKNOWN = -1
ROOT = Path(__file__).parents[2]
BIG = str(4 * 1024 * 1024)


def until(wanted: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Poll until `wanted` is truthy; AssertionError naming `what` otherwise."""
    end = time.monotonic() + timeout_s
    while True:
        found = wanted()
        if found:
            return found
        assert time.monotonic() < end, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.05)


class Rig:
    """One application id with its topics and worker processes."""

    def __init__(self, bootstrap: str, folder: Path, app_id: str) -> None:
        self.bootstrap, self.folder, self.app_id = bootstrap, folder, app_id
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts = 0
        self._starts = 0
        self.create_topics()

    def topic(self, kind: str) -> str:
        return f"{self.app_id}-{kind}"

    @property
    def inputs(self) -> list[str]:
        return [self.topic(kind) for kind in ("in", "facts", "ticks")]

    def create_topics(self) -> None:
        topics = [
            NewTopic(self.topic(k), PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime",
                                                           "max.message.bytes": BIG})
            for k in ("in", "facts", "ticks", "out", "decided")
        ]  # fmt: skip
        topics += [
            NewTopic(self.topic(f"{t}-changelog"), PARTITIONS, 1, config={"cleanup.policy": "compact"})
            for t in ("counts", "progress")
        ]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.create_topics(topics).values():
            done.result(30)

    # workers

    def start(self, slot: str, env: dict[str, str] | None = None, **options: Any) -> Path:
        """Start a worker; the path of its log. `env` adds to the environment."""
        self._starts += 1
        log = self.folder / f"{self.app_id}-{slot}-{self._starts}.log"
        given = Options(self.app_id, self.bootstrap, slot, **options)
        with log.open("wb") as out:
            self.workers[slot] = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.engine_worker", given.dumps()],
                stdout=out, stderr=out, cwd=ROOT, env={**os.environ, **(env or {})},
            )  # fmt: skip
        return log

    def start_ready(self, slot: str, **options: Any) -> Path:
        """Start a worker and wait until it is ready."""
        log = self.start(slot, **options)
        until(lambda: "worker ready" in log.read_text(), 20, f"{slot} is ready: {log}")
        return log

    def kill(self, slot: str) -> None:
        process = self.workers.pop(slot)
        process.kill()
        process.wait()

    def stop(self, slot: str, within_s: float = 15.0) -> int:
        """SIGTERM; the exit code."""
        process = self.workers.pop(slot)
        process.send_signal(signal.SIGTERM)
        return process.wait(within_s)

    def wait_exit(self, slot: str, within_s: float) -> int:
        return self.workers.pop(slot).wait(within_s)

    def tend(self) -> None:
        """Restart what has ended, as a supervisor would."""
        for slot, process in list(self.workers.items()):
            if process.poll() is not None:
                self.restarts += 1
                self.start(slot)

    def close(self) -> None:
        for process in self.workers.values():
            process.kill()
            process.wait()

    # load and looks

    def send(self, kind: str, records: list[tuple[bytes | None, bytes | None]], **more: Any) -> None:
        out = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5,
                        "message.max.bytes": int(BIG), "enable.idempotence": True})  # fmt: skip
        for key, value in records:
            out.produce(self.topic(kind), value, key, **more)
            out.poll(0)
        assert out.flush(30) == 0

    def lag(self) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.app_id})
        try:
            lag = 0
            # The ticks topic ends in transaction markers, which nobody commits past.
            for tp in consumer.committed(
                [TopicPartition(t, p) for t in self.inputs[:2] for p in range(PARTITIONS)], 10
            ):
                low, high = consumer.get_watermark_offsets(tp, 10)
                lag += high - max(tp.offset, low)
        except KafkaException:
            return UNKNOWN  # the broker is coming back
        else:
            return lag
        finally:
            consumer.close()

    def drain(self, timeout_s: float) -> None:
        def drained() -> bool:
            self.tend()
            return self.lag() == 0

        until(drained, timeout_s, "all inputs are committed")

    def read(self, kind: str, timeout_s: float = 30.0) -> Iterator[Any]:
        """Every committed record that is in a topic now."""
        topic = self.topic(kind)
        conf = {"bootstrap.servers": self.bootstrap, "group.id": f"{self.app_id}-reader",
                "enable.partition.eof": True, "enable.auto.commit": False}  # fmt: skip
        raw = Consumer({**conf, "isolation.level": "read_uncommitted"})
        ends = {p: raw.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in range(PARTITIONS)}
        raw.close()
        consumer = Consumer({**conf, "isolation.level": "read_committed"})
        consumer.assign([TopicPartition(topic, p, 0) for p in ends])
        todo, end = set(ends), time.monotonic() + timeout_s
        try:
            while todo:
                assert time.monotonic() < end, f"{topic}: {todo} cannot be read to {ends}"
                for record in consumer.consume(10_000, 0.02):
                    if record.error() is None:
                        yield record
                        continue
                    is_end = record.error().code() == KafkaError._PARTITION_EOF
                    if is_end and record.offset() >= ends[record.partition()]:
                        todo.discard(record.partition())
        finally:
            consumer.close()

    def last_values(self, table: str) -> dict[tuple[int, bytes], bytes]:
        """The table as its changelog tells it: {(partition, key): value}."""
        found: dict[tuple[int, bytes], bytes] = {}
        for record in self.read(f"{table}-changelog"):
            if record.value() is None:
                found.pop((record.partition(), record.key()), None)
            else:
                found[record.partition(), record.key()] = record.value()
        return found

    def account(self) -> dict[str, int]:
        """Inputs against outputs and tables; all but `inputs` must be 0."""
        inputs: set[tuple[str, int, int]] = set()
        per_key: dict[tuple[int, bytes], int] = {}
        ticks = sum(1 for _ in self.read("ticks"))
        for kind in ("in", "facts"):
            for record in self.read(kind):
                inputs.add((record.topic(), record.partition(), record.offset()))
                where = (record.partition(), record.key())
                per_key[where] = per_key.get(where, 0) + 1
        seen: dict[tuple[str, int, int], int] = {}
        last: dict[tuple[int, bytes], int] = {}
        jumps = 0
        for record in self.read("out"):
            made = json.loads(record.value())
            source = tuple(made["src"])
            seen[source] = seen.get(source, 0) + 1
            where = (record.partition(), record.key())
            jumps += made["n"] != last.get(where, 0) + 1
            last[where] = made["n"]
        counts = self.last_values("counts")
        progress = sum(int(v) for v in self.last_values("progress").values())
        return {
            "inputs": len(inputs),
            "lost": len(inputs - seen.keys()),
            "unknown": len(seen.keys() - inputs),
            "twice": sum(n > 1 for n in seen.values()),
            "jumps": jumps,
            "wrong_counts": sum(json.loads(counts[w])["n"] != n for w, n in per_key.items() if w in counts),
            "missing_counts": sum(w not in counts for w in per_key),
            "progress_error": progress - len(inputs) - ticks,
        }

    def assert_exact(self, inputs: int) -> None:
        """Every one of `inputs` records has exactly one output; the tables agree."""
        found = self.account()
        assert found.pop("inputs") == inputs
        assert not any(found.values()), found


@pytest.fixture
def rig(broker: Broker, prefix: str, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(broker.bootstrap, tmp_path, prefix.rstrip("."))
    try:
        yield made
    finally:
        made.close()


def health(log: Path, path: str) -> tuple[int, dict[str, Any]]:
    """Ask the worker behind `log` for /livez or /readyz."""
    port = re.search(r"health at http://127\.0\.0\.1:(\d+)/", log.read_text())
    assert port is not None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def keys(count: int) -> list[bytes]:
    return [f"k{n:05d}".encode() for n in range(count)]


def load(count: int, key_count: int, start: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    """`count` small records over `key_count` keys."""
    return [(f"k{n % key_count:05d}".encode(), b"x" * 100) for n in range(start, start + count)]
