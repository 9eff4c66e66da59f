"""Are ticks neither early, nor lost, nor ahead of the evidence? On the real broker."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.integration import engine_rig
from tests.integration.engine_rig import Rig, keys, until

pytestmark = pytest.mark.proof

rig = engine_rig.rig  # the fixture


FAR_MS = 60_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def decided(rig: Rig) -> dict[bytes, list[dict[str, Any]]]:
    found: dict[bytes, list[dict[str, Any]]] = {}
    for record in rig.read("decided"):
        found.setdefault(record.key(), []).append(json.loads(record.value()))
    return found


def with_due(key: bytes, at_ms: int, latest_ms: int) -> tuple[bytes, bytes]:
    return key, json.dumps({"due": [at_ms, latest_ms]}).encode()


def wait_for(rig: Rig, count: int, timeout_s: float) -> dict[bytes, list[dict[str, Any]]]:
    def all_there() -> dict[bytes, list[dict[str, Any]]] | None:
        rig.tend()
        found = decided(rig)
        return found if len(found) >= count else None

    found: dict[bytes, list[dict[str, Any]]] = until(all_there, timeout_s, f"{count} keys are decided")
    return found


def test_every_due_key_is_decided_once_and_never_early_although_a_worker_is_killed(rig: Rig) -> None:
    rig.start_ready("a")
    rig.start_ready("b")
    start = now_ms() + 500
    due = {key: start + n * 10 for n, key in enumerate(keys(600))}  # over 6 s
    rig.send("in", [with_due(key, at, at + FAR_MS) for key, at in due.items()])
    time.sleep(2.0)
    rig.workers["b"].kill()
    found = wait_for(rig, len(due), 30)
    assert found.keys() == due.keys()
    assert all(len(made) == 1 for made in found.values())
    for key, (made,) in found.items():
        assert made["decided"] >= due[key]
        assert made["emitted_at_ms"] >= due[key]
        assert made["evidence_until_ms"] >= due[key]


def test_a_tick_waits_for_the_evidence_in_the_log_unless_its_latest_instant_comes(rig: Rig) -> None:
    rig.start_ready("a", slow_fact_s=0.001, settings={"chunk_records_max": 50})
    at = now_ms() + 3_500
    patient, hasty = keys(400)[:200], keys(400)[200:]
    rig.send("in", [with_due(key, at, at + FAR_MS) for key in patient])
    rig.send("in", [with_due(key, at, at + 100) for key in hasty])
    rig.drain(10)
    filler: list[tuple[bytes | None, bytes | None]] = [(b"f%d" % n, b"") for n in range(5_000)]
    rig.send("facts", [*filler, *((key, b"") for key in patient + hasty)])
    assert now_ms() < at, "the evidence must be in the log before the instant"
    found = wait_for(rig, 400, 25)
    assert all(found[key][0]["facts"] == 1 for key in patient)
    assert all(found[key][0]["evidence_until_ms"] >= at for key in patient)
    # The queue of 5 000 slow records lasts for seconds, so the latest instant came first.
    assert all(found[key][0]["evidence_until_ms"] < at for key in hasty)
    assert all(at + 100 <= found[key][0]["emitted_at_ms"] < at + 1_500 for key in hasty)


def test_timers_are_rebuilt_from_the_state_after_a_restart(rig: Rig) -> None:
    rig.start_ready("a")
    at = now_ms() + 4_000
    rig.send("in", [with_due(key, at, at + FAR_MS) for key in keys(50)])
    rig.drain(10)
    assert rig.stop("a") == 0
    assert not decided(rig)
    rig.start_ready("a")
    found = wait_for(rig, 50, 20)
    assert all(len(made) == 1 and made[0]["decided"] >= at for made in found.values())
