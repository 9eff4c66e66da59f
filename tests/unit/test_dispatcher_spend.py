"""What an order costs and what a limit makes of it, through the handler, with the guard in memory."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pytest

from schemas.attempt import AttemptState
from schemas.budget import Budgets
from schemas.destinations import PhoneNumber
from schemas.ids import Channel
from schemas.metrics import ATTEMPTS, LIMIT_MET, LIMIT_PASSED, NOT_SENT, STORED_REPLIES
from schemas.price import Prices, parse
from schemas.reasons import Reason
from sinks.providers.base import SubmitResult
from tests.budgets import spend, together, velocity
from tests.builders import T0
from tests.dispatcher_bench import Bench
from tests.orders import PRINTS, VARIABLES, order

S = Channel.SMS
PRICES = """
table = "sms:v1"
currency = "EUR"
valid_from = 2026-01-01T00:00:00Z
[per_segment]
{country} = "0.05"
"""


def text(bench: Bench, number: int = 1, **changes: Any) -> Any:
    return bench.attempt(channel=S, intent_id=f"int-{number:04}-test", **changes)


def spent(bench: Bench, scope: str = "all") -> Decimal:
    return bench.claims._counts.read([scope], "EUR", bench.clock.now_ms())[scope].day_amount


def test_the_price_is_that_of_the_segments_of_the_very_text() -> None:
    """Cases F15 and F16: a name outside GSM-7 makes the whole text UCS-2, and the cap sees what it costs."""
    bench = Bench(spend("0.05"))
    long = VARIABLES | {"link": "https://app.example/r?t=" + "c" * 120}
    held = text(bench, payload_variables=long)
    assert (held.state, held.reason, held.limits) == (
        AttemptState.HELD,
        Reason.SPEND_EXHAUSTED,
        ("cap",),
    )
    bench = Bench(spend("0.10"))
    assert text(bench, payload_variables=long).state is AttemptState.ACCEPTED
    assert spent(bench) == Decimal("0.10")


def test_a_country_without_a_price_gets_no_sms_and_its_email_goes() -> None:
    """Case F18."""
    bench = Bench()
    bench.prices = Prices([parse(PRICES.format(country="US"), name="only US")])
    found = text(bench)
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.COUNTRY_NOT_PRICED)
    assert bench.attempt(intent_id="int-0001-test").state is AttemptState.ACCEPTED
    assert bench.text.submitted == []


def test_what_was_claimed_before_its_price_went_is_answered_from_its_row() -> None:
    bench = Bench()
    first = text(bench)
    bench.prices = Prices([parse(PRICES.format(country="US"), name="only US")])
    assert text(bench) == first


@pytest.mark.parametrize(
    ("budgets", "state", "reason"),
    [
        (spend("0.01"), AttemptState.HELD, Reason.SPEND_EXHAUSTED),
        (spend("0.01", action="refuse"), AttemptState.REFUSED, Reason.SMS_LIMIT_REACHED),
        (spend("0.01", action="record"), AttemptState.ACCEPTED, None),
    ],
)
def test_a_limit_does_what_it_says_and_its_name_is_on_the_attempt(
    budgets: Budgets, state: AttemptState, reason: Reason | None
) -> None:
    bench = Bench(budgets)
    found = text(bench)
    assert (found.state, found.reason, found.limits) == (state, reason, ("cap",))
    assert len(bench.text.submitted) == (state is AttemptState.ACCEPTED)
    assert text(Bench()).limits is None


def test_an_sms_that_is_held_goes_out_under_its_next_number_once_there_is_room() -> None:
    bench = Bench(spend("0.05"))
    bench.text.answers = [SubmitResult(AttemptState.NOT_ACCEPTED, Reason.THROTTLED)]
    assert text(bench, 1).state is AttemptState.NOT_ACCEPTED
    assert spent(bench) == 0
    bench = Bench(spend("0.05"))
    text(bench, 1)
    assert text(bench, 2).reason is Reason.SPEND_EXHAUSTED
    bench.claims._budgets = spend("0.10")
    assert bench.attempt(2, S, intent_id="int-0002-test", after_unknown=False).state is AttemptState.ACCEPTED


def test_what_is_stopped_between_its_claim_and_its_first_byte_costs_nothing() -> None:
    bench = Bench()
    before = bench.claims.claim

    def claim(request: Any) -> Any:
        found = before(request)
        bench.claims.write_facts(
            closed=[("int-0001-test", Reason.COMPLETED)], suppressed=[], lifted=[], progress={}
        )
        return found

    bench.claims.claim = claim  # type: ignore[method-assign]
    assert text(bench).reason is Reason.COMPLETED
    assert spent(bench) == 0


def test_an_sms_ordered_before_its_deadline_is_instant_and_waits_for_it_when_there_are_too_many() -> None:
    bench = Bench(velocity(1, name="at_once", instant_only=True))
    assert text(bench, 1).state is AttemptState.ACCEPTED
    held = text(bench, 2, ordered_at_ms=T0 + 59_999)
    assert (held.reason, held.limits) == (Reason.VELOCITY_EXCEEDED, ("at_once",))
    due = bench.attempt(2, S, intent_id="int-0002-test", ordered_at_ms=T0 + 60_000, after_unknown=False)
    assert due.state is AttemptState.ACCEPTED


def test_a_share_of_a_cap_and_its_end_are_told_once_and_name_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(together(spend("0.10"), velocity(9, name="far", per=["range"])))
    one = bench.dispatcher()
    with caplog.at_level(logging.WARNING, "backstop.dispatcher"):
        for number in range(1, 5):
            one.handle(order(1, S, intent_id=f"int-{number:04}-test"))
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING", "ERROR"]
    assert "50 %" in caplog.messages[0]
    assert "90 %" in caplog.messages[1]
    assert "cap is reached (hold): all" in caplog.messages[2]
    assert [bench.meter.of(LIMIT_PASSED, "cap", share) for share in ("50", "80", "90")] == [1, 0, 1]


def test_every_order_that_meets_a_limit_and_every_one_that_is_not_sent_is_counted() -> None:
    """The log says it once an hour; an alert needs to see that it goes on."""
    bench = Bench(spend("0.10"))
    one = bench.dispatcher()
    for number in range(1, 6):
        one.handle(order(1, S, intent_id=f"int-{number:04}-test"))
    one.handle(order(1, S, intent_id="int-0001-test"))
    assert bench.meter.of(LIMIT_MET, "cap") == 3
    assert bench.meter.of(NOT_SENT, "sms", "spend_exhausted") == 3
    assert (bench.meter.of(ATTEMPTS, "sms", "held"), bench.meter.of(ATTEMPTS, "sms", "accepted")) == (3, 3)
    assert bench.meter.of(STORED_REPLIES, "sms") == 1


def test_a_range_is_a_thousand_numbers_and_a_keyed_hash() -> None:
    def around(number: str) -> str:
        return PRINTS.of_range(PhoneNumber.parse(number))

    assert around("+447700900123") == around("+447700900999")
    assert around("+447700900123") != around("+447911123456")
    assert around("+447700900123").startswith("k1.r.")
    assert "447700900" not in around("+447700900123")
