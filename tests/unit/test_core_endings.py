"""Endings, repeats and facts that come before or after their time."""

from __future__ import annotations

import msgspec
import pytest

from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind, Phase
from schemas.ids import Channel
from schemas.instruction import InstructionAction as Order
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from schemas.record import Record
from schemas.tick import TickCause
from streams.core import due
from streams.core.effects import Fate
from streams.core.state import EARLY_FACTS_MAX, from_bytes, to_bytes
from tests.builders import (
    DEADLINE_MS,
    EMAIL_FP,
    EXPIRY_MS,
    T0,
    Play,
    attempt,
    cancelled,
    completed,
    context,
    instruction,
    observation,
    play,
    policy,
    request,
    started,
    tick,
)

OVER_MS = EXPIRY_MS + 4_400_000  # late evidence, then an hour for orders nobody answered
ENDS: list[tuple[Record, CloseKind]] = [
    (completed(59_900), CloseKind.COMPLETED),
    (cancelled(59_900), CloseKind.CANCELLED),
    (instruction(59_900, Order.COMPLETE), CloseKind.COMPLETED),
    (instruction(59_900, Order.CANCEL), CloseKind.CANCELLED),
    (instruction(59_900, Order.FORCE_CLOSE), CloseKind.CANCELLED),
]


@pytest.mark.parametrize(("end", "kind"), ENDS)
def test_an_end_before_the_deadline_means_no_sms(end: Record, kind: CloseKind) -> None:
    game = started()
    game.then(59_900, end)
    assert game.live.closed is kind
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 0


@pytest.mark.parametrize(("end", "kind"), ENDS)
def test_an_end_that_comes_first_means_nothing_is_ever_sent(end: Record, kind: CloseKind) -> None:
    game = play((0, end), (5, attempt(5, A.ACCEPTED)), (30_000, request()))
    game.until(OVER_MS)
    assert game.dispatches == []
    closed = next(d for d in game.decisions if d.closed)
    assert closed.closed is kind
    assert closed.seq == 1


@pytest.mark.parametrize(("end", "kind"), ENDS)
def test_an_end_told_again_changes_nothing(end: Record, kind: CloseKind) -> None:
    game = started()
    game.then(59_900, end)
    kept = game.state_bytes
    assert [s.fate for s in game.give(59_950, end)] == [Fate.ABSORBED]
    assert game.state_bytes == kept


def test_a_completion_between_claim_and_result_closes_as_an_honest_overlap() -> None:
    game = started()
    game.until(DEADLINE_MS)
    game.give(DEADLINE_MS + 100, completed(DEADLINE_MS + 100))
    assert game.last.closed is CloseKind.COMPLETED
    assert Reason.OVERLAP in game.last.notes
    game.give(DEADLINE_MS + 200, attempt(DEADLINE_MS + 200, A.REFUSED, Channel.SMS, reason=Reason.COMPLETED))
    assert game.last.reason is Reason.LATE_EVIDENCE
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 1


def test_an_acceptance_after_the_end_is_an_overlap() -> None:
    game = started()
    game.give(500, attempt(500, A.NOT_ACCEPTED, reason=Reason.THROTTLED))
    game.give(600, completed(600))
    assert not game.live.overlap
    game.give(700, attempt(700, A.ACCEPTED))
    assert game.live.overlap
    assert game.last.notes[-1] is Reason.OVERLAP


def test_a_refusal_after_the_end_is_no_overlap() -> None:
    game = started()
    game.give(500, attempt(500, A.ACCEPTED))
    game.until(DEADLINE_MS + 3000)
    game.give(DEADLINE_MS + 3100, attempt(DEADLINE_MS + 3100, A.HELD, Channel.SMS, reason=Reason.KEY_UNKNOWN))
    game.give(DEADLINE_MS + 3200, completed(DEADLINE_MS + 3200))
    late = attempt(DEADLINE_MS + 3300, A.REFUSED, Channel.SMS, reason=Reason.COMPLETED)
    game.give(DEADLINE_MS + 3300, late)
    assert not game.live.overlap


def test_a_completion_after_another_end_is_appended_and_reopens_nothing() -> None:
    game = started()
    game.give(1000, cancelled(1000))
    game.give(2000, completed(2000))
    assert game.last.reason is Reason.COMPLETED
    assert game.last.notes == (Reason.LATE_EVIDENCE,)
    assert game.live.closed is CloseKind.CANCELLED


def test_a_request_again_is_absorbed_however_it_is_sealed() -> None:
    game = started()
    kept = game.state_bytes
    again = request(sealed="eyJhbGciOiJub25lIn0..BBBB.CCCC.DDDD")
    assert [s.fate for s in game.give(10, again)] == [Fate.ABSORBED]
    assert game.state_bytes == kept


@pytest.mark.parametrize("change", [{"locale": "fr"}, {"deadline_ms": T0 + 61_000}, {"variables": ("link",)}])
def test_another_request_under_the_same_id_is_refused_once_and_the_first_stands(
    change: dict[str, object],
) -> None:
    game = started()
    other = request(**change)
    game.give(10, other)
    assert game.last.reason is Reason.CONFLICTING_REQUEST
    assert game.live.deadline_ms == T0 + DEADLINE_MS
    assert game.sent(Channel.EMAIL) == 1
    assert [s.fate for s in game.give(11, other)] == [Fate.ABSORBED]


@pytest.mark.parametrize("at", [100_000, EXPIRY_MS + 5, OVER_MS + 5, 90 * 86_400_000])
def test_a_request_again_after_its_end_sends_nothing(at: int) -> None:
    game = started()
    game.then(1000, completed(1000))
    game.then(at, request())
    assert len(game.dispatches) == 1


def test_decision_ids_stay_unique_when_a_forgotten_intent_comes_again() -> None:
    game = started()
    game.then(1000, completed(1000))
    for at in (OVER_MS, OVER_MS + 4_000_000, OVER_MS + 8_000_000):
        game.then(at, request())
        assert game.last.reason is Reason.EXPIRED_AT_INTAKE
    ids = [d.decision_id for d in game.decisions]
    assert len(set(ids)) == len(ids)
    assert ids[-1].startswith("int-0001-test:1@0.")


@pytest.mark.parametrize(
    ("changes", "at", "reason"),
    [
        ({}, EXPIRY_MS, Reason.EXPIRED_AT_INTAKE),
        ({}, EXPIRY_MS - 30_000, Reason.EXPIRED_AT_INTAKE),
        ({"purpose": "build_failure"}, 0, Reason.PURPOSE_MISMATCH),
        ({"deadline_ms": T0 + 999}, 0, Reason.OUT_OF_BOUNDS),
        ({"deadline_ms": T0 + 600_001}, 0, Reason.OUT_OF_BOUNDS),
        ({"expiry_ms": T0 + 3_600_001}, 0, Reason.OUT_OF_BOUNDS),
        ({"expiry_ms": T0 + 90_000}, 0, Reason.OUT_OF_BOUNDS),
        ({"requested_at_ms": T0 + 300_001, "deadline_ms": T0 + 400_000}, 0, Reason.OUT_OF_BOUNDS),
    ],
)
def test_a_request_that_cannot_start_ends_with_its_reason(
    changes: dict[str, object], at: int, reason: Reason
) -> None:
    game = Play(context())
    game.give(at, request(**changes))
    assert game.last.reason is reason
    assert game.dispatches == []
    assert game.live.phase is Phase.CLOSED
    assert game.steps[-1].drop_sealed
    assert not game.steps[-1].keep_sealed


@pytest.mark.parametrize("reason", [Reason.TEMPLATE_UNKNOWN, Reason.INVALID_VARIABLES])
def test_a_template_problem_holds_or_ends_by_its_class(reason: Reason) -> None:
    game = Play(context(template_problem=reason))
    game.give(0, request())
    assert game.last.reason is reason
    assert (game.live.closed is None) is (reason is Reason.TEMPLATE_UNKNOWN)


def test_an_unknown_policy_holds_until_a_worker_knows_it() -> None:
    game = Play(context())
    game.give(0, request(policy="password_reset:v9"))
    assert game.last.reason is Reason.POLICY_UNKNOWN
    assert game.steps[0].keep_sealed
    assert game.live.due_ms == T0 + 5000
    game.until(40_000)
    assert len(game.decisions) == 1
    game.context = context(policy(policy="password_reset:v9"))
    game.until(75_000)  # 5 + 10 + 20 + 40 s: the fifth trial finds it, and the deadline is over
    assert [d.channel for d in game.dispatches] == [Channel.EMAIL, Channel.SMS]


def test_an_unknown_policy_is_held_no_longer_than_the_expiry() -> None:
    game = Play(context())
    game.give(0, request(policy="password_reset:v9"))
    game.until(EXPIRY_MS)
    assert game.live.closed is CloseKind.EXPIRED
    game.until(EXPIRY_MS + 3_600_000)
    assert game.state is None


# facts before their intent


def test_facts_before_their_intent_are_parked_and_folded_in_their_order() -> None:
    game = play((0, attempt(0, A.ACCEPTED)), (10, observation(10, P.DELIVERED)))
    assert [s.fate for s in game.steps] == [Fate.PARKED, Fate.PARKED]
    found = game.give(100, request())
    assert [s.fate for s in found] == [Fate.DECIDED] * 3
    assert [s.was_parked for s in found] == [False, True, True]
    assert [s.trigger.offset for s in found] == [2, 0, 1]
    assert game.phase() is Phase.EMAIL_DELIVERED
    assert game.live.early == []


def test_a_parked_fact_told_again_is_absorbed() -> None:
    game = play((0, attempt(0, A.ACCEPTED)))
    kept = game.state_bytes
    assert [s.fate for s in game.give(3, attempt(0, A.ACCEPTED))] == [Fate.ABSORBED]
    assert game.state_bytes == kept


def test_parking_is_bounded_and_ends_are_given_up_last() -> None:
    game = play((0, completed(0)), (1, instruction(1, Order.CANCEL)))
    for n in range(EARLY_FACTS_MAX + 3):
        game.give(10 + n, observation(10 + n, P.ACCEPTED, poll_no=n + 1))
    assert len(game.live.early) == EARLY_FACTS_MAX
    lost = [g for s in game.steps for g in s.given_up]
    assert [g.reason for g in lost] == [Reason.PARKING_FULL] * 5
    assert all(g.fact.kind == "observation" for g in lost)
    game.give(5000, request())
    assert game.dispatches == []


def test_parked_facts_whose_intent_never_comes_are_given_up_by_age() -> None:
    game = play((0, completed(0)), (1, attempt(1, A.ACCEPTED)))
    game.until(599_999)
    assert game.state is not None
    game.until(600_001)
    assert game.state is None
    assert [g.reason for g in game.steps[-1].given_up] == [Reason.ORPHAN_EXPIRED] * 2


def test_a_bounce_of_a_forgotten_intent_still_suppresses() -> None:
    seen = observation(0, P.FAILED_PERMANENT, reason=Reason.COMPLAINT, fingerprint=EMAIL_FP)
    game = play((0, seen))
    assert [(s.fingerprint, s.reason) for s in game.suppressions] == [(EMAIL_FP, Reason.COMPLAINT)]


# after the end


def test_late_evidence_is_appended_and_suppresses() -> None:
    game = started()
    game.give(1000, attempt(1000, A.ACCEPTED))
    game.give(2000, completed(2000))
    game.give(9000, observation(9000, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    assert game.last.reason is Reason.LATE_EVIDENCE
    assert game.live.closed is CloseKind.COMPLETED
    assert [s.fingerprint for s in game.suppressions] == [EMAIL_FP]
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 0


def test_a_stub_stays_until_expiry_and_late_evidence_then_everything_is_forgotten() -> None:
    game = started(None, [(500, attempt(500, A.ACCEPTED))])
    game.give(1000, completed(1000))
    assert game.steps[-1].drop_sealed
    assert game.live.variables == ()
    game.until(EXPIRY_MS + 599_999)
    assert game.state is not None
    game.until(EXPIRY_MS + 600_000)
    assert game.state is None


def test_an_end_with_an_order_nobody_has_answered_is_remembered_until_the_answer_can_come() -> None:
    """A dispatcher or poller that was away answers late: that answer is no fact of an unknown intent."""
    game = started()
    game.until(EXPIRY_MS + 600_000)  # the e-mail order was never answered
    assert game.last.closed is not None
    game.give(EXPIRY_MS + 620_000, tick(EXPIRY_MS + 620_000))
    game.give(EXPIRY_MS + 900_000, attempt(EXPIRY_MS + 900_000, A.REFUSED, reason=Reason.EXPIRED))
    assert game.steps[-1].fate is not Fate.PARKED
    game.until(OVER_MS)
    assert game.state is None


def test_a_tick_of_a_closed_intent_says_nothing() -> None:
    game = started()
    game.give(1000, completed(1000))
    assert [s.fate for s in game.give(2000, tick(2000))] == [Fate.ABSORBED]


# instructions and quarantine


def test_release_tries_a_hold_at_once_and_again_says_nothing() -> None:
    game = started()
    game.give(1000, attempt(1000, A.HELD, reason=Reason.SPEND_EXHAUSTED))
    game.give(1500, instruction(1500, Order.RELEASE))
    assert game.last.reason is Reason.RELEASED
    assert game.live.due_ms == T0 + 1500
    assert [s.fate for s in game.give(1500, instruction(1501, Order.RELEASE))] == [Fate.ABSORBED]
    game.until(1500)
    assert game.sent(Channel.EMAIL) == 2


def test_release_of_what_is_not_held_is_absorbed() -> None:
    game = started()
    assert [s.fate for s in game.give(1500, instruction(1500, Order.RELEASE))] == [Fate.ABSORBED]


def test_a_control_tick_releases_only_what_a_control_held() -> None:
    for reason, sent in ((Reason.CONTROL_PAUSED, 2), (Reason.KEY_UNKNOWN, 1)):
        game = started()
        game.give(1000, attempt(1000, A.HELD, reason=reason))
        game.give(1500, tick(1500, cause=TickCause.CONTROL))
        assert game.sent(Channel.EMAIL) == sent


def _quarantined() -> Play:
    game = started()
    state = game.live
    due.quarantine(state, policy())
    game.state_bytes = to_bytes(state)
    return game


def test_a_quarantined_intent_does_nothing_until_its_time_is_over() -> None:
    game = _quarantined()
    assert game.live.due_ms == T0 + EXPIRY_MS
    game.give(1000, observation(1000, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    game.give(DEADLINE_MS, tick(DEADLINE_MS))
    assert game.sent(Channel.SMS) == 0
    game.until(EXPIRY_MS)
    assert game.live.closed is CloseKind.EXPIRED


def test_release_from_quarantine_weighs_a_delivery_learnt_meanwhile() -> None:
    game = _quarantined()
    game.give(1000, observation(1000, P.DELIVERED))
    game.give(2000, instruction(2000, Order.RELEASE))
    assert game.phase() is Phase.EMAIL_DELIVERED
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 0


def test_release_from_quarantine_weighs_a_failure_learnt_meanwhile() -> None:
    game = _quarantined()
    game.give(1000, observation(1000, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    game.give(2000, instruction(2000, Order.RELEASE))
    assert game.phase() is Phase.SMS_CLAIMED


def test_a_completion_ends_a_quarantined_intent() -> None:
    game = _quarantined()
    game.give(1000, completed(1000))
    assert game.live.closed is CloseKind.COMPLETED


def test_a_quarantine_in_the_grace_is_not_due_all_the_time() -> None:
    game = started()
    game.until(EXPIRY_MS)
    assert game.phase() is Phase.SMS_CLAIMED
    state = game.live
    due.quarantine(state, policy())
    assert state.due_ms == T0 + EXPIRY_MS + 600_000


# the end of a story


def test_the_last_decision_sums_up_the_outcome() -> None:
    game = started()
    game.then(1000, attempt(1000, A.ACCEPTED))
    game.until(DEADLINE_MS + 3000)
    game.then(DEADLINE_MS + 4000, attempt(DEADLINE_MS + 4000, A.ACCEPTED, Channel.SMS))
    game.then(DEADLINE_MS + 5000, observation(DEADLINE_MS + 5000, P.DELIVERED, Channel.SMS))
    game.then(DEADLINE_MS + 9000, observation(DEADLINE_MS + 9000, P.DELIVERED))
    game.until(EXPIRY_MS)
    told = next(d for d in game.decisions if d.closed)
    outcome = told.outcome
    assert outcome is not None
    assert told.reason is Reason.SETTLED
    assert outcome.fallback
    assert outcome.needless_fallback
    assert outcome.first_usable is Channel.SMS
    assert outcome.time_to_first_usable_ms == DEADLINE_MS + 5000
    assert outcome.sms is not None
    assert (outcome.email.submissions, outcome.sms.submissions) == (1, 1)
    assert [d.outcome for d in game.decisions[:-1] if d is not told] == [None] * (len(game.decisions) - 1)


def test_a_delivery_that_bounced_before_the_claim_is_no_needless_fallback() -> None:
    game = started(ctx=context(policy(bounce_after_delivered="fallback")))
    game.give(1000, observation(1000, P.DELIVERED))
    game.give(2000, observation(2000, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    game.give(3000, attempt(3000, A.ACCEPTED, Channel.SMS))
    game.give(4000, observation(4000, P.FAILED_TEMPORARY))
    assert game.sent(Channel.SMS) == 1
    assert not game.live.needless


def test_a_whole_life_takes_a_bounded_number_of_ticks() -> None:
    for mail in (None, A.UNKNOWN, A.ACCEPTED, A.HELD):
        game = started()
        if mail is not None:
            game.then(1000, attempt(1000, mail, reason=Reason.KEY_UNKNOWN if mail is A.HELD else None))
        assert game.until(OVER_MS) < 80
        assert game.state is None


def test_an_email_order_left_over_in_the_grace_is_dropped_not_due_for_ever() -> None:
    game = started()
    game.until(DEADLINE_MS)
    state = game.live
    assert state.email is not None
    state.email.retry_ms = T0 + EXPIRY_MS - 40_000  # a worker that was away until after the expiry
    game.state_bytes = to_bytes(state)
    game.give(EXPIRY_MS + 1, tick(EXPIRY_MS + 1))
    assert game.live.due_ms > T0 + EXPIRY_MS + 1


@pytest.mark.parametrize("at", range(0, DEADLINE_MS, 7919))
def test_a_tick_that_is_not_due_changes_nothing(at: int) -> None:
    game = started()
    kept = game.state_bytes
    assert [s.fate for s in game.give(at, tick(at))] == [Fate.ABSORBED]
    assert game.state_bytes == kept


def test_a_state_of_a_newer_version_is_not_read() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_bytes(b'{"intent_id":"int-0001-test","v":2}')
