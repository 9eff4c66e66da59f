"""`decode` is total: any bytes under any key give a record or a reason, and quote nothing."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.attempt import AttemptState
from schemas.codec import Undecodable, decode, encode
from schemas.ids import Channel
from schemas.instruction import InstructionAction
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason, ReasonClass
from schemas.record import Record, TopicKind
from tests.builders import ID, attempt, cancelled, completed, instruction, observation, request, tick
from tests.property.histories import HISTORIES, History, Player

KEY = ID.encode()
KINDS = st.sampled_from(list(TopicKind))
CHANNELS = st.sampled_from(list(Channel))
SECRET = "canary-7c1f"

RECORDS: st.SearchStrategy[tuple[TopicKind, Record]] = st.one_of(
    st.tuples(st.just(TopicKind.INTENTS), st.builds(request, locale=st.sampled_from(["en", "fr", "pt-BR"]))),
    st.tuples(st.just(TopicKind.INTENTS), st.builds(completed, st.integers(0, 10**6))),
    st.tuples(st.just(TopicKind.INTENTS), st.builds(cancelled, st.integers(0, 10**6))),
    st.tuples(
        st.just(TopicKind.ATTEMPTS),
        st.builds(attempt, st.integers(0, 10**6), st.sampled_from(list(AttemptState)), CHANNELS),
    ),
    st.tuples(
        st.just(TopicKind.OBSERVATIONS),
        st.builds(
            observation,
            st.integers(0, 10**6),
            st.sampled_from([None, *ProviderState]),
            CHANNELS,
            answer=st.sampled_from(list(LookupAnswer)),
            raw_token=st.none() | st.from_regex(r"\A[A-Za-z0-9_.:-]{0,64}\Z"),
        ),
    ),
    st.tuples(st.just(TopicKind.TICKS), st.builds(tick, st.integers(0, 10**6))),
    st.tuples(
        st.just(TopicKind.INSTRUCTIONS),
        st.builds(instruction, st.integers(0, 10**6), st.sampled_from(list(InstructionAction))),
    ),
)

_NAMES = st.text() | st.just(SECRET)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(SECRET),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.just(SECRET), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(RECORDS)
def test_encode_then_decode_gives_the_record(pair: tuple[TopicKind, Record]) -> None:
    kind, record = pair
    assert decode(kind, KEY, encode(record)) == record
    assert encode(record) == encode(record)


@given(KINDS, st.none() | st.binary(max_size=80), st.none() | st.binary(max_size=400))
def test_any_bytes_give_an_answer(kind: TopicKind, key: bytes | None, value: bytes | None) -> None:
    found = decode(kind, key, value)
    assert isinstance(found, Record | Undecodable)


def _spoiled(pair: tuple[TopicKind, Record], name: str, value: Any) -> bytes:
    body = json.loads(encode(pair[1]))
    body[name] = value
    return json.dumps(body).encode()


@given(RECORDS, st.data(), JSON)
def test_any_field_with_any_value_gives_an_answer_that_quotes_nothing(
    pair: tuple[TopicKind, Record], data: st.DataObject, value: Any
) -> None:
    names = sorted(type(pair[1]).model_fields)
    body = _spoiled(pair, data.draw(st.sampled_from([*names, SECRET])), value)
    found = decode(pair[0], KEY, body)
    assert isinstance(found, Record | Undecodable)
    if isinstance(found, Undecodable):
        assert found.reason.reason_class is ReasonClass.INPUT
        assert SECRET not in repr(found)
        assert found.reason is not Reason.NULL_KEY


@given(RECORDS, st.integers(0, 4000), st.integers(0, 255))
def test_one_flipped_byte_gives_an_answer(pair: tuple[TopicKind, Record], at: int, byte: int) -> None:
    value = bytearray(encode(pair[1]))
    value[at % len(value)] = byte
    assert isinstance(decode(pair[0], KEY, bytes(value)), Record | Undecodable)


@given(HISTORIES)
def test_every_decision_the_core_makes_can_be_decoded(history: History) -> None:
    for found in Player(history).play().game.steps:
        if found.decision is not None:
            record = decode(TopicKind.DECISIONS, KEY, found.decision_bytes)
            assert isinstance(record, Record)
            assert record.to_bytes() == found.decision_bytes
