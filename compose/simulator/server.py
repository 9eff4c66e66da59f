"""The simulated provider over HTTP on loopback: a wire like the ones providers document.

    POST /v1/{account}/messages              Authorization, Idempotency-Key, JSON → 202 {"id","status"}
    GET  /v1/{account}/messages/{id}         → {"id","reference","status","reason","at_ms"} or 404
    GET  /v1/{account}/messages?reference=   → {"messages": […]}
    POST /v1/{account}/messages/lookup       {"ids": […]} → {"messages": […]}
    GET  /ledger                             every request, hashes instead of content
    POST /admin/credentials/{account}/{break|mend}, /admin/outage/{account}/{start|end}
    GET  /healthz

It must not decide anything (`compose.simulator.behaviour` does) or log a body.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from compose.clock import Clock
from compose.simulator.behaviour import Model, Reply, Request, Wire

HANG_S = 120.0  # longer than any client of ours waits
BODY_BYTES_MAX = 262_144
READY_S = 10.0

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _CutResponse(Response):
    """Announces a body, sends a part of it and ends: the connection closes in the middle."""

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:  # noqa: ARG002
        headers = [(b"content-type", b"application/json"), (b"content-length", b"4096")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id": "', "more_body": False})


def create_app(model: Model, clock: Clock, *, credential: str, ledger_file: Path | None = None) -> Starlette:
    """The application; `credential` is what the bearer token must be."""

    def authorised(request: HttpRequest) -> bool:
        return request.headers.get("authorization") == f"Bearer {credential}"

    async def submit(request: HttpRequest) -> Response:
        body = await request.body()
        try:
            fields = json.loads(body) if len(body) <= BODY_BYTES_MAX else None
        except ValueError:
            fields = None
        if not isinstance(fields, dict) or not isinstance(fields.get("to"), str):
            return JSONResponse({"code": "bad_request"}, 400)
        reply = model.submit(
            Request(
                request.path_params["account"],
                str(fields.get("reference", "")),
                fields["to"],
                body,
                request.headers.get("idempotency-key"),
                authorised(request),
            ),
            clock.now_ms(),
        )
        if ledger_file is not None:
            with ledger_file.open("a") as file:
                file.write(json.dumps(model.lines()[-1]) + "\n")
        return await _respond(reply)

    async def look_up(request: HttpRequest) -> Response:
        account, wanted = request.path_params["account"], request.path_params["message_id"]
        return await _respond(
            model.look_up(account, wanted, clock.now_ms(), credential_ok=authorised(request))
        )

    async def search(request: HttpRequest) -> Response:
        account, reference = request.path_params["account"], request.query_params.get("reference", "")
        return await _respond(
            model.search(account, reference, clock.now_ms(), credential_ok=authorised(request))
        )

    async def batch(request: HttpRequest) -> Response:
        ids = (await request.json()).get("ids", [])
        account = request.path_params["account"]
        return await _respond(model.batch(account, ids, clock.now_ms(), credential_ok=authorised(request)))

    async def ledger(_request: HttpRequest) -> Response:
        return JSONResponse({"entries": model.lines(), "duplicates": model.duplicates()})

    async def switch(request: HttpRequest) -> Response:
        what, account = request.path_params["what"], request.path_params["account"]
        which = model.broken_credentials if what == "credentials" else model.out_of_order
        (which.add if request.path_params["turn"] in ("break", "start") else which.discard)(account)
        return JSONResponse({"account": account, what: sorted(which)})

    async def health(_request: HttpRequest) -> Response:
        return JSONResponse({"ok": True})

    messages = "/v1/{account}/messages"
    return Starlette(
        routes=[
            Route(messages, submit, methods=["POST"]),
            Route(messages, search, methods=["GET"]),
            Route(f"{messages}/lookup", batch, methods=["POST"]),
            Route(messages + "/{message_id:path}", look_up, methods=["GET"]),
            Route("/ledger", ledger, methods=["GET"]),
            Route("/admin/{what}/{account}/{turn}", switch, methods=["POST"]),
            Route("/healthz", health, methods=["GET"]),
        ]
    )


async def _respond(reply: Reply) -> Response:
    if reply.wire is Wire.HANG:
        await asyncio.sleep(HANG_S)
    if reply.wire in (Wire.CUT, Wire.HANG):
        return _CutResponse()
    if reply.wire is Wire.HTML:
        return HTMLResponse("<html><body>gateway</body></html>", reply.code)
    return JSONResponse(dict(reply.body), reply.code, headers=dict(reply.headers))


def configuration(app: Starlette, port: int) -> uvicorn.Config:
    """Loopback only, quiet: an access log would show recipients in paths."""
    return uvicorn.Config(
        app, host="127.0.0.1", port=port, log_config=None, access_log=False, timeout_graceful_shutdown=1
    )


class Server:
    """The simulator in a thread, for tests and demonstrations: `with Server(app) as url:`."""

    def __init__(self, app: Starlette, port: int = 0) -> None:
        self._server = uvicorn.Server(configuration(app, port))
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(READY_S / 0.02)):
            if self._server.started:
                break
            waited.wait(0.02)
        else:
            raise TimeoutError("the simulator did not start")
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(READY_S)
