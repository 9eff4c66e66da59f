"""/livez and /readyz as JSON on a loopback port: 200 when yes, 503 when not.

It must not listen beyond loopback and shows counts and partition numbers only, never a key or a value.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from aiohttp import web
from mode import Service

from streams.engine.health import Health, Snapshot

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
OK, UNAVAILABLE = 200, 503
SHUTDOWN_S = 1.0  # a probe that is still being answered gets this long


class HealthServer(Service):
    """Start it beside the app, so that it answers from the first second on. `port` 0 picks a free one."""

    def __init__(self, health: Health, *, host: str = "127.0.0.1", port: int = 0, **kwargs: Any) -> None:
        if host not in LOOPBACK:
            raise ValueError("health is served on loopback only; put a proxy in front of it")
        super().__init__(**kwargs)
        self._health, self._host, self._port = health, host, port
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 before the start."""
        addresses = self._runner.addresses if self._runner is not None else []
        return int(addresses[0][1]) if addresses else 0

    async def on_start(self) -> None:
        app = web.Application()
        app.add_routes([web.get("/livez", self._livez), web.get("/readyz", self._readyz)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self.log.info("health at http://%s:%d/readyz", self._host, self.port)

    async def on_stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, _request: web.Request) -> web.Response:
        found = self._health.snapshot()
        return _answer(found, is_ok=found.live)

    async def _readyz(self, _request: web.Request) -> web.Response:
        found = self._health.snapshot()
        return _answer(found, is_ok=found.ready)


def _answer(found: Snapshot, *, is_ok: bool) -> web.Response:
    return web.Response(
        status=OK if is_ok else UNAVAILABLE,
        text=json.dumps(asdict(found), sort_keys=True),
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
