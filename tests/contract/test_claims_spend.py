"""What an SMS may cost, at the claim: every guard the same, and never past a cap."""

from __future__ import annotations

import threading
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from schemas.budget import Budgets
from schemas.reasons import Reason
from sinks.dispatcher.rules import ClaimRequest, GiveBack, Grant, Refuse
from tests.budgets import completion, spend, together, velocity
from tests.contract import claims_guard
from tests.contract.claims_guard import CALL_MS, COST, LEASE_MS, E, Guard, S, facts, finish, order

guard = claims_guard.guard  # the fixture
PRICE = COST.amount


def sms(number: int, submission_no: int = 1, **changes: Any) -> ClaimRequest:
    """The order of an intent of its own, to a person of its own; `changes` are of its cost."""
    return order(
        submission_no,
        S,
        intent_id=f"int-{number:04}-test",
        fingerprint=f"k1.s.{number:04}",
        fingerprints=(f"k1.s.{number:04}",),
        dispatch_key=f"int-{number:04}-test.sms",
        claim_id=f"c-{number}-{submission_no}",
        cost=replace(COST, **changes),
    )


def end(guard: Guard, number: int, state: str, submission_no: int = 1) -> bool:
    return finish(
        guard, state, submission_no, S, f"c-{number}-{submission_no}", intent_id=f"int-{number:04}-test"
    )


def spent(guard: Guard, scope: str = "all") -> Decimal:
    return guard.used(scope).day_amount


def test_an_sms_past_the_cap_is_given_back_with_the_limits_name_and_nothing_is_counted(guard: Guard) -> None:
    guard.limit(spend("0.10"))
    assert isinstance(guard.claims.claim(sms(1)), Grant)
    assert isinstance(guard.claims.claim(sms(2)), Grant)
    found = guard.claims.claim(sms(3))
    assert isinstance(found, GiveBack)
    assert (found.reason, [m.limit for m in found.met]) == (Reason.SPEND_EXHAUSTED, ["cap"])
    assert spent(guard) == 2 * PRICE
    assert guard.claims.look("int-0003-test", S, 1, after_unknown=False, call_timeout_ms=CALL_MS) is None


def test_it_goes_out_once_there_is_room_again(guard: Guard) -> None:
    guard.limit(spend("0.05"))
    guard.claims.claim(sms(1))
    assert isinstance(guard.claims.claim(sms(2)), GiveBack)
    end(guard, 1, "not_accepted")
    assert isinstance(guard.claims.claim(sms(2)), Grant)


def test_an_email_counts_nowhere_and_no_cap_stops_it(guard: Guard) -> None:
    guard.limit(spend("0.01"))
    assert isinstance(guard.claims.claim(order()), Grant)
    assert spent(guard) == 0


def test_an_sms_is_not_asked_for_without_its_cost() -> None:
    with pytest.raises(ValueError, match="cost"):
        order(channel=S, cost=None)
    with pytest.raises(ValueError, match="cost"):
        order(channel=E, cost=COST)


def test_the_estimate_is_what_counts_against_the_cap(guard: Guard) -> None:
    """Cases F15 and F16: three segments cost three."""
    guard.limit(spend("0.10"))
    assert isinstance(guard.claims.claim(sms(1, segments=3, amount=3 * PRICE)), GiveBack)
    assert isinstance(guard.claims.claim(sms(1, segments=2, amount=2 * PRICE)), Grant)


@pytest.mark.parametrize("state", ["refused", "failed", "held", "not_accepted"])
def test_what_was_not_taken_is_given_back_once(guard: Guard, state: str) -> None:
    guard.claims.claim(sms(1))
    guard.claims.claim(sms(2))
    assert end(guard, 1, state)
    assert not end(guard, 1, state)
    assert spent(guard) == PRICE
    assert guard.used("all").day_messages == 1


@pytest.mark.parametrize("state", ["accepted", "unknown"])
def test_what_may_have_left_stays_counted(guard: Guard, state: str) -> None:
    guard.claims.claim(sms(1))
    guard.claims.begin("c-1-1")
    end(guard, 1, state)
    assert spent(guard) == PRICE


def test_the_next_submission_of_what_may_have_left_counts_once_and_its_failure_gives_nothing_back(
    guard: Guard,
) -> None:
    guard.claims.claim(sms(1))
    guard.claims.begin("c-1-1")
    end(guard, 1, "unknown")
    assert isinstance(guard.claims.claim(sms(1, 2)), Grant)
    assert spent(guard) == PRICE
    end(guard, 1, "not_accepted", 2)
    assert spent(guard) == PRICE


def test_what_was_given_back_counts_again_when_it_is_claimed_again(guard: Guard) -> None:
    guard.limit(spend("0.05"))
    guard.claims.claim(sms(1))
    end(guard, 1, "held")
    assert isinstance(guard.claims.claim(sms(2)), Grant)
    assert isinstance(guard.claims.claim(sms(1, 2)), GiveBack)
    end(guard, 2, "held")
    assert isinstance(guard.claims.claim(sms(1, 2)), Grant)
    assert spent(guard) == PRICE


def test_a_claim_whose_answer_was_lost_and_one_taken_over_after_its_lease_count_once(guard: Guard) -> None:
    guard.limit(spend("0.05"))
    guard.claims.claim(sms(1))
    assert isinstance(guard.claims.claim(sms(1)), Grant)
    guard.let_pass(LEASE_MS + 1)
    assert isinstance(guard.claims.claim(replace(sms(1), claim_id="other")), Grant)
    assert spent(guard) == PRICE


@pytest.mark.parametrize(
    ("per", "other"),
    [
        (["tenant"], {"tenant": "tenant-0002"}),
        (["country"], {"country": "US"}),
        (["purpose"], {"purpose": "signup_verification"}),
        (["tenant", "country"], {"tenant": "tenant-0002"}),
        (["country", "purpose"], {"country": "US"}),
        (["range"], {"number_range": "k1.r.bb"}),
    ],
)
def test_a_cap_counts_its_scope_and_no_other(guard: Guard, per: list[str], other: dict[str, Any]) -> None:
    guard.limit(spend("0.05", per=per))
    guard.claims.claim(sms(1))
    assert isinstance(guard.claims.claim(sms(2)), GiveBack)
    assert isinstance(guard.claims.claim(sms(3, **other)), Grant)


def test_a_cap_for_some_countries_is_nothing_to_the_others(guard: Guard) -> None:
    guard.limit(spend("0.05", per=["country"], countries=["GB"]))
    for number, country in enumerate(("GB", "US", "US"), 1):
        assert isinstance(guard.claims.claim(sms(number, country=country)), Grant)
    assert isinstance(guard.claims.claim(sms(4)), GiveBack)


@pytest.mark.parametrize(("window", "hours"), [("hour", 1), ("day", 24)])
def test_there_is_room_again_in_the_next_window(guard: Guard, window: str, hours: int) -> None:
    guard.limit(spend("0.05", window=window))
    guard.claims.claim(sms(1))
    assert isinstance(guard.claims.claim(sms(2)), GiveBack)
    guard.hours_pass(hours)
    assert isinstance(guard.claims.claim(sms(2)), Grant)


def test_a_limit_that_refuses_ends_the_sms_and_one_that_records_lets_it_go(guard: Guard) -> None:
    guard.limit(together(spend("0.01", name="noted", action="record"), velocity(1, action="refuse")))
    first = guard.claims.claim(sms(1))
    assert isinstance(first, Grant)
    assert [m.limit for m in first.met] == ["noted"]
    second = guard.claims.claim(sms(2))
    assert isinstance(second, Refuse)
    assert second.reason is Reason.SMS_LIMIT_REACHED
    assert {m.limit for m in second.met} == {"noted", "cap"}


def test_messages_are_counted_and_instant_ones_besides(guard: Guard) -> None:
    guard.limit(together(velocity(3), velocity(1, name="at_once", instant_only=True)))
    assert isinstance(guard.claims.claim(sms(1, is_instant=True)), Grant)
    held = guard.claims.claim(sms(2, is_instant=True))
    assert isinstance(held, GiveBack)
    assert (held.reason, held.met[0].limit) == (Reason.VELOCITY_EXCEEDED, "at_once")
    assert isinstance(guard.claims.claim(sms(2)), Grant)  # after its deadline
    assert isinstance(guard.claims.claim(sms(3)), Grant)
    assert isinstance(guard.claims.claim(sms(4)), GiveBack)


def test_a_breaker_opens_without_completions_and_closes_with_them(guard: Guard) -> None:
    guard.limit(completion(10, 3))
    for number in range(1, 4):
        assert isinstance(guard.claims.claim(sms(number)), Grant)
    held = guard.claims.claim(sms(4))
    assert isinstance(held, GiveBack)
    assert (held.reason, held.met[0].limit) == (Reason.BREAKER_OPEN, "breaker")
    assert isinstance(guard.claims.claim(sms(5, country="US")), Grant)
    facts(guard, closed=[("int-0001-test", Reason.COMPLETED)])
    assert isinstance(guard.claims.claim(sms(4)), Grant)


def test_a_completion_counts_once_and_no_other_end_does(guard: Guard) -> None:
    for number in range(1, 4):
        guard.claims.claim(sms(number))
    facts(guard, closed=[("int-0001-test", Reason.COMPLETED), ("int-0002-test", Reason.CANCELLED)])
    facts(guard, closed=[("int-0001-test", Reason.COMPLETED), ("int-0002-test", Reason.COMPLETED)])
    assert guard.used("all").recent_finished == 1
    assert guard.used("country=GB purpose=password_reset").hour_finished == 1


def test_a_breaker_remembers_the_best_of_earlier_days(guard: Guard) -> None:
    """`share_day` of the best of the last 14 days: half of eight is four, above the floor of one."""
    for number in range(1, 9):
        guard.claims.claim(sms(number))
    facts(guard, closed=[(f"int-{n:04}-test", Reason.COMPLETED) for n in range(1, 9)])
    guard.hours_pass(48)
    assert guard.used("all").best_day_finished == 8
    guard.limit(completion(1, 100, share_day=0.5))
    granted = [isinstance(guard.claims.claim(sms(n)), Grant) for n in range(11, 17)]
    assert granted == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("amount", "shares"),
    [("0.05", [None, None, None, None, "0.5", None, None, "0.8", "0.9", None]), ("0.30", ["0.5", None])],
)
def test_a_claim_that_passes_a_share_of_a_cap_says_so(
    guard: Guard, amount: str, shares: list[str | None]
) -> None:
    guard.limit(spend("0.50"))
    for number, share in enumerate(shares, 1):
        found = guard.claims.claim(sms(number, amount=Decimal(amount)))
        if isinstance(found, Grant):
            assert [str(w.share) for w in found.warned] == ([] if share is None else [share])


@pytest.mark.parametrize(
    "budgets", [spend("0.15"), velocity(3), completion(3, 9)], ids=["money", "count", "done"]
)
def test_of_twelve_that_race_for_the_last_units_no_more_are_granted_than_there_are(
    guard: Guard, budgets: Budgets
) -> None:
    guard.limit(budgets)
    found: list[object] = []
    start = threading.Barrier(12)

    def race(number: int) -> None:
        start.wait()
        found.append(guard.claims.claim(sms(number)))

    racers = [threading.Thread(target=race, args=(n,)) for n in range(12)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sum(isinstance(f, Grant) for f in found) == 3
    assert sum(isinstance(f, GiveBack) for f in found) == 9
    assert guard.used("all").day_messages == 3


def test_claims_and_results_of_crossing_scopes_at_once_neither_block_each_other_nor_miscount(
    guard: Guard,
) -> None:
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for turn in range(4):
            one = number * 10 + turn
            guard.claims.claim(sms(one, tenant=f"tenant-000{number % 3}", country=("GB", "US")[number % 2]))
            if turn % 2:
                end(guard, one, "held")
            else:
                facts(guard, closed=[(f"int-{one:04}-test", Reason.COMPLETED)])

    workers = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = guard.used("all")
    assert (found.day_messages, found.day_amount, found.recent_finished) == (16, 16 * PRICE, 16)
