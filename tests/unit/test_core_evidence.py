"""Status sequences (VECTORS.md, case F14), budgets, polls and suppression."""

from __future__ import annotations

from hashlib import sha256

import pytest

from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind, Phase
from schemas.ids import Channel
from schemas.lookup import LookupPurpose
from schemas.observation import LookupAnswer
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from schemas.record import Record
from streams.core.effects import Fate
from tests.builders import (
    DEADLINE_MS,
    EMAIL_FP,
    EXPIRY_MS,
    SMS_FP,
    T0,
    Play,
    attempt,
    completed,
    context,
    observation,
    policy,
    request,
    started,
)

OVER_MS = EXPIRY_MS + 4_400_000  # late evidence, then an hour for orders nobody answered
FALLBACK = context(policy(bounce_after_delivered="fallback"))


def _bounce(at: int, reason: Reason = Reason.PERMANENT_BOUNCE) -> Record:
    return observation(at, P.FAILED_PERMANENT, reason=reason)


def _told(*items: tuple[int, Record], game: Play | None = None) -> Play:
    game = game or started()
    for at, record in items:
        game.then(at, record)
    return game


def test_sequence_1_accepted_then_delivered_sends_no_sms() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)), (5000, observation(5000, P.DELIVERED)))
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 0
    assert game.last.closed is CloseKind.SETTLED


def test_sequence_2_a_late_accepted_does_not_undo_delivered() -> None:
    game = _told(
        (5000, observation(5000, P.DELIVERED)),
        (6000, attempt(6000, A.ACCEPTED)),
        (7000, observation(7000, P.ACCEPTED, poll_no=2)),
    )
    assert game.phase() is Phase.EMAIL_DELIVERED
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 0


def test_sequence_4_deferred_until_the_deadline_then_delivered_late() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)))
    for at in range(5000, DEADLINE_MS, 5000):
        game.then(
            at, observation(at, P.FAILED_TEMPORARY, poll_no=game.lookups[-1].poll_no if game.lookups else 1)
        )
        assert game.sent(Channel.SMS) == 0
    game.until(DEADLINE_MS + 3000)
    assert game.sent(Channel.SMS) == 1
    claimed = next(d for d in game.decisions if d.next_phase is Phase.SMS_CLAIMED)
    assert claimed.reason is Reason.DEADLINE_REACHED
    game.then(70_000, observation(70_000, P.DELIVERED, poll_no=99))
    assert Reason.NEEDLESS_FALLBACK in game.last.notes
    assert game.phase() is Phase.SMS_CLAIMED


def test_sequence_5_a_permanent_bounce_claims_one_sms_at_once() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)), (3000, _bounce(3000)))
    assert game.last.reason is Reason.CONCLUSIVE_FAILURE
    assert game.last.notes == (Reason.PERMANENT_BOUNCE,)
    assert game.last.via == (Phase.EMAIL_INVALID,)
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 1


def test_sequence_8_unknown_tokens_claim_at_the_deadline_only() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)))
    for at in range(5000, DEADLINE_MS, 5000):
        asked = game.lookups[-1].poll_no if game.lookups else 1
        game.then(at, observation(at, P.UNKNOWN, raw_token="partially_delivered", poll_no=asked))
    assert game.sent(Channel.SMS) == 0
    evidence = next(d.evidence for d in game.decisions if d.reason is Reason.UNKNOWN_TOKEN)
    assert evidence is not None
    assert evidence.raw_token == "partially_delivered"
    game.until(DEADLINE_MS + 3000)
    assert game.sent(Channel.SMS) == 1


def test_sequence_10_completed_just_before_the_deadline_or_just_after_the_claim() -> None:
    before = _told((59_900, completed(59_900)))
    before.until(OVER_MS)
    assert before.sent(Channel.SMS) == 0
    after = started()
    after.until(DEADLINE_MS)
    after.give(60_100, completed(60_100))
    assert after.live.closed is CloseKind.COMPLETED
    after.until(OVER_MS)
    assert after.sent(Channel.SMS) == 1  # the dispatcher refuses it: it reads completions itself


def test_sequence_12_an_sms_that_stays_sent_closes_unresolved_after_the_grace() -> None:
    game = _told((3000, _bounce(3000)), (4000, attempt(4000, A.ACCEPTED, Channel.SMS)))
    game.until(EXPIRY_MS + 599_999)
    assert game.phase() is Phase.SMS_ACCEPTED
    game.until(OVER_MS)
    assert game.last.closed is CloseKind.UNRESOLVED
    assert game.last.now_ms == T0 + EXPIRY_MS + 600_000
    assert game.state is None


@pytest.mark.parametrize("at", [EXPIRY_MS, EXPIRY_MS + 1, EXPIRY_MS * 2])
def test_sequence_14_both_in_the_past_at_intake_expires_with_a_decision(at: int) -> None:
    game = Play(context())
    game.give(at, request())
    assert game.last.reason is Reason.EXPIRED_AT_INTAKE
    assert game.last.closed is CloseKind.EXPIRED
    assert game.last.outcome is not None
    assert game.dispatches == []


def test_f14_a_temporary_failures_then_delivered_need_no_sms() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)))
    for n, at in enumerate((5000, 10_000, 15_000)):
        game.then(at, observation(at, P.FAILED_TEMPORARY, poll_no=n + 1))
    game.then(20_000, observation(20_000, P.DELIVERED, poll_no=9))
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 0


@pytest.mark.parametrize(("rules", "claims"), [("keep", 0), ("fallback", 1)])
def test_f14_b_a_bounce_after_delivered_follows_the_policy_and_suppresses(rules: str, claims: int) -> None:
    game = started(ctx=context(policy(bounce_after_delivered=rules)))
    _told((5000, observation(5000, P.DELIVERED)), (20_000, _bounce(20_000)), game=game)
    assert game.sent(Channel.SMS) == claims
    bounced = [d for d in game.decisions if Reason.BOUNCE_AFTER_DELIVERED in (d.reason, *d.notes)]
    assert len(bounced) == 1
    assert [s.fingerprint for s in game.suppressions] == [EMAIL_FP]
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == claims


def test_f14_c_delivered_after_a_permanent_failure_is_kept_and_retracts_nothing() -> None:
    game = _told((3000, _bounce(3000)), (8000, observation(8000, P.DELIVERED, poll_no=2)))
    assert game.sent(Channel.SMS) == 1
    assert Reason.NEEDLESS_FALLBACK in game.last.notes
    assert game.live.email is not None
    assert game.live.email.facts.failed_reason is Reason.PERMANENT_BOUNCE


def test_f14_d_temporary_only_claims_at_the_deadline() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)), (5000, observation(5000, P.FAILED_TEMPORARY)))
    game.until(DEADLINE_MS - 1)
    assert game.sent(Channel.SMS) == 0
    game.until(DEADLINE_MS + 3000)
    assert game.sent(Channel.SMS) == 1


def test_a_bounce_while_a_claim_is_held_never_returns_to_delivered() -> None:
    game = started(ctx=context(policy(sms__account="text-b")))
    _told((3000, _bounce(3000)), (8000, observation(8000, P.DELIVERED, poll_no=2)), game=game)
    assert game.phase() is Phase.EMAIL_INVALID


@pytest.mark.parametrize(
    ("reason", "suppresses"),
    [
        (Reason.INVALID_RECIPIENT, True),
        (Reason.PERMANENT_BOUNCE, True),
        (Reason.COMPLAINT, True),
        (Reason.PROVIDER_SUPPRESSED, True),
        (Reason.BLOCKED, False),
        (Reason.CONTENT_REFUSED, False),
    ],
)
def test_a_permanent_failure_seen_by_look_up_suppresses_once(reason: Reason, suppresses: bool) -> None:
    game = _told((3000, _bounce(3000, reason)), (4000, _bounce(4000, reason)))
    assert len(game.suppressions) == suppresses


def test_an_sms_opt_out_suppresses_the_number() -> None:
    stop = observation(6000, P.FAILED_PERMANENT, Channel.SMS, reason=Reason.OPTED_OUT)
    game = _told((3000, _bounce(3000)), (4000, attempt(4000, A.ACCEPTED, Channel.SMS)), (6000, stop))
    assert (SMS_FP, Channel.SMS) in [(s.fingerprint, s.channel) for s in game.suppressions]
    assert game.phase() is Phase.EXHAUSTED


def _answered(budget: int, until: int) -> Play:
    game = started(ctx=context(policy(email__poll=_poll(budget))))
    game.then(1000, attempt(1000, A.ACCEPTED))
    answered = 0
    while game.live.due_ms <= T0 + until:
        game.until(game.live.due_ms - T0)
        if len(game.lookups) > answered:
            answered = len(game.lookups)
            at = game.live.last_now_ms - T0 + 100
            if at <= until:
                game.give(at, observation(at, P.ACCEPTED, poll_no=answered))
    return game


def _poll(budget: int) -> dict[str, object]:
    return {
        "initial_ms": 1000,
        "factor": 1.0,
        "interval_ms_max": 1000,
        "answers_max": budget,
        "answer_within_ms": 15_000,
    }


def test_a_stage_has_a_budget_of_answers_and_running_out_is_told_once() -> None:
    game = _answered(5, DEADLINE_MS - 1)
    assert len(game.lookups) == 5
    told = [d for d in game.decisions if Reason.POLL_BUDGET_SPENT in (d.reason, *d.notes)]
    assert len(told) == 1


def test_a_new_stage_has_a_new_budget_for_the_audit() -> None:
    game = _answered(5, DEADLINE_MS - 1)
    game.until(DEADLINE_MS + 3000)
    assert game.phase() is Phase.SMS_CLAIMED
    game.until(DEADLINE_MS + 20_000)
    late = [q for q in game.lookups if q.purpose is LookupPurpose.AUDIT]
    assert late


def test_an_unanswered_look_up_is_counted_as_lost_and_asked_again() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)))
    game.until(DEADLINE_MS - 1)
    assert Reason.LOOKUP_LOST in game.reasons
    numbers = [q.poll_no for q in game.lookups]
    assert numbers == list(range(1, len(numbers) + 1))
    assert game.live.email is not None
    assert game.live.email.answers == 0


def test_only_one_look_up_is_outstanding_per_channel() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)))
    outstanding: set[int] = set()
    while game.live.due_ms < T0 + DEADLINE_MS:
        before = len(game.lookups)
        asked = game.live.email.asked_until_ms if game.live.email else 0
        game.until(game.live.due_ms - T0)
        if len(game.lookups) > before:
            assert not asked or asked <= game.live.last_now_ms
            outstanding.add(game.lookups[-1].poll_no)
    assert len(outstanding) == len(game.lookups)


def test_a_look_comes_shortly_before_the_deadline() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)))
    instants = []
    while game.live.due_ms < T0 + DEADLINE_MS:
        before = len(game.lookups)
        game.until(game.live.due_ms - T0)
        if len(game.lookups) > before:
            instants.append(game.live.last_now_ms - T0)
            at = instants[-1] + 100
            game.give(at, observation(at, P.ACCEPTED, poll_no=len(game.lookups)))
    assert instants[-1] == DEADLINE_MS - 3000


@pytest.mark.parametrize("pause", [EXPIRY_MS - 1, EXPIRY_MS, EXPIRY_MS + 1_000_000])
def test_an_email_is_never_polled_at_or_after_its_expiry(pause: int) -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)))
    game.until(DEADLINE_MS + 3000)
    game.then(70_000, attempt(70_000, A.ACCEPTED, Channel.SMS))
    asked = [q for q in game.lookups if q.channel is Channel.EMAIL][-1].poll_no
    wait = observation(71_000, None, answer=LookupAnswer.THROTTLED, poll_no=asked, paused_until_ms=T0 + pause)
    game.then(71_000, wait)
    seen = len(game.steps)
    game.until(OVER_MS)
    late = [q for s in game.steps[seen:] for q in s.lookups if q.channel is Channel.EMAIL]
    assert len(late) <= (pause < EXPIRY_MS)


@pytest.mark.parametrize("reached", [A.ACCEPTED, A.UNKNOWN])
def test_statuses_that_never_become_final_end_all_the_same(reached: A) -> None:
    game = _told((1000, attempt(1000, reached)))
    game.until(DEADLINE_MS + 3000)
    game.then(70_000, attempt(70_000, reached, Channel.SMS))
    assert game.until(OVER_MS) < 120
    assert game.last.closed is CloseKind.UNRESOLVED
    assert game.state is None


@pytest.mark.parametrize(
    "answer",
    [a for a in LookupAnswer if a not in (LookupAnswer.ANSWERED, LookupAnswer.NOT_FOUND)],
)
def test_a_look_up_that_failed_spends_no_budget_and_changes_no_fact(answer: LookupAnswer) -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)))
    game.until(20_000)
    game.give(20_001, observation(20_001, None, answer=answer, poll_no=game.lookups[-1].poll_no))
    assert game.live.email is not None
    assert game.live.email.answers == 0
    assert game.last.reason is Reason.LOOKUP_FAILED


def test_an_answer_without_a_state_proves_no_acceptance() -> None:
    game = _told((1000, attempt(1000, A.UNKNOWN)))
    game.until(7000)
    game.give(7001, observation(7001, None, poll_no=game.lookups[-1].poll_no))
    assert game.last.reason is Reason.LOOKUP_FAILED
    assert game.live.email is not None
    assert game.live.email.state is A.UNKNOWN


def test_evidence_for_a_submission_that_was_never_ordered_is_absorbed() -> None:
    game = started()
    for record in (
        attempt(10, A.ACCEPTED, submission_no=2),
        observation(10, P.DELIVERED, submission_no=2),
        attempt(10, A.ACCEPTED, Channel.SMS),
        observation(10, P.DELIVERED, Channel.SMS),
    ):
        assert [s.fate for s in game.give(10, record)] == [Fate.ABSORBED]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_complaint_outranks_every_other_failure(order: tuple[int, int]) -> None:
    told = [Reason.COMPLAINT, Reason.PROVIDER_SUPPRESSED]
    game = _told(*((3000 + n, _bounce(3000 + n, told[i])) for n, i in enumerate(order)))
    assert game.live.email is not None
    assert game.live.email.facts.failed_reason is Reason.COMPLAINT


def test_each_decision_carries_the_digest_of_the_one_before() -> None:
    game = _told((1000, attempt(1000, A.ACCEPTED)), (3000, _bounce(3000)))
    told = [s.decision_bytes for s in game.steps if s.decision is not None]
    expected = ["", *(sha256(value).hexdigest() for value in told[:-1])]
    assert [d.prev_digest for d in game.decisions] == expected


def test_a_pause_that_is_named_too_far_away_is_bounded_by_the_logs_time() -> None:
    game = started(expiry_ms=T0 + 3_500_000, deadline_ms=T0 + DEADLINE_MS)
    game.give(1000, attempt(1000, A.ACCEPTED))
    game.until(7000)
    far = T0 + 40 * 86_400_000
    poll_no = game.lookups[-1].poll_no
    game.give(
        7001, observation(7001, None, answer=LookupAnswer.THROTTLED, poll_no=poll_no, paused_until_ms=far)
    )
    assert game.live.email is not None
    assert game.live.email.paused_until_ms == T0 + 7001 + 3_600_000
