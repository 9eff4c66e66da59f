"""No bytes bring a reader of records down, and none are repeated by it."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.attempt import AttemptState
from schemas.control import Control, ControlAction
from schemas.dispatch import Dispatch
from schemas.ids import Channel
from schemas.instruction import InstructionAction
from schemas.lookup import Lookup, LookupPurpose
from schemas.observation import ProviderState
from schemas.reasons import Reason
from schemas.record import Coordinates, Record, TopicKind
from schemas.sealed import Payload, SealingKey, seal
from schemas.suppression import Suppression
from tests.builders import (
    EMAIL_FP,
    ID,
    SMS_FP,
    T0,
    attempt,
    cancelled,
    completed,
    instruction,
    observation,
    play,
    request,
    tick,
)
from tests.fuzz import hostile, records
from tests.fuzz.forge import KEY, forged, header
from tests.fuzz.profile import fuzzed

K = TopicKind
KEYS = st.sampled_from(list(K))


def _valid() -> dict[TopicKind, list[tuple[bytes, Record]]]:
    """At least one valid record of every topic, under its key."""
    dispatch = Dispatch(
        decision_id=f"{ID}:1",
        intent_id=ID,  # type: ignore[arg-type]
        tenant="tenant-0001",
        purpose="password_reset",
        policy="password_reset:v1",
        template="password_reset:v1",
        channel=Channel.EMAIL,
        dispatch_key=f"{ID}.email",
        submission_no=1,
        provider_account="mail-a",
        locale="en",
        country="GB",
        email_fingerprint=EMAIL_FP,
        sms_fingerprint=SMS_FP,
        deadline_ms=T0 + 60_000,
        expiry_ms=T0 + 900_000,
        not_after_ms=T0 + 900_000,
        ordered_at_ms=T0,
        sealed="e.AAAA.BBBB.CCCC.DDDD",
    )
    lookup = Lookup(
        intent_id=ID,  # type: ignore[arg-type]
        channel=Channel.EMAIL,
        submission_no=1,
        poll_no=1,
        purpose=LookupPurpose.SCHEDULE,
        provider_account="mail-a",
        reference=f"{ID}.email",
        ordered_at_ms=T0,
        answer_by_ms=T0 + 15_000,
    )
    suppression = Suppression(
        fingerprint=EMAIL_FP, channel=Channel.EMAIL, reason=Reason.COMPLAINT, cause="obs-1", at_ms=T0
    )
    pause = Control(name="country:GB", action=ControlAction.PAUSE, operator="op-1", why="as agreed", at_ms=T0)
    letter = records._LETTERS.letter(
        Coordinates(topic="backstop.intents", partition=0, offset=1), Reason.MALFORMED, value=b"x", at_ms=T0
    )
    decision = play((0, request())).decisions[0]
    key = ID.encode()
    found: dict[TopicKind, list[tuple[bytes, Record]]] = {
        K.INTENTS: [(key, request()), (key, completed(1)), (key, cancelled(1))],
        K.ATTEMPTS: [(key, attempt(1, AttemptState.ACCEPTED)), (key, attempt(1, AttemptState.HELD))],
        K.OBSERVATIONS: [(key, observation(1, ProviderState.DELIVERED, raw_token="delivered"))],
        K.TICKS: [(key, tick(1))],
        K.INSTRUCTIONS: [(key, instruction(1, InstructionAction.CANCEL))],
        K.DECISIONS: [(key, decision)],
        K.DISPATCHES_URGENT: [(key, dispatch)],
        K.DISPATCHES_BULK: [(key, dispatch)],
        K.LOOKUPS: [(b"mail-a", lookup)],
        K.SUPPRESSIONS: [(suppression.key.encode(), suppression)],
        K.CONTROLS: [(b"country:GB", pause)],
        K.DEAD_LETTERS: [(key, letter)],
    }
    return found


VALID = _valid()
PAIRS = [(kind, key, record) for kind, found in VALID.items() for key, record in found]


@st.composite
def cases(draw: st.DrawFn) -> bytes:
    """Any bytes under any key of any topic; a valid record after an accident; one with a field changed."""
    kind, key, record = draw(st.sampled_from(PAIRS))
    value = record.to_bytes()
    match draw(st.sampled_from(["bytes", "spoiled", "changed", "elsewhere", "as it is"])):
        case "bytes":
            return records.joined(draw(KEYS), draw(st.none() | st.binary(max_size=80)), draw(hostile.BYTES))
        case "spoiled":
            return records.joined(kind, key, draw(hostile.spoiled(value)))
        case "changed":
            return records.joined(kind, key, hostile.as_json(draw(hostile.changed(json.loads(value)))))
        case "elsewhere":
            return records.joined(
                draw(KEYS), draw(st.sampled_from([key, b"\xff", b"x" * 300, records.CANARY.encode()])), value
            )
    return records.joined(kind, key, draw(st.sampled_from([value, None])))


@pytest.mark.parametrize(("kind", "key", "record"), PAIRS)
def test_every_topic_has_a_valid_record_to_begin_with(kind: TopicKind, key: bytes, record: Record) -> None:
    case = records.joined(kind, key, record.to_bytes())
    assert records.codec(case) == f"record: {record.record}"  # type: ignore[attr-defined]
    assert records.audit(case) == f"row: {record.record}, 0 replaced"  # type: ignore[attr-defined]


@fuzzed
@given(cases())
def test_the_codec_gives_a_record_or_a_dead_letter_that_repeats_nothing(case: bytes) -> None:
    records.codec(case)


@fuzzed
@given(cases())
def test_the_audit_gives_a_row_that_postgres_takes(case: bytes) -> None:
    records.audit(case)


_CONTROL = json.loads(VALID[K.CONTROLS][0][1].to_bytes())
_NAMES = (
    st.from_regex(
        r"(all|purpose|country|provider|channel|tenant|moon)(:[A-Za-z0-9_-]{1,64})?", fullmatch=True
    )
    | st.sampled_from(
        ["country:GB", "country:gb", "channel:sms", "channel:fax", "tenant:x", "purpose:A", "all:"]
    )
    | hostile.TEXTS
)


@fuzzed
@given(_NAMES)
def test_a_control_is_ignored_or_stops_what_it_names(name: str) -> None:
    records.control(hostile.as_json(_CONTROL | {"name": name}))


@fuzzed
@given(hostile.changed(_CONTROL).map(hostile.as_json) | hostile.BYTES)
def test_no_bytes_on_the_controls_topic_bring_a_process_down(value: bytes) -> None:
    records.control(value)


# The envelope: anybody holds the public key, so everything inside may be anybody's.

_PAYLOAD = {"email": "person@example.com", "phone": None, "variables": {"link": "https://app.example/r?t=1"}}
_TOKEN = seal(
    Payload("person@example.com", None, {"link": "https://app.example/r?t=1"}),
    records.BINDING,
    SealingKey(records._JWK.as_dict(private=False) | {"kid": records.KEY_ID}),
)


def test_what_the_publisher_seals_and_what_the_forge_makes_both_open() -> None:
    assert records.sealed(_TOKEN.encode()) == "payload"
    assert records.sealed(forged(header(), json.dumps(_PAYLOAD).encode())) == "payload"
    squeezed = zlib.compress(json.dumps(_PAYLOAD).encode(), wbits=-15)
    assert records.sealed(forged(header(zip="DEF"), squeezed)) in ("payload", "SealBroken: altered")


@fuzzed
@given(hostile.spoiled(_TOKEN.encode()) | hostile.BYTES | st.lists(hostile.BYTES, max_size=6).map(b".".join))
def test_a_broken_envelope_is_one_of_four_errors(token: bytes) -> None:
    records.sealed(token)


@fuzzed
@given(
    hostile.changed(header())
    | hostile.changed(header(zip="DEF", apu="AA", apv="AA", cty="x", typ="JWT", b64=True)),
    st.just(json.dumps(_PAYLOAD).encode()) | hostile.BYTES,
)
def test_an_envelope_with_any_header_is_one_of_four_errors(fields: Any, clear: bytes) -> None:
    records.sealed(forged(fields, clear))


@fuzzed
@given(hostile.changed(_PAYLOAD).map(hostile.as_json) | hostile.JSON.map(hostile.as_json) | hostile.BYTES)
def test_a_well_sealed_payload_of_any_content_is_one_or_an_error(clear: bytes) -> None:
    records.sealed(forged(header(), clear))


@fuzzed
@given(hostile.changed(KEY))
def test_an_envelope_with_any_ephemeral_key_is_one_of_four_errors(key: Any) -> None:
    records.sealed(forged(header(epk=key), b"{}"))
