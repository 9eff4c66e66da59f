"""The wire between us and the providers: requests that get lost, answers that get lost, both that come late.

Behind it stands the simulator's own model, before it the real adapter. It must not know what an answer means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import unquote

from compose.scenario.log import Agenda
from compose.simulator import answers
from compose.simulator.behaviour import Model
from compose.simulator.parts import Request
from schemas.accounts import Account
from sinks.providers.base import Provider
from sinks.providers.http import Failure, Http, Reply, Sent
from sinks.providers.simulated import SimulatedProvider
from tests.simulation.faults import Dice
from tests.simulation.fibers import Fibers

LATENCY_MS = (5, 250)
TOO_LATE_MS = (1, 1_500)  # a request that was under way when its sender gave up arrives that much later
_LOST = Failure(Sent.UNKNOWN, "ReadTimeout")


class Wire:
    """The part of `sinks.providers.http.Http` that an adapter uses."""

    def __init__(self, model: Model, agenda: Agenda, fibers: Fibers, dice: Dice, account: str) -> None:
        self._model, self._agenda, self._fibers = model, agenda, fibers
        self._dice, self._account = dice, account

    def call(
        self,
        method: str,
        path: str,
        *,
        timeout_ms: int,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply | Failure:
        def ask() -> answers.Reply:
            return self._ask(method, path, query, body, headers or {})

        dice, there = self._dice, self._dice.ms("net.ms", *LATENCY_MS)
        if dice.falls("net.refused"):
            self._fibers.pause(there)
            return Failure(Sent.NO, "ConnectError")
        if dice.falls("net.request_lost"):
            self._fibers.pause(timeout_ms)
            return _LOST
        if dice.falls("net.slow"):
            at_ms = self._agenda.now_ms + timeout_ms + dice.ms("net.late", *TOO_LATE_MS)
            self._agenda.at(at_ms, lambda: _drop(ask))
            self._fibers.pause(timeout_ms)
            return _LOST
        self._fibers.pause(min(there, timeout_ms))
        found = ask()
        left_ms = max(0, timeout_ms - there)
        if dice.falls("net.response_lost") or found.wire in _SILENT or found.delay_ms >= left_ms:
            self._fibers.pause(left_ms if found.wire in (answers.Wire.ANSWER, answers.Wire.HANG) else 1)
            return _LOST
        self._fibers.pause(min(left_ms, found.delay_ms + dice.ms("net.ms", *LATENCY_MS)))
        is_json = found.wire is answers.Wire.ANSWER
        body_read = cast("dict[str, Any]", json.loads(json.dumps(found.body))) if is_json else None
        return Reply(found.code, body_read, found.headers.get("Retry-After"))

    def close(self) -> None: ...

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> answers.Reply:
        now_ms, model, account = self._agenda.now_ms, self._model, self._account
        if method == "POST" and path.endswith("/lookup"):
            return model.batch(account, json.loads(body or b"")["ids"], now_ms)
        if method == "POST":
            return model.submit(_request(account, body or b"", headers.get("Idempotency-Key")), now_ms)
        if query is not None:
            return model.search(account, query["reference"], now_ms)
        return model.look_up(account, unquote(path.rsplit("/", 1)[1]), now_ms)


_SILENT = frozenset({answers.Wire.CUT, answers.Wire.RESET, answers.Wire.CLOSE, answers.Wire.HANG})


def _drop(ask: Callable[[], answers.Reply]) -> None:
    ask()


def _request(account: str, body: bytes, key: str | None) -> Request:
    fields = json.loads(body)
    return Request(account, fields["reference"], fields["to"], body, key)


def provider(account: Account, wire: Wire) -> Provider:
    """The real adapter of an account on this wire."""
    return SimulatedProvider(account, cast("Http", wire))
