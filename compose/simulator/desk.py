"""What every wire of the simulator has in common: read a request, write the ledger down, answer or lose it.

It must not decide which answer is given (`behaviour` does) or know a provider's words (`dialects` do).
"""

from __future__ import annotations

import hmac
import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, Response

from compose.clock import Clock
from compose.simulator.answers import Reply, Wire
from compose.simulator.behaviour import Model
from compose.simulator.ledger_file import LedgerFile
from compose.simulator.wire import LostResponse, ascii_json

BODY_BYTES_MAX = 262_144  # an e-mail of ours is under 100 kB
_LOST = frozenset({Wire.CUT, Wire.RESET, Wire.CLOSE, Wire.HANG})

Say = Callable[[Reply], Response]


class Desk:
    """The model, the clock and the secret of one simulator, for all its wires."""

    def __init__(self, model: Model, clock: Clock, credential: str, file: LedgerFile | None) -> None:
        self.model, self._clock, self._credential, self._file = model, clock, credential, file
        self._written = len(model.ledger)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def is_secret(self, given: str) -> bool:
        """Whether this is what every credential of ours carries."""
        return hmac.compare_digest(given.encode(), self._credential.encode())

    @property
    def secret(self) -> str:
        """For wires whose requests are signed with it."""
        return self._credential

    async def respond(self, reply: Reply, say: Say | None = None) -> Response:
        """`say` puts an answer that arrives whole into a provider's words."""
        self._write()
        if reply.delay_ms:
            await self._clock.sleep(reply.delay_ms / 1000)
        if reply.wire in _LOST:
            return LostResponse(reply.wire, reply.code)
        if reply.wire is Wire.HTML:
            return HTMLResponse("<html><body>gateway</body></html>", reply.code)
        if reply.wire is Wire.EMPTY:
            return Response(status_code=reply.code)
        if reply.wire is Wire.LIST:
            return ascii_json([], reply.code, reply.headers)
        return plain(reply) if say is None else say(reply)

    def _write(self) -> None:
        if self._file is None:
            return
        for entry in self.model.ledger[self._written :]:
            self._file.append(entry)
            self._written += 1


def plain(reply: Reply) -> Response:
    """In the simulator's own words."""
    return ascii_json(dict(reply.body), reply.code, reply.headers)


def bearer(request: HttpRequest) -> str:
    """The token of `Authorization: Bearer …`; empty without one."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else ""


def login(request: HttpRequest) -> tuple[str, str]:
    """Name and secret of `Authorization: Basic …`; two empty texts without one."""
    kind, _, coded = request.headers.get("authorization", "").partition(" ")
    try:
        name, _, secret = b64decode(coded, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return (name, secret) if kind.lower() == "basic" else ("", "")


async def read_body(request: HttpRequest) -> bytes | None:
    """The body, or None when it is too long."""
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > BODY_BYTES_MAX:
            return None
    return bytes(read)


def json_object(body: bytes | None) -> dict[str, Any] | None:
    try:
        fields = json.loads(body or b"")
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
