"""Budgets of one limit each, in the currency of the shipped prices. It must not hold an expectation."""

from __future__ import annotations

from typing import Any

from schemas.budget import Budgets

CURRENCY = "EUR"


def spend(amount_max: str, **changes: Any) -> Budgets:
    """A cap on money, for everything and a day, that holds."""
    base = {"name": "cap", "per": [], "window": "day", "amount_max": amount_max, "action": "hold"}
    return _budgets(spend=[base | changes])


def velocity(count_max: int, **changes: Any) -> Budgets:
    """A cap on messages, per tenant and hour, that holds."""
    base = {"name": "cap", "per": ["tenant"], "window": "hour", "count_max": count_max, "action": "hold"}
    return _budgets(velocity=[base | changes])


def completion(floor_day: int, floor_hour: int, **changes: Any) -> Budgets:
    """A breaker per country and purpose, for password resets, that holds."""
    base = {
        "name": "breaker",
        "per": ["country", "purpose"],
        "purposes": ["password_reset"],
        "floor_day": floor_day,
        "floor_hour": floor_hour,
        "action": "hold",
    }
    return _budgets(completion=[base | changes])


def together(*parts: Budgets) -> Budgets:
    """All limits of these."""
    return Budgets(
        currency=CURRENCY,
        spend=tuple(x for p in parts for x in p.spend),
        velocity=tuple(x for p in parts for x in p.velocity),
        completion=tuple(x for p in parts for x in p.completion),
    )


def _budgets(**limits: Any) -> Budgets:
    return Budgets.model_validate({"currency": CURRENCY} | limits, strict=False)
