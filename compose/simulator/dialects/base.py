"""What a dialect is: one provider's paths, headers, bodies and errors in front of the model.

A dialect parses that provider's requests into ours and says the model's answers in that provider's words,
from its documents. It must not decide what is answered, keep anything, or know the adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from compose.simulator.answers import Reply
from compose.simulator.desk import Desk, Say
from compose.simulator.ledger import Route
from compose.simulator.parts import Message, Request
from compose.simulator.script import IN_TRANSIT
from compose.simulator.wire import ascii_json

Happened = tuple[int, Any, str | None]  # instant (ms), the model's token, its reason
WEEK_MS = 604_800_000


@dataclass(frozen=True, slots=True)
class Said:
    """How a provider says one of the model's error codes: HTTP status, its own code, its text."""

    status: int
    code: Any
    text: str


class Dialect:
    """`errors`: by the model's code. The model's HTTP status and code stand for what is not in it."""

    name: ClassVar[str]
    errors: ClassVar[Mapping[str, Said]] = {}

    def __init__(self, desk: Desk) -> None:
        self.desk, self.model = desk, desk.model

    @staticmethod
    def message_id(stem: str) -> str:
        """An id in the provider's shape. `stem`: 32 hex digits, the same for the same message."""
        raise NotImplementedError

    def routes(self) -> Sequence[HttpRoute]:
        """Paths below the account's base address."""
        raise NotImplementedError

    def may(self, request: HttpRequest) -> bool:
        """Whether the request carries the secret, as this provider wants it carried."""
        raise NotImplementedError

    def error_body(self, said: Said) -> object:
        """An error in the provider's form."""
        raise NotImplementedError

    # what the routes are made of

    def account(self, request: HttpRequest) -> str:
        return str(request.path_params["account"])

    async def submit(self, request: HttpRequest, given: Request | None, say: Say) -> Response:
        """Ask the model; None is a request that is none."""
        now_ms = self.desk.now_ms()
        if given is None:
            reply = self.model.refuse(self.account(request), Route.SUBMIT, now_ms)
        else:
            reply = self.model.submit(given, now_ms)
        return await self.say(reply, say)

    async def describe(self, request: HttpRequest, message_id: str, say: Say) -> Response:
        """One message by id."""
        now_ms, account = self.desk.now_ms(), self.account(request)
        reply = self.model.look_up(account, message_id, now_ms, credential_ok=self.may(request))
        return await self.say(reply, say)

    async def find(self, request: HttpRequest, reference: str, say: Say) -> Response:
        """Those under one reference."""
        now_ms, account = self.desk.now_ms(), self.account(request)
        reply = self.model.search(account, reference, now_ms, credential_ok=self.may(request))
        return await self.say(reply, say)

    async def recent(self, request: HttpRequest, since_ms: int, until_ms: int, say: Say) -> Response:
        """Those taken within a time."""
        now_ms, account = self.desk.now_ms(), self.account(request)
        reply = self.model.window(account, since_ms, until_ms, now_ms, credential_ok=self.may(request))
        return await self.say(reply, say)

    async def say(self, reply: Reply, say: Say) -> Response:
        """An error in the provider's words, anything else as `say` has it."""
        return await self.desk.respond(reply, lambda told: self._error(told) or say(told))

    def _error(self, reply: Reply) -> Response | None:
        if reply.code < 400:
            return None
        code = str(reply.body.get("code", ""))
        said = self.errors.get(code) or Said(reply.code, code, str(reply.body.get("detail", "")))
        return ascii_json(self.error_body(said), said.status, reply.headers)

    def happened(self, message: Message) -> list[Happened]:
        """All that happened to a message so far, its acceptance first."""
        return list(message.happened(self.desk.now_ms()))


def first_status(reply: Reply) -> Any:
    """The word a submission was answered with: not `accepted` for what is taken and never sent (case F35)."""
    return reply.body.get("status", IN_TRANSIT)


def is_refused_at_once(reply: Reply) -> bool:
    """Whether an answer of success says that nothing will be sent."""
    return bool(first_status(reply) != IN_TRANSIT)


def stand_in_reference(to: str, content: str) -> str:
    """What names one message of ours at a provider that carries no reference: the same text to the same
    person is the same message."""
    return f"text-{sha256(f'{to}/{content}'.encode()).hexdigest()[:32]}"
