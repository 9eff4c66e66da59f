"""Bytes to records: what cannot be used is a value with a reason and a pointer, and quotes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from schemas import codec
from schemas.codec import Undecodable, decode, encode
from schemas.control import Control, ControlAction
from schemas.ids import Channel
from schemas.intent import IntentRequested
from schemas.reasons import Reason
from schemas.record import RECORD_BYTES_MAX, Record, TopicKind
from schemas.suppression import Suppression
from tests.builders import EMAIL_FP, ID, SEALED, T0, completed, observation, request, tick

KEY = ID.encode()
CANARY = "canary-7c1f@example.com"


def _body(**changes: Any) -> bytes:
    found = json.loads(request().to_bytes())
    for name, value in changes.items():
        if value is ...:
            del found[name]
        else:
            found[name] = value
    return json.dumps(found).encode()


def _why(value: bytes | None, key: bytes | None = KEY, kind: TopicKind = TopicKind.INTENTS) -> Undecodable:
    found = decode(kind, key, value)
    assert isinstance(found, Undecodable)
    return found


BAD: list[tuple[str, bytes, Reason, str]] = [
    ("empty", b"", Reason.MALFORMED, ""),
    ("not json", b"canary-7c1f@example.com", Reason.MALFORMED, ""),
    ("cut off", request().to_bytes()[:-2], Reason.MALFORMED, ""),
    ("not utf-8", b'{"record":"\xff\xfe"}', Reason.MALFORMED, ""),
    ("null", b"null", Reason.MALFORMED, ""),
    ("a list", b"[]", Reason.MALFORMED, ""),
    ("a string", b'"canary-7c1f@example.com"', Reason.MALFORMED, ""),
    ("a number", b"7", Reason.MALFORMED, ""),
    ("lone surrogate", b'{"s":"\\ud83d"}', Reason.MALFORMED, ""),
    ("nan", b'{"f":NaN}', Reason.UNKNOWN_RECORD, "/record"),
    ("byte order mark", b"\xef\xbb\xbf" + request().to_bytes(), Reason.MALFORMED, ""),
    ("utf-16", request().to_bytes().decode().encode("utf-16"), Reason.MALFORMED, ""),
    ("two objects", request().to_bytes() * 2, Reason.MALFORMED, ""),
    ("a null id", b'{"id":null}', Reason.UNKNOWN_RECORD, "/record"),
    ("5000 digits", b'{"n":' + b"7" * 5000 + b"}", Reason.MALFORMED, ""),
    ("deep", b"[" * 50_000, Reason.MALFORMED, ""),
    ("deep object", b'{"a":' * 50_000, Reason.MALFORMED, ""),
    ("no record", _body(record=...), Reason.UNKNOWN_RECORD, "/record"),
    ("another record", _body(record="attempt"), Reason.UNKNOWN_RECORD, "/record"),
    ("a record that is a number", _body(record=7), Reason.UNKNOWN_RECORD, "/record"),
    ("a record that is a list", _body(record=[CANARY]), Reason.UNKNOWN_RECORD, "/record"),
    ("newer version", _body(version=2), Reason.UNKNOWN_VERSION, "/version"),
    ("version as text", _body(version="1"), Reason.UNKNOWN_VERSION, "/version"),
    ("no version", _body(version=...), Reason.UNKNOWN_VERSION, "/version"),
    ("seconds", _body(deadline_ms=T0 // 1000), Reason.INVALID_FIELD, "/deadline_ms"),
    ("microseconds", _body(deadline_ms=T0 * 1000), Reason.INVALID_FIELD, "/deadline_ms"),
    ("iso time", _body(deadline_ms="2026-09-21T14:13:20Z"), Reason.INVALID_FIELD, "/deadline_ms"),
    ("naive time", _body(deadline_ms="2026-09-21T14:13:20"), Reason.INVALID_FIELD, "/deadline_ms"),
    ("milliseconds as text", _body(deadline_ms=str(T0)), Reason.INVALID_FIELD, "/deadline_ms"),
    ("milliseconds as float", _body(deadline_ms=T0 + 0.5), Reason.INVALID_FIELD, "/deadline_ms"),
    ("a whole float", _body(deadline_ms=float(T0)), Reason.INVALID_FIELD, "/deadline_ms"),
    ("negative", _body(deadline_ms=-T0), Reason.INVALID_FIELD, "/deadline_ms"),
    ("beyond 64 bits", _body(deadline_ms=T0 * 10**20), Reason.INVALID_FIELD, "/deadline_ms"),
    (
        "infinity",
        request().to_bytes().replace(b'"deadline_ms":', b'"deadline_ms":1e999,"x":'),
        Reason.INVALID_FIELD,
        "/deadline_ms",
    ),
    ("year 10000", _body(expiry_ms=253_402_300_800_000), Reason.INVALID_FIELD, "/expiry_ms"),
    ("a date", _body(deadline_ms="2026-09-21"), Reason.INVALID_FIELD, "/deadline_ms"),
    ("newline behind the id", _body(intent_id=ID + "\n"), Reason.INVALID_FIELD, "/intent_id"),
    (
        "full-width digit in the id",
        _body(intent_id=ID.replace("0", "\uff10")),
        Reason.INVALID_FIELD,
        "/intent_id",
    ),
    ("newline behind the policy", _body(policy="password_reset:v4\n"), Reason.INVALID_FIELD, "/policy"),
    ("newline behind the locale", _body(locale="en\n"), Reason.INVALID_FIELD, "/locale"),
    ("true for a number", _body(deadline_ms=True), Reason.INVALID_FIELD, "/deadline_ms"),
    ("deadline = expiry", _body(deadline_ms=T0 + 900_000), Reason.INVALID_FIELD, "/deadline_ms"),
    ("deadline > expiry", _body(deadline_ms=T0 + 900_001), Reason.INVALID_FIELD, "/deadline_ms"),
    ("missing field", _body(locale=...), Reason.INVALID_FIELD, "/locale"),
    ("null field", _body(locale=None), Reason.INVALID_FIELD, "/locale"),
    ("upper-case id", _body(intent_id="7F0C1B52-3D0E-4A77"), Reason.INVALID_FIELD, "/intent_id"),
    ("address as id", _body(intent_id=CANARY), Reason.INVALID_FIELD, "/intent_id"),
    ("address as tenant", _body(tenant=CANARY), Reason.INVALID_FIELD, "/tenant"),
    ("address as fingerprint", _body(email_fingerprint=CANARY), Reason.INVALID_FIELD, "/email_fingerprint"),
    (
        "sms print for email",
        _body(email_fingerprint="k1.s." + "a" * 32),
        Reason.INVALID_FIELD,
        "/email_fingerprint",
    ),
    ("phone without country", _body(country=...), Reason.INVALID_FIELD, "/country"),
    ("clear payload", _body(sealed=CANARY), Reason.INVALID_FIELD, "/sealed"),
    ("address as variable", _body(variables=["link", CANARY]), Reason.INVALID_FIELD, "/variables/1"),
    (
        "a number verified after the request",
        _body(phone_verified_at_ms=T0 + 1),
        Reason.INVALID_FIELD,
        "/phone_verified_at_ms",
    ),
    ("a number verified never", _body(phone_verified_at_ms=0), Reason.INVALID_FIELD, "/phone_verified_at_ms"),
    (
        "consent without time",
        _body(sms_consent={"text_ref": "c"}),
        Reason.INVALID_FIELD,
        "/sms_consent/granted_at_ms",
    ),
]


@pytest.mark.parametrize(("value", "reason", "pointer"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input_is_a_value_with_reason_and_pointer_and_quotes_nothing(
    value: bytes, reason: Reason, pointer: str
) -> None:
    found = _why(value)
    assert (found.reason, found.pointer) == (reason, pointer)
    assert found.size == len(value)
    assert "canary" not in repr(found)
    assert "@" not in repr(found)


def test_a_null_key_a_tombstone_and_both() -> None:
    assert _why(request().to_bytes(), None).reason is Reason.NULL_KEY
    assert _why(request().to_bytes(), b"").reason is Reason.NULL_KEY
    assert _why(None).reason is Reason.TOMBSTONE
    assert _why(None, None).reason is Reason.NULL_KEY


def test_two_megabytes_are_too_large_before_anything_is_parsed() -> None:
    found = _why(b"{" * 2_000_000)
    assert found.reason is Reason.TOO_LARGE
    assert found.size == 2_000_000
    assert _why(b" " * (RECORD_BYTES_MAX + 1)).reason is Reason.TOO_LARGE
    assert _why(b" " * RECORD_BYTES_MAX).reason is Reason.MALFORMED


@pytest.mark.parametrize("key", [b"int-0002-test", b'"int-0001-test"', b"\xff", KEY + b" "])
def test_a_key_that_is_not_the_id_is_a_mismatch(key: bytes) -> None:
    found = _why(request().to_bytes(), key)
    assert (found.reason, found.pointer) == (Reason.KEY_MISMATCH, "/intent_id")


def test_a_key_of_a_suppression_is_fingerprint_and_channel() -> None:
    record = Suppression(
        fingerprint=EMAIL_FP, channel=Channel.EMAIL, reason=Reason.COMPLAINT, cause="obs-1", at_ms=T0
    )
    assert decode(TopicKind.SUPPRESSIONS, record.key.encode(), encode(record)) == record
    assert _why(encode(record), EMAIL_FP.encode(), TopicKind.SUPPRESSIONS).reason is Reason.KEY_MISMATCH


@pytest.mark.parametrize(
    ("name", "fine"),
    [("all", True), ("country:GB", True), ("all:GB", False), ("country", False), ("moon:GB", False)],
)
def test_a_control_names_a_scope_we_have(name: str, fine: bool) -> None:
    body = {"record": "control", "version": 1, "name": name, "action": "pause", "at_ms": T0}
    body |= {"operator": "op-1", "why": "as agreed"}
    found = decode(TopicKind.CONTROLS, name.encode(), json.dumps(body).encode())
    assert isinstance(found, Control) is fine
    if isinstance(found, Control):
        assert found.action is ControlAction.PAUSE


@pytest.mark.parametrize(
    ("name", "other", "reason"),
    [
        ("intent_id", b'"int-9999-other"', Reason.KEY_MISMATCH),
        ("record", b'"intent_completed"', Reason.INVALID_FIELD),
        ("version", b"2", Reason.UNKNOWN_VERSION),
        ("deadline_ms", b"5", Reason.INVALID_FIELD),
    ],
)
def test_of_a_name_that_stands_twice_the_last_counts_for_every_check(
    name: str, other: bytes, reason: Reason
) -> None:
    whole = request().to_bytes()
    twice = b'"%s":%s' % (name.encode(), other)
    for padding in (
        b"",
        b",".join(b'"x%d":1' % n for n in range(60)) + b",",
    ):  # parsers change method by size
        assert decode(TopicKind.INTENTS, KEY, b"{" + twice + b"," + padding + whole[1:]) == request()
        found = decode(TopicKind.INTENTS, KEY, b"{" + padding + whole[1:-1] + b"," + twice + b"}")
        assert isinstance(found, Undecodable)
        assert found.reason is reason


def test_unknown_fields_are_ignored_and_dropped() -> None:
    found = decode(TopicKind.INTENTS, KEY, _body(added_later={"x": 1}))
    assert found == request()
    assert isinstance(found, IntentRequested)
    assert b"added_later" not in found.to_bytes()


def test_an_unknown_field_is_never_part_of_a_pointer() -> None:
    body = json.loads(request().to_bytes()) | {CANARY: 1, "deadline_ms": 5}
    assert _why(json.dumps(body).encode()).pointer == "/deadline_ms"


@pytest.mark.parametrize("record", [request(), completed(1000), tick(5), observation(5, None)])
def test_canonical_bytes_have_no_nulls_no_spaces_and_the_declared_order(record: Record) -> None:
    value = encode(record)
    assert b"null" not in value
    assert b" " not in value
    names = list(json.loads(value))
    declared = [n for n in type(record).model_fields if n in names]
    assert names == declared


def test_encode_refuses_what_no_reader_would_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "RECORD_BYTES_MAX", 100)
    with pytest.raises(ValueError, match="at most 100") as caught:
        encode(request())
    assert SEALED not in str(caught.value)


def test_headers_are_cloud_events_in_binary_mode() -> None:
    found = codec.headers(request(), source="backstop/worker", record_id="r-1", traceparent=b"00-ab-cd-01")
    assert found == [
        ("ce_specversion", b"1.0"),
        ("ce_type", b"backstop.intent_requested.v1"),
        ("ce_source", b"backstop/worker"),
        ("ce_id", b"r-1"),
        ("content-type", b"application/json"),
        ("traceparent", b"00-ab-cd-01"),
    ]
    assert len(codec.headers(tick(5), source="s", record_id="r")) == 5


def test_a_topic_of_one_record_wants_its_name_and_version_too() -> None:
    for name, reason in (("record", Reason.UNKNOWN_RECORD), ("version", Reason.UNKNOWN_VERSION)):
        body = json.loads(tick(5).to_bytes())
        del body[name]
        assert _why(json.dumps(body).encode(), kind=TopicKind.TICKS).reason is reason


def test_a_version_that_is_true_is_read_as_one() -> None:
    found = decode(TopicKind.INTENTS, KEY, _body(version=True))
    assert isinstance(found, IntentRequested)
    assert found.to_bytes() == request().to_bytes()


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        request().locale = "fr"  # type: ignore[misc]
