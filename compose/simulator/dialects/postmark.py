"""Postmark's wire (PROVIDERS.md §6): `ErrorCode` in the body, events without a state, bounces by their id.

    POST /email                           X-Postmark-Server-Token → 200 {"MessageID","ErrorCode": 0}
    GET  /messages/outbound?metadata_attempt=&count=&offset=   → {"TotalCount","Messages": […]}
    GET  /messages/outbound/{id}/details  → {"MessageID","Status","MessageEvents": […]}, or 422 701
    GET  /bounces/{number}                → {"ID","Type",…}
    errors                                {"ErrorCode","Message"}

Postmark refuses no content: what the model calls blocked or content is an account that may not send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from compose.simulator.answers import Reply
from compose.simulator.desk import json_object, read_body
from compose.simulator.dialects.base import Dialect, Happened, Said, is_refused_at_once
from compose.simulator.parts import Message, Request
from compose.simulator.wire import ascii_json

INACTIVE = Said(422, 406, "You tried to send to a recipient that has been marked as inactive.")
EVENTS_MAX = 1_000  # of one message
EASTERN = timezone(timedelta(hours=-5))
# The model's word (and reason) → Type of the event, Type of the bounce.
EVENTS: dict[Any, tuple[str, str | None]] = {
    "delivered": ("Delivered", None),
    "deferred": ("Transient", None),
    "bounced": ("Bounced", "HardBounce"),
    "complained": ("Bounced", "SpamComplaint"),
    "suppressed": ("Bounced", "ManuallyDeactivated"),
    "blocked": ("Bounced", "Blocked"),
}
_SENT_WORDS = frozenset({"accepted", "queued", "sending", "sent", "processed"})


class Postmark(Dialect):
    name: ClassVar[str] = "postmark"
    errors: ClassVar[Mapping[str, Said]] = {
        "no_such_account": Said(
            401, 10, "No Account or Server API tokens were supplied in the HTTP headers."
        ),
        "unauthorized": Said(401, 10, "The Server Token you provided is not valid."),
        "forbidden": Said(401, 10, "The Server Token you provided is not valid."),
        "account_suspended": Said(422, 405, "Your account has run out of credits."),
        "unavailable": Said(503, 100, "The Postmark API is offline for maintenance."),
        "throttle": Said(429, 429, "Too many requests."),
        "internal": Said(500, 500, "Something went wrong."),
        "bad_request": Said(422, 402, "The JSON is not well formed."),
        "not_found": Said(422, 701, "This message does not exist."),
        "invalid_recipient": Said(422, 300, "Error parsing 'To': Illegal email address."),
        "suppressed": INACTIVE,
        "complained": INACTIVE,
        "opted_out": INACTIVE,
        "blocked": Said(422, 412, "Your account is pending approval."),
        "content_refused": Said(422, 413, "Your account may not send this."),
    }

    @staticmethod
    def message_id(stem: str) -> str:
        return "-".join((stem[:8], stem[8:12], stem[12:16], stem[16:20], stem[20:]))

    def routes(self) -> Sequence[HttpRoute]:
        return [
            HttpRoute("/email", self._email, methods=["POST"]),
            HttpRoute("/messages/outbound", self._search, methods=["GET"]),
            HttpRoute("/messages/outbound/{message_id}/details", self._details, methods=["GET"]),
            HttpRoute("/bounces/{bounce:int}", self._bounce, methods=["GET"]),
        ]

    def may(self, request: HttpRequest) -> bool:
        return self.desk.is_secret(request.headers.get("x-postmark-server-token", ""))

    def error_body(self, said: Said) -> object:
        return {"ErrorCode": said.code, "Message": said.text}

    async def _email(self, request: HttpRequest) -> Response:
        body = await read_body(request)
        fields = json_object(body) or {}
        given = None
        to, metadata = fields.get("To"), fields.get("Metadata", {})
        asked_right = request.headers.get("accept") == "application/json"
        if isinstance(to, str) and isinstance(metadata, dict) and asked_right:
            given = Request(
                self.account(request),
                str(metadata.get("attempt", "")),
                to,
                body or b"",
                credential_ok=self.may(request),
            )
        return await self.submit(request, given, self._taken)

    def _taken(self, reply: Reply) -> Response:
        if is_refused_at_once(reply):  # a success that is none (case F35)
            return ascii_json(self.error_body(INACTIVE), 200)
        said: dict[str, Any] = {"ErrorCode": 0, "Message": "OK"}
        if "id" in reply.body:
            said |= {"MessageID": reply.body["id"], "SubmittedAt": _time(self.desk.now_ms())}
        return ascii_json(said)

    async def _search(self, request: HttpRequest) -> Response:
        return await self.find(request, request.query_params.get("metadata_attempt", ""), self._found)

    def _found(self, reply: Reply) -> Response:
        rows = [
            self._entry(told["id"], told["reference"], message)
            for told, message in zip(reply.body["messages"], reply.about, strict=True)
        ]
        return ascii_json({"TotalCount": len(rows), "Messages": rows})

    def _entry(self, message_id: str, reference: str, message: Message) -> dict[str, Any]:
        return {
            "MessageID": message_id,
            "Metadata": {"attempt": reference},
            "Status": "Sent",
            "ReceivedAt": _time(message.accepted_ms),
        }

    async def _details(self, request: HttpRequest) -> Response:
        return await self.describe(request, request.path_params["message_id"], self._described)

    def _described(self, reply: Reply) -> Response:
        (message,) = reply.about
        told = self._entry(reply.body["id"], message.reference, message)
        found = enumerate(self.happened(message))
        events = [self._event(message, n, one) for n, one in found if one[1] not in _SENT_WORDS]
        return ascii_json(told | {"MessageEvents": events})

    def _event(self, message: Message, number: int, one: Happened) -> dict[str, Any]:
        at_ms, token, _ = one
        kind, bounce = EVENTS.get(token, (token, None))
        details = {} if bounce is None else {"BounceID": _bounce_id(message, number), "Summary": "…"}
        return {"Type": kind, "ReceivedAt": _time(at_ms), "Details": details}

    async def _bounce(self, request: HttpRequest) -> Response:
        stem, number = divmod(int(request.path_params["bounce"]), EVENTS_MAX)
        message_id = self.message_id(f"{stem:032x}")
        return await self.describe(request, message_id, lambda reply: self._bounced(reply, number))

    def _bounced(self, reply: Reply, number: int) -> Response:
        (message,) = reply.about
        found = self.happened(message)
        token, reason = found[number][1:] if number < len(found) else ("", None)
        kind = EVENTS.get(token, ("", None))[1]
        if kind == "HardBounce" and reason == "suppressed":
            kind = "ManuallyDeactivated"
        said = {"ID": _bounce_id(message, number), "MessageID": reply.body["id"], "Type": kind}
        return ascii_json(said)


def _bounce_id(message: Message, number: int) -> int:
    """A number that names message and event, so that nothing has to be remembered."""
    return int(message.message_id.replace("-", ""), 16) * EVENTS_MAX + number


def _time(at_ms: int) -> str:
    """Seven digits of a second and Eastern Time, as Postmark writes it."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(EASTERN)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}0000-05:00"
