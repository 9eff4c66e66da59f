"""Which request about a subject is the newest, who is over by it, and what that does to the intent."""

from __future__ import annotations

import pytest

from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind, InputKind
from schemas.ids import Channel
from schemas.publishers.refusals import REQUEST_AHEAD_MS_MAX
from schemas.reasons import Reason
from schemas.record import Record
from streams.core import subjects
from streams.core.effects import Fate
from streams.core.subjects import Newest, Superseded, take
from tests.builders import (
    DEADLINE_MS,
    EXPIRY_MS,
    ID,
    NEWER_ID,
    OVER_MS,
    SUBJECT,
    T0,
    Play,
    attempt,
    completed,
    context,
    play,
    request,
    started,
    subject_seen,
    superseded,
)

LONGEST_MS = 3_600_000  # the longest life the policy of the tests allows


def row(at: int, intent_id: str = ID) -> Newest:
    seen = subject_seen(at, intent_id)
    return Newest(intent_id, seen.requested_at_ms, seen.expiry_ms, seen.forget_at_ms)


# who is newest


def test_the_first_request_of_a_subject_is_the_newest_and_supersedes_nobody() -> None:
    assert take(None, subject_seen(0), at_ms=T0) == (row(0), None)


def test_a_newer_request_is_the_newest_and_the_one_before_is_over() -> None:
    found = take(row(0), subject_seen(5_000, NEWER_ID), at_ms=T0 + 5_000)
    assert found == (row(5_000, NEWER_ID), Superseded(ID, NEWER_ID))


def test_an_older_request_that_comes_later_is_itself_over_and_the_row_stands() -> None:
    newest = row(5_000, NEWER_ID)
    found, over = take(newest, subject_seen(0), at_ms=T0 + 9_000)
    assert found is newest
    assert over == Superseded(ID, NEWER_ID)


@pytest.mark.parametrize("first", [ID, NEWER_ID])
def test_of_two_requests_of_one_instant_the_greater_id_stays(first: str) -> None:
    second = NEWER_ID if first == ID else ID
    found, over = take(row(0, first), subject_seen(0, second), at_ms=T0)
    assert (found.intent_id, over) == (NEWER_ID, Superseded(ID, NEWER_ID))


def test_the_same_request_seen_again_changes_nothing() -> None:
    known = row(0)
    found, over = take(known, subject_seen(0), at_ms=T0 + 9_000)
    assert found is known
    assert over is None


@pytest.mark.parametrize(("late_ms", "is_told"), [(-1, True), (0, False)])
def test_an_older_request_past_its_expiry_has_ended_by_itself_and_is_told_nothing(
    late_ms: int, is_told: bool
) -> None:
    at_ms = T0 + EXPIRY_MS + late_ms
    _, displaced = take(row(0), subject_seen(5_000, NEWER_ID), at_ms=at_ms)
    _, came_late = take(row(5_000, NEWER_ID), subject_seen(0), at_ms=at_ms)
    assert [displaced is not None, came_late is not None] == [is_told, is_told]


def test_a_row_survives_its_bytes() -> None:
    assert subjects.from_bytes(subjects.to_bytes(row(0))) == row(0)


# what a request tells


def test_an_accepted_request_about_a_subject_is_told_once_dated_and_bounded() -> None:
    game = play((70, request(subject_key=SUBJECT)), (90, request(subject_key=SUBJECT)))
    (told,) = [s.subject for s in game.steps if s.subject is not None]
    forget_ms = T0 + 70 + REQUEST_AHEAD_MS_MAX + LONGEST_MS
    assert told == subject_seen(0, forget_at_ms=forget_ms)
    assert told.key == f"tenant-0001/password_reset/{SUBJECT}"


def test_a_request_about_nobody_in_particular_is_not_told() -> None:
    assert [s.subject for s in started().steps] == [None]


def test_a_publishers_clock_that_is_ahead_does_not_outrank_who_asks_after_it() -> None:
    ahead = play((0, request(subject_key=SUBJECT, requested_at_ms=T0 + 5_000))).steps[0].subject
    assert ahead is not None
    assert ahead.requested_at_ms == T0


@pytest.mark.parametrize(
    ("game", "reason"),
    [
        (play((EXPIRY_MS, request(subject_key=SUBJECT))), Reason.EXPIRED_AT_INTAKE),
        (play((0, request(subject_key=SUBJECT, policy="password_reset:v99"))), Reason.POLICY_UNKNOWN),
        (play((0, completed(0)), (9, request(subject_key=SUBJECT))), Reason.COMPLETED),
        (
            play(
                (0, request(subject_key=SUBJECT)),
                ctx=context(template_problem=Reason.INVALID_VARIABLES),
            ),
            Reason.INVALID_VARIABLES,
        ),
    ],
)
def test_a_request_that_is_refused_or_held_is_told_all_the_same(game: Play, reason: Reason) -> None:
    """The service has made a new link whatever we do with it: the old one is dead."""
    (told,) = [s for s in game.steps if s.subject is not None]
    assert told.decision is not None
    assert told.decision.reason is reason


# what it does to the older intent


def test_a_superseded_intent_is_closed_on_record_and_sends_nothing_more() -> None:
    game = started()
    game.then(30_000, superseded(30_000))
    assert (game.live.closed, game.last.reason, game.last.input) == (
        CloseKind.SUPERSEDED,
        Reason.SUPERSEDED,
        InputKind.SUPERSESSION,
    )
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 0


def test_what_is_in_flight_when_a_newer_one_comes_is_an_honest_overlap() -> None:
    game = started()
    game.then(DEADLINE_MS + 1, superseded(DEADLINE_MS + 1))
    assert game.sent(Channel.SMS) == 1
    assert Reason.OVERLAP in game.last.notes


@pytest.mark.parametrize("first", [completed(20_000), superseded(20_000)])
def test_an_intent_that_is_over_is_not_superseded(first: Record) -> None:
    game = started()
    game.give(20_000, first)
    closed = game.live.closed
    (found,) = game.give(30_000, superseded(30_000))
    assert found.fate is Fate.ABSORBED
    assert game.live.closed is closed


def test_a_completion_after_it_is_kept_and_reopens_nothing() -> None:
    game = started()
    game.give(20_000, superseded(20_000))
    game.give(30_000, completed(30_000))
    assert (game.live.closed, game.live.completed) == (CloseKind.SUPERSEDED, True)


def test_a_supersession_of_an_intent_that_was_forgotten_is_absorbed_and_never_parked() -> None:
    (found,) = play((0, superseded(0))).steps
    assert (found.fate, found.state) == (Fate.ABSORBED, None)


def test_an_attempt_the_guard_refused_as_superseded_closes_the_intent_the_same_way() -> None:
    """The dispatcher may know before the worker."""
    game = started()
    game.until(DEADLINE_MS)
    game.give(DEADLINE_MS + 5, attempt(DEADLINE_MS + 5, A.REFUSED, Channel.SMS, reason=Reason.SUPERSEDED))
    assert game.live.closed is CloseKind.SUPERSEDED
