"""A dispatcher on a bench: the guard in memory, providers that do as they are told, and a clock of its own.

It must not hold an expectation.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime
from string import ascii_uppercase
from typing import Any

from schemas.accounts import Account, Capabilities
from schemas.attempt import Attempt
from schemas.budget import UNLIMITED, Budgets
from schemas.control import Controls
from schemas.errors import GuardUnavailable
from schemas.ids import Channel
from schemas.price import Prices, PriceTable
from schemas.price import released as released_prices
from schemas.sealed import UnsealingKeys
from schemas.templates.registry import shipped
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.ports import Handled, Limits, Ports
from sinks.dispatcher.prepare import Preparer
from sinks.postgres.pool import NOT_REACHED
from tests.builders import T0
from tests.counting import CountingMeter
from tests.fakes_provider import ScriptedProvider
from tests.orders import PRINTS, PRIVATE, order


@dataclass
class ScriptedClock:
    ms: int = T0
    s: float = 0.0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.s

    def on(self, ms: int) -> None:
        self.ms += ms
        self.s += ms / 1000


class Away(MemoryClaims):
    """A guard that can be away."""

    away: frozenset[str] = frozenset()

    def claim(self, request: Any) -> Any:
        self._check("claim")
        return super().claim(request)

    def begin(self, claim_id: str) -> int | None:
        self._check("begin")
        return super().begin(claim_id)

    def look(self, *given: Any, **more: Any) -> Any:
        self._check("look")
        return super().look(*given, **more)

    def finish(self, claim_id: str, **given: Any) -> bool:
        self._check("finish")
        return super().finish(claim_id, **given)

    def _check(self, what: str) -> None:
        if what in self.away:
            raise GuardUnavailable("away", code=NOT_REACHED)


class Crash(BaseException):
    """A process that dies at a fault point."""


def priced_everywhere() -> Prices:
    """One price for whatever could be a country."""
    letters = ascii_uppercase
    table = {
        "table": "sms:v1",
        "currency": "EUR",
        "valid_from": datetime(2020, 1, 1, tzinfo=UTC),
        "per_segment": {a + b: "0.05" for a in letters for b in letters},
    }
    return Prices([PriceTable.model_validate(table, strict=False)])


class Bench:
    def __init__(self, budgets: Budgets = UNLIMITED) -> None:
        self.budgets, self.prices = budgets, Prices(released_prices())
        self.clock = ScriptedClock()
        self.claims = Away(self.clock.now_ms, self.budgets)
        self.controls = Controls()
        self.completions_read, self.clock_trusted = True, True
        self.crash_at = ""
        self.mail, self.text = (
            ScriptedProvider(Account(name=n, provider="simulated", channel=c, capabilities=Capabilities()))
            for n, c in (("mail-a", Channel.EMAIL), ("text-a", Channel.SMS))
        )
        self.unsealing = UnsealingKeys([PRIVATE])
        self.ids = itertools.count(1)
        self.meter = CountingMeter()

    def dispatcher(self) -> Dispatcher:
        """A fresh process on the same guard."""
        ports = Ports(
            claims=self.claims,
            providers={"mail-a": self.mail, "text-a": self.text},
            preparer=Preparer(
                unsealing=self.unsealing, fingerprints=PRINTS, digest_key=b"d" * 32, templates=shipped()
            ),
            prices=self.prices,
            clock=self.clock,
            new_id=lambda: f"claim-{next(self.ids)}",
            controls=lambda: self.controls,
            completions_read=lambda: self.completions_read,
            clock_trusted=lambda: self.clock_trusted,
            fault=self._fault,
            meter=self.meter,
        )
        return Dispatcher(ports, Limits(lease_ms=30_000, call_timeout_ms=10_000, clock_skew_ms_max=2_000))

    def _fault(self, point: str) -> None:
        if point == self.crash_at:
            raise Crash(point)

    def handle(self, number: int = 1, channel: Channel = Channel.EMAIL, **changes: Any) -> Handled:
        return self.dispatcher().handle(order(number, channel, **changes))

    def attempt(self, number: int = 1, channel: Channel = Channel.EMAIL, **changes: Any) -> Attempt:
        (found,) = self.handle(number, channel, **changes).attempts
        return found
