"""Reasons of ours hold and retry: when the next order comes, and that nobody gets an early SMS."""

from __future__ import annotations

import pytest

from schemas.accounts import Capabilities
from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind, Phase
from schemas.ids import Channel
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
    observation,
    policy,
    started,
)


def test_a_retry_after_beyond_the_deadline_does_not_move_the_deadline() -> None:
    game = started()
    game.then(1000, attempt(1000, A.ACCEPTED))
    at = first_look(game) + 100
    pause = T0 + 86_400_000
    game.give(at, observation(at, None, answer=LookupAnswer.THROTTLED, paused_until_ms=pause))
    game.until(DEADLINE_MS + 3000)
    assert game.sent(Channel.SMS) == 1
    game.until(EXPIRY_MS + 700_000)
    assert sum(q.channel is Channel.EMAIL for q in game.lookups) == 2  # the first and the last look


HELD = [
    Reason.CONTROL_PAUSED,
    Reason.CREDENTIALS_REFUSED,
    Reason.KEY_UNKNOWN,
    Reason.GUARD_UNAVAILABLE,
    Reason.COMPLETIONS_UNREAD,
    Reason.CLOCK_SKEWED,
    Reason.SPEND_EXHAUSTED,
    Reason.VELOCITY_EXCEEDED,
    Reason.BREAKER_OPEN,
]


@pytest.mark.parametrize(
    ("state", "reason"), [(A.HELD, r) for r in HELD] + [(A.NOT_ACCEPTED, Reason.THROTTLED)]
)
def test_a_reason_of_ours_causes_no_early_sms(state: A, reason: Reason) -> None:
    game = started()
    for number in range(1, 20):
        now = max(game.live.last_now_ms - T0, 0) + 10
        game.give(now, attempt(now, state, submission_no=number, reason=reason))
        if game.live.due_ms >= T0 + DEADLINE_MS:
            break
        game.until(game.live.due_ms - T0)
    assert game.sent(Channel.SMS) == 0
    assert game.phase() is Phase.EMAIL_PENDING
    assert len(emails(game)) > 2
    game.until(DEADLINE_MS)
    assert game.sent(Channel.SMS) == 1


def test_holds_wait_5_10_20_40_60_seconds_and_never_spend_the_budget() -> None:
    game = started(ctx=context(policy(bounds__deadline_ms_max=600_000)), deadline_ms=T0 + 600_000)
    waits = []
    for number in range(1, 10):
        now = max(game.live.last_now_ms - T0, 0) + 1
        game.give(now, attempt(now, A.HELD, submission_no=number, reason=Reason.KEY_UNKNOWN))
        waits.append(game.live.due_ms - T0 - now)
        game.until(game.live.due_ms - T0)
    assert waits == [5000, 10_000, 20_000, 40_000, 60_000, 60_000, 60_000, 60_000, 60_000]
    assert game.live.email is not None
    assert game.live.email.real_submissions == 0


@pytest.mark.parametrize("state", [A.HELD, A.NOT_ACCEPTED])
def test_a_retry_time_that_is_already_past_makes_no_hot_loop(state: A) -> None:
    game = started()
    game.give(1000, attempt(1000, state, reason=Reason.THROTTLED, retry_at_ms=T0 + 10))
    assert game.live.due_ms >= T0 + 2000  # resubmit_after_ms


def test_a_named_retry_time_is_kept() -> None:
    game = started()
    game.give(1000, attempt(1000, A.NOT_ACCEPTED, reason=Reason.THROTTLED, retry_at_ms=T0 + 33_000))
    assert game.live.due_ms == T0 + 33_000


def test_a_retry_time_past_the_useful_end_orders_nothing_more() -> None:
    game = started()
    game.give(1000, attempt(1000, A.NOT_ACCEPTED, reason=Reason.THROTTLED, retry_at_ms=T0 + 3_600_000))
    game.until(EXPIRY_MS + 700_000)
    assert emails(game) == [1]
    assert game.sent(Channel.SMS) == 1


def test_spent_submissions_of_an_email_prove_nothing_before_the_deadline() -> None:
    game = started(ctx=context(policy(email__submissions_max=2)))
    for number in (1, 2):
        now = max(game.live.last_now_ms - T0, 0) + 10
        game.give(now, attempt(now, A.NOT_ACCEPTED, submission_no=number, reason=Reason.THROTTLED))
        game.until(min(game.live.due_ms - T0, DEADLINE_MS - 1))
    assert game.reasons.count(Reason.SUBMISSIONS_SPENT) == 1
    assert game.live.email is not None
    assert not game.live.email.facts.failed_ms
    assert game.phase() is Phase.EMAIL_PENDING
    game.until(DEADLINE_MS)
    assert game.sent(Channel.SMS) == 1


def _claimed(**rules: object) -> Play:
    game = started(ctx=context(policy(**rules), text=Capabilities()))
    game.give(3000, observation(3000, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    return game


def test_spent_submissions_of_an_sms_leave_no_channel() -> None:
    game = _claimed(sms__submissions_max=1)
    game.give(4000, attempt(4000, A.NOT_ACCEPTED, Channel.SMS, reason=Reason.THROTTLED))
    game.until(60_000)
    assert game.phase() is Phase.EXHAUSTED


def test_an_sms_of_which_nothing_is_known_is_never_called_exhausted() -> None:
    game = _claimed(sms__submissions_max=1)
    game.give(4000, attempt(4000, A.UNKNOWN, Channel.SMS))
    game.until(EXPIRY_MS + 599_999)
    assert game.phase() is Phase.SMS_CLAIMED
    game.until(EXPIRY_MS + 600_000)
    assert game.last.closed is CloseKind.UNRESOLVED


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (A.REFUSED, Reason.SUPPRESSED),
        (A.REFUSED, Reason.NO_CONSENT),
        (A.REFUSED, Reason.EXPIRED),
        (A.REFUSED, Reason.COUNTRY_NOT_PRICED),
        (A.REFUSED, Reason.SMS_LIMIT_REACHED),
        (A.FAILED, Reason.BLOCKED),
        (A.FAILED, Reason.CONTENT_REFUSED),
    ],
)
def test_an_sms_refused_for_good_leaves_no_channel(state: A, reason: Reason) -> None:
    game = _claimed()
    game.give(4000, attempt(4000, state, Channel.SMS, reason=reason))
    assert game.phase() is Phase.EXHAUSTED
    game.until(EXPIRY_MS)
    assert game.live.closed is CloseKind.SETTLED
