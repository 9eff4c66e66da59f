"""One suite for every guard: at most one logical submission per intent and channel."""

from __future__ import annotations

import threading

import pytest

from schemas.ids import Channel
from schemas.reasons import Reason
from sinks.dispatcher.rules import Busy, Expired, Grant, Lifted, Listed, Refuse, Stored
from tests.contract import claims_guard
from tests.contract.claims_guard import CALL_MS, LEASE_MS, E, Guard, S, facts, finish, order

guard = claims_guard.guard  # the fixture


def test_the_first_order_is_granted_and_its_repeat_waits_for_the_holder(guard: Guard) -> None:
    assert isinstance(guard.claims.claim(order()), Grant)
    assert isinstance(guard.claims.claim(order(claim_id="other")), Busy)


def test_a_holder_that_died_before_its_call_is_replaced_after_its_lease(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.let_pass(LEASE_MS + 1)
    assert isinstance(guard.claims.claim(order(claim_id="other")), Grant)
    assert guard.claims.begin("c-email-1") is None


def test_a_holder_that_died_in_its_call_leaves_unknown_and_is_not_replaced(guard: Guard) -> None:
    guard.claims.claim(order())
    assert guard.claims.begin("c-email-1") is not None
    guard.let_pass(LEASE_MS + 1)
    assert isinstance(guard.claims.claim(order(claim_id="other")), Busy)
    guard.let_pass(CALL_MS)
    found = guard.claims.claim(order(claim_id="other"))
    assert isinstance(found, Expired)
    assert (found.row.claim_id, found.submission_no) == ("c-email-1", 1)
    assert finish(guard, "unknown")
    assert isinstance(guard.claims.claim(order(2)), Grant)


def test_an_order_that_will_not_be_claimed_learns_what_the_row_knows(guard: Guard) -> None:
    def look(number: int) -> object:
        return guard.claims.look(
            "int-0001-test", E, number, after_unknown=number > 1, call_timeout_ms=CALL_MS
        )

    assert look(1) is None
    guard.claims.claim(order())
    assert isinstance(look(1), Busy)
    guard.let_pass(LEASE_MS + 1)
    assert look(1) is None
    guard.claims.claim(order(claim_id="c-email-1b"))
    guard.claims.begin("c-email-1b")
    guard.let_pass(LEASE_MS + CALL_MS + 1)
    assert isinstance(look(1), Expired)
    finish(guard, "not_accepted", claim="c-email-1b")
    assert isinstance(look(1), Stored)
    assert look(2) is None


def test_a_lease_that_is_over_cannot_begin(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.let_pass(LEASE_MS + 1)
    assert guard.claims.begin("c-email-1") is None


def test_a_claim_begins_once(guard: Guard) -> None:
    guard.claims.claim(order())
    assert guard.claims.begin("c-email-1") is not None
    assert guard.claims.begin("c-email-1") is None


def test_a_late_result_does_not_change_the_row_of_its_successor(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    guard.let_pass(LEASE_MS + CALL_MS + 1)
    finish(guard, "unknown")
    guard.claims.claim(order(2))
    assert not finish(guard, "accepted", 1)
    assert isinstance(guard.claims.claim(order(2, claim_id="other")), Busy)


def test_a_row_given_up_as_unknown_takes_what_its_holder_learned_and_never_unlearns(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    assert finish(guard, "unknown")
    assert finish(guard, "accepted")
    assert not finish(guard, "unknown")
    assert guard.claims.claim(order(2)) == Stored({"state": "accepted", "n": 1})


def test_an_order_told_as_unknown_is_not_claimed_when_the_holder_turns_out_to_have_sent_nothing(
    guard: Guard,
) -> None:
    """World 2102201: the machine looked for what it took to be lost, and the order came again and left."""
    guard.claims.claim(order(1))
    guard.claims.begin("c-email-1")
    guard.let_pass(LEASE_MS + CALL_MS + 1)
    assert finish(guard, "unknown")
    found = guard.claims.claim(order(2, after_unknown=False))
    assert isinstance(found, Expired)
    assert finish(guard, "unknown", 2, claim="c-email-1")
    assert finish(guard, "held", 1)
    assert isinstance(guard.claims.claim(order(2, after_unknown=False)), Stored)
    assert isinstance(guard.claims.claim(order(3)), Grant)


def test_a_claim_whose_answer_was_lost_is_found_again_by_its_id(guard: Guard) -> None:
    guard.claims.claim(order())
    again = guard.claims.claim(order())
    assert isinstance(again, Grant)
    assert guard.claims.begin("c-email-1") is not None
    assert isinstance(guard.claims.claim(order()), Busy)


def test_another_digest_under_the_same_key_conflicts(guard: Guard) -> None:
    guard.claims.claim(order())
    finish(guard, "unknown")
    assert guard.claims.claim(order(2, request_digest="e" * 64)) == Refuse(Reason.CONFLICTING_REQUEST)


@pytest.mark.parametrize(("first", "then"), [(E, S), (S, E)])
def test_another_expiry_under_the_same_id_conflicts_whatever_the_channel(
    guard: Guard, first: Channel, then: Channel
) -> None:
    """The worker forgets an id after its expiry; the guard knows that it had another life."""
    guard.claims.claim(order(channel=first))
    reused = order(channel=then, expiry_ms=4_000_000_060_000, unless_sms_claimed=False)
    assert guard.claims.claim(reused) == Refuse(Reason.CONFLICTING_REQUEST)
    assert isinstance(guard.claims.claim(order(channel=then, unless_sms_claimed=False)), Grant)


@pytest.mark.parametrize("reason", [Reason.COMPLETED, Reason.CANCELLED, Reason.FORCE_CLOSED])
def test_who_is_done_gets_nothing_not_even_a_byte_after_the_claim(guard: Guard, reason: Reason) -> None:
    guard.claims.claim(order(channel=S))
    facts(guard, closed=[("int-0001-test", reason)])
    assert guard.claims.begin("c-sms-1") is None
    assert guard.claims.stopped_by("c-sms-1") is reason
    assert guard.claims.claim(order()) == Refuse(reason)


def test_a_suppressed_destination_is_refused_under_any_live_key_until_it_is_lifted(guard: Guard) -> None:
    facts(guard, suppressed=[Listed("k0.e.bb", "email", Reason.PERMANENT_BOUNCE, "cause")])
    assert guard.claims.claim(order()) == Refuse(Reason.SUPPRESSED)
    other = order(channel=S, intent_id="int-0002-test", fingerprints=("k1.s.cc",))
    assert isinstance(guard.claims.claim(other), Grant)
    facts(guard, lifted=[Lifted("k0.e.bb", "email")])
    assert isinstance(guard.claims.claim(order()), Grant)


def test_a_result_that_suppresses_does_so_in_the_same_transaction(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    guard.claims.finish(
        "c-email-1",
        intent_id="int-0001-test",
        channel=E,
        submission_no=1,
        state="failed",
        result={},
        suppress=("k1.e.aa", Reason.INVALID_RECIPIENT),
    )
    assert guard.claims.claim(order(intent_id="int-0002-test")) == Refuse(Reason.SUPPRESSED)


def test_an_email_that_never_left_is_skipped_once_the_sms_has_its_claim(guard: Guard) -> None:
    guard.claims.claim(order(channel=S))
    assert guard.claims.claim(order()) == Refuse(Reason.EMAIL_SKIPPED)
    assert isinstance(guard.claims.claim(order(unless_sms_claimed=False)), Grant)


def test_an_email_yields_to_an_sms_claimed_between_its_claim_and_its_first_byte(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.claim(order(channel=S))
    assert guard.claims.begin("c-email-1") is None
    assert guard.claims.stopped_by("c-email-1") is Reason.EMAIL_SKIPPED
    assert guard.claims.begin("c-sms-1") is not None


@pytest.mark.parametrize("between", ["claimed", "not_accepted", "held"])
def test_an_email_that_may_have_left_does_not_yield_whatever_came_of_it_since(
    guard: Guard, between: str
) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, "unknown")
    guard.claims.claim(order(2))
    if between == "claimed":
        guard.let_pass(LEASE_MS + 1)
    else:
        finish(guard, between, 2)
    guard.claims.claim(order(channel=S))
    assert isinstance(guard.claims.claim(order(3)), Grant)
    assert guard.claims.begin("c-email-3") is not None


def test_a_claim_that_a_successor_has_says_so(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.let_pass(LEASE_MS + 1)
    assert guard.claims.begin("c-email-1") is None
    assert guard.claims.stopped_by("c-email-1") is Reason.LEASE_LOST
    guard.claims.claim(order(claim_id="other"))
    assert guard.claims.stopped_by("c-email-1") is Reason.LEASE_LOST


def test_an_expired_intent_is_refused(guard: Guard) -> None:
    assert guard.claims.claim(order(expiry_ms=1)) == Refuse(Reason.EXPIRED)


def test_the_time_to_live_is_fixed_by_the_first_claim(guard: Guard) -> None:
    first = guard.claims.claim(order())
    finish(guard, "unknown")
    guard.let_pass(5_000)
    second = guard.claims.claim(order(2))
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    assert second.ttl_ms == first.ttl_ms


def test_progress_goes_forward_only(guard: Guard) -> None:
    facts(guard, progress={("t", 0): 5})
    facts(guard, progress={("t", 0): 3, ("t", 1): 1})
    assert guard.claims.progress() == {("t", 0): 5, ("t", 1): 1}


def test_of_eight_that_claim_at_once_one_is_granted(guard: Guard) -> None:
    found: list[object] = []
    start = threading.Barrier(8)

    def race(number: int) -> None:
        start.wait()
        found.append(guard.claims.claim(order(claim_id=f"c-{number}")))

    racers = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sum(isinstance(f, Grant) for f in found) == 1
    assert sum(isinstance(f, Busy) for f in found) == 7
