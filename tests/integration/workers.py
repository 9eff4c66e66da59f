"""A deployment of real worker processes on the shared broker, for tests: settings, processes, load, counts.

It must not hold an expectation.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from confluent_kafka import Producer

from compose import keys
from compose.releases import put_policies
from schemas.codec import Undecodable, decode
from schemas.record import Record, TopicKind
from schemas.topics import WORKER_INPUTS, TopicNames
from sinks.kafka import admin
from sinks.kafka.consumer import Message, read_all
from tests.builders import POLICY_REF, POLICY_TEXT

WAIT_S = 60.0
ACCOUNTS = """
[[accounts]]
name = "mail-a"
provider = "simulated"
channel = "email"
base_url = "http://127.0.0.1:1"
capabilities = { lookup_by_message_id = true, lookup_by_reference = true, visibility_delay_ms = 0 }
[[accounts]]
name = "text-a"
provider = "simulated"
channel = "sms"
base_url = "http://127.0.0.1:1"
capabilities = { lookup_by_message_id = true, lookup_by_reference = true, visibility_delay_ms = 0 }
"""


class Deployment:
    """One prefix with its topics, keys, policies and worker processes."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path, *, partitions: int = 4) -> None:
        self.bootstrap, self.names, self.folder = bootstrap, TopicNames(prefix), folder
        self.layout = admin.Layout(self.names, partitions, 1, 1)
        keys.generate(folder / "keys")
        (folder / "accounts.toml").write_text(ACCOUNTS)
        put_policies(folder / "policies", {POLICY_REF: POLICY_TEXT})
        admin.create(bootstrap, self.layout)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("BACKSTOP_")},
            "BACKSTOP_KAFKA": self.bootstrap,
            "BACKSTOP_PREFIX": self.names.prefix,
            "BACKSTOP_PARTITIONS": str(self.layout.partitions),
            "BACKSTOP_REPLICATION": "1",
            "BACKSTOP_MIN_INSYNC": "1",
            "BACKSTOP_KEYS": str(self.folder / "keys"),
            "BACKSTOP_ACCOUNTS_FILE": str(self.folder / "accounts.toml"),
            "BACKSTOP_POLICIES_DIR": str(self.folder / "policies"),
            "BACKSTOP_SESSION_TIMEOUT_MS": "3000",
            "BACKSTOP_TICK_INTERVAL_MS": "50",
        }

    def start(self, slot: str) -> subprocess.Popen[bytes]:
        """`backstop worker` under this slot; its log is worker-<slot>.log."""
        with (self.folder / f"worker-{slot}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "compose.cli", "worker"],
                env=self.environment | {"BACKSTOP_WORKER_SLOT": slot},
                stdout=log,
                stderr=log,
            )
        self.processes[slot] = process
        return process

    def stop(self) -> dict[str, int]:
        """SIGTERM for all; exit codes by slot."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        codes = {}
        for slot, process in self.processes.items():
            try:
                codes[slot] = process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[slot] = process.wait()
        return codes

    def log(self, slot: str) -> str:
        return (self.folder / f"worker-{slot}.log").read_text(errors="replace")

    # topics

    def read(self, kind: TopicKind) -> list[Message]:
        return list(read_all(self.bootstrap, self.names[kind]))

    def records(self, kind: TopicKind) -> list[Record]:
        found = [decode(kind, m.key, m.value) for m in self.read(kind)]
        assert not any(isinstance(r, Undecodable) for r in found)
        return [r for r in found if not isinstance(r, Undecodable)]

    def inputs(self) -> dict[str, int]:
        """Records per input topic."""
        return {self.names[k]: len(self.read(k)) for k in WORKER_INPUTS}

    def progress(self) -> dict[str, Counter[str]]:
        """The counters of the changelog, last row per partition and topic, summed by topic."""
        rows: dict[tuple[int, bytes], bytes | None] = {}
        for message in read_all(self.bootstrap, self.names.changelog("progress")):
            rows[message.partition, message.key or b""] = message.value
        total: dict[str, Counter[str]] = {}
        for (_, topic), row in rows.items():
            counted: dict[str, int] = orjson.loads(row or b"{}")
            total.setdefault(topic.decode(), Counter()).update(counted)
        return total

    def publish(self, kind: TopicKind, records: list[tuple[bytes, bytes]]) -> None:
        """Key and value pairs, acknowledged."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5}
        )
        for key, value in records:
            producer.produce(self.names[kind], value, key)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    def drained(self) -> bool:
        """Every input record is counted, whatever its fate."""
        progress = self.progress()
        return all(progress.get(t, Counter())["inputs"] == n for t, n in self.inputs().items())


def wait_for(what: object, *, within_s: float = WAIT_S) -> None:
    """Until `what()` holds; fails by name when it does not in time."""
    assert callable(what)
    until = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < until, f"not within {within_s:.0f} s: {getattr(what, '__name__', what)}"
        time.sleep(0.2)


@contextmanager
def deployment(bootstrap: str, prefix: str, folder: Path, *, partitions: int = 4) -> Iterator[Deployment]:
    """A deployment whose processes end with the test; their logs are shown when it fails."""
    one = Deployment(bootstrap, prefix, folder, partitions=partitions)
    try:
        yield one
    except BaseException:
        for slot in one.processes:
            print(f"--- worker {slot}\n{one.log(slot)[-4000:]}")
        raise
    finally:
        one.stop()


def as_json(message: Message) -> dict[str, object]:
    found: dict[str, object] = json.loads(message.value or b"{}")
    return found
