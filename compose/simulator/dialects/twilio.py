"""Twilio Messaging's wire (PROVIDERS.md §5): forms in, JSON out, numbers for errors, no reference of ours.

    below /2010-04-01/Accounts/{sid}, Basic:
    POST /Messages.json          form To Body From|MessagingServiceSid → 201 {"sid",…}
    GET  /Messages/{sid}.json    → {"sid","status","error_code",…}, or 404 20404
    GET  /Messages.json?To=&From=&PageSize=   → {"messages": […],"next_page_uri": null}
    errors                       {"code","message","more_info","status"}

A login whose account does not exist is refused as a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from compose.simulator.answers import Reply
from compose.simulator.desk import login, read_body
from compose.simulator.dialects.base import Dialect, Said, first_status, stand_in_reference
from compose.simulator.parts import Message, Request
from compose.simulator.wire import ascii_json

# The model's word → status and error code. A reason that has a code of its own comes first.
STATUSES: dict[Any, tuple[str, int | None]] = {
    "accepted": ("queued", None),
    "sent": ("sent", None),
    "delivered": ("delivered", None),
    "undeliverable": ("undelivered", 30003),
    "expired": ("undelivered", 30036),
    "bounced": ("undelivered", 30005),
    "opted_out": ("failed", 21610),
    "suppressed": ("failed", 21610),
    "blocked": ("undelivered", 30007),
}
_ACCOUNT = "/2010-04-01/Accounts/{sid}"


class Twilio(Dialect):
    name: ClassVar[str] = "twilio"
    errors: ClassVar[Mapping[str, Said]] = {
        "no_such_account": Said(401, 20003, "Authenticate"),
        "unauthorized": Said(401, 20003, "Authenticate"),
        "forbidden": Said(401, 20003, "Authenticate"),
        "account_suspended": Said(403, 20005, "Account not active"),
        "unavailable": Said(503, 20503, "Service is unavailable"),
        "throttle": Said(429, 20429, "Too Many Requests"),
        "internal": Said(500, 20500, "An internal server error has occurred"),
        "bad_request": Said(400, 21602, "Message body is required"),
        "not_found": Said(404, 20404, "The requested resource was not found"),
        "invalid_recipient": Said(400, 21211, "Invalid 'To' Phone Number"),
        "suppressed": Said(400, 21610, "Attempt to send to unsubscribed recipient"),
        "complained": Said(400, 21610, "Attempt to send to unsubscribed recipient"),
        "opted_out": Said(400, 21610, "Attempt to send to unsubscribed recipient"),
        "blocked": Said(400, 21408, "Permission to send an SMS has not been enabled"),
        "content_refused": Said(400, 21612, "The message cannot be sent with this combination"),
    }

    @staticmethod
    def message_id(stem: str) -> str:
        return f"SM{stem}"

    def routes(self) -> Sequence[HttpRoute]:
        return [
            HttpRoute(f"{_ACCOUNT}/Messages.json", self._create, methods=["POST"]),
            HttpRoute(f"{_ACCOUNT}/Messages.json", self._list, methods=["GET"]),
            HttpRoute(_ACCOUNT + "/Messages/{message_id}.json", self._fetch, methods=["GET"]),
        ]

    def may(self, request: HttpRequest) -> bool:
        return self.desk.is_secret(login(request)[1])

    def error_body(self, said: Said) -> object:
        return {"code": said.code, "message": said.text, "more_info": "", "status": said.status}

    async def _create(self, request: HttpRequest) -> Response:
        body = await read_body(request) or b""
        fields = dict(parse_qsl(body.decode("utf-8", "replace")))
        to, text = fields.get("To", ""), fields.get("Body", "")
        sender = fields.get("From") or fields.get("MessagingServiceSid", "")
        given = None
        if to and text and sender:
            given = Request(
                self.account(request),
                stand_in_reference(to, text),
                to,
                body,
                credential_ok=self.may(request),
                content={"body": text, "from": sender},
            )
        return await self.submit(request, given, self._created)

    def _created(self, reply: Reply) -> Response:
        if "id" not in reply.body:
            return ascii_json({"status": "queued", "error_code": None}, 201)
        (message,) = reply.about
        status, code = STATUSES.get(first_status(reply), ("queued", None))
        return ascii_json(self._resource(message, message.message_id, status, code), 201)

    async def _fetch(self, request: HttpRequest) -> Response:
        return await self.describe(request, request.path_params["message_id"], self._fetched)

    def _fetched(self, reply: Reply) -> Response:
        (message,) = reply.about
        return ascii_json(self._now(message, reply.body["id"]))

    async def _list(self, request: HttpRequest) -> Response:
        return await self.recent(request, 0, self.desk.now_ms(), lambda reply: self._listed(request, reply))

    def _listed(self, request: HttpRequest, reply: Reply) -> Response:
        asked = request.query_params
        size = int(asked.get("PageSize", "50"))
        rows = [
            self._now(m, m.message_id)
            for m in reply.about
            if asked.get("To", m.to) == m.to and asked.get("From", m.content["from"]) == m.content["from"]
        ]
        return ascii_json({"messages": rows[:size], "next_page_uri": None})

    def _now(self, message: Message, message_id: str) -> dict[str, Any]:
        at_ms, token, reason = self.happened(message)[-1]
        status, code = STATUSES.get(token, (token, None))
        if reason == "unreachable":
            code = 30003
        return self._resource(message, message_id, status, code, at_ms)

    def _resource(
        self, message: Message, message_id: str, status: Any, code: int | None, at_ms: int = 0
    ) -> dict[str, Any]:
        return {
            "sid": message_id,
            "to": message.to,
            "from": message.content.get("from", ""),
            "body": message.content.get("body", ""),
            "direction": "outbound-api",
            "status": status,
            "error_code": code,
            "num_segments": "1",
            "date_created": _time(message.accepted_ms),
            "date_updated": _time(at_ms or message.accepted_ms),
        }


def _time(at_ms: int) -> str:
    """RFC 2822, whole seconds, as Twilio writes it."""
    return format_datetime(datetime.fromtimestamp(at_ms // 1000, UTC))
