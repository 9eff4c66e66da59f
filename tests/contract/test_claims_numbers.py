"""What a row says to its own, to higher and to lower numbers: every guard the same."""

from __future__ import annotations

import pytest

from sinks.dispatcher.rules import Expired, Grant, Stored, Superseded
from tests.contract import claims_guard
from tests.contract.claims_guard import CALL_MS, LEASE_MS, E, Guard, finish, order

guard = claims_guard.guard  # the fixture


@pytest.mark.parametrize("state", ["accepted", "failed", "refused", "unknown", "not_accepted", "held"])
def test_a_repeated_order_gets_the_stored_result(guard: Guard, state: str) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    assert finish(guard, state)
    found = guard.claims.claim(order(claim_id="other"))
    assert isinstance(found, Stored)
    assert found.result == {"state": state, "n": 1}


def test_an_order_given_without_knowing_that_the_one_before_may_have_left_is_told_so(guard: Guard) -> None:
    """Number 1 was held without a row, number 2 was ordered, and then number 1 was delivered once more."""
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, "unknown")
    found = guard.claims.claim(order(2, after_unknown=False))
    assert isinstance(found, Expired)
    assert (found.row.claim_id, found.submission_no) == ("c-email-1", 2)
    looked = guard.claims.look("int-0001-test", E, 2, after_unknown=False, call_timeout_ms=CALL_MS)
    assert isinstance(looked, Expired)


@pytest.mark.parametrize("second", ["", "not_accepted", "held"])
def test_an_order_that_rests_on_a_forgotten_key_is_told_that_the_one_before_may_have_left(
    guard: Guard, second: str
) -> None:
    """Also when another one came between that surely did not leave, or whose holder died before its call."""
    guard.claims.claim(order())
    submitted_ms = guard.claims.begin("c-email-1")
    assert submitted_ms is not None
    finish(guard, "unknown")
    assert isinstance(guard.claims.claim(order(2, key_until_ms=submitted_ms + CALL_MS + 60_000)), Grant)
    if second:
        finish(guard, second, 2)
    guard.let_pass(LEASE_MS + 1)
    found = guard.claims.claim(order(3, key_until_ms=submitted_ms))
    assert isinstance(found, Expired)
    assert found.submission_no == 3
    assert isinstance(guard.claims.claim(order(4)), Grant)


@pytest.mark.parametrize("state", ["not_accepted", "held"])
def test_an_order_after_one_that_never_left_need_not_know_of_it(guard: Guard, state: str) -> None:
    guard.claims.claim(order())
    finish(guard, state)
    assert isinstance(guard.claims.claim(order(2, after_unknown=False)), Grant)


@pytest.mark.parametrize("state", ["unknown", "not_accepted", "held"])
@pytest.mark.parametrize("number", [2, 3])
def test_the_machines_next_number_is_granted_after_an_open_result(
    guard: Guard, state: str, number: int
) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, state)
    found = guard.claims.claim(order(number))
    assert isinstance(found, Grant)
    assert not found.is_first


@pytest.mark.parametrize("state", ["accepted", "failed", "refused"])
def test_the_next_number_is_answered_from_the_row_after_a_final_result(guard: Guard, state: str) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, state)
    assert isinstance(guard.claims.claim(order(2)), Stored)


def test_an_older_number_is_answered_from_the_row(guard: Guard) -> None:
    guard.claims.claim(order(2))
    finish(guard, "held", 2)
    assert isinstance(guard.claims.claim(order(1)), Stored)


def test_an_older_number_is_over_while_a_higher_one_is_under_way_also_after_its_lease(guard: Guard) -> None:
    """The older one was sent and told as unknown; claimed again it would be sent a second time."""
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, "unknown")
    assert isinstance(guard.claims.claim(order(2, claim_id="claim-2", after_unknown=True)), Grant)
    assert isinstance(guard.claims.claim(order(claim_id="again")), Superseded)
    guard.let_pass(LEASE_MS + CALL_MS)
    assert isinstance(guard.claims.claim(order(claim_id="again")), Superseded)
    assert isinstance(guard.claims.claim(order(2, claim_id="claim-3", after_unknown=True)), Grant)


def test_the_next_number_over_a_call_nobody_answered_for_is_unknown_and_not_granted(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    guard.let_pass(LEASE_MS + CALL_MS + 1)
    found = guard.claims.claim(order(2))
    assert isinstance(found, Expired)
    assert found.submission_no == 2
    finish(guard, "unknown", 2, claim="c-email-1")
    assert isinstance(guard.claims.claim(order(2, claim_id="other")), Stored)
    assert isinstance(guard.claims.claim(order(3)), Grant)
