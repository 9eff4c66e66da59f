"""Is the story of an intent what was asked, seen, decided and sent, and is a broken chain noticed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from schemas.attempt import AttemptState
from schemas.control import Controls
from schemas.ids import Channel
from schemas.intent import IntentRequested
from schemas.observation import ProviderState
from schemas.reasons import Reason
from schemas.record import Record, TopicKind
from schemas.topics import TopicNames
from sinks.audit.rows import RowWriter, without_body
from sinks.kafka.consumer import Message
from sinks.operator.chain import broken
from sinks.operator.explain import COLUMNS, UNDECIDED, as_dict, render, tell
from sinks.operator.text import OperatorTextRefused, check, check_name, printable
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


def test_an_intent_a_newer_one_replaced_says_so_and_names_it() -> None:
    ask, newer = builders.request(subject_key=builders.SUBJECT), builders.superseded(9_000)
    game = builders.play((0, ask), (9_000, newer))
    text = render(tell(ID, rows_of(game, [(K.INTENTS, 0, ask), (K.INTENTS, 9_000, newer)])))
    assert f"replaced by the newer intent {builders.NEWER_ID} of the same subject" in text
    assert "no SMS went: a newer intent for the same subject replaced it (+9.000 s)" in text
    assert f"intent {ID}: closed (superseded)" in text


def test_the_limits_that_stopped_an_sms_are_named() -> None:
    ask = builders.request()
    held = builders.attempt(
        200,
        AttemptState.HELD,
        channel=Channel.SMS,
        reason=Reason.SPEND_EXHAUSTED,
        limits=("all_day", "tenant_day"),
    )
    told = tell(ID, rows_of(builders.play((0, ask)), [(K.INTENTS, 0, ask), (K.ATTEMPTS, 200, held)]))
    text = " ".join(render(told).split())
    assert "held (spend_exhausted), limits reached: all_day, tenant_day" in text


def test_the_announcement_of_a_request_is_part_of_its_story() -> None:
    ask, seen = builders.request(subject_key=builders.SUBJECT), builders.subject_seen(0)
    message = Message(NAMES[K.SUBJECTS], 0, 0, T0 + 5, seen.key.encode(), seen.to_bytes())
    kept: dict[str, Any] = ALWAYS | WRITER.row(message)
    assert (kept["intent_id"], kept["key_text"]) == (ID, seen.key)
    rows = [*rows_of(builders.play((0, ask)), [(K.INTENTS, 0, ask)]), kept]
    assert "an older one would be over" in render(tell(ID, rows))


def test_a_refusal_says_who_published_it_and_which_field_is_meant() -> None:
    ask = builders.request(publisher="accounts-web", expiry_ms=T0 + 86_400_000)
    text = render(tell(ID, rows_of(builders.play((0, ask)), [(K.INTENTS, 0, ask)])))
    assert "  published by accounts-web" in text
    assert "in the request: at /expiry_ms, published by accounts-web" in text


def test_the_challenge_is_told_by_its_reference() -> None:
    assert "challenge ch-1, the same in both channels" in render(tell(ID, fallback()))


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
    assert broken([*first, *first]) is None


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


C = Channel.SMS
Given = list[tuple[int, TopicKind, Record]]


def went(state: AttemptState | None, **changes: Any) -> Given:
    """The deadline passes, and the dispatcher says this of the SMS."""
    tries = [] if state is None else [(70_000, K.ATTEMPTS, builders.attempt(70_000, state, C, **changes))]
    return [(200, K.ATTEMPTS, builders.attempt(200, AttemptState.ACCEPTED)), *tries]


def email(state: ProviderState, **changes: Any) -> Given:
    return [(5_000, K.OBSERVATIONS, builders.observation(5_000, state, **changes))]


ORDERED = "SMS was ordered; what came of it is not known"
CLAIMED = "claimed at +63.000 s: the deadline passed without a usable answer; SMS was claimed"
WHY_SMS: dict[str, tuple[dict[str, Any], Given, str]] = {
    "it was taken": (
        {},
        went(AttemptState.ACCEPTED),
        f"SMS went: the provider took it; whether it arrived is not known; {CLAIMED}",
    ),
    "it arrived": (
        {},
        [
            *went(AttemptState.ACCEPTED),
            (79_000, K.OBSERVATIONS, builders.observation(79_000, ProviderState.DELIVERED, C)),
        ],
        f"SMS went, and the provider says it arrived; {CLAIMED}",
    ),
    "it was taken and then failed": (
        {},
        [
            *went(AttemptState.ACCEPTED),
            (
                79_000,
                K.OBSERVATIONS,
                builders.observation(79_000, ProviderState.FAILED_PERMANENT, C, reason=Reason.BLOCKED),
            ),
        ],
        "SMS went: the provider took it; the carrier or mail server blocks this message for good; " + CLAIMED,
    ),
    "it was refused": (
        {},
        went(AttemptState.REFUSED, reason=Reason.SUPPRESSED),
        f"no SMS went: the destination is on our suppression list; {CLAIMED}",
    ),
    "it is held": (
        {},
        went(AttemptState.HELD, reason=Reason.CONTROL_PAUSED),
        f"no SMS is known to have gone: an operator paused this; it is held, not refused; {CLAIMED}",
    ),
    "its answer was lost": (
        {},
        went(AttemptState.UNKNOWN),
        f"whether the SMS went is not known: the answer to its submission was lost; {CLAIMED}",
    ),
    "nobody said": ({}, went(None), f"{ORDERED}; {CLAIMED}"),
    "the e-mail failed": (
        {},
        email(ProviderState.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE),
        f"{ORDERED}; claimed at +5.000 s: e-mail has conclusively failed; SMS was claimed at once",
    ),
    "no consent": (
        {"sms_consent": None},
        went(None),
        "no SMS went: the person did not agree to SMS (decided at +63.000 s)",
    ),
    "the e-mail arrived": (
        {},
        email(ProviderState.DELIVERED),
        "no SMS went: the provider said at +5.000 s that the e-mail arrived",
    ),
    "it was done before": (
        {},
        [(5_000, K.INTENTS, builders.completed(5_000))],
        "no SMS went: the person did it; nothing more is sent (+5.000 s)",
    ),
}


def told_of(changes: dict[str, Any], given: Given) -> list[dict[str, Any]]:
    """The rows of a life with this request and these inputs, ticks between them, until 80 s."""
    ask = builders.request(**changes)
    game = builders.play((0, ask))
    for at, _, record in given:
        game.then(at, record)
    game.until(80_000)
    return rows_of(game, [(K.INTENTS, 0, ask), *((kind, at, record) for at, kind, record in given)])


@pytest.mark.parametrize("case", WHY_SMS)
def test_one_sentence_says_why_the_sms_went_or_did_not(case: str) -> None:
    changes, given, sentence = WHY_SMS[case]
    story = tell(ID, told_of(changes, given))
    assert story.sms == sentence
    assert as_dict(story)["sms"] == sentence
    assert sentence in " ".join(render(story).split("\n\n")[0].split())


def test_before_the_deadline_the_sentence_says_what_the_sms_waits_for() -> None:
    ask = builders.request()
    nothing = tell(ID, [row(K.INTENTS, ask.to_bytes(), at=0, offset=0)])
    assert nothing.sms == "whether an SMS goes is not decided yet"
    asked = tell(ID, rows_of(builders.play((0, ask)), [(K.INTENTS, 0, ask)]))
    assert asked.sms.startswith("no SMS yet: it goes at the deadline")


def test_a_paused_claim_is_told_as_held_by_the_operator() -> None:
    ask = builders.request()
    game = builders.play((0, ask), ctx=builders.context(controls=Controls(["channel:sms"], offset=4)))
    game.until(61_000)
    story = tell(ID, rows_of(game, [(K.INTENTS, 0, ask)]))
    assert story.sms == "no SMS yet: an operator paused this; it is held, not refused"


def test_a_chain_whose_end_was_taken_away_is_noticed_by_what_its_decisions_caused() -> None:
    rows = told_of({}, went(AttemptState.ACCEPTED))
    decided = [n for n, r in enumerate(rows) if r["record"] == "decision"]
    claim = next(n for n in decided if rows[n]["body"]["reason"] == "deadline_reached")
    kept = [r for n, r in enumerate(rows) if n < claim or n not in decided]
    story = tell(ID, kept)
    assert "but nothing here ordered sms dispatch 1 (backstop.attempts/0/2)" in story.chain
    assert story.sms.endswith("the decision that claimed it is not here")
    guard = {"channel": "sms", "submission_no": 1, "state": "unknown"}
    only = [r for r in kept if r["record"] != "attempt" or r["body"]["channel"] == "email"]
    only.append({**ALWAYS, **PLACE, "record": "claim", "body": guard})
    story = tell(ID, only)
    assert "nothing here ordered sms dispatch 1 (claims/0/0)" in story.chain
    assert story.sms == f"{ORDERED}; the decision that claimed it is not here"


def test_an_order_of_a_decision_that_is_not_here_is_noticed_though_its_number_was_ordered() -> None:
    rows = told_of({}, went(None))
    order = {"record": "dispatch", "channel": "sms", "submission_no": 1, "provider_account": "text-a"}
    mine = {**ALWAYS, **PLACE, "record": "dispatch", "body": order | {"decision_id": f"{ID}:1"}}
    assert tell(ID, [*rows, mine]).chain.endswith("decisions verified")
    other = {**mine, "body": order | {"decision_id": f"{ID}:99"}}
    assert "nothing here ordered sms dispatch 1" in tell(ID, [*rows, other]).chain


PLACE = {"topic": "claims", "partition": 0, "kafka_offset": 0, "log_ms": T0 + 70_000, "sanitised": 0}


def test_an_age_nobody_knew_is_said_to_be_not_known() -> None:
    story = tell(ID, told_of({}, went(None)))
    assert story.ages["at the SMS claim"] == {
        "since_email_request": 63_000,
        "since_last_answer": None,
        "since_sms_claim": 0,
    }
    assert "since_email_request 63.000 s, since_last_answer not known, since_sms_claim" in render(story)


def test_no_line_of_a_story_is_wider_than_a_screen_and_no_word_is_lost() -> None:
    rows = told_of({}, went(AttemptState.REFUSED, reason=Reason.SUPPRESSED))
    longest = "token-" * 30
    rows.append(
        {
            **ALWAYS,
            **PLACE,
            "topic": "t" * 200,
            "record": "suppression",
            "body": {"channel": longest, "reason": "x"},
        }
    )
    text = render(tell(ID, rows))
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert longest in text.replace("\n", "").replace(" ", "")
    assert Reason.SUPPRESSED.sentence[1:-1] in " ".join(text.split())


@pytest.mark.parametrize("bad", ["\x1b[2J", "\x9b2J", "\u202e", "\u2066", "\u200f", "\u2028", "\r", "\x07"])
def test_nothing_a_terminal_obeys_comes_out_of_a_story(bad: str) -> None:
    asked = {"record": "instruction", "operator": "op-1", "action": "cancel", "why": f"so {bad}it is"}
    story = tell(ID, [{**ALWAYS, **PLACE, "record": "instruction", "body": asked}])
    text = render(story)
    assert not set(bad) & set(text) - set("[2J")
    assert "so \ufffd" in text
    assert printable("Grüße → 東京, «ok» 4.5 s") == "Grüße → 東京, «ok» 4.5 s"


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
        *("", "  a ", "x" * 201, "a\nb\nc", "a\x00bc", "a\x9bbc", "ab \u202ecd"),
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
