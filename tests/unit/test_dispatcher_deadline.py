"""The e-mail and its deadline: from there on it yields to the SMS, whose order may wait behind it."""

from __future__ import annotations

from schemas.attempt import AttemptState
from schemas.ids import Channel
from schemas.reasons import Reason
from sinks.dispatcher.rules import ORDER_FRESH_MS
from tests.builders import T0
from tests.dispatcher_bench import Bench


def test_an_email_yields_to_an_sms_claimed_between_its_claim_and_its_first_byte(bench: Bench) -> None:
    plain = bench.claims.begin

    def sms_meanwhile(claim_id: str) -> int | None:
        bench.claims.begin = plain  # type: ignore[method-assign]
        assert bench.attempt(channel=Channel.SMS).state is AttemptState.ACCEPTED
        return plain(claim_id)

    bench.claims.begin = sms_meanwhile  # type: ignore[method-assign]
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.EMAIL_SKIPPED)
    assert bench.mail.submitted == []


def test_an_email_that_never_left_is_skipped_after_the_sms(bench: Bench) -> None:
    bench.handle(channel=Channel.SMS)
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.EMAIL_SKIPPED)


def test_an_email_first_read_after_the_deadline_is_given_back_to_the_machine(bench: Bench) -> None:
    bench.clock.on(70_000)
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.EMAIL_SKIPPED)
    assert bench.mail.submitted == []


def test_an_email_ordered_again_after_the_deadline_goes_out(bench: Bench) -> None:
    bench.clock.on(70_000)
    assert bench.attempt().state is AttemptState.HELD
    again = bench.attempt(2, ordered_at_ms=T0 + 70_000)
    assert again.state is AttemptState.ACCEPTED


def test_an_email_that_left_before_the_deadline_is_answered_from_its_row_after_it(bench: Bench) -> None:
    first = bench.attempt()
    bench.clock.on(70_000)
    assert bench.attempt() == first
    assert len(bench.mail.submitted) == 1


def test_a_policy_that_extends_sends_the_email_after_the_deadline(bench: Bench) -> None:
    bench.clock.on(70_000)
    assert bench.attempt(unless_sms_claimed=False).state is AttemptState.ACCEPTED


def test_an_email_ordered_after_the_deadline_is_good_for_a_while_and_then_given_back(bench: Bench) -> None:
    """It knew of the deadline, and not of the SMS that was claimed while it waited."""
    late = T0 + 70_000
    bench.clock.on(70_500)
    assert bench.attempt(ordered_at_ms=late).state is AttemptState.ACCEPTED
    bench = Bench()
    bench.clock.on(70_000 + ORDER_FRESH_MS)
    found = bench.attempt(ordered_at_ms=late)
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.EMAIL_SKIPPED)
    assert not bench.mail.submitted


def test_an_email_claimed_before_the_deadline_and_held_up_over_it_is_given_back(bench: Bench) -> None:
    begin = bench.claims.begin

    def slow(claim_id: str) -> int | None:
        found = begin(claim_id)
        bench.clock.on(10_000)  # frozen over the deadline
        return found

    bench.clock.on(55_000)
    bench.claims.begin = slow  # type: ignore[method-assign]
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.EMAIL_SKIPPED)
    assert not bench.mail.submitted
