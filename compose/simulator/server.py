"""The simulated provider over HTTP on loopback: a wire like the ones providers document (README.md).

    POST /v1/{account}/messages              Authorization, Idempotency-Key, JSON → 202 {"id","status"}
    GET  /v1/{account}/messages/{id}         → {"id","reference","status","reason","at_ms"} or 404
    GET  /v1/{account}/messages?reference=   → {"messages": […]}
    POST /v1/{account}/messages/lookup       {"ids": […]} → {"messages": […]}
    GET  /v1/{account}/suppressions?since=   → {"suppressions": […],"more","next_since_ms"}
    errors                                   {"code","detail"}
    /as/{provider}/{account}/…               the same accounts in that provider's own words (`dialects`)
    GET  /ledger, /ledger/summary, /ledger/messages      what was asked and taken, hashes instead of content
    POST /admin/{credentials|outage}/{account}/{turn}, /admin/rules;  GET /healthz      (`admin`)

It must not decide anything (`compose.simulator.behaviour` does) or log a body.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from compose import serving
from compose.clock import Clock
from compose.simulator import admin, dialects
from compose.simulator.behaviour import Model
from compose.simulator.desk import Desk, bearer, json_object, read_body
from compose.simulator.ledger import Route
from compose.simulator.ledger_file import LedgerFile
from compose.simulator.parts import Request
from compose.simulator.wire import ConnectionProtocol


def create_app(model: Model, clock: Clock, *, credential: str, ledger_file: Path | None = None) -> Starlette:
    """The application; `credential` is what the bearer token must be.

    With `ledger_file` the model first takes up what an earlier simulator wrote there. `ValueError` when it
    is not a ledger.
    """
    file = None if ledger_file is None else LedgerFile(ledger_file)
    if file is not None:
        model.restore(file.read())
    desk = Desk(model, clock, credential, file)
    wire = _Provider(desk)
    messages = "/v1/{account}/messages"
    return Starlette(
        lifespan=_closing(file),
        routes=[
            HttpRoute(messages, wire.submit, methods=["POST"]),
            HttpRoute(messages, wire.search, methods=["GET"]),
            HttpRoute(f"{messages}/lookup", wire.batch, methods=["POST"]),
            HttpRoute(messages + "/{message_id:path}", wire.look_up, methods=["GET"]),
            HttpRoute("/v1/{account}/suppressions", wire.suppressions, methods=["GET"]),
            *dialects.routes(desk),
            *admin.routes(model, clock),
        ],
    )


def _closing(file: LedgerFile | None) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        if file is not None:
            file.close()

    return lifespan


class _Provider:
    """The routes of the simulator's own wire: parse, ask the model, answer."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._model = desk, desk.model

    async def submit(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        fields = json_object(body)
        account, now_ms = request.path_params["account"], self._desk.now_ms()
        submission = None if fields is None or body is None else self._submission(request, fields, body)
        if submission is None:
            return await self._desk.respond(self._model.refuse(account, Route.SUBMIT, now_ms))
        return await self._desk.respond(self._model.submit(submission, now_ms))

    async def look_up(self, request: HttpRequest) -> Response:
        account, wanted, now_ms = self._asks(request, request.path_params["message_id"])
        return await self._desk.respond(self._model.look_up(account, wanted, now_ms, **self._right(request)))

    async def search(self, request: HttpRequest) -> Response:
        account, reference, now_ms = self._asks(request, request.query_params.get("reference", ""))
        if not reference:
            return await self._desk.respond(self._model.refuse(account, Route.SEARCH, now_ms))
        return await self._desk.respond(
            self._model.search(account, reference, now_ms, **self._right(request))
        )

    async def batch(self, request: HttpRequest) -> Response:
        ids = (json_object(await read_body(request)) or {}).get("ids")
        account, now_ms = request.path_params["account"], self._desk.now_ms()
        if not isinstance(ids, list) or not all(isinstance(i, str) for i in ids):
            return await self._desk.respond(self._model.refuse(account, Route.BATCH, now_ms))
        return await self._desk.respond(self._model.batch(account, ids, now_ms, **self._right(request)))

    async def suppressions(self, request: HttpRequest) -> Response:
        account, since, now_ms = self._asks(request, request.query_params.get("since", "0"))
        if not (since.isascii() and since.isdigit() and len(since) < 16):
            return await self._desk.respond(self._model.refuse(account, Route.SUPPRESSIONS, now_ms))
        reply = self._model.suppressions(account, int(since), now_ms, **self._right(request))
        return await self._desk.respond(reply)

    def _asks(self, request: HttpRequest, wanted: str) -> tuple[str, str, int]:
        return request.path_params["account"], wanted, self._desk.now_ms()

    def _right(self, request: HttpRequest) -> dict[str, Any]:
        return {"credential_ok": self._desk.is_secret(bearer(request))}

    def _submission(self, request: HttpRequest, fields: Mapping[str, Any], body: bytes) -> Request | None:
        to, reference, limit = fields.get("to"), fields.get("reference", ""), fields.get("not_after_ms")
        if not isinstance(to, str) or not isinstance(reference, str) or not isinstance(limit, int | None):
            return None
        return Request(
            request.path_params["account"],
            reference,
            to,
            body,
            request.headers.get("idempotency-key"),
            not_after_ms=limit,
            **self._right(request),
        )


def configuration(app: Starlette, port: int) -> uvicorn.Config:
    """Loopback only, quiet: an access log would show recipients in paths."""
    return uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        http=ConnectionProtocol,
        ws="none",
        loop="asyncio",  # uvloop's sockets cannot be told to reset
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )


class Server(serving.Server):
    """The simulator in a thread, for tests and demonstrations: `with Server(app) as url:`."""

    def __init__(self, app: Starlette, port: int = 0) -> None:
        super().__init__(configuration(app, port))
