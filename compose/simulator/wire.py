"""Answers that are lost for real: the connection closes, is reset or stays silent.

It must not choose what is lost. Works on uvicorn's h11 protocol, which is what `server` starts; under any
other server a lost answer is a body that ends too soon.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from compose.simulator.answers import Wire

HANG_S = 120.0  # longer than any client of ours waits
ANNOUNCED_BYTES = 4096  # the length that a cut body was to have
CONNECTION = "backstop.connection"
_NO_LINGER = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST (POSIX)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ConnectionProtocol(H11Protocol):
    """HTTP/1.1 that shows the application its connection, so that it can break it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False  # uvicorn's own switch is not heeded once the root logger has a handler
        inner: Any = self.app

        async def with_connection(scope: Any, receive: Any, send: Any) -> None:
            scope[CONNECTION] = self.transport
            await inner(scope, receive, send)

        self.app = with_connection


def ascii_json(content: object, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON in ASCII, so that half a surrogate pair or a NUL can be said as providers do (case F03)."""
    text = json.dumps(content, separators=(",", ":"))
    return Response(text, code, dict(headers or {}), media_type="application/json")


class LostResponse(Response):
    """A response of which the client gets a part or nothing."""

    def __init__(self, wire: Wire, code: int) -> None:
        super().__init__(status_code=code)
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: asyncio.Transport | None = scope.get(CONNECTION)
        if self._wire is Wire.HANG:
            await _wait_for_the_client(receive)
        elif self._wire is not Wire.CLOSE or connection is None:
            await self._begin(send, is_last=connection is None)
        if connection is not None:
            if self._wire is Wire.RESET:
                _without_goodbye(connection)
            connection.close()
            await _gone(receive)

    async def _begin(self, send: Send, *, is_last: bool) -> None:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(ANNOUNCED_BYTES).encode()),
        ]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id": "', "more_body": not is_last})


def _without_goodbye(connection: asyncio.Transport) -> None:
    raw = connection.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


async def _wait_for_the_client(receive: Receive) -> None:
    try:
        await asyncio.wait_for(_gone(receive), HANG_S)
    except TimeoutError:
        return


async def _gone(receive: Receive) -> None:
    """Until the connection is gone; the server must not try to answer on it."""
    while (await receive())["type"] != "http.disconnect":
        pass
