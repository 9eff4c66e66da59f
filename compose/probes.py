"""What a process says about itself on its loopback port: /livez, /readyz and /metrics.

    GET /livez     200 while it gets on, 503 when it should be started again; JSON with the reasons
    GET /readyz    200 once it has begun its work; the rest as above
    GET /metrics   Prometheus's text format (`compose.metrics`)

It must not listen beyond loopback, and shows counts and partition numbers only, never a key or a value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import uvicorn
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from compose.serving import Server, listening
from compose.settings import LOOPBACK
from schemas.errors import SettingsRefused
from streams.engine.health import Snapshot

log = logging.getLogger("backstop.probes")

OK, UNAVAILABLE = 200, 503
STUCK_AFTER_S = 60.0  # as the engine has it: twice the 30 s that publishing with Kafka away may take


@dataclass(frozen=True, slots=True)
class LoopLook:
    """Of a process that is a loop."""

    ready: bool
    live: bool
    reasons: tuple[str, ...]


Look = Callable[[], LoopLook | Snapshot]


class Beat:
    """When a loop last came round. Written by the loop, read from anywhere."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic, self._began_s = monotonic, monotonic()
        self._last_s: float | None = None

    def __call__(self) -> None:
        self._last_s = self._monotonic()

    def look(self) -> LoopLook:
        last_s, began = self._last_s, self._last_s is not None
        silent_s = self._monotonic() - (self._began_s if last_s is None else last_s)
        reasons = [] if began else ["starting"]
        if silent_s > STUCK_AFTER_S:
            reasons.append(f"has not come round for {silent_s:.0f} s")
        live = silent_s <= STUCK_AFTER_S
        return LoopLook(live and began, live, tuple(reasons))


def create_app(look: Look, exposition: Callable[[], bytes]) -> Starlette:
    """`look` is one look at the process, shown as it is."""

    async def livez(_request: Request) -> Response:
        found = look()
        return _answer(asdict(found), is_ok=found.live)

    async def readyz(_request: Request) -> Response:
        found = look()
        return _answer(asdict(found), is_ok=found.ready)

    async def metrics(_request: Request) -> Response:
        return Response(exposition(), media_type=CONTENT_TYPE_PLAIN_0_0_4, headers=_FRESH)

    return Starlette(routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)])


@contextmanager
def serving(
    look: Look, exposition: Callable[[], bytes], *, host: str = "127.0.0.1", port: int = 0
) -> Iterator[str]:
    """Answers from a thread until the block ends; `port` 0 picks a free one. Yields the address.

    Raises `SettingsRefused`.
    """
    if host not in LOOPBACK:
        raise SettingsRefused(["health_host: health is served on loopback only; put a proxy in front of it"])
    with listening(port, host=host, named="BACKSTOP_HEALTH_PORT") as listener:
        configuration = uvicorn.Config(
            create_app(look, exposition),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        with Server(configuration, listener) as url:
            log.info("health at %s/readyz, metrics at %s/metrics", url, url)
            yield url


_FRESH = {"Cache-Control": "no-store"}


def _answer(found: Mapping[str, Any], *, is_ok: bool) -> Response:
    return JSONResponse(dict(found), OK if is_ok else UNAVAILABLE, headers=_FRESH)
