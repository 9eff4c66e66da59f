"""Endings, repeats and facts that come before or after their time."""

from __future__ import annotations

import msgspec
import pytest

from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind
from schemas.ids import Channel
from schemas.instruction import InstructionAction as Order
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from schemas.record import Record
from streams.core.effects import Fate
from streams.core.state import from_bytes, to_bytes
from tests.builders import (
    DEADLINE_MS,
    EMAIL_FP,
    EXPIRY_MS,
    OVER_MS,
    T0,
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


def test_a_bounce_of_a_forgotten_intent_still_suppresses() -> None:
    seen = observation(0, P.FAILED_PERMANENT, reason=Reason.COMPLAINT, fingerprint=EMAIL_FP)
    game = play((0, seen))
    assert [(s.fingerprint, s.reason) for s in game.suppressions] == [(EMAIL_FP, Reason.COMPLAINT)]


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


def test_a_state_of_a_newer_version_is_not_read() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_bytes(b'{"intent_id":"int-0001-test","v":2}')
