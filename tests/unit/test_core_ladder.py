"""What follows a lost answer, a throttle and a hold: each rung, in order, and nothing early."""

from __future__ import annotations

import pytest

from schemas.accounts import Capabilities
from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind, Phase
from schemas.ids import Channel
from schemas.lookup import LookupPurpose
from schemas.observation import LookupAnswer
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from tests.builders import (
    DEADLINE_MS,
    EXPIRY_MS,
    T0,
    Play,
    attempt,
    context,
    emails,
    first_look,
    missed,
    observation,
    policy,
    started,
)

BY_ID = Capabilities(lookup_by_message_id=True, visibility_delay_ms=2_000)


BY_REFERENCE = Capabilities(lookup_by_reference=True, visibility_delay_ms=2_000)


BY_KEY = Capabilities(idempotent_submit=True, idempotency_window_ms=20_000)


BLIND = Capabilities()


def _unknown(mail: Capabilities, **rules: object) -> Play:
    game = started(ctx=context(policy(**rules), mail=mail))
    game.then(1000, attempt(1000, A.UNKNOWN, lease_until_ms=T0 + 4000))
    return game


def test_a_lost_answer_is_looked_up_by_our_reference() -> None:
    game = _unknown(BY_REFERENCE)
    game.until(6000)
    assert game.lookups[0].purpose is LookupPurpose.RESOLVE
    assert game.lookups[0].message_id is None
    assert emails(game) == [1]


def test_one_look_up_comes_exactly_when_not_found_begins_to_count() -> None:
    game = _unknown(BY_REFERENCE, email__poll={"initial_ms": 60_000, "interval_ms_max": 60_000} | _POLL)
    assert game.live.due_ms == T0 + 6000  # lease until 4 s, visibility delay 2 s


_POLL = {"answers_max": 20, "answer_within_ms": 15_000, "factor": 2.0}


def test_a_lost_answer_with_a_message_id_is_looked_up_by_it() -> None:
    game = started(ctx=context(mail=BY_ID))
    game.then(1000, attempt(1000, A.UNKNOWN, message_id="m-7"))
    game.until(20_000)
    assert game.lookups[0].message_id == "m-7"


def test_look_up_by_id_is_impossible_without_an_id() -> None:
    game = _unknown(BY_ID)
    assert game.last.notes == (Reason.WAITING_UNSURE,)
    game.until(DEADLINE_MS - 1)
    assert game.lookups == []
    assert emails(game) == [1]


def test_found_means_accepted_and_nothing_is_sent_again() -> None:
    game = _unknown(BY_REFERENCE)
    at = first_look(game) + 100
    game.then(at, observation(at, P.ACCEPTED))
    assert game.live.email is not None
    assert game.live.email.state is A.ACCEPTED
    game.until(DEADLINE_MS - 1)
    assert emails(game) == [1]


@pytest.mark.parametrize(("observed", "counts"), [(3999, False), (5999, False), (6000, True), (30_000, True)])
def test_not_found_counts_only_after_lease_and_visibility_delay(observed: int, counts: bool) -> None:
    game = _unknown(BY_REFERENCE)
    first_look(game)
    game.give(
        31_000, observation(observed, None, answer=LookupAnswer.NOT_FOUND, poll_no=game.lookups[-1].poll_no)
    )
    assert game.last.reason is Reason.NOT_FOUND_YET
    assert game.live.email is not None
    assert bool(game.live.email.missed_ms) is counts
    assert emails(game) == [1]


def test_a_second_not_found_a_delay_after_the_first_settles_it() -> None:
    game = _unknown(BY_REFERENCE)
    at = missed(game, 6000, times=1)
    assert emails(game) == [1]
    assert game.live.due_ms == T0 + at + 2000  # the visibility delay once more
    missed(game, 100, times=1)
    assert game.last.reason is Reason.RESUBMITTED
    assert Reason.NOT_FOUND in {d.reason for d in game.decisions}
    assert emails(game) == [1, 2]


def test_a_message_denied_once_and_then_found_is_not_sent_again() -> None:
    game = _unknown(BY_REFERENCE)
    missed(game, 6000, times=1)
    while not game.live.email or not game.live.email.asked_until_ms:
        game.until(game.live.due_ms - T0)
    at = game.live.last_now_ms - T0 + 100
    game.then(at, observation(at, P.ACCEPTED, poll_no=game.lookups[-1].poll_no))
    game.until(DEADLINE_MS - 1)
    assert emails(game) == [1]


def test_the_next_submission_is_missed_anew() -> None:
    game = _unknown(BY_REFERENCE)
    at = missed(game, 6000)
    game.give(at + 100, attempt(at + 100, A.UNKNOWN, submission_no=2))
    missed(game, 6000, times=1, about=2)
    assert emails(game) == [1, 2]
    missed(game, 6000, times=1, about=2)
    assert emails(game) == [1, 2, 3]


def test_not_found_by_a_clock_that_runs_ahead_does_not_count_earlier() -> None:
    game = _unknown(BY_REFERENCE, email__poll={"initial_ms": 500, "interval_ms_max": 500} | _POLL)
    at = first_look(game) + 100
    assert at < 6000
    game.give(at, observation(60_000, None, answer=LookupAnswer.NOT_FOUND, poll_no=game.lookups[-1].poll_no))
    assert game.last.reason is Reason.NOT_FOUND_YET
    game.until(at)
    assert emails(game) == [1]


@pytest.mark.parametrize(("about", "ordered"), [(1, [1, 2]), (2, [1, 2, 3])])
def test_not_found_about_an_earlier_submission_says_nothing_about_this_one(
    about: int, ordered: list[int]
) -> None:
    game = _unknown(BY_REFERENCE)
    at = missed(game, 3000)
    assert emails(game) == [1, 2]
    game.give(at + 100, attempt(at + 100, A.UNKNOWN, submission_no=2))
    missed(game, 5000, about=about)
    assert emails(game) == ordered


def test_the_same_lost_answer_told_again_does_not_undo_a_look_up() -> None:
    game = _unknown(BY_REFERENCE)
    at = first_look(game) + 6000
    game.give(at, observation(at, None, answer=LookupAnswer.NOT_FOUND, poll_no=game.lookups[-1].poll_no))
    kept = game.state_bytes
    game.give(at + 1, attempt(1000, A.UNKNOWN, attempt_id="int-0001-test:again"))
    assert game.state_bytes == kept


def test_an_answer_that_is_no_longer_lost_is_progress() -> None:
    game = _unknown(BLIND)
    game.give(2000, attempt(2000, A.ACCEPTED))
    assert game.last.reason is Reason.ACCEPTED
    assert game.live.email is not None
    assert game.live.email.message_id == "m-email"


def test_without_look_up_the_same_bytes_go_under_the_same_key_in_its_window() -> None:
    game = _unknown(BY_KEY)
    game.until(5000)
    assert emails(game) == [1, 2]
    assert Reason.RESUBMITTED in game.reasons


def test_an_order_that_rests_on_the_key_says_until_when_it_is_remembered() -> None:
    game = _unknown(BY_KEY)
    game.until(5000)
    assert [d.key_until_ms for d in game.dispatches] == [0, T0 + 1000 + 20_000]
    held = game.live.last_now_ms - T0 + 10
    game.give(held, attempt(held, A.HELD, reason=Reason.CONTROL_PAUSED, submission_no=2))
    game.until(held + 6000)
    assert game.dispatches[-1].submission_no == 3
    assert game.dispatches[-1].key_until_ms == T0 + 1000 + 20_000, "a hold in between forgets nothing"


def test_what_a_look_up_or_the_policy_allows_does_not_rest_on_the_key() -> None:
    caps = Capabilities(
        lookup_by_reference=True,
        visibility_delay_ms=2_000,
        idempotent_submit=True,
        idempotency_window_ms=20_000,
    )
    game = _unknown(caps)
    missed(game, 6000)
    assert [d.key_until_ms for d in game.dispatches] == [0, 0]
    game = _unknown(BLIND, when_unsure="risk_duplicate")
    game.until(10_000)
    assert [d.key_until_ms for d in game.dispatches] == [0, 0]


def test_after_the_window_of_the_key_nothing_is_sent_again() -> None:
    game = _unknown(BY_KEY)
    for number in range(2, 9):
        game.until(DEADLINE_MS - 1)
        if emails(game)[-1] == number:
            now = game.live.last_now_ms - T0
            game.give(now + 10, attempt(now + 10, A.UNKNOWN, submission_no=number))
    ordered = [d.now_ms for d in game.decisions if d.reason is Reason.RESUBMITTED]
    assert ordered
    assert max(ordered) < T0 + 1000 + 20_000
    assert Reason.WAITING_UNSURE in game.notes


def test_a_budget_of_submissions_that_is_spent_orders_in_no_circle() -> None:
    caps = Capabilities(idempotent_submit=True, idempotency_window_ms=10_000_000)
    game = _unknown(caps, email__submissions_max=1)
    assert game.until(DEADLINE_MS - 1) <= 2
    assert emails(game) == [1]
    assert game.notes.count(Reason.WAITING_UNSURE) == 1


def test_a_policy_may_wait() -> None:
    game = _unknown(BLIND)
    assert game.last.notes == (Reason.WAITING_UNSURE,)
    game.until(DEADLINE_MS - 1)
    assert emails(game) == [1]
    game.until(DEADLINE_MS)
    assert game.phase() is Phase.SMS_CLAIMED
    assert game.notes.count(Reason.WAITING_UNSURE) == 1


def test_a_policy_may_risk_a_duplicate_once_and_says_so() -> None:
    game = _unknown(BLIND, when_unsure="risk_duplicate")
    assert Reason.RISK_DUPLICATE in game.last.notes
    game.until(10_000)
    assert emails(game) == [1, 2]
    game.give(10_000, attempt(10_000, A.UNKNOWN, submission_no=2))
    game.until(DEADLINE_MS - 1)
    assert emails(game) == [1, 2]
    assert game.notes.count(Reason.RISK_DUPLICATE) == 1


def test_a_throttled_look_up_after_a_lost_answer_respects_the_pause() -> None:
    game = _unknown(BY_REFERENCE)
    at = first_look(game) + 100
    pause = T0 + 50_000
    game.give(at, observation(at, None, answer=LookupAnswer.THROTTLED, paused_until_ms=pause))
    asked = len(game.lookups)
    game.until(49_999)
    assert len(game.lookups) == asked


def test_look_ups_after_a_lost_answer_back_off() -> None:
    game = _unknown(BY_REFERENCE)
    answered = 0
    while game.live.due_ms < T0 + DEADLINE_MS - 3000:
        game.until(game.live.due_ms - T0)
        if len(game.lookups) > answered:
            answered += 1
            at = game.live.last_now_ms - T0 + 50
            game.give(at, observation(at, None, answer=LookupAnswer.UNAVAILABLE, poll_no=answered))
    assert answered <= 5  # at least 1 s apart would be more than 50


@pytest.mark.parametrize("state", [A.REFUSED, A.FAILED, A.HELD, A.NOT_ACCEPTED])
@pytest.mark.parametrize("reason", [Reason.KEY_SHREDDED, Reason.BINDING_MISMATCH, Reason.INVALID_VARIABLES])
def test_a_reason_of_class_intent_ends_it_on_both_channels(reason: Reason, state: A) -> None:
    game = started()
    game.give(1000, attempt(1000, state, reason=reason))
    assert game.live.closed is CloseKind.INVALID
    assert game.last.reason is reason
    game.until(EXPIRY_MS)
    assert game.sent(Channel.SMS) == 0


def test_a_suppressed_address_claims_at_once() -> None:
    game = started()
    game.give(1000, attempt(1000, A.REFUSED, reason=Reason.SUPPRESSED))
    assert game.phase() is Phase.SMS_CLAIMED
    assert game.last.reason is Reason.CONCLUSIVE_FAILURE


def test_a_late_result_of_an_earlier_submission_is_recorded() -> None:
    game = _unknown(BY_KEY)
    game.until(5000)
    game.give(6000, attempt(6000, A.ACCEPTED, submission_no=1))
    assert game.live.email is not None
    assert game.live.email.state is A.ACCEPTED
    game.until(DEADLINE_MS - 1)
    assert emails(game) == [1, 2]


def test_an_accepted_message_carries_no_stale_reason() -> None:
    game = started()
    game.give(1000, attempt(1000, A.NOT_ACCEPTED, reason=Reason.THROTTLED))
    game.until(10_000)
    game.give(11_000, attempt(11_000, A.ACCEPTED, submission_no=2))
    assert game.live.email is not None
    assert game.live.email.reason is None


def test_a_later_look_up_does_not_undo_a_refusal_by_code() -> None:
    game = started()
    game.give(1000, attempt(1000, A.FAILED, reason=Reason.INVALID_RECIPIENT))
    game.give(2000, observation(2000, P.ACCEPTED))
    assert game.live.email is not None
    assert game.live.email.state is A.FAILED
    assert game.live.email.reason is Reason.INVALID_RECIPIENT
