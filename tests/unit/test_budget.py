"""Budgets: a file read whole, or refused with every mistake named."""

from __future__ import annotations

from decimal import Decimal

import pytest

from schemas.budget import LIMITS_MAX, Action, money, parse, shipped
from schemas.errors import BudgetsRefused
from schemas.policy import released as released_policies

SPEND = """
[[spend]]
name = "{name}"
per = ["tenant"]
window = "day"
amount_max = "10"
action = "hold"
"""
FILE = 'currency = "EUR"\n' + SPEND.format(name="a_cap")
VELOCITY = """
[[velocity]]
name = "some"
per = ["tenant"]
window = "hour"
count_max = 5
action = "hold"
"""
COMPLETION = """
[[completion]]
name = "undone"
per = ["country"]
floor_day = 5
floor_hour = 5
action = "hold"
"""


def test_the_shipped_budgets_limit_all_three_and_hold() -> None:
    found = shipped()
    assert found.spend
    assert found.velocity
    assert found.completion
    assert {limit.action for limit in found.all()} == {Action.HOLD}


def test_the_shipped_breaker_names_purposes_that_exist() -> None:
    purposes = {p.purpose for p in released_policies().values()}
    assert {p for breaker in shipped().completion for p in breaker.purposes} <= purposes


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (FILE.replace('"10"', "10.5"), "not_text", "as text"),
        (FILE.replace('"10"', '"ten"'), "invalid_field", "amount_max"),
        (FILE.replace('"10"', '"0"'), "invalid_field", "amount_max"),
        (FILE.replace('"10"', '"1e400000"'), "invalid_field", "amount_max"),
        (FILE.replace("amount_max", "amount"), "invalid_field", "amount"),
        (FILE.replace('"hold"', '"shout"'), "invalid_field", "action"),
        (FILE.replace('"day"', '"week"'), "invalid_field", "window"),
        (FILE.replace('["tenant"]', '["range", "tenant"]'), "invalid_field", "is not counted"),
        (FILE.replace('["tenant"]', '["tenant", "tenant"]'), "invalid_field", "twice"),
        (FILE.replace('["tenant"]', '[]\ntenants = ["tenant-0001"]'), "invalid_field", "has tenant in per"),
        (FILE + SPEND.format(name="a_cap"), "invalid_field", "two limits are called a_cap"),
        (
            FILE + "".join(SPEND.format(name=f"cap_{n}") for n in range(LIMITS_MAX)),
            "invalid_field",
            "at most 50",
        ),
        (FILE + VELOCITY.replace("5", "0"), "invalid_field", "count_max"),
        (
            FILE + VELOCITY.replace('["tenant"]', '["range"]\ninstant_only = true'),
            "invalid_field",
            "instant_only is counted per",
        ),
        (FILE + COMPLETION, "invalid_field", "name the purposes"),
        (
            FILE + COMPLETION.replace("floor_day", 'purposes = ["password_reset"]\nfloor_day'),
            "invalid_field",
            "has purpose in per",
        ),
        (FILE + "[[speed]]\n", "invalid_field", "speed"),
        (FILE + "[[spend", "malformed", "TOML"),
        ("", "invalid_field", "currency"),
    ],
)
def test_a_file_that_does_not_hold_together_is_refused(text: str, code: str, said: str) -> None:
    with pytest.raises(BudgetsRefused, match=said) as found:
        parse(text, name="budgets.toml")
    assert found.value.code == code


def test_every_mistake_of_a_file_is_named_at_once() -> None:
    wrong = FILE.replace('"day"', '"week"').replace('"10"', '"-1"')
    with pytest.raises(BudgetsRefused) as found:
        parse(wrong, name="budgets.toml")
    assert "window" in str(found.value)
    assert "amount_max" in str(found.value)


@pytest.mark.parametrize(
    ("amount", "text"),
    [("25", "25.00 EUR"), ("0.005", "0.005 EUR"), ("1E+2", "100.00 EUR"), ("0", "0.00 EUR")],
)
def test_money_is_written_without_exponents(amount: str, text: str) -> None:
    assert money(Decimal(amount), "EUR") == text
