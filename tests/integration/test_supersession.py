"""A second request of one subject closes the first on the real stack: only the second one's SMS goes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson
import psycopg
import pytest

from schemas.codec import decode
from schemas.decision import CloseKind, Phase
from schemas.intent import IntentSuperseded
from schemas.reasons import Reason
from schemas.record import TopicKind
from sinks.kafka.consumer import read_all
from streams.worker.accounting import balance
from tests.conftest import Servers
from tests.integration import pipeline_rig
from tests.integration.guard_rig import eventually, messages
from tests.integration.pipeline_rig import Pipeline

# Until the deadline of the first the second has long been read: two transactions of some milliseconds each.
DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Told:
    """Intents by what they are in the story."""

    first: str
    second: str
    alone: str  # of nobody's subject, beside them
    newer: str
    late: str  # asked for before the newer one, and read after it


@pytest.fixture(scope="module")
def pipeline(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    dsn = stack.new_database("sups")
    with pipeline_rig.pipeline(stack.bootstrap, dsn, tmp_path_factory.mktemp("pipeline")) as one:
        yield one


@pytest.fixture(scope="module")
def told(pipeline: Pipeline) -> Told:
    """Nobody's e-mail is ever reported as delivered, so every deadline asks for an SMS."""
    first = pipeline.publish(DEADLINE_S, to="never", subject="account-1")
    alone = pipeline.publish(DEADLINE_S, to="never")
    newer = pipeline.publish(DEADLINE_S, to="never", subject="account-2")
    eventually(lambda: messages(pipeline.emails(first)) == messages(pipeline.emails(newer)) == 1)
    second = pipeline.publish(DEADLINE_S, to="never", subject="account-1")
    late = pipeline.publish(DEADLINE_S + 8.0, to="never", subject="account-2", asked_ago_s=8.0)
    pipeline.until_said(Reason.SUPERSEDED, first, late)
    eventually(lambda: all(pipeline.texts(i) for i in (second, alone, newer)))
    pipeline.until_past_deadline(first, second, alone, newer, late)
    return Told(first, second, alone, newer, late)


def test_only_the_second_ones_sms_goes_out(pipeline: Pipeline, told: Told) -> None:
    assert pipeline.sent(told.first) == (1, 0)
    assert [messages(pipeline.emails(told.second)), len(pipeline.texts(told.second))] == [1, 1]


def test_a_request_that_comes_after_a_newer_one_is_over_itself(pipeline: Pipeline, told: Told) -> None:
    assert pipeline.texts(told.late) == []
    assert len(pipeline.texts(told.newer)) == 1


def test_each_older_one_is_closed_as_superseded_and_the_others_are_not(
    pipeline: Pipeline, told: Told
) -> None:
    stories = pipeline.stories()
    for intent_id in (told.first, told.late):
        last = stories[intent_id][-1]
        assert (last.next_phase, last.closed) == (Phase.CLOSED, CloseKind.SUPERSEDED)
    for intent_id in (told.second, told.alone, told.newer):
        assert all(d.reason is not Reason.SUPERSEDED for d in stories[intent_id])


def test_the_guard_knows_who_is_over_and_the_log_says_by_whom(pipeline: Pipeline, told: Told) -> None:
    with psycopg.connect(pipeline.rig.dsn) as connection:
        rows = connection.execute("SELECT intent_id, reason FROM closed").fetchall()
    assert dict(rows) == {told.first: "superseded", told.late: "superseded"}
    kind = TopicKind.INTENTS
    read = [decode(kind, m.key, m.value) for m in read_all(pipeline.settings.kafka, pipeline.names[kind])]
    over = {r.intent_id: r.by_intent_id for r in read if isinstance(r, IntentSuperseded)}
    assert over == {told.first: told.second, told.late: told.newer}


def test_every_record_of_it_is_accounted_for(pipeline: Pipeline, told: Told) -> None:
    def counted() -> Mapping[str, Counter[str]]:
        rows = {
            (m.partition, m.key): m.value
            for m in read_all(pipeline.settings.kafka, pipeline.names.changelog("progress"))
        }
        total: dict[str, Counter[str]] = {}
        for (_, topic), row in rows.items():
            found: dict[str, int] = orjson.loads(row or b"{}")
            assert balance(found) == 0
            total.setdefault((topic or b"").decode(), Counter()).update(found)
        return total

    def all_are_counted() -> bool:
        """Of the topics that are at rest; look-ups and ticks go on."""
        at_rest = (TopicKind.INTENTS, TopicKind.SUBJECTS)
        there = {k: len(list(read_all(pipeline.settings.kafka, pipeline.names[k]))) for k in at_rest}
        known = counted()
        return all(known.get(pipeline.names[k], Counter())["inputs"] == n for k, n in there.items())

    eventually(all_are_counted)
    subjects = counted()[pipeline.names[TopicKind.SUBJECTS]]
    assert dict(subjects) == {"inputs": 4, "absorbed": 4, "superseded": 2}
