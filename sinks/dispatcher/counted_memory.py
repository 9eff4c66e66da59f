"""The counts of SMS in memory: what `counted` keeps in Postgres, for the guard in memory.

Whoever calls holds the guard's lock. It must not judge; `spend` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from sinks.dispatcher.spend import DAY_MS, Cost, Used, windows


@dataclass(slots=True)
class Hour:
    """One clock hour of one scope."""

    messages: int = 0
    finished: int = 0
    amounts: dict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))  # by currency


class Counts:
    """By scope and hour, and where each intent was counted."""

    def __init__(self) -> None:
        self._hours: dict[str, dict[int, Hour]] = defaultdict(lambda: defaultdict(Hour))
        self._counted: dict[str, tuple[Cost, int]] = {}

    def read(self, scopes: Iterable[str], currency: str, now_ms: int) -> dict[str, Used]:
        """What was counted, by scope."""
        return {scope: _used(self._hours.get(scope, {}), currency, now_ms) for scope in scopes}

    def add(self, intent_id: str, cost: Cost, now_ms: int) -> None:
        hour_ms = windows(now_ms)["hour_ms"]
        self._counted[intent_id] = (cost, hour_ms)
        for scope in cost.scopes:
            hour = self._hours[scope][hour_ms]
            hour.messages += 1
            hour.amounts[cost.currency] += cost.amount

    def give_back(self, intent_id: str) -> None:
        """What this intent was counted for, if it still is."""
        found = self._counted.pop(intent_id, None)
        if found is None:
            return
        cost, hour_ms = found
        for scope in cost.scopes:
            hour = self._hours[scope][hour_ms]
            hour.messages = max(0, hour.messages - 1)
            hour.amounts[cost.currency] = max(Decimal(0), hour.amounts[cost.currency] - cost.amount)

    def completed(self, intents: Iterable[str]) -> None:
        """These were done by their people: their SMS were of use."""
        for cost, hour_ms in [self._counted[i] for i in intents if i in self._counted]:
            for scope in cost.scopes:
                self._hours[scope][hour_ms].finished += 1


def _used(hours: dict[int, Hour], currency: str, now_ms: int) -> Used:
    at = windows(now_ms)
    hour = hours.get(at["hour_ms"], Hour())
    today = [h for ms, h in hours.items() if ms >= at["day_ms"]]
    recent = [h for ms, h in hours.items() if ms >= at["recent_ms"]]
    days: dict[int, int] = defaultdict(int)
    for ms, one in hours.items():
        if at["best_ms"] <= ms < at["day_ms"]:
            days[ms // DAY_MS] += one.finished
    return Used(
        hour.messages,
        hour.amounts.get(currency, Decimal(0)),
        hour.finished,
        sum(h.messages for h in today),
        sum((h.amounts.get(currency, Decimal(0)) for h in today), Decimal(0)),
        sum(h.messages for h in recent),
        sum(h.finished for h in recent),
        max(days.values(), default=0),
    )
