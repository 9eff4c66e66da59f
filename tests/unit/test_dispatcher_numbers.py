"""Orders of higher numbers, repeated and out of order: at most one submission, and each gets its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.attempt import AttemptState
from schemas.control import Controls
from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.sealed import UnsealingKeys
from sinks.providers.base import SubmitResult
from tests.builders import T0
from tests.dispatcher_bench import Bench, Crash
from tests.fakes_provider import TAKEN


def test_a_resubmission_has_the_same_bytes_and_time_to_live(bench: Bench) -> None:
    bench.text.answers = [SubmitResult(AttemptState.UNKNOWN), TAKEN]
    bench.handle(channel=Channel.SMS)
    bench.clock.on(5_000)
    assert bench.attempt(2, Channel.SMS).state is AttemptState.ACCEPTED
    first, second = bench.text.submitted
    assert (first.text, first.ttl_ms, first.reference) == (second.text, second.ttl_ms, second.reference)


@pytest.mark.parametrize(
    ("point", "calls", "then"),
    [
        ("before_claim", 1, AttemptState.ACCEPTED),
        ("after_claim", 1, AttemptState.ACCEPTED),
        ("before_call", 0, AttemptState.UNKNOWN),
        ("after_call", 1, AttemptState.UNKNOWN),
        ("before_result", 1, AttemptState.UNKNOWN),
        ("after_result", 1, AttemptState.ACCEPTED),
    ],
)
def test_a_crash_at_any_boundary_leaves_at_most_one_submission(
    bench: Bench, point: str, calls: int, then: AttemptState
) -> None:
    bench.crash_at = point
    with pytest.raises(Crash):
        bench.handle()
    bench.crash_at = ""
    waiting = bench.handle()
    if waiting.wait_until_ms is not None:
        bench.clock.on(waiting.wait_until_ms - bench.clock.ms + 1)
    assert bench.attempt().state is then
    assert len(bench.mail.submitted) == calls


STOPS: dict[str, tuple[Callable[[Bench], None], dict[str, Any]]] = {
    "paused": (lambda bench: setattr(bench, "controls", Controls(["provider:mail-a"])), {}),
    "clock": (lambda bench: setattr(bench, "clock_trusted", False), {}),
    "key unknown": (lambda bench: setattr(bench, "unsealing", UnsealingKeys([])), {}),
    "key shredded": (lambda bench: setattr(bench, "unsealing", UnsealingKeys([], shredded=["s1"])), {}),
    "expired": (lambda bench: bench.clock.on(900_000), {}),
    "account gone": (lambda bench: None, {"provider_account": "mail-z"}),
}


@pytest.mark.parametrize("stop", STOPS)
def test_what_was_sent_is_said_again_whatever_would_stop_it_now(bench: Bench, stop: str) -> None:
    first = bench.attempt()
    set_up, changes = STOPS[stop]
    set_up(bench)
    assert bench.attempt(**changes) == first
    second = bench.attempt(2, **changes)
    assert (second.submission_no, second.state, second.message_id) == (2, first.state, first.message_id)
    assert len(bench.mail.submitted) == 1


@pytest.mark.parametrize("stop", STOPS)
def test_what_may_have_been_sent_is_unknown_whatever_would_stop_it_now(bench: Bench, stop: str) -> None:
    bench.crash_at = "after_call"
    with pytest.raises(Crash):
        bench.handle()
    bench.crash_at = ""
    set_up, changes = STOPS[stop]
    set_up(bench)
    waiting = bench.handle(**changes).wait_until_ms
    bench.clock.on(0 if waiting is None else waiting - bench.clock.ms + 1)
    found = bench.attempt(**changes)
    assert (found.state, found.submission_no) == (AttemptState.UNKNOWN, 1)


def test_a_crashed_call_told_as_held_while_nobody_could_look_is_not_sent_again_unknowingly(
    bench: Bench,
) -> None:
    bench.crash_at = "after_call"
    with pytest.raises(Crash):
        bench.handle()
    bench.crash_at = ""
    bench.claims.away = frozenset({"claim", "look"})
    assert bench.attempt().reason is Reason.GUARD_UNAVAILABLE
    bench.claims.away = frozenset()
    bench.clock.on(41_000)
    found = bench.attempt(2)
    assert (found.state, found.submission_no) == (AttemptState.UNKNOWN, 2)
    assert bench.attempt(2) == found
    assert len(bench.mail.submitted) == 1
    assert bench.attempt(3).state is AttemptState.ACCEPTED, "the machine decided knowing it"


def test_an_order_whose_hold_was_answered_by_the_next_number_and_that_comes_again_is_sent_once(
    bench: Bench,
) -> None:
    bench.clock_trusted = False
    assert bench.attempt().reason is Reason.CLOCK_SKEWED  # its offset is not committed: it comes again
    bench.clock_trusted = True
    bench.mail.answers = [SubmitResult(AttemptState.UNKNOWN), TAKEN]
    assert bench.attempt().state is AttemptState.UNKNOWN
    second = bench.attempt(2, after_unknown=False)
    assert (second.state, second.submission_no) == (AttemptState.UNKNOWN, 2)
    assert len(bench.mail.submitted) == 1


def test_an_order_given_after_a_hold_is_answered_under_its_number_when_the_held_one_ended_the_ladder(
    bench: Bench,
) -> None:
    bench.clock_trusted = False
    assert bench.attempt().reason is Reason.CLOCK_SKEWED  # its offset is not committed: it comes again
    bench.clock_trusted = True
    bench.mail.answers = [SubmitResult(AttemptState.FAILED, Reason.INVALID_RECIPIENT)]
    first = bench.attempt()
    second = bench.attempt(2, after_unknown=False)
    assert (second.state, second.reason, second.submission_no) == (first.state, first.reason, 2)
    assert second.attempt_id == first.attempt_id.replace(":1:", ":2:")
    assert second.message_id == first.message_id
    assert len(bench.mail.submitted) == 1


UNSURE = SubmitResult(AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)


WINDOW_MS = 100_000  # how long the provider of these tests knows a key


def test_an_order_that_rests_on_a_key_the_provider_has_forgotten_is_given_back_as_unknown(
    bench: Bench,
) -> None:
    bench.mail.answers = [UNSURE, TAKEN]
    bench.attempt()
    bench.clock.on(WINDOW_MS)  # this dispatcher was away
    found = bench.attempt(2, key_until_ms=T0 + WINDOW_MS)
    assert (found.state, found.submission_no) == (AttemptState.UNKNOWN, 2)
    assert len(bench.mail.submitted) == 1
    assert bench.attempt(3).state is AttemptState.ACCEPTED, "the policy took the risk, knowingly"


def test_an_order_that_rests_on_a_key_goes_out_while_the_provider_knows_it(bench: Bench) -> None:
    bench.mail.answers = [UNSURE, TAKEN]
    bench.attempt()
    assert bench.attempt(2, key_until_ms=T0 + WINDOW_MS).state is AttemptState.ACCEPTED


def test_a_hold_in_between_does_not_make_a_forgotten_key_safe(bench: Bench) -> None:
    bench.mail.answers = [UNSURE, SubmitResult(AttemptState.NOT_ACCEPTED, Reason.THROTTLED), TAKEN]
    bench.attempt()
    assert bench.attempt(2, key_until_ms=T0 + WINDOW_MS).state is AttemptState.NOT_ACCEPTED
    bench.clock.on(WINDOW_MS)
    found = bench.attempt(3, after_unknown=False, key_until_ms=T0 + WINDOW_MS)
    assert (found.state, found.submission_no) == (AttemptState.UNKNOWN, 3)
    assert len(bench.mail.submitted) == 2


def test_a_suppression_whose_dispatcher_died_before_telling_is_told_with_the_repeat(bench: Bench) -> None:
    bench.mail.answers = [SubmitResult(AttemptState.FAILED, Reason.INVALID_RECIPIENT, suppress=True)]
    bench.crash_at = "after_result"
    with pytest.raises(Crash):
        bench.handle()
    bench.crash_at = ""
    again = bench.handle()
    (attempt,), (told,) = again.attempts, again.suppressions
    assert (told.fingerprint, told.reason, told.cause) == (
        attempt.fingerprint,
        Reason.INVALID_RECIPIENT,
        attempt.attempt_id,
    )
    assert len(bench.mail.submitted) == 1


def test_a_repeat_of_what_was_accepted_suppresses_nobody(bench: Bench) -> None:
    bench.handle()
    assert bench.handle().suppressions == []
