"""Whether there is money and room for one more SMS: limits against what was counted. Pure.

    limit         reads                                               open while
    spend         the scope's amount in this hour or day              amount + this one ≤ amount_max
    velocity      its messages in this hour or day                    messages < count_max
    completion    messages without a completion, last 24 hours        fewer than floor and shares allow
                  and in this hour

A claim counts once, with its estimate: segments of the very text times the price of its country. What the
provider did not take is given back; what may have left stays counted. The counts of all scopes of a claim are
read and written under locks taken in the order of their names, after every other lock (`claims`). It must not
do I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from schemas.budget import (
    INSTANT_SCOPES,
    SCOPES,
    Action,
    Budgets,
    CompletionBreaker,
    Dimension,
    Limit,
    SpendCap,
    VelocityCap,
    Window,
)
from schemas.reasons import Reason

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BEST_DAYS = 14
KEPT_MS = 32 * DAY_MS  # a month's bill can be explained
WARN_AT = (Decimal("0.5"), Decimal("0.8"), Decimal("0.9"))


@dataclass(frozen=True, slots=True)
class Cost:
    """What one SMS would cost, and where it is counted. `number_range` is a keyed hash."""

    tenant: str
    country: str
    purpose: str
    number_range: str
    is_instant: bool  # ordered before the deadline, because the e-mail failed
    segments: int
    amount: Decimal
    currency: str

    @property
    def scopes(self) -> tuple[str, ...]:
        """Keys of everything this counts in, in the order in which they are locked."""
        found = [self.scope(parts) for parts in SCOPES]
        if self.is_instant:
            found += [self.scope(parts, instant=True) for parts in INSTANT_SCOPES]
        return tuple(sorted(found))

    def scope(self, parts: frozenset[Dimension], *, instant: bool = False) -> str:
        return scope_key({d: self._value(d) for d in parts}, instant=instant)

    def _value(self, dimension: Dimension) -> str:
        match dimension:
            case Dimension.TENANT:
                return self.tenant
            case Dimension.COUNTRY:
                return self.country
            case Dimension.PURPOSE:
                return self.purpose
            case Dimension.RANGE:
                return self.number_range


def scope_key(values: Mapping[Dimension, str], *, instant: bool = False) -> str:
    """`country=GB purpose=password_reset`; `all` for everything; `instant` behind it."""
    text = " ".join(f"{d.value}={values[d]}" for d in sorted(values)) or "all"
    return f"{text} instant" if instant else text


@dataclass(frozen=True, slots=True)
class Used:
    """What was counted in one scope. `recent`: the last 24 hours; `best_day`: of the 14 days before today."""

    hour_messages: int = 0
    hour_amount: Decimal = Decimal(0)
    hour_finished: int = 0
    day_messages: int = 0
    day_amount: Decimal = Decimal(0)
    recent_messages: int = 0
    recent_finished: int = 0
    best_day_finished: int = 0


NOTHING = Used()


@dataclass(frozen=True, slots=True)
class Met:
    """A limit that is reached, or a share of it that this claim passes (`warned`)."""

    limit: str
    scope: str
    action: Action
    reason: Reason


@dataclass(frozen=True, slots=True)
class Warned:
    """A share of a spend cap is passed by this claim."""

    limit: str
    scope: str
    share: Decimal


def windows(now_ms: int) -> dict[str, int]:
    """Where the hour, the day (UTC), the last 24 hours and the 14 days before today begin."""
    hour_ms, day_ms = now_ms - now_ms % HOUR_MS, now_ms - now_ms % DAY_MS
    return {
        "hour_ms": hour_ms,
        "day_ms": day_ms,
        "recent_ms": hour_ms - DAY_MS + HOUR_MS,
        "best_ms": day_ms - BEST_DAYS * DAY_MS,
    }


def met(budgets: Budgets, cost: Cost, used: Mapping[str, Used]) -> list[Met]:
    """Every limit that has no room for this one, the strictest first; empty: it may go."""
    found = [m for limit in budgets.all() for m in _met(limit, cost, used)]
    return sorted(found, key=lambda m: _STRICT.index(m.action))


def warnings(budgets: Budgets, cost: Cost, used: Mapping[str, Used]) -> Iterator[Warned]:
    """Shares of spend caps that are passed when this one is counted; `used` is without it."""
    for cap in budgets.spend:
        if not applies(cap, cost):
            continue
        scope = cost.scope(cap.scope)
        before = spent(cap, used.get(scope, NOTHING))
        passed = [s for s in WARN_AT if before < s * cap.amount_max <= before + cost.amount]
        if passed:
            yield Warned(cap.name, scope, passed[-1])


def applies(limit: Limit, cost: Cost) -> bool:
    """Whether this limit is for that SMS at all."""
    if isinstance(limit, VelocityCap) and limit.instant_only and not cost.is_instant:
        return False
    return all(
        not wanted or value in wanted
        for wanted, value in (
            (limit.tenants, cost.tenant),
            (limit.countries, cost.country),
            (limit.purposes, cost.purpose),
        )
    )


def spent(cap: SpendCap, used: Used) -> Decimal:
    return used.hour_amount if cap.window is Window.HOUR else used.day_amount


def sent(cap: VelocityCap, used: Used) -> int:
    return used.hour_messages if cap.window is Window.HOUR else used.day_messages


def unfinished(breaker: CompletionBreaker, used: Used) -> Iterator[tuple[Window, int, int]]:
    """Messages without a completion, and how many there may be: last 24 hours, and this hour."""
    best = used.best_day_finished
    of_day = max(breaker.floor_day, breaker.share_day * best, breaker.share_day * used.recent_finished)
    of_hour = max(breaker.floor_hour, breaker.share_hour * best / 6, breaker.share_hour * used.hour_finished)
    yield Window.DAY, max(0, used.recent_messages - used.recent_finished), int(of_day)
    yield Window.HOUR, max(0, used.hour_messages - used.hour_finished), int(of_hour)


_STRICT = (Action.REFUSE, Action.HOLD, Action.RECORD)


def _met(limit: Limit, cost: Cost, used: Mapping[str, Used]) -> Iterator[Met]:
    if not applies(limit, cost):
        return
    scope = cost.scope(limit.scope, instant=isinstance(limit, VelocityCap) and limit.instant_only)
    there = used.get(scope, NOTHING)
    match limit:
        case SpendCap():
            is_met, reason = spent(limit, there) + cost.amount > limit.amount_max, Reason.SPEND_EXHAUSTED
        case VelocityCap():
            is_met, reason = sent(limit, there) >= limit.count_max, Reason.VELOCITY_EXCEEDED
        case CompletionBreaker():
            is_met = any(count >= at_most for _, count, at_most in unfinished(limit, there))
            reason = Reason.BREAKER_OPEN
        case _:
            raise AssertionError(f"a limit of an unknown kind: {limit.name}")
    if is_met:
        yield Met(limit.name, scope, limit.action, reason)
