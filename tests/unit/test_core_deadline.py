"""When an SMS may be claimed: the deadline, the expiry, the last look and the late e-mail."""

from __future__ import annotations

import pytest

from schemas.accounts import Capabilities
from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind, Looked, Phase
from schemas.ids import Channel
from schemas.lookup import LookupPurpose
from schemas.observation import LookupAnswer
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from tests.builders import (
    DEADLINE_MS,
    EXPIRY_MS,
    FULL,
    T0,
    Play,
    attempt,
    context,
    observation,
    policy,
    request,
    started,
)
from tests.builders import tick as tick_at

BLIND = Capabilities()
USEFUL_MS = EXPIRY_MS - 30_000
LATE = context(policy(bounds__deadline_ms_max=890_000))


def test_one_millisecond_before_the_deadline_stays_pending() -> None:
    game = started()
    game.give(DEADLINE_MS - 1, tick_at(DEADLINE_MS - 1))
    assert game.phase() is Phase.EMAIL_PENDING
    assert game.sent(Channel.SMS) == 0


def test_at_the_deadline_the_sms_is_claimed() -> None:
    game = started()
    game.give(DEADLINE_MS, tick_at(DEADLINE_MS))
    assert game.phase() is Phase.SMS_CLAIMED
    assert game.last.reason is Reason.DEADLINE_REACHED
    assert game.sent(Channel.SMS) == 1


@pytest.mark.parametrize(
    ("at", "claims"),
    [
        (EXPIRY_MS - 30_001, 1),
        (USEFUL_MS, 0),
        (EXPIRY_MS - 1, 0),
        (EXPIRY_MS, 0),
        (EXPIRY_MS + 1, 0),
    ],
)
def test_a_claim_needs_more_than_the_useful_window_before_expiry(at: int, claims: int) -> None:
    game = started()
    game.give(at, tick_at(at))
    assert game.sent(Channel.SMS) == claims


@pytest.mark.parametrize(("at", "claims"), [(USEFUL_MS - 1, 1), (USEFUL_MS, 0), (EXPIRY_MS, 0)])
def test_a_conclusive_failure_claims_only_while_an_sms_is_useful(at: int, claims: int) -> None:
    game = started(ctx=context(policy(bounds__deadline_ms_max=890_000)), deadline_ms=T0 + 869_000)
    game.give(at, observation(at, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    assert game.sent(Channel.SMS) == claims


def test_a_claim_too_late_is_refused_with_its_gate() -> None:
    game = started()
    game.give(USEFUL_MS, tick_at(USEFUL_MS))
    assert game.last.reason is Reason.TOO_LATE_FOR_SMS
    assert game.live.claim_due_ms == 0


def test_a_deadline_already_past_at_intake_is_due_at_once() -> None:
    late = Play(context())
    late.give(DEADLINE_MS + 5, request())
    assert late.live.due_ms <= late.live.last_now_ms
    late.until(DEADLINE_MS + 5)
    assert late.phase() is Phase.SMS_CLAIMED


def _accepted(**changes: object) -> Play:
    game = started(**changes)  # type: ignore[arg-type]
    game.then(1000, attempt(1000, A.ACCEPTED))
    return game


def _answer_polls(game: Play, until: int, state: P = P.ACCEPTED) -> None:
    """Every look-up is answered 200 ms after it was ordered, up to `until`."""
    answered = 0
    while True:
        asked = game.lookups[answered:]
        if not asked:
            due = game.live.due_ms - T0
            if due > until:
                return
            game.until(due)
            continue
        at = game.live.last_now_ms - T0 + 200
        if at > until:
            return
        answered += 1
        game.then(at, observation(at, state, poll_no=asked[0].poll_no))


def test_an_answer_younger_than_fresh_needs_no_last_look() -> None:
    game = _accepted()
    _answer_polls(game, DEADLINE_MS - 1)
    game.until(DEADLINE_MS)
    assert game.phase() is Phase.SMS_CLAIMED
    assert game.last.looked is Looked.FRESH


def test_an_old_answer_orders_one_last_look_and_waits_for_it() -> None:
    game = _accepted()
    game.give(DEADLINE_MS, tick_at(DEADLINE_MS))
    assert game.last.reason is Reason.LAST_LOOK
    assert game.phase() is Phase.EMAIL_PENDING
    assert [q.purpose for q in game.lookups] == [LookupPurpose.LAST_LOOK]
    assert game.live.claim_due_ms == T0 + DEADLINE_MS + 3000
    assert game.lookups[0].answer_by_ms == game.live.claim_due_ms


def test_an_answered_last_look_decides_at_once() -> None:
    game = _accepted()
    game.give(DEADLINE_MS, tick_at(DEADLINE_MS))
    game.give(DEADLINE_MS + 400, observation(DEADLINE_MS + 400, P.ACCEPTED))
    assert game.phase() is Phase.EMAIL_PENDING  # time enters by ticks only
    game.until(DEADLINE_MS + 400)
    assert game.phase() is Phase.SMS_CLAIMED
    assert game.last.looked is Looked.ANSWERED


def test_a_last_look_that_finds_a_delivery_saves_the_sms() -> None:
    game = _accepted()
    game.give(DEADLINE_MS, tick_at(DEADLINE_MS))
    game.give(DEADLINE_MS + 400, observation(DEADLINE_MS + 400, P.DELIVERED))
    game.until(EXPIRY_MS + 700_000)
    assert game.sent(Channel.SMS) == 0


def test_a_last_look_without_an_answer_is_bounded() -> None:
    game = _accepted()
    game.give(DEADLINE_MS, tick_at(DEADLINE_MS))
    game.until(DEADLINE_MS + 2999)
    assert game.phase() is Phase.EMAIL_PENDING
    game.until(DEADLINE_MS + 3000)
    assert game.phase() is Phase.SMS_CLAIMED
    assert game.last.looked is Looked.NO_ANSWER


@pytest.mark.parametrize("answer", [LookupAnswer.THROTTLED, LookupAnswer.UNAVAILABLE, LookupAnswer.SKIPPED])
def test_a_last_look_that_could_not_be_asked_is_no_answer(answer: LookupAnswer) -> None:
    game = _accepted()
    game.give(DEADLINE_MS, tick_at(DEADLINE_MS))
    game.give(DEADLINE_MS + 100, observation(DEADLINE_MS + 100, None, answer=answer))
    game.until(DEADLINE_MS + 100)
    claimed = next(d for d in game.decisions if d.reason is Reason.DEADLINE_REACHED)
    assert claimed.looked is Looked.NO_ANSWER


def test_a_late_answer_does_not_rewrite_what_the_claim_knew() -> None:
    game = _accepted()
    game.give(DEADLINE_MS, tick_at(DEADLINE_MS))
    game.until(DEADLINE_MS + 3000)
    game.give(DEADLINE_MS + 4000, observation(DEADLINE_MS + 4000, P.ACCEPTED))
    assert game.live.looked is Looked.NO_ANSWER


def test_a_provider_without_look_up_makes_the_last_look_impossible() -> None:
    game = _accepted(ctx=context(mail=BLIND))
    game.until(DEADLINE_MS)
    assert game.last.looked is Looked.IMPOSSIBLE
    assert game.phase() is Phase.SMS_CLAIMED


def test_a_lost_answer_is_looked_at_even_when_the_last_answer_is_fresh() -> None:
    game = started()
    game.then(1000, attempt(1000, A.UNKNOWN, lease_until_ms=T0 + DEADLINE_MS + 60_000))
    game.until(DEADLINE_MS - 3000)
    asked = game.lookups[-1].poll_no
    fresh = DEADLINE_MS - 2500
    game.then(fresh, observation(fresh, None, answer=LookupAnswer.NOT_FOUND, poll_no=asked))
    game.until(DEADLINE_MS)
    assert game.phase() is Phase.EMAIL_PENDING
    assert game.last.reason is Reason.LAST_LOOK


def test_a_look_up_that_is_outstanding_serves_as_the_last_look() -> None:
    game = _accepted()
    game.until(DEADLINE_MS - 3000)
    asked = game.lookups[-1]
    game.until(DEADLINE_MS)
    if game.lookups[-1].poll_no == asked.poll_no:
        assert game.live.look_poll_no == asked.poll_no
    assert sum(q.purpose is LookupPurpose.LAST_LOOK for q in game.lookups) <= 1
    assert game.live.email is not None
    assert game.live.email.asked_until_ms


def test_the_last_look_never_waits_into_the_useless_window() -> None:
    near = T0 + EXPIRY_MS - 30_500
    game = started(ctx=LATE, deadline_ms=near)
    game.then(1000, attempt(1000, A.ACCEPTED))
    game.until(EXPIRY_MS)
    assert game.sent(Channel.SMS) == 1
    assert game.live.claimed_ms < T0 + USEFUL_MS


def test_an_undispatched_email_is_skipped_by_default() -> None:
    game = started()
    assert game.dispatches[0].unless_sms_claimed
    game.until(DEADLINE_MS)
    assert game.live.claimed_ms == T0 + DEADLINE_MS


def test_a_policy_may_extend_an_undispatched_email_once_and_bounded() -> None:
    game = started(ctx=context(policy(undispatched_email="extend", extend_ms_max=20_000)))
    assert not game.dispatches[0].unless_sms_claimed
    game.until(DEADLINE_MS)
    assert game.last.reason is Reason.EXTENDED
    game.until(DEADLINE_MS + 19_999)
    assert game.phase() is Phase.EMAIL_PENDING
    game.until(DEADLINE_MS + 20_000)
    assert game.phase() is Phase.SMS_CLAIMED


def test_an_email_that_was_submitted_is_not_extended() -> None:
    ctx = context(policy(undispatched_email="extend", extend_ms_max=20_000), mail=BLIND)
    game = started(ctx=ctx)
    game.then(1000, attempt(1000, A.ACCEPTED))
    game.until(DEADLINE_MS)
    assert game.phase() is Phase.SMS_CLAIMED


def test_accepted_is_no_reason_to_send_and_none_to_refrain() -> None:
    game = _accepted(ctx=context(mail=BLIND))
    assert game.sent(Channel.SMS) == 0
    game.until(DEADLINE_MS)
    assert game.sent(Channel.SMS) == 1


def test_log_time_going_backwards_does_not_turn_time_back() -> None:
    game = started()
    game.give(50_000, attempt(1000, A.ACCEPTED))
    game.give(20_000, observation(20_000, P.ACCEPTED))
    assert [d.now_ms for d in game.decisions] == sorted(d.now_ms for d in game.decisions)
    assert game.live.last_now_ms == T0 + 50_000


def test_a_jump_past_the_expiry_claims_nothing() -> None:
    game = started()
    game.give(EXPIRY_MS * 4, tick_at(EXPIRY_MS * 4))
    assert game.live.closed is CloseKind.EXPIRED
    assert game.sent(Channel.SMS) == 0


def test_deadline_and_expiry_never_move() -> None:
    game = started(ctx=context(policy(undispatched_email="extend", extend_ms_max=20_000), mail=FULL))
    first = (game.live.deadline_ms, game.live.expiry_ms)
    game.until(EXPIRY_MS + 700_000)
    assert {(s.state.deadline_ms, s.state.expiry_ms) for s in game.steps if s.state is not None} == {first}


def test_three_ages_tell_the_lags_apart() -> None:
    game = _accepted()
    game.give(DEADLINE_MS, tick_at(DEADLINE_MS))
    game.give(DEADLINE_MS + 400, observation(DEADLINE_MS + 400, P.ACCEPTED))
    game.until(DEADLINE_MS + 400)
    game.give(DEADLINE_MS + 900, attempt(DEADLINE_MS + 900, A.ACCEPTED, Channel.SMS))
    ages = game.last.ages
    assert ages is not None
    assert ages.since_email_request_ms == DEADLINE_MS + 900
    assert ages.since_last_answer_ms == 500
    assert ages.since_sms_claim_ms == 500
