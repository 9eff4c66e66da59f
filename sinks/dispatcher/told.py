"""What whoever runs dispatchers hears: counts of what became of orders, and lines when a limit comes near.

It must not decide, nor name a person: labels are listed (`schemas.metrics`), and a scope is a tenant, a
country, a purpose or the keyed hash of a thousand numbers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from schemas.attempt import Attempt, AttemptState
from schemas.metrics import ATTEMPTS, LIMIT_MET, LIMIT_PASSED, NOT_SENT, Meter
from sinks.dispatcher.spend import HOUR_MS, Met, Warned

log = logging.getLogger("backstop.dispatcher")

SAID_MAX = 10_000  # limits times scopes that are remembered; then it is said once more
_NOT_SENT = frozenset({AttemptState.REFUSED, AttemptState.HELD})


def count_attempts(meter: Meter, found: Iterable[Attempt]) -> None:
    """Every answer to an order, and why nothing was sent."""
    for attempt in found:
        meter.count(ATTEMPTS, attempt.channel.value, attempt.state.value)
        if attempt.state in _NOT_SENT and attempt.reason is not None:
            meter.count(NOT_SENT, attempt.channel.value, attempt.reason.value)


class LimitLog:
    """Log lines: a warning when a share of a cap is passed, an error when a limit closes, once an hour each;
    and counts of both, each time, which alerts read.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._said: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def passed(self, found: Iterable[Warned]) -> None:
        for one in found:
            self._meter.count(LIMIT_PASSED, one.limit, f"{one.share:.0%}".rstrip("%"))
            log.warning("SMS limit %s: %d %% spent of %s", one.limit, one.share * 100, one.scope)

    def reached(self, found: Iterable[Met], now_ms: int) -> None:
        for one in found:
            self._meter.count(LIMIT_MET, one.limit)
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
