"""Targets that read records: the codec, the audit row, a control, the sealed envelope.

A target takes any bytes and names what became of them; a broken law is an AssertionError, and any other
exception is a reader that came down. It must not know what outcome an entry of the corpus should have.
"""

from __future__ import annotations

import json
import math
import re
from hashlib import sha256
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from joserfc.jwk import OKPKey

from schemas.codec import Undecodable, decode
from schemas.control import Control, ControlAction, Controls
from schemas.control_board import ControlBoard
from schemas.errors import BindingMismatch, SealBroken, SealError, SealKeyShredded, SealKeyUnknown
from schemas.ids import ACCOUNT_PATTERN, COUNTRY_PATTERN, ID_PATTERN, NAME_PATTERN, Channel
from schemas.letters import LetterWriter
from schemas.reasons import ReasonClass
from schemas.record import Coordinates, Record, TopicKind
from schemas.sealed import Binding, UnsealingKeys, unseal
from schemas.topics import TOPICS, TopicNames
from sinks.audit.rows import RowWriter, known_key
from sinks.kafka.consumer import Message
from tests.builders import T0
from tests.canaries import found_in

CANARY = "canary-7c1f@example.com"  # neither an id nor a token: nothing of ours may repeat it
NO_KEY = b"-"
LETTER_KEY = sha256(b"letters of the fuzz tests").digest()
BIGINT = range(-(2**63), 2**63)
# CreateTime topics carry whatever their writer says; -1 is librdkafka's «none».
TIMESTAMPS_MS = (T0, -1, 0, BIGINT[0], BIGINT[-1])

_LETTERS = LetterWriter(LETTER_KEY, by="worker")
_NAMES = TopicNames()
_FIELDS = {f for t in TOPICS.values() for r in t.records for f in r.model_fields}
_NESTED = {"granted_at_ms", "text_ref", "topic", "partition", "offset"}
_DETAIL = re.compile(r"[a-zA-Z_ ]*")


def split(data: bytes) -> tuple[TopicKind, bytes | None, bytes | None]:
    """`topic key`, a line feed, the value. `-` is no key; without a line feed there is no value."""
    head, feed, value = data.partition(b"\n")
    topic, _, key = head.partition(b" ")
    kinds = list(TopicKind)
    named = [k for k in kinds if k.value.encode() == topic]
    return (
        named[0] if named else kinds[len(data) % len(kinds)],
        None if key == NO_KEY else key,
        value if feed else None,
    )


def joined(kind: TopicKind, key: bytes | None, value: bytes | None) -> bytes:
    """The bytes that `split` takes apart."""
    head = kind.value.encode() + b" " + (NO_KEY if key is None else key)
    return head if value is None else head + b"\n" + value


def says_nothing_private(*written: object) -> None:
    """Canaries are planted where a value, a key or a name of an input stands."""
    text = "\n".join(w.decode(errors="replace") if isinstance(w, bytes) else repr(w) for w in written)
    assert found_in(text.encode(errors="replace"), [CANARY]) == []


def codec(data: bytes) -> str:
    """`schemas.codec.decode`, and the dead letter every process would write."""
    kind, key, value = split(data)
    found = decode(kind, key, value)
    if isinstance(found, Record):
        again = decode(kind, key, found.to_bytes())
        assert again == found, "a record that does not survive its own bytes"
        assert TOPICS[kind].key == "original key" or known_key(kind, key) is not None, (
            "audit knows no such key"
        )
        return f"record: {found.record}"  # type: ignore[attr-defined]
    assert isinstance(found, Undecodable)
    assert found.reason.reason_class is ReasonClass.INPUT
    parts = found.pointer.split("/")[1:]
    assert all(p in _FIELDS or p in _NESTED or p.isdigit() for p in parts), "a pointer names what is ours"
    assert _DETAIL.fullmatch(found.detail)
    letter = _LETTERS.letter(
        Coordinates(topic=_NAMES[kind], partition=0, offset=0),
        found.reason,
        value=value,
        at_ms=T0,
        pointer=found.pointer,
        detail=found.detail,
    )
    says_nothing_private(found, letter.to_bytes())
    return f"dead letter: {found.reason.value}"


def audit(data: bytes) -> str:
    """`sinks.audit.rows`: any bytes under any timestamp give a row that Postgres takes."""
    kind, key, value = split(data)
    rows = [
        RowWriter(_NAMES, letter_key=LETTER_KEY).row(Message(_NAMES[kind], 0, 7, at_ms, key, value))
        for at_ms in TIMESTAMPS_MS
    ]
    row = rows[0]
    for found in rows:
        assert {k: v for k, v in found.items() if k != "log_ms"} == {
            k: v for k, v in row.items() if k != "log_ms"
        }, "the content of a row depends on its timestamp"
        assert all(v in BIGINT for v in found.values() if isinstance(v, int))
    body = row.get("body")
    _is_taken_by_jsonb(body)
    orjson.dumps(row)
    assert "\x00" not in (row["key_text"] or "")
    if body is None:
        says_nothing_private(row)
        return f"unreadable: {row['reason']}"
    assert "sealed" not in body
    return f"row: {row['record']}, {row['sanitised']} replaced"


def _is_taken_by_jsonb(value: Any) -> None:
    """No NUL, no half of a pair, no NaN at any depth (case F03)."""
    if isinstance(value, str):
        value.encode()
        assert "\x00" not in value
    elif isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, dict):
        for inner in (*value, *value.values()):
            _is_taken_by_jsonb(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _is_taken_by_jsonb(inner)


def control(data: bytes) -> str:
    """A record of the controls topic under the key it names; one that is taken pauses something."""
    try:
        name = json.loads(data)["name"].encode()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        name = b"all"
    board = ControlBoard()
    ignored = board.take(name, data, 0)
    if ignored is not None:
        says_nothing_private(ignored)
        assert board.controls.paused_by(**_SOMETHING) is None
        return f"ignored: {ignored.reason.value}"
    taken = decode(TopicKind.CONTROLS, name, data)
    assert isinstance(taken, Control)
    scope, _, value = taken.name.partition(":")
    hit = board.controls.paused_by(**_SOMETHING | _aimed_at(scope, value))
    assert hit == (taken.name if taken.action is ControlAction.PAUSE else None), "a pause that stops nothing"
    assert Controls.of({taken.name: taken}, offset=0).offset == 0
    return f"{taken.action.value}: {scope}"


_SOMETHING: dict[str, Any] = {
    "purpose": "password_reset",
    "tenant": "tenant-0001",
    "channel": Channel.SMS,
    "account": "text-a",
    "country": "GB",
}


def _aimed_at(scope: str, value: str) -> dict[str, Any]:
    """A claim such as our records can hold one, with the value in the control's scope."""
    if scope == "all":
        return {}
    if scope == "channel":
        assert value in list(Channel), "no record has this channel"
        return {"channel": Channel(value)}
    assert re.fullmatch(_HELD_BY_RECORDS[scope], value), f"no record has this {scope}"
    return {"account" if scope == "provider" else scope: value}


_HELD_BY_RECORDS = {
    "purpose": NAME_PATTERN,
    "country": COUNTRY_PATTERN,
    "provider": ACCOUNT_PATTERN,
    "tenant": ID_PATTERN,
}


# The envelope. One key of its own, made from a sentence: nothing else was ever sealed under it.

_PRIVATE = X25519PrivateKey.from_private_bytes(sha256(b"the fuzz tests' sealing key").digest())
PUBLIC = _PRIVATE.public_key()
KEY_ID = "fuzz1"
_JWK = OKPKey.import_key(_PRIVATE, {"kid": KEY_ID})
KEYS = UnsealingKeys([_JWK.as_dict(private=True) | {"kid": KEY_ID}], shredded=["gone1"])
BINDING = Binding(
    intent_id="int-0001-test",
    tenant="tenant-0001",
    purpose="password_reset",
    policy="password_reset:v1",
    deadline_ms=T0 + 60_000,
    expiry_ms=T0 + 900_000,
    email_fingerprint="k1.e." + "a" * 32,
    sms_fingerprint=None,
)
_SEAL_ERRORS = (SealBroken, SealKeyUnknown, SealKeyShredded, BindingMismatch)


def sealed(data: bytes) -> str:
    """`schemas.sealed.unseal` of one compact JWE: the payload, or one of four errors without a secret."""
    token = data.decode("utf-8", "surrogateescape")
    try:
        payload = unseal(token, BINDING, KEYS)
    except SealError as exc:
        assert type(exc) in _SEAL_ERRORS  # noqa: PT017  a law about the error, not about its coming
        _nothing_reachable(exc)
        return f"{type(exc).__name__}: {exc.code}"
    says_nothing_private(payload)
    for text in (payload.email, payload.phone or "", *payload.variables, *payload.variables.values()):
        text.encode()
    return "payload"


def _nothing_reachable(exc: BaseException | None) -> None:
    """The error, what it came from and what was being handled meanwhile: none may hold the clear text."""
    while exc is not None:
        says_nothing_private(exc, exc.args, vars(exc))
        assert exc.__cause__ is None or exc.__cause__ is not exc.__context__
        exc = exc.__cause__ or exc.__context__
