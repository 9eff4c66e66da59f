"""The arithmetic of the limits, at their edges."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from schemas.budget import SCOPES, Action
from sinks.dispatcher.spend import DAY_MS, HOUR_MS, Cost, Used, met, warnings, windows
from tests.budgets import completion, spend, together, velocity

COST = Cost("tenant-0001", "GB", "password_reset", "k1.r.aa", False, 2, Decimal("0.10"), "EUR")
HERE = "country=GB purpose=password_reset"


@pytest.mark.parametrize(
    ("before", "is_met"), [("0", False), ("0.89", False), ("0.90", False), ("0.900001", True), ("1", True)]
)
def test_a_cap_may_be_reached_and_not_passed(before: str, is_met: bool) -> None:
    used = {"all": Used(day_amount=Decimal(before))}
    assert bool(met(spend("1.00"), COST, used)) is is_met


@pytest.mark.parametrize(("before", "is_met"), [(0, False), (2, False), (3, True)])
def test_of_a_count_the_last_one_goes(before: int, is_met: bool) -> None:
    assert bool(met(velocity(3), COST, {"tenant=tenant-0001": Used(hour_messages=before)})) is is_met


@pytest.mark.parametrize(
    ("used", "is_met"),
    [
        (Used(recent_messages=59), False),
        (Used(recent_messages=60), True),
        (Used(recent_messages=61, recent_finished=2), False),
        (Used(recent_messages=100, best_day_finished=400), False),  # 0.3 of the best day: 120
        (Used(recent_messages=120, best_day_finished=400), True),
        (Used(recent_messages=1_299, recent_finished=1_000), False),  # 0.3 of what was completed: 300
        (Used(recent_messages=1_300, recent_finished=1_000), True),
        (Used(hour_messages=29), False),
        (Used(hour_messages=30), True),
        (Used(hour_messages=40, best_day_finished=1_500), False),  # 0.2 of a sixth of the best day: 50
        (Used(hour_messages=50, best_day_finished=1_500), True),
        (Used(hour_messages=239, hour_finished=200), False),  # 0.2 of what was completed: 40
        (Used(hour_messages=240, hour_finished=200), True),
        (Used(recent_messages=1, recent_finished=2), False),
    ],
)
def test_the_breaker_is_the_largest_of_floor_and_shares(used: Used, is_met: bool) -> None:
    """The formula of the Authgear specification, with the shipped floors."""
    assert bool(met(completion(60, 30), COST, {HERE: used})) is is_met


def test_the_strictest_action_comes_first() -> None:
    limits = together(
        spend("0.01", name="noted", action="record"),
        spend("0.01", name="held"),
        spend("0.01", name="ended", action="refuse"),
    )
    assert [m.action for m in met(limits, COST, {})] == [Action.REFUSE, Action.HOLD, Action.RECORD]


@pytest.mark.parametrize(
    ("before", "shares"),
    [("0.39", []), ("0.40", ["0.5"]), ("0.49", ["0.5"]), ("0.50", []), ("0.75", ["0.8"]), ("0.79", ["0.8"])],
)
def test_a_share_is_told_by_the_claim_that_passes_it(before: str, shares: list[str]) -> None:
    used = {"all": Used(day_amount=Decimal(before))}
    assert [str(w.share) for w in warnings(spend("1"), COST, used)] == shares


def test_of_two_shares_passed_at_once_the_higher_is_told() -> None:
    dear = replace(COST, amount=Decimal("0.85"))
    assert [str(w.share) for w in warnings(spend("1"), dear, {})] == ["0.8"]


def test_scopes_come_in_one_order_whatever_the_cost() -> None:
    for cost in (COST, replace(COST, is_instant=True), replace(COST, tenant="another-0001")):
        assert list(cost.scopes) == sorted(cost.scopes)
    assert len(COST.scopes) == len(SCOPES)
    assert set(COST.scopes) < set(replace(COST, is_instant=True).scopes)


def test_windows_begin_with_the_hour_and_the_day() -> None:
    day_ms = 20_000 * DAY_MS
    found = windows(day_ms + 5 * HOUR_MS + 7)
    assert found["hour_ms"] == day_ms + 5 * HOUR_MS
    assert found["day_ms"] == day_ms
    assert found["recent_ms"] == day_ms - 18 * HOUR_MS
    assert found["best_ms"] == day_ms - 14 * DAY_MS
