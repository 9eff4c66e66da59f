"""What an SMS will cost, from its very text and number, and what is said when a limit comes near.

Segments of the text that will be sent, times the price of the number's country at this moment; a country
without a price has no cost, and gets no SMS. It must not count or judge.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from schemas.dispatch import Dispatch
from schemas.price import Prices
from sinks.dispatcher.prepare import Prepared
from sinks.dispatcher.spend import HOUR_MS, Cost, Met, Warned

log = logging.getLogger("backstop.dispatcher")

SAID_MAX = 10_000  # limits times scopes that are remembered; then it is said once more


def cost_of(order: Dispatch, prepared: Prepared, prices: Prices, now_ms: int) -> Cost | None:
    """None: nobody said what a segment costs there."""
    price = prices.per_segment(order.country or "", now_ms)
    if price is None:
        return None
    return Cost(
        tenant=order.tenant,
        country=order.country or "",
        purpose=order.purpose,
        number_range=prepared.number_range,
        is_instant=order.ordered_at_ms < order.deadline_ms,
        segments=prepared.segments,
        amount=price * prepared.segments,
        currency=prices.currency,
    )


class LimitLog:
    """Log lines: a warning when a share of a cap is passed, an error when a limit closes, once an hour each.

    A scope holds no address: a tenant, a country, a purpose, or the keyed hash of a thousand numbers.
    """

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def passed(self, found: Iterable[Warned]) -> None:
        for one in found:
            log.warning("SMS limit %s: %d %% spent of %s", one.limit, one.share * 100, one.scope)

    def reached(self, found: Iterable[Met], now_ms: int) -> None:
        for one in found:
            if self._is_news(one, now_ms // HOUR_MS):
                log.error("SMS limit %s is reached (%s): %s", one.limit, one.action.value, one.scope)

    def _is_news(self, one: Met, hour: int) -> bool:
        place = (one.limit, one.scope)
        with self._lock:
            if self._said.get(place) == hour:
                return False
            if len(self._said) >= SAID_MAX:
                self._said.clear()
            self._said[place] = hour
            return True
