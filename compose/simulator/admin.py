"""Reading the simulator's ledger, and turning its faults on and off over HTTP.

    GET  /ledger?account=&reference=&route=&since_ms=&taken=1   → {"entries": […], "duplicates": […]}
    GET  /ledger/summary                                        → per account, by answer
    GET  /ledger/messages                                       → every message with its statuses and times
    POST /admin/credentials/{account}/{break|forbid|mend}       401, 403, as before
    POST /admin/outage/{account}/{start|end}                    503; {"for_ms": 5000, "retry_after_s": 2}
    POST /admin/rules       {"rules": [{"to": "person*@example.com", "plot": {…}}]} replaces all rules
    GET  /healthz

It must not be reachable from elsewhere than this machine: it asks for no credential.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from compose.clock import Clock
from compose.simulator.behaviour import Model
from compose.simulator.ledger import Entry, line
from compose.simulator.parts import RULES_MAX, Outage, Rule
from compose.simulator.script import Plot
from compose.simulator.wire import ascii_json


def routes(model: Model, clock: Clock) -> list[HttpRoute]:
    """The routes of the ledger and of the faults."""
    desk = _Desk(model, clock)
    return [
        HttpRoute("/ledger", desk.ledger, methods=["GET"]),
        HttpRoute("/ledger/summary", desk.summary, methods=["GET"]),
        HttpRoute("/ledger/messages", desk.messages, methods=["GET"]),
        HttpRoute("/admin/credentials/{account}/{turn}", desk.credentials, methods=["POST"]),
        HttpRoute("/admin/outage/{account}/{turn}", desk.outage, methods=["POST"]),
        HttpRoute("/admin/rules", desk.rules, methods=["POST"]),
        HttpRoute("/healthz", desk.health, methods=["GET"]),
    ]


class _Desk:
    def __init__(self, model: Model, clock: Clock) -> None:
        self._model, self._clock = model, clock

    async def ledger(self, request: HttpRequest) -> Response:
        wanted = request.query_params
        entries = [line(e) for e in self._model.ledger if _is_wanted(e, wanted)]
        return ascii_json({"entries": entries, "duplicates": self._model.duplicates()})

    async def summary(self, _request: HttpRequest) -> Response:
        return ascii_json(self._model.book.summary())

    async def messages(self, _request: HttpRequest) -> Response:
        return ascii_json({"messages": self._model.transitions(self._clock.now_ms())})

    async def credentials(self, request: HttpRequest) -> Response:
        account, turn = request.path_params["account"], request.path_params["turn"]
        if turn not in ("break", "forbid", "mend"):
            return _bad("credentials break, forbid or mend")
        for which, begins in ((self._model.broken_credentials, "break"), (self._model.forbidden, "forbid")):
            (which.add if turn == begins else which.discard)(account)
        return ascii_json({"account": account, "credentials": turn})

    async def outage(self, request: HttpRequest) -> Response:
        account, turn = request.path_params["account"], request.path_params["turn"]
        fields = await _fields(request)
        for_ms, wait_s = fields.get("for_ms"), fields.get("retry_after_s")
        if turn not in ("start", "end") or not isinstance(for_ms, int | None):
            return _bad("outages start or end; for_ms is whole milliseconds")
        if not isinstance(wait_s, int | None):
            return _bad("retry_after_s is whole seconds")
        self._model.outages.pop(account, None)
        self._model.out_of_order.discard(account)
        now_ms = self._clock.now_ms()
        if turn == "start" and for_ms is not None:
            self._model.outages[account] = Outage(now_ms, now_ms + for_ms, wait_s)
        elif turn == "start":
            self._model.out_of_order.add(account)
        return ascii_json({"account": account, "outage": turn})

    async def rules(self, request: HttpRequest) -> Response:
        told = (await _fields(request)).get("rules")
        if not isinstance(told, list) or len(told) > RULES_MAX:
            return _bad(f"rules is a list of at most {RULES_MAX}")
        try:
            self._model.rules = [_rule(one) for one in told]
        except (ValueError, TypeError, AttributeError) as exc:
            return _bad(
                str(exc) if isinstance(exc, ValueError) else "a rule has plot, account, to, reference"
            )
        return ascii_json({"rules": len(told)})

    async def health(self, _request: HttpRequest) -> Response:
        return ascii_json({"ok": True})


def _rule(told: Mapping[str, Any]) -> Rule:
    patterns = {name: value for name, value in told.items() if name != "plot"}
    if not all(isinstance(value, str) for value in patterns.values()):
        raise ValueError("account, to and reference of a rule are patterns")
    return Rule(Plot.from_dict(told.get("plot", {})), **patterns)


def _is_wanted(entry: Entry, wanted: Mapping[str, str]) -> bool:
    named = all(
        getattr(entry, name) == wanted[name] for name in ("account", "reference", "route") if name in wanted
    )
    since = wanted.get("since_ms", "0")
    is_recent = entry.at_ms >= (int(since) if since.isascii() and since.isdigit() else 0)
    return named and is_recent and ("taken" not in wanted or entry.took is not None)


async def _fields(request: HttpRequest) -> dict[str, Any]:
    try:
        found = json.loads(await request.body() or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _bad(detail: str) -> Response:
    return ascii_json({"code": "bad_request", "detail": detail}, 400)
