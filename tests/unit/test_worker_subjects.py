"""Supersession between partitions: told to the subject's keeper and the older intent, forgotten in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from compose.scenario.log import MemoryView, Stored
from schemas.codec import decode
from schemas.decision import CloseKind, Decision
from schemas.intent import IntentSuperseded
from schemas.partitions import partition_for
from schemas.reasons import Reason
from schemas.record import Record, TopicKind
from schemas.subject import SubjectSeen
from schemas.topics import TopicNames
from streams.core.state import from_bytes
from streams.engine.processor import Due, Output
from streams.worker.accounting import balance
from streams.worker.processor import IntentProcessor
from tests.builders import EXPIRY_MS, SUBJECT, T0, completed, context, request, subject_seen

NAMES = TopicNames("t.")
COUNT = 4
FIRST, SECOND, THIRD = "first-0001", "second-001", "third-0001"


class Topics:
    """Real processors of several partitions; what one writes to an input topic is read in its turn."""

    def __init__(self) -> None:
        given = context()
        self.processor = IntentProcessor(
            NAMES,
            partitions={NAMES[k]: COUNT for k in TopicKind},
            policies=given.policies,
            accounts=given.accounts,
            template_problem=lambda _t, _v: None,
            letter_key=b"k" * 32,
        )
        self.tables: list[dict[str, dict[bytes, bytes]]] = [
            {t: {} for t in self.processor.tables} for _ in range(COUNT)
        ]
        self.timers: list[dict[bytes, Due]] = [{} for _ in range(COUNT)]
        self.written: list[Output] = []
        self.offset = 0

    def give(
        self, kind: TopicKind, record: Record, key: str, *, at: int, partition: int | None = None
    ) -> None:
        """One record, and everything that follows from it on the input topics, all at T0 + `at`."""
        place = partition_for(key.encode(), COUNT) if partition is None else partition
        todo = [Output(NAMES[kind], place, key.encode(), record.to_bytes(), None)]
        while todo:
            one = todo.pop(0)
            found = self._step(one, at)
            self.written += found
            todo += [o for o in found if o.topic in self.processor.inputs]

    def _step(self, one: Output, at: int) -> list[Output]:
        view = self.view(one.partition)
        headers = tuple(one.headers or ())
        stored = Stored(one.topic, one.partition, self.offset, T0 + at, one.key, one.value, headers)
        self.offset += 1
        self.processor.process(stored, view)  # type: ignore[arg-type]
        self.processor.end_of_chunk(one.topic, view)  # type: ignore[arg-type]
        return view.outputs

    def view(self, partition: int) -> MemoryView:
        view = MemoryView(self.tables[partition], self.timers[partition])
        view.partition = partition
        return view

    def restarted(self) -> Topics:
        """Other processes, which have read the tables back."""
        again = Topics()
        again.tables, again.timers, again.offset = self.tables, self.timers, self.offset
        for partition in range(COUNT):
            again.processor.restored(again.view(partition))  # type: ignore[arg-type]
        return again

    def ask(self, intent_id: str, *, asked: int, at: int | None = None, **changes: Any) -> None:
        """A request of the subject, asked for at T0 + `asked`, read at `at`."""
        fields = {"subject_key": SUBJECT, "requested_at_ms": T0 + asked, "deadline_ms": T0 + asked + 60_000,
                  "expiry_ms": T0 + asked + EXPIRY_MS, "intent_id": intent_id} | changes  # fmt: skip
        self.give(TopicKind.INTENTS, request(**fields), intent_id, at=asked if at is None else at)

    def closed(self, *intent_ids: str) -> list[CloseKind | None]:
        found = []
        for intent_id in intent_ids:
            row = self.tables[partition_for(intent_id.encode(), COUNT)]["intents"][intent_id.encode()]
            found.append(from_bytes(row).closed)
        return found

    def records(self, kind: TopicKind) -> list[Record]:
        found = [decode(kind, o.key, o.value) for o in self.written if o.topic == NAMES[kind]]
        assert all(isinstance(r, Record) for r in found)
        return found  # type: ignore[return-value]

    def told_over(self) -> list[tuple[str, str]]:
        return [
            (r.intent_id, r.by_intent_id)
            for r in self.records(TopicKind.INTENTS)
            if isinstance(r, IntentSuperseded)
        ]

    def counters(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for tables in self.tables:
            for row in tables["progress"].values():
                counted: dict[str, int] = orjson.loads(row)
                assert balance(counted) == 0
                total.update(counted)
        return total

    def subjects(self) -> list[bytes]:
        return [key for tables in self.tables for key in tables["subjects"]]


def over(topics: Topics) -> Iterable[Decision]:
    return [
        d for d in topics.records(TopicKind.DECISIONS) if isinstance(d, Decision) and d.closed is not None
    ]


def test_a_second_request_closes_the_first_in_its_own_partition_and_goes_on_untouched() -> None:
    topics = Topics()
    topics.ask(FIRST, asked=0)
    topics.ask(SECOND, asked=5_000)
    assert topics.told_over() == [(FIRST, SECOND)]
    assert topics.closed(FIRST, SECOND) == [CloseKind.SUPERSEDED, None]
    (decision,) = over(topics)
    assert (decision.intent_id, decision.reason) == (FIRST, Reason.SUPERSEDED)


def test_every_record_of_it_is_accounted_for_and_written_in_the_partition_of_its_key() -> None:
    topics = Topics()
    topics.ask(FIRST, asked=0)
    topics.ask(SECOND, asked=5_000)
    # Two requests and one supersession on intents; two announcements on subjects.
    counted = topics.counters()
    assert (counted["inputs"], counted["decided"], counted["absorbed"]) == (5, 3, 2)
    assert counted["superseded"] == 1
    assert counted["dead_lettered"] == counted["parked"] == 0
    for output in topics.written:
        if output.topic in (NAMES[TopicKind.SUBJECTS], NAMES[TopicKind.INTENTS]):
            assert output.partition == partition_for(output.key or b"", COUNT)


def test_an_older_request_that_is_read_after_the_newer_one_is_over_and_its_email_is_not_repeated() -> None:
    topics = Topics()
    topics.ask(SECOND, asked=5_000)
    topics.ask(FIRST, asked=0, at=9_000)
    assert topics.closed(FIRST, SECOND) == [CloseKind.SUPERSEDED, None]


def test_of_three_requests_the_newest_stays_and_each_older_one_is_told_once() -> None:
    topics = Topics()
    topics.ask(FIRST, asked=0)
    topics.ask(SECOND, asked=5_000)
    topics.ask(THIRD, asked=9_000)
    assert topics.told_over() == [(FIRST, SECOND), (SECOND, THIRD)]
    assert topics.closed(FIRST, SECOND, THIRD) == [CloseKind.SUPERSEDED, CloseKind.SUPERSEDED, None]


@pytest.mark.parametrize(
    "other",
    [{"subject_key": "k1.u." + "d" * 32}, {"tenant": "tenant-0002"}, {"subject_key": None}],
)
def test_another_subject_or_tenant_or_none_supersedes_nobody(other: dict[str, Any]) -> None:
    topics = Topics()
    topics.ask(FIRST, asked=0)
    topics.ask(SECOND, asked=5_000, **other)
    assert topics.told_over() == []
    assert topics.closed(FIRST, SECOND) == [None, None]


def test_another_purpose_supersedes_nobody() -> None:
    topics = Topics()
    seen = subject_seen(0, FIRST)
    other = subject_seen(5_000, SECOND, purpose="signup_verification")
    topics.give(TopicKind.SUBJECTS, seen, seen.key, at=0)
    topics.give(TopicKind.SUBJECTS, other, other.key, at=5_000)
    assert topics.told_over() == []


def test_an_intent_that_was_completed_stays_completed() -> None:
    topics = Topics()
    topics.ask(FIRST, asked=0)
    topics.give(TopicKind.INTENTS, completed(1_000, intent_id=FIRST), FIRST, at=1_000)
    topics.ask(SECOND, asked=5_000)
    assert topics.closed(FIRST, SECOND) == [CloseKind.COMPLETED, None]


def test_a_subject_is_remembered_across_a_restart() -> None:
    topics = Topics()
    topics.ask(FIRST, asked=0)
    again = topics.restarted()
    again.ask(SECOND, asked=5_000)
    assert again.closed(FIRST, SECOND) == [CloseKind.SUPERSEDED, None]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_subject_is_forgotten_once_no_older_request_of_it_can_be_alive(restarts: bool) -> None:
    topics = Topics()
    seen = subject_seen(0, FIRST)
    topics.give(TopicKind.SUBJECTS, seen, seen.key, at=0)
    if restarts:
        topics = topics.restarted()
    beside = next(
        f"beside-{n:03}" for n in range(99)
        if partition_for(f"beside-{n:03}".encode(), COUNT) == partition_for(seen.key.encode(), COUNT)
    )  # fmt: skip
    topics.give(TopicKind.INTENTS, completed(0, intent_id=beside), beside, at=3_899_999)
    assert topics.subjects() == [seen.key.encode()]
    topics.give(TopicKind.INTENTS, completed(1, intent_id=beside), beside, at=3_900_000)
    assert topics.subjects() == []


def test_a_row_that_a_newer_request_prolonged_is_not_forgotten_at_its_first_instant() -> None:
    topics = Topics()
    for at, intent_id in ((0, FIRST), (5_000, SECOND)):
        seen = subject_seen(at, intent_id)
        topics.give(TopicKind.SUBJECTS, seen, seen.key, at=at)
    third = subject_seen(3_904_000, THIRD)
    topics.give(TopicKind.SUBJECTS, third, third.key, at=3_904_000)
    assert topics.subjects() == [third.key.encode()]


def test_an_announcement_in_a_wrong_partition_is_sent_home_once() -> None:
    topics = Topics()
    topics.ask(FIRST, asked=0)
    seen = subject_seen(5_000, SECOND)
    home = partition_for(seen.key.encode(), COUNT)
    topics.give(TopicKind.SUBJECTS, seen, seen.key, at=5_000, partition=(home + 1) % COUNT)
    assert topics.closed(FIRST) == [CloseKind.SUPERSEDED]
    assert topics.counters()["rerouted"] == 1


def test_no_record_of_it_holds_what_the_subject_was_made_of() -> None:
    assert set(SubjectSeen.model_fields) == {
        "record", "version", "tenant", "purpose", "subject_key", "intent_id", "requested_at_ms", "expiry_ms",
        "forget_at_ms",
    }  # fmt: skip
