"""One suite for every guard: an intent is over for it once a newer request of its subject was read."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from compose.clock import SystemClock
from schemas.reasons import Reason
from schemas.record import Record, TopicKind
from schemas.topics import TopicNames
from sinks.dispatcher.claims import PostgresClaims
from sinks.dispatcher.facts import write_facts
from sinks.dispatcher.rules import Grant, Refuse
from sinks.kafka.consumer import Message
from tests.builders import EXPIRY_MS, SUBJECT, completed, request
from tests.contract.claims_guard import E, Guard, guard, order

__all__ = ["guard"]  # the fixture with both guards

NAMES = TopicNames()
# Rows of long ago are forgotten, by the database's clock.
ZERO_MS = SystemClock().now_ms() - 100_000
Asked = tuple[Record, int]
FIRST, SECOND, THIRD = "first-0001", "second-001", "third-0001"


def ask(intent_id: str, asked: int, *, log: int = 90_000, **changes: object) -> Asked:
    """A request asked for and read so many ms after `ZERO_MS`."""
    at = ZERO_MS + asked
    times = {"requested_at_ms": at, "deadline_ms": at + 60_000, "expiry_ms": at + EXPIRY_MS}
    fields: dict[str, object] = {"intent_id": intent_id, "subject_key": SUBJECT} | times | changes
    return request(**fields), ZERO_MS + log


def read(guard: Guard, *asked: Asked) -> None:
    """In one batch."""
    topic = NAMES[TopicKind.INTENTS]
    batch = [
        Message(topic, 0, n, log_ms, r.intent_id.encode(), r.to_bytes())  # type: ignore[attr-defined]
        for n, (r, log_ms) in enumerate(asked)
    ]
    write_facts(guard.claims, NAMES, batch, {})


def is_over(guard: Guard, intent_id: str, why: Reason = Reason.SUPERSEDED) -> bool:
    found = guard.claims.claim(order(intent_id=intent_id, claim_id=intent_id))
    assert isinstance(found, Grant) or found == Refuse(why)
    return isinstance(found, Refuse)


def who_is_over(guard: Guard) -> list[bool]:
    return [is_over(guard, intent_id) for intent_id in (FIRST, SECOND, THIRD)]


@pytest.mark.parametrize("turn", list(permutations(range(3))))
@pytest.mark.parametrize("at_once", [True, False])
def test_in_any_order_of_reading_the_newest_goes_out_and_the_others_do_not(
    guard: Guard, turn: tuple[int, ...], at_once: bool
) -> None:
    records = [ask(FIRST, 0), ask(SECOND, 5_000), ask(THIRD, 9_000)]
    if at_once:
        read(guard, *[records[n] for n in turn])
    else:
        for n in turn:
            read(guard, records[n])
    assert who_is_over(guard) == [True, True, False]


def test_a_claim_that_was_given_before_does_not_begin_any_more(guard: Guard) -> None:
    read(guard, ask(FIRST, 0))
    assert isinstance(guard.claims.claim(order(intent_id=FIRST, claim_id="c")), Grant)
    read(guard, ask(SECOND, 5_000))
    assert guard.claims.begin("c") is None
    assert guard.claims.stopped_by("c") is Reason.SUPERSEDED


@pytest.mark.parametrize(
    "other", [{"subject_key": None}, {"tenant": "tenant-0002"}, {"purpose": "other_one"}]
)
def test_a_request_of_another_subject_tenant_or_purpose_closes_nobody(
    guard: Guard, other: dict[str, Any]
) -> None:
    read(guard, ask(FIRST, 0), ask(SECOND, 5_000, **other))
    assert [is_over(guard, FIRST), is_over(guard, SECOND)] == [False, False]


def test_the_same_requests_read_again_change_nothing(guard: Guard) -> None:
    for _ in range(3):
        read(guard, ask(FIRST, 0), ask(SECOND, 5_000))
    assert who_is_over(guard)[:2] == [True, False]


def test_a_conflicting_request_under_a_superseded_id_brings_nobody_down(guard: Guard) -> None:
    """The first request of an id stands, for the worker and here."""
    read(guard, ask(FIRST, 0), ask(SECOND, 5_000))
    read(guard, ask(FIRST, 8_000))
    assert who_is_over(guard)[:2] == [True, False]


def test_a_conflicting_request_under_the_newest_id_does_not_move_it(guard: Guard) -> None:
    read(guard, ask(SECOND, 5_000))
    read(guard, ask(SECOND, 9_000))
    read(guard, ask(THIRD, 7_000))
    assert [is_over(guard, SECOND), is_over(guard, THIRD)] == [True, False]


def test_a_publishers_clock_that_is_ahead_does_not_outrank_who_asks_after_it(guard: Guard) -> None:
    read(guard, ask(FIRST, 50_000, log=0))
    read(guard, ask(SECOND, 5_000, log=5_000))
    assert who_is_over(guard)[:2] == [True, False]


def test_who_was_done_before_a_newer_request_stays_done(guard: Guard) -> None:
    read(guard, ask(FIRST, 0), (completed(1_000, intent_id=FIRST), ZERO_MS + 1_000))
    read(guard, ask(SECOND, 5_000))
    assert is_over(guard, FIRST, Reason.COMPLETED)


def test_an_email_of_a_superseded_intent_is_refused_like_its_sms(guard: Guard) -> None:
    read(guard, ask(FIRST, 0), ask(SECOND, 5_000))
    for channel in E.__class__:
        asked = order(intent_id=FIRST, channel=channel, claim_id=channel.value)
        assert guard.claims.claim(asked) == Refuse(Reason.SUPERSEDED)


def test_subjects_of_long_ago_are_forgotten(guard: Guard) -> None:
    """Nobody older can be alive: in Postgres the row goes, and the request after it closes nobody."""
    long_ago = -7 * 86_400_000
    read(guard, ask(FIRST, long_ago, log=long_ago))
    read(guard, ask(SECOND, 5_000))
    if isinstance(guard.claims, PostgresClaims):
        assert not is_over(guard, FIRST)
