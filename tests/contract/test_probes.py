"""/livez, /readyz and /metrics over real HTTP: status, reasons, and when a loop counts as stuck."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from compose import probes
from compose.probes import STUCK_AFTER_S, Beat
from compose.serving import listening
from schemas.errors import SettingsRefused
from streams.engine.health import Health


def ask(url: str, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{url}/{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def test_probes_answer_by_status_and_say_why() -> None:
    health = Health(stuck_after_s=60.0)
    with probes.serving(health.snapshot, bytes) as url:
        assert ask(url, "livez")[0] == 200
        unready = ask(url, "readyz")
        assert (unready[0], unready[1]["reasons"]) == (503, ["rebalancing or restoring"])
        health.finish_restore((0,))
        ready = ask(url, "readyz")
        assert (ready[0], ready[1]["partitions"]) == (200, [0])
        health.failure = "Fenced"
        assert ask(url, "livez")[0] == 503


def test_a_loop_is_ready_once_it_came_round_and_dead_when_it_no_longer_does() -> None:
    now_s = [100.0]
    beat = Beat(lambda: now_s[0])
    with probes.serving(beat.look, bytes) as url:
        assert ask(url, "livez")[0] == 200
        assert ask(url, "readyz") == (503, {"ready": False, "live": True, "reasons": ["starting"]})
        beat()
        now_s[0] += STUCK_AFTER_S
        assert ask(url, "readyz") == (200, {"ready": True, "live": True, "reasons": []})
        now_s[0] += 1.0
        stuck = {"ready": False, "live": False, "reasons": ["has not come round for 61 s"]}
        assert [ask(url, path) for path in ("livez", "readyz")] == [(503, stuck)] * 2
        beat()
        assert ask(url, "livez")[0] == 200


def test_a_loop_that_never_began_is_dead_after_the_same_time() -> None:
    now_s = [0.0]
    beat = Beat(lambda: now_s[0])
    now_s[0] = STUCK_AFTER_S + 1.0
    assert beat.look().live is False
    assert beat.look().reasons == ("starting", "has not come round for 61 s")


def test_metrics_are_given_as_prometheus_reads_them() -> None:
    health = Health(stuck_after_s=60.0)
    with (
        probes.serving(health.snapshot, lambda: b"backstop_x 1\n") as url,
        urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer,
    ):
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.read() == b"backstop_x 1\n"


def test_health_is_served_on_loopback_only() -> None:
    with (
        pytest.raises(SettingsRefused, match="loopback"),
        probes.serving(Health(60.0).snapshot, bytes, host="0.0.0.0"),
    ):
        pass


def test_a_port_that_is_taken_is_refused_with_the_setting_to_change() -> None:
    with listening(0) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(SettingsRefused, match=f"{port} cannot be used") as refused,
            probes.serving(Health(60.0).snapshot, bytes, port=port),
        ):
            pass
    assert "BACKSTOP_HEALTH_PORT" in refused.value.remedy
