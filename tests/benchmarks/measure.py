"""One process watched from outside: committed offsets, CPU time, what its log says.

It must not change what it watches.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

SAMPLE_S = 0.05
CALL_S = 10.0
STOP_S = 30.0
_NOT_YET = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


@dataclass(frozen=True, slots=True)
class Throughput:
    """Between the first and the last sample of committed offsets; None: it was over between two samples."""

    records: int
    records_per_s: float | None
    cpu_us_per_record: float | None
    resident_mib: float
    finished: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """From the start of the process to its own word that the states are back. None: not within the limit."""

    states: int
    ready_s: float | None
    cpu_s: float
    resident_mib: float


class Runner:
    """A process of ours with its log; ended on leaving the `with` block."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        self.started = time.monotonic()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=log.parent, env=environment, stdout=out, stderr=out
            )
        self._meter = psutil.Process(self._process.pid)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def require_alive(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"it ended early; the end of its log:\n{self.text()[-3000:]}")

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def cpu_s(self) -> float:
        times = self._meter.cpu_times()
        return float(times.user + times.system)

    def resident_mib(self) -> float:
        return float(self._meter.memory_info().rss) / 2**20


def throughput(
    runner: Runner, bootstrap: str, group: str, topics: Iterable[str], *, partitions: int, total: int,
    within_s: float,
) -> Throughput:  # fmt: skip
    """Sample until `total` records are committed by `group`, or until `within_s` have passed."""
    places = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
    probe = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2})
    first: tuple[int, float, float] | None = None
    try:
        while True:
            time.sleep(SAMPLE_S)
            runner.require_alive()
            done = _committed(probe, places)
            now, cpu = time.monotonic(), runner.cpu_s()
            if first is None and done:
                first = (done, now, cpu)
            if done >= total or now - runner.started > within_s:
                break
        resident = runner.resident_mib()
    finally:
        probe.close()
    counted = 0 if first is None else done - first[0]
    if first is None or not counted:
        return Throughput(done, None, None, resident, done >= total)
    rate, cpu_us = counted / (now - first[1]), (cpu - first[2]) / counted * 1e6
    return Throughput(done, rate, cpu_us, resident, done >= total)


def _committed(probe: Consumer, places: list[TopicPartition]) -> int:
    """Records below the committed offsets; 0 while the group's coordinator is still being made."""
    try:
        return sum(max(place.offset, 0) for place in probe.committed(places, CALL_S))
    except KafkaException as exc:
        if not exc.args[0].retriable() and exc.args[0].code() not in _NOT_YET:
            raise
        return 0


def recovery(runner: Runner, said: str, *, states: int, within_s: float) -> Recovery:
    """Until the log says `said` (a pattern)."""
    while not re.search(said, runner.text()):
        runner.require_alive()
        if time.monotonic() - runner.started > within_s:
            return Recovery(states, None, runner.cpu_s(), runner.resident_mib())
        time.sleep(SAMPLE_S)
    ready_s = time.monotonic() - runner.started
    return Recovery(states, ready_s, runner.cpu_s(), runner.resident_mib())
