"""Is the story of an intent what was asked, seen, decided and sent, and is a broken chain noticed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from schemas.attempt import AttemptState
from schemas.ids import Channel
from schemas.intent import IntentRequested
from schemas.observation import ProviderState
from schemas.reasons import Reason
from schemas.record import Record, TopicKind
from schemas.topics import TopicNames
from sinks.audit.rows import RowWriter, without_body
from sinks.kafka.consumer import Message
from sinks.operator.explain import UNDECIDED, as_dict, render, tell, verify
from sinks.operator.text import OperatorTextRefused, check, check_name
from tests import builders
from tests.builders import DEADLINE_MS, ID, T0, Play

K = TopicKind
NAMES = TopicNames()
WRITER = RowWriter(NAMES, letter_key=b"k" * 32)
ALWAYS = {"body": None, "reason": None, "pointer": None, "note": None, "record": None}


def row(kind: TopicKind, value: bytes, *, at: int, offset: int) -> dict[str, Any]:
    """As Postgres gives it back."""
    found = ALWAYS | WRITER.row(Message(NAMES[kind], 0, offset, T0 + at, ID.encode(), value))
    return {**found, "body": orjson.loads(orjson.dumps(found["body"]))}


def rows_of(game: Play, given: Iterable[tuple[TopicKind, int, Record]]) -> list[dict[str, Any]]:
    inputs = [row(kind, one.to_bytes(), at=at, offset=n) for n, (kind, at, one) in enumerate(given)]
    decided = [
        row(K.DECISIONS, d.to_bytes(), at=d.now_ms - T0 + 3, offset=n) for n, d in enumerate(game.decisions)
    ]
    return sorted(inputs + decided, key=lambda r: r["log_ms"])


def fallback() -> list[dict[str, Any]]:
    """An e-mail goes quiet, an SMS follows and arrives."""
    ask = builders.request()
    accepted = builders.attempt(200, AttemptState.ACCEPTED)
    game = builders.play((0, ask), (200, accepted))
    given: list[tuple[TopicKind, int, Record]] = [(K.INTENTS, 0, ask), (K.ATTEMPTS, 200, accepted)]

    def then(at: int, kind: TopicKind, record: Record) -> None:
        game.give(at, record)
        given.append((kind, at, record))

    game.until(6_000)
    then(6_500, K.OBSERVATIONS, builders.observation(6_500, ProviderState.ACCEPTED))
    game.until(DEADLINE_MS + 4_000)
    taken = builders.attempt(DEADLINE_MS + 5_000, AttemptState.ACCEPTED, Channel.SMS)
    then(DEADLINE_MS + 5_000, K.ATTEMPTS, taken)
    arrived = builders.observation(DEADLINE_MS + 9_000, ProviderState.DELIVERED, Channel.SMS)
    then(DEADLINE_MS + 9_000, K.OBSERVATIONS, arrived)
    return rows_of(game, given)


def test_a_fallback_is_told_from_the_request_to_the_sms() -> None:
    text = render(tell(ID, fallback()))
    order = [
        "the service asked",
        "DECISION 1:",
        "email submission 1: accepted",
        "sms_claimed: deadline_reached",
        "sms submission 1: accepted",
        "sms_delivered: delivered",
    ]
    timeline = text.split("\n\n")[1]
    places = [timeline.index(words) for words in order]
    assert places == sorted(places)
    assert Reason.DEADLINE_REACHED.sentence in text
    assert "gates open: " in text
    assert "evidence: email accepted, at " in text
    assert "on reading: tick at backstop.test/0/" in text
    assert "deadline  2026-09-21 14:14:20.000 UTC (+60.000 s)" in text
    assert "ages at the SMS claim: since_email_request " in text


def test_the_chain_is_verified_from_what_the_audit_kept() -> None:
    rows = fallback()
    count = sum(r["record"] == "decision" for r in rows)
    assert count >= 4
    assert tell(ID, rows).chain == f"chain of {count} decisions verified"


def test_a_decision_that_was_altered_or_taken_away_breaks_the_chain() -> None:
    rows = fallback()
    decided = [n for n, r in enumerate(rows) if r["record"] == "decision"]
    altered = [dict(r) for r in rows]
    body = altered[decided[1]]["body"]
    altered[decided[1]]["body"] = body | {"reason": "completed", "reason_class": "intent"}
    assert tell(ID, altered).chain == f"the chain breaks at decision 3 ({ID}:3)"
    missing = rows[: decided[1]] + rows[decided[1] + 1 :]
    assert tell(ID, missing).chain == f"the chain breaks at decision 2 ({ID}:3)"


def test_a_second_life_begins_a_chain_of_its_own() -> None:
    first = builders.started().decisions
    assert verify([*first, *first]) == f"chain of {2 * len(first)} decisions verified"


def test_a_decision_that_is_not_kept_as_it_was_is_said_and_not_called_broken() -> None:
    rows = fallback()
    number = next(n for n, r in enumerate(rows) if r["record"] == "decision")
    for changed in (
        rows[number] | {"sanitised": 1},
        without_body(rows[number], "the database refused the body (22P05)"),
        rows[number] | {"body": rows[number]["body"] | {"reason": "of_a_newer_version"}},
    ):
        story = tell(ID, [*rows[:number], changed, *rows[number + 1 :]])
        assert story.chain == "chain not verified: 1 decisions are not here as they were written"
        assert render(story)


def test_an_intent_nobody_decided_yet_is_told_as_such() -> None:
    story = tell(ID, [row(K.INTENTS, builders.request().to_bytes(), at=0, offset=0)])
    assert (story.phase, story.closed, story.outcome) == (UNDECIDED, None, None)
    assert "not decided yet" in render(story)


def test_an_unfinished_intent_says_when_it_is_looked_at_again() -> None:
    ask = builders.request()
    story = tell(ID, rows_of(builders.play((0, ask)), [(K.INTENTS, 0, ask)]))
    assert story.phase == "email_pending"
    assert story.next_due_ms is not None
    assert "not finished; it is looked at again at 2026-09-21 14:" in render(story)


def test_a_finished_intent_ends_with_its_outcome() -> None:
    ask, done = builders.request(), builders.completed(5_000)
    game = builders.play((0, ask), (5_000, done))
    story = tell(ID, rows_of(game, [(K.INTENTS, 0, ask), (K.INTENTS, 5_000, done)]))
    text = render(story)
    assert (story.phase, story.closed) == ("closed", "completed")
    assert "outcome: ended completed; email pending" in text
    assert "the person is done, says reset-form" in text
    assert "not finished" not in text


def test_a_record_that_could_not_be_used_is_part_of_the_story_with_its_place() -> None:
    rows = [
        row(K.INTENTS, builders.request().to_bytes(), at=0, offset=4),
        row(K.INTENTS, b'{"to": "ada@example.com"', at=7, offset=5),
    ]
    text = render(tell(ID, rows))
    assert "a record that could not be used: malformed" in text
    assert "At backstop.intents/0/5." in text
    assert "example.com" not in text


def test_a_reason_of_a_newer_version_is_no_reason_to_fail() -> None:
    found = row(K.INTENTS, b"{", at=0, offset=0) | {"reason": "of_a_newer_version"}
    assert "does not know the reason" in render(tell(ID, [found]))


def test_machines_get_the_same_story() -> None:
    story = tell(ID, fallback())
    found = orjson.loads(orjson.dumps(as_dict(story)))
    assert found["phase"] == "sms_delivered"
    assert [line["what"] for line in found["timeline"]] == [line.what for line in story.lines]
    assert set(found["ages_ms"]["at the SMS claim"]) >= {"since_email_request", "since_last_answer"}
    assert found["asked"]["intent_id"] == ID


def test_nothing_sealed_is_in_a_story() -> None:
    assert IntentRequested.model_fields["sealed"]
    story = tell(ID, fallback())
    assert builders.SEALED not in render(story) + orjson.dumps(as_dict(story)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "ticket 4711",
        "asked by support on 2026-12-01",
        "INC0012345",
        "#10293847 at 14:05",
        "no answer in 30 s",
    ],
)
def test_a_reason_without_a_person_is_taken(text: str) -> None:
    assert check(text, "why") == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "  a ", "x" * 201, "a\nb\nc", "a\x00bc"),
        *("ada@example.com called", "ada%40example.com", "ada＠example.com"),
        *("+44 7700 900123", "call 07700900123", "(020) 7946-0018", "0012 345 67"),
    ],
)
def test_a_reason_about_a_person_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(OperatorTextRefused) as caught:
        check(text, "why")
    assert len(text) < 8 or text not in str(caught.value)


def test_an_operator_may_be_called_as_accounts_are_called_here() -> None:
    assert check_name("ada@corp", "who") == "ada@corp"
    with pytest.raises(OperatorTextRefused):
        check_name("a", "who")
