"""Does every input have exactly one outcome, whatever happens to the processes? On the real broker."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest

from streams.engine.errors import ExitCode
from tests.integration import engine_rig
from tests.integration.engine_rig import Rig, health, keys, load, until

pytestmark = pytest.mark.proof

rig = engine_rig.rig  # the fixture


SESSION_S = 3.0  # of engine_worker.py


class Feeder:
    """Steady load from a thread while a test breaks things."""

    def __init__(self, rig: Rig, per_s: int) -> None:
        self.sent = 0
        self._rig, self._per_s = rig, per_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()

    def stop(self) -> int:
        self._end.set()
        self._thread.join()
        return self.sent

    def _feed(self) -> None:
        step = self._per_s // 10
        while not self._end.wait(0.1):
            self._rig.send("in", load(step // 2, 300, self.sent))
            self._rig.send("facts", load(step - step // 2, 300, self.sent))
            self.sent += step


def pass_time(rig: Rig, seconds: float) -> None:
    """Let the workers run for a while, restarting what ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rig.tend()
        time.sleep(0.1)


def test_two_workers_killed_under_load_leave_exactly_one_output_per_input(rig: Rig) -> None:
    rig.start_ready("a")
    rig.start_ready("b")
    feeder = Feeder(rig, 2_000)
    try:
        for slot in ("a", "b", "a"):
            pass_time(rig, 1.2)
            rig.workers[slot].kill()
    finally:
        sent = feeder.stop()
    rig.drain(25)
    assert rig.restarts >= 3
    rig.assert_exact(sent)


def test_a_worker_frozen_longer_than_its_session_writes_nothing_afterwards(rig: Rig) -> None:
    log = rig.start_ready("a")
    rig.start_ready("b")
    feeder = Feeder(rig, 1_000)
    try:
        pass_time(rig, 1.5)
        frozen = rig.workers["a"]
        frozen.send_signal(signal.SIGSTOP)
        time.sleep(1.7 * SESSION_S)
        frozen.send_signal(signal.SIGCONT)
        pass_time(rig, 2.0)
    finally:
        sent = feeder.stop()
    rig.drain(25)
    rig.assert_exact(sent)
    text = log.read_text()
    assert "twin" not in text, "a pause is not a twin"


def test_an_exception_ends_the_worker_with_nothing_of_the_chunk_visible(rig: Rig) -> None:
    rig.send("in", [(key, b"x") for key in keys(2_000)])
    at = 150
    log = rig.start("a", fail_at=at)
    assert rig.wait_exit("a", 25) == ExitCode.FAILED
    assert f"{rig.topic('in')}/0 offset {at}" in log.read_text()
    sources = [json.loads(r.value())["src"] for r in rig.read("out") if r.partition() == 0]
    assert all(offset < at for _, _, offset in sources)
    rig.start_ready("a")
    rig.drain(20)
    rig.assert_exact(2_000)


def test_a_restart_restores_the_state_and_goes_on_counting(rig: Rig) -> None:
    rig.start_ready("a")
    rig.send("in", load(3_000, 100))
    rig.drain(20)
    assert rig.stop("a") == ExitCode.STOPPED
    rig.send("in", load(3_000, 100))
    log = rig.start_ready("a")
    rig.drain(20)
    assert "restored 4 partitions" in log.read_text()
    assert rig.stop("a") == ExitCode.STOPPED
    rig.assert_exact(6_000)  # the counters of `n` run on without a gap


def test_workers_that_join_and_leave_under_load_lose_and_repeat_nothing(rig: Rig) -> None:
    rig.start_ready("a")
    feeder = Feeder(rig, 2_000)
    try:
        rig.start_ready("b")
        pass_time(rig, 0.6)
        rig.start_ready("c")
        pass_time(rig, 0.6)
        assert rig.stop("a") == ExitCode.STOPPED
        pass_time(rig, 1.0)
    finally:
        sent = feeder.stop()
    rig.drain(25)
    assert rig.restarts == 0
    rig.assert_exact(sent)


def test_odd_records_reach_the_processor_untouched(rig: Rig) -> None:
    big = b"x" * 2_000_000
    odd: list[tuple[bytes | None, bytes | None]] = [
        (None, b"no key"),
        (b"gone", None),
        (b"", b""),
        (b"b", big),
    ]
    rig.send("in", odd, headers=[("ce_id", b"1"), ("ce_id", b"2"), ("raw", b"\x00\xff")])
    rig.start_ready("a")
    rig.drain(20)
    found = {r.key(): r for r in rig.read("out")}
    assert {k: json.loads(r.value())["size"] for k, r in found.items()} == {
        None: 6,
        b"gone": None,
        b"": 0,
        b"b": len(big),
    }
    for record in found.values():
        assert record.headers() == [("ce_id", b"1"), ("ce_id", b"2"), ("raw", b"\x00\xff")]


def test_a_twin_of_the_same_slot_fences_the_first_which_names_both(rig: Rig) -> None:
    first = rig.start_ready("a")
    older = rig.workers.pop("a")
    rig.start("a")  # another process, the same slot
    twin = rig.workers["a"]
    try:
        end = time.monotonic() + 20
        while older.poll() is None and time.monotonic() < end:
            rig.send("in", load(40, 40))
            time.sleep(0.2)
        assert older.returncode == ExitCode.FENCED
        assert "slot 'a'" in first.read_text()
        assert "twin" in first.read_text()
        assert twin.poll() is None
    finally:
        older.kill()
        older.wait()


def test_probes_stay_prompt_under_slow_records_and_the_debug_signal_prints_nothing(rig: Rig) -> None:
    log = rig.start_ready("a", slow_fact_s=0.01)
    status, body = health(log, "readyz")
    assert (status, body["ready"], body["partitions"]) == (200, True, [0, 1, 2, 3])
    size = log.stat().st_size
    rig.workers["a"].send_signal(signal.SIGUSR1)
    rig.workers["a"].send_signal(signal.SIGUSR2)
    status, body = health(log, "livez")
    assert (status, body["live"]) == (200, True)
    assert log.stat().st_size == size
    rig.send("facts", load(600, 300))
    until(lambda: health(log, "livez")[1]["counters"]["inputs"] > 0, 10, "the first commit")
    # 600 records of 10 ms are 6 s of work; a chunk cut by time commits long before it is through.
    waits = []
    for _ in range(10):
        began = time.monotonic()
        _, body = health(log, "livez")
        waits.append(time.monotonic() - began)
    assert body["counters"]["inputs"] < 600
    assert sorted(waits)[5] < 0.4
    began = time.monotonic()
    assert rig.stop("a") == ExitCode.STOPPED
    assert time.monotonic() - began < 6
