"""What does the audit keep of a record: everything clear, nothing sealed, any byte."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.decision import Decision
from schemas.errors import GuardUnavailable, PreflightFailed
from schemas.record import TopicKind
from schemas.topics import TOPICS, TopicNames
from sinks.audit.loop import AuditorLoop, gone
from sinks.audit.rows import REPLACEMENT, RowWriter, clean, known_key, without_body
from sinks.kafka.consumer import Message, Place
from sinks.postgres.pool import Database
from tests import builders
from tests.builders import EMAIL_FP, ID, SEALED, SUBJECT, T0

K = TopicKind
NAMES = TopicNames()
WRITER = RowWriter(NAMES, letter_key=b"k" * 32)
CANARY = "ada.lovelace@example.com"


def row(kind: TopicKind, value: bytes | None, key: bytes | None = ID.encode()) -> dict[str, Any]:
    return WRITER.row(Message(NAMES[kind], 1, 7, T0, key, value))


def test_a_request_is_kept_without_what_was_sealed() -> None:
    found = row(K.INTENTS, builders.request().to_bytes())
    assert found["record"] == "intent_requested"
    assert found["intent_id"] == found["key_text"] == ID
    assert found["body"]["policy"] == "password_reset:v7"
    assert found["body"]["sealed_chars"] == len(SEALED)
    assert len(found["body"]["sealed_sha256"]) == 64
    assert SEALED.encode() not in orjson.dumps(found)


def test_a_decision_gives_back_its_bytes() -> None:
    for decision in builders.started().decisions:
        kept = orjson.loads(orjson.dumps(row(K.DECISIONS, decision.to_bytes())["body"]))
        assert Decision.model_validate_json(orjson.dumps(kept)).to_bytes() == decision.to_bytes()


@pytest.mark.parametrize(
    ("value", "reason", "pointer"),
    [
        (f'{{"to": "{CANARY}"'.encode(), "malformed", ""),
        (b"\x00\xff\xfe" + CANARY.encode(), "malformed", ""),
        (f'{{"record": "{CANARY}"}}'.encode(), "unknown_record", "/record"),
        (b'{"record": "intent_completed", "version": 9}', "unknown_version", "/version"),
        (b'{"record": "intent_completed", "version": NaN}', "unknown_version", "/version"),
        (None, "tombstone", ""),
        (CANARY.encode() * 20_000, "too_large", ""),
    ],
)
def test_what_cannot_be_decoded_is_kept_as_size_reason_and_keyed_hash(
    value: bytes | None, reason: str, pointer: str
) -> None:
    found = row(K.INTENTS, value)
    assert (found["reason"], found["pointer"]) == (reason, pointer)
    assert found["size"] == len(value or b"")
    assert found["intent_id"] == ID, "the story of that intent shows it"
    assert "body" not in found
    assert (found["value_hmac"] is None) == (value is None)
    assert CANARY.encode() not in orjson.dumps(found)


def test_a_hash_cannot_be_looked_up_without_the_key() -> None:
    other = RowWriter(NAMES, letter_key=b"o" * 32)
    message = Message(NAMES[K.INTENTS], 0, 0, T0, CANARY.encode(), CANARY.encode())
    ours, theirs = WRITER.row(message), other.row(message)
    assert ours["key_hmac"] != theirs["key_hmac"]
    assert ours["value_hmac"] != theirs["value_hmac"]


@pytest.mark.parametrize(
    ("kind", "key", "is_known"),
    [
        (K.INTENTS, ID, True),
        (K.INTENTS, "INT-0001-TEST", False),
        (K.INTENTS, CANARY, False),
        (K.INTENTS, "+447700900123", False),
        (K.INTENTS, "provider:text-a", False),
        (K.LOOKUPS, "mail-a", True),
        (K.LOOKUPS, "Mail A", False),
        (K.SUPPRESSIONS, f"{EMAIL_FP}/email", True),
        (K.SUPPRESSIONS, f"{CANARY}/email", False),
        (K.SUBJECTS, f"tenant-0001/password_reset/{SUBJECT}", True),
        (K.SUBJECTS, f"tenant-0001/password_reset/{CANARY}", False),
        (K.CONTROLS, "all", True),
        (K.CONTROLS, "country:GB", True),
        (K.CONTROLS, "ada", False),
        (K.DEAD_LETTERS, ID, True),
        (K.DEAD_LETTERS, "backstop.intents/3/17", True),
        (K.DEAD_LETTERS, CANARY, False),
    ],
)
def test_a_key_is_shown_when_it_has_the_shape_its_topic_keys_have(
    kind: TopicKind, key: str, is_known: bool
) -> None:
    found = row(kind, b"{}", key.encode())
    assert found["key_text"] == (key if is_known else None)
    assert (found["key_hmac"] is None) == is_known
    assert known_key(kind, key.encode()) == found["key_text"]


def test_only_an_intent_id_is_one() -> None:
    assert row(K.LOOKUPS, b"{}", b"account-of-mail")["intent_id"] is None
    assert row(K.CONTROLS, b"{}", b"all")["intent_id"] is None


def test_a_dead_letter_belongs_to_the_intent_it_names() -> None:
    letter = {
        "record": "dead_letter",
        "version": 1,
        "letter_id": "backstop.intents/0/1",
        "source": {"topic": "backstop.intents", "partition": 0, "offset": 1},
        "by": "worker",
        "reason": "malformed",
        "reason_class": "input",
        "size": 3,
        "intent_id": ID,
        "at_ms": T0,
    }
    found = row(K.DEAD_LETTERS, json.dumps(letter).encode(), b"backstop.intents/0/1")
    assert (found["record"], found["intent_id"]) == ("dead_letter", ID)


@pytest.mark.parametrize(
    ("value", "kept", "count"),
    [
        ("a\x00b", f"a{REPLACEMENT}b", 1),
        ("\ud83d", REPLACEMENT, 1),
        ({"a\x00": "\udc00x"}, {f"a{REPLACEMENT}": f"{REPLACEMENT}x"}, 2),
        ([float("nan"), float("inf"), 1.5], [REPLACEMENT, REPLACEMENT, 1.5], 2),
        ({"a": [1, True, None, "é\U0001f600"]}, {"a": [1, True, None, "é\U0001f600"]}, 0),
    ],
)
def test_what_jsonb_refuses_is_replaced_visibly_and_counted(value: Any, kept: Any, count: int) -> None:
    assert clean(value) == (kept, count)


def test_a_nul_in_a_text_of_a_decision_is_replaced_and_counted() -> None:
    """Case F03: the one free text a decision has is a gate's detail."""
    body = json.loads(builders.started().decisions[0].to_bytes())
    body["gates"] = [{"gate": "control", "verdict": "open", "detail": "a\x00b"}]
    found = row(K.DECISIONS, json.dumps(body).encode())
    assert found["sanitised"] == 1
    assert found["body"]["gates"][0]["detail"] == f"a{REPLACEMENT}b"
    assert b"\\u0000" not in orjson.dumps(found)


@given(
    kind=st.sampled_from(list(TOPICS)),
    key=st.none() | st.binary(max_size=40) | st.just(ID.encode()),
    value=st.none()
    | st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ).map(lambda found: json.dumps(found).encode()),
)
def test_any_bytes_give_a_row_that_json_takes(
    kind: TopicKind, key: bytes | None, value: bytes | None
) -> None:
    found = row(kind, value, key)
    text = orjson.dumps(found)
    assert b"\\u0000" not in text
    assert found["size"] == len(value or b"")
    assert known_key(kind, key) == found["key_text"]


def test_a_row_the_database_refuses_keeps_its_place() -> None:
    found = row(K.INTENTS, builders.request().to_bytes())
    bare = without_body(found, "the database refused the body (22P05)")
    assert bare["body"] is None
    assert {k: v for k, v in bare.items() if k not in ("body", "note")} == {
        k: v for k, v in found.items() if k != "body"
    }


def test_what_the_log_no_longer_has_is_said() -> None:
    known = {("t", 0): 10, ("t", 1): 10, ("t", 2): 10}
    assert list(gone(known, {("t", 0): 0, ("t", 1): 14})) == [
        "t/1: 4 offsets were deleted before they were audited"
    ]


class Ends:
    """A topic that begins at 0 and ends at 3."""

    def of(self, topics: set[str]) -> dict[Place, int]:
        return {(topic, 0): 3 for topic in topics}

    def beginnings(self, topics: set[str]) -> dict[Place, int]:
        return {(topic, 0): 0 for topic in topics}


def test_waiting_for_postgres_is_no_standstill() -> None:
    beats: list[str] = []

    class Away:
        def positions(self, _places: list[Place]) -> dict[Place, int]:
            beats.append("asked")
            if beats.count("asked") == 3:
                return {}
            raise GuardUnavailable("away", code="unreachable")

    loop = AuditorLoop(
        NAMES,
        bootstrap="127.0.0.1:1",
        database=Database("postgresql://127.0.0.1:1/none"),
        letter_key=b"k" * 32,
        session_timeout_ms=6_000,
        beat=lambda: beats.append("beat"),
    )
    loop._reader.close()
    loop._writer, loop._ends_of = Away(), Ends()  # type: ignore[assignment]
    assert loop._positions([("t", 0)]) == {}
    assert beats == ["asked", "beat", "asked", "beat", "asked"]


@pytest.mark.parametrize(("audited", "is_refused"), [(3, False), (4, True)])
def test_a_topic_made_anew_is_refused_because_nothing_of_it_would_be_kept(
    audited: int, is_refused: bool
) -> None:
    class Known:
        def positions(self, places: list[Place]) -> dict[Place, int]:
            return dict.fromkeys(places, audited)

    loop = AuditorLoop(
        NAMES,
        bootstrap="127.0.0.1:1",
        database=Database("postgresql://127.0.0.1:1/none"),
        letter_key=b"k" * 32,
        session_timeout_ms=6_000,
    )
    loop._reader.close()
    loop._writer, loop._ends_of = Known(), Ends()  # type: ignore[assignment]
    if is_refused:
        with pytest.raises(
            PreflightFailed, match="t/0 is at 3 and was read to 4: it was made anew"
        ) as caught:
            loop._positions([("t", 0)])
        assert "BACKSTOP_PREFIX" in caught.value.remedy
    else:
        assert loop._positions([("t", 0)]) == {("t", 0): 3}
