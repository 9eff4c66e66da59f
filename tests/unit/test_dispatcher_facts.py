"""Is what was read of other topics, or by another clock, never taken for knowledge of now."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from schemas.budget import UNLIMITED
from schemas.ids import Channel
from schemas.instruction import InstructionAction
from schemas.reasons import Reason
from schemas.record import Record, TopicKind
from schemas.suppression import Suppression, SuppressionAction
from schemas.topics import TopicNames
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.facts import ClockGuard, CompletionsRead, gathered, write_facts
from sinks.kafka.consumer import Message, Place, made_anew
from tests import builders
from tests.unit.poller_fakes import HandClock

NAMES = TopicNames()
PLACE: Place = (NAMES[TopicKind.INTENTS], 0)


class Ends:
    def __init__(self, end: int) -> None:
        self.end = end

    def of(self, topics: Iterable[str]) -> dict[Place, int]:
        assert PLACE[0] in set(topics)
        return {PLACE: self.end}


def read_to(claims: MemoryClaims, offset: int) -> None:
    claims.write_facts(closed=[], suppressed=[], lifted=[], progress={PLACE: offset})


def test_only_partitions_that_lie_behind_what_was_read_were_made_anew() -> None:
    read = {("a", 0): 5, ("a", 1): 5, ("b", 0): 5, ("c", 0): 5}
    there = {("a", 0): 4, ("a", 1): 5, ("b", 0): 9}
    assert list(made_anew(read, there)) == ["a/0 is at 4 and was read to 5: it was made anew"]


def test_a_topic_that_ends_before_what_was_read_of_it_is_not_read_to_its_end() -> None:
    clock = HandClock()
    claims, ends = MemoryClaims(clock.now_ms, UNLIMITED), Ends(7)
    ask = CompletionsRead(ends, NAMES, claims, wait_s=0, clock=clock)
    read_to(claims, 9)
    assert ask(), "more was read than the ends that were asked for before: that is a topic that grew"
    clock.at_ms += 1_000
    ends.end = 9
    assert ask()
    clock.at_ms += 1_000
    ends.end = 1
    assert not ask()


def guard(log_apart_ms: list[int | None], theirs_ms: list[int], clock: HandClock) -> ClockGuard:
    claims = MemoryClaims(lambda: clock.now_ms() + theirs_ms[0], UNLIMITED)
    return ClockGuard(claims, clock, skew_ms_max=2_000, log_apart_ms=lambda: log_apart_ms[0])


@pytest.mark.parametrize(
    ("log_ms", "database_ms", "is_trusted"),
    [(None, 0, True), (2_000, 2_000, True), (2_001, 0, False), (0, 2_001, False), (None, -2_001, False)],
)
def test_a_clock_is_trusted_that_is_near_both_the_databases_and_the_logs(
    log_ms: int | None, database_ms: int, is_trusted: bool
) -> None:
    assert guard([log_ms], [database_ms], HandClock())() is is_trusted


def test_a_clock_apart_from_the_log_is_told_once_and_when_it_is_right_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_ms: list[int | None] = [5_000]
    ask = guard(log_ms, [0], HandClock())
    with caplog.at_level(logging.WARNING):
        assert [ask(), ask()] == [False, False]
        log_ms[0] = 0
        assert [ask(), ask()] == [True, True]
    assert [r.getMessage() for r in caplog.records] == [
        "our clock and the log's are 5000 ms apart: nothing is sent",
        "our clock and the log's agree again",
    ]


LISTED = Suppression(
    fingerprint="k1.s." + "ab" * 16,
    channel=Channel.SMS,
    reason=Reason.INVALID_RECIPIENT,
    cause="int-0001-test:sms:1:failed",
    at_ms=1_790_000_000_000,
)
LIFTED = LISTED.model_copy(update={"action": SuppressionAction.LIFT, "reason": Reason.LISTED_BY_MISTAKE})


@pytest.mark.parametrize(
    ("said", "is_listed"),
    [
        ([LISTED], True),
        ([LISTED, LIFTED], False),
        ([LIFTED, LISTED], True),
        ([LISTED, LIFTED, LISTED], True),
        ([LIFTED, LISTED, LIFTED], False),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_the_last_word_about_a_destination_counts_however_much_is_read_at_once(
    said: list[Suppression], is_listed: bool, at_once: bool
) -> None:
    claims, topic = MemoryClaims(lambda: 0, UNLIMITED), NAMES[TopicKind.SUPPRESSIONS]
    messages = [
        Message(topic, 0, offset, 0, record.key.encode(), record.to_bytes())
        for offset, record in enumerate(said)
    ]
    for batch in [messages] if at_once else [[one] for one in messages]:
        write_facts(claims, NAMES, batch, {})
    assert ((LISTED.fingerprint, Channel.SMS.value) in claims._suppressed) is is_listed


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (builders.completed(0), Reason.COMPLETED),
        (builders.cancelled(0), Reason.CANCELLED),
        (builders.superseded(0), Reason.SUPERSEDED),
        (builders.instruction(0, InstructionAction.COMPLETE), Reason.COMPLETED),
        (builders.instruction(0, InstructionAction.CANCEL), Reason.CANCELLED),
        (builders.instruction(0, InstructionAction.FORCE_CLOSE), Reason.FORCE_CLOSED),
        (builders.instruction(0, InstructionAction.RELEASE), None),
        (builders.request(), None),
    ],
)
def test_what_ends_an_intent_is_told_to_the_guard_and_nothing_else_is(
    record: Record, reason: Reason | None
) -> None:
    told = gathered([(record, builders.T0)]).closed
    assert [why for _, why in told] == ([] if reason is None else [reason])
