"""How much of each limit on SMS is used, scope by scope, as the guard would see it now.

It must not judge a claim: `sinks.dispatcher.spend` does, and its arithmetic is used here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from schemas.budget import (
    Action,
    Budgets,
    CompletionBreaker,
    Dimension,
    Limit,
    SpendCap,
    VelocityCap,
    Window,
)
from schemas.price import Prices
from sinks.dispatcher import counted
from sinks.dispatcher.spend import NOTHING, WARN_AT, Used, sent, spent, unfinished, windows
from sinks.operator.books import SQL
from sinks.postgres.pool import Database

INSTANT = " instant"  # behind the key of a scope, as `spend.scope_key` writes it


class State(StrEnum):
    """`closed`: the next SMS is held or refused; `recorded`: as closed, and the limit only records."""

    OPEN = "open"
    WARNING = "warning"
    CLOSED = "closed"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Line:
    """One limit in one scope. `used` and `at_most` are money for a spend cap, messages for the others: sent,
    or sent and not completed."""

    limit: str
    kind: str
    scope: str
    window: str
    used: Decimal
    at_most: Decimal
    action: Action
    is_reached: bool

    @property
    def percent(self) -> int:
        return int(100 * self.used / self.at_most) if self.at_most else 100

    @property
    def state(self) -> State:
        if self.is_reached:
            return State.RECORDED if self.action is Action.RECORD else State.CLOSED
        return State.WARNING if self.used >= WARN_AT[0] * self.at_most else State.OPEN


def lines(database: Database, budgets: Budgets, prices: Prices) -> list[Line]:
    """In the order of the file, the fullest scope of a limit first. Raises `GuardUnavailable`."""
    with database.transaction() as cursor:
        now_ms = int(cursor.execute(counted.SQL["now_ms"]).fetchone()["now_ms"])  # type: ignore[index]
        since = {"recent_ms": min(windows(now_ms)["recent_ms"], windows(now_ms)["day_ms"])}
        scopes = [row["scope"] for row in cursor.execute(SQL["spend_scopes"], since).fetchall()]
        used = counted.read(cursor, scopes, budgets.currency, now_ms)
    return list(weighed(budgets, prices, used, now_ms))


def weighed(budgets: Budgets, prices: Prices, used: Mapping[str, Used], now_ms: int) -> Iterator[Line]:
    """Pure: every limit against everything it counts. A limit of all is there even when nothing was sent."""
    for limit in budgets.all():
        found: list[Line] = []
        for scope in sorted({*used, "all"} if not limit.per else used):
            values = _values(scope)
            if values is not None and _is_for(limit, scope, values):
                country = values.get(Dimension.COUNTRY)
                next_one = prices.least(now_ms, country)
                found += _lines(limit, scope, used.get(scope, NOTHING), next_one)
        yield from sorted(found, key=lambda line: -line.percent)


def _lines(limit: Limit, scope: str, there: Used, next_one: Decimal) -> Iterator[Line]:
    match limit:
        case SpendCap():
            there_now = spent(limit, there)
            full = there_now + next_one > limit.amount_max
            yield _line(limit, "spend", scope, limit.window, there_now, limit.amount_max, is_reached=full)
        case VelocityCap():
            count = sent(limit, there)
            full = count >= limit.count_max
            yield _line(limit, "velocity", scope, limit.window, count, limit.count_max, is_reached=full)
        case CompletionBreaker():
            for window, count, at_most in unfinished(limit, there):
                full = count >= at_most
                yield _line(limit, "completion", scope, window, count, at_most, is_reached=full)


def _line(
    limit: Limit,
    kind: str,
    scope: str,
    window: Window,
    used: Decimal | int,
    at_most: Decimal | int,
    *,
    is_reached: bool,
) -> Line:
    return Line(
        limit.name, kind, scope, window.value, Decimal(used), Decimal(at_most), limit.action, is_reached
    )


def _values(scope: str) -> dict[Dimension, str] | None:
    """What the key of a scope names; None: written by a version that counts more than this one."""
    parts = [part.partition("=") for part in scope.removesuffix(INSTANT).split()]
    known = {d.value for d in Dimension}
    if parts == [("all", "", "")]:
        return {}
    if any(name not in known for name, _, _ in parts):
        return None
    return {Dimension(name): value for name, _, value in parts}


def _is_for(limit: Limit, scope: str, values: Mapping[Dimension, str]) -> bool:
    if values.keys() != limit.scope:
        return False
    if scope.endswith(INSTANT) != (isinstance(limit, VelocityCap) and limit.instant_only):
        return False
    return all(
        not wanted or values[dimension] in wanted
        for dimension, wanted in (
            (Dimension.TENANT, limit.tenants),
            (Dimension.COUNTRY, limit.countries),
            (Dimension.PURPOSE, limit.purposes),
        )
        if dimension in values
    )
