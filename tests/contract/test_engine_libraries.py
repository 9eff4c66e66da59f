"""Are the libraries under the engine what it takes them for?"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from streams.engine import group_metadata, selfcheck
from streams.engine.errors import SelfCheckFailed
from streams.engine.health import Health
from streams.worker.health_server import HealthServer


def test_the_installed_libraries_pass_the_self_check() -> None:
    selfcheck.check_libraries()


def test_our_group_metadata_is_librdkafkas() -> None:
    group_metadata.self_check()


def test_another_layout_of_the_group_metadata_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metadata, "MAGIC", b"CGMDv3:")
    with pytest.raises(SelfCheckFailed, match="unknown layout"):
        group_metadata.self_check()


@pytest.mark.parametrize(("generation", "member"), [(-1, ""), (-1, "m"), (3, "")])
def test_metadata_that_would_commit_unfenced_is_never_made(generation: int, member: str) -> None:
    with pytest.raises(ValueError, match="unfenced"):
        group_metadata.encode("g", generation, member)


def ask(port: int, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def test_probes_answer_by_status_and_say_why() -> None:
    async def scenario() -> list[tuple[int, dict[str, object]]]:
        health = Health(stuck_after_s=60.0)
        server = HealthServer(health)
        await server.start()
        try:
            before = [await asyncio.to_thread(ask, server.port, path) for path in ("/livez", "/readyz")]
            health.finish_restore((0,))
            after = await asyncio.to_thread(ask, server.port, "/readyz")
            health.failure = "Fenced"
            dead = await asyncio.to_thread(ask, server.port, "/livez")
        finally:
            await server.stop()
        return [*before, after, dead]

    live, unready, ready, dead = asyncio.run(scenario())
    assert (live[0], unready[0], ready[0], dead[0]) == (200, 503, 200, 503)
    assert unready[1]["reasons"] == ["rebalancing or restoring"]
    assert ready[1]["partitions"] == [0]


def test_health_is_served_on_loopback_only() -> None:
    with pytest.raises(ValueError, match="loopback"):
        HealthServer(Health(60.0), host="0.0.0.0")
