"""What the audit keeps of a record: its coordinates, its clear fields, and never what was sealed.

Pure and total: any bytes give a row that jsonb takes, because what it cannot hold is replaced visibly and
counted (case F03). It must not keep a byte of a record that is not one of ours.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from typing import Any

import orjson

from schemas.codec import Undecodable, decode
from schemas.control import ControlScope
from schemas.ids import ACCOUNT_PATTERN, FINGERPRINT_PATTERN, ID_PATTERN, NAME_PATTERN, SUBJECT_PATTERN
from schemas.letters import HMAC_CHARS, LetterWriter
from schemas.record import Coordinates, Record, TopicKind
from schemas.topics import TOPICS, TopicNames
from sinks.kafka.consumer import Message

Row = dict[str, Any]

KEY_CHARS_MAX = 200
REPLACEMENT = "\ufffd"  # what a character jsonb cannot hold becomes

_ID = ID_PATTERN[1:-1]
_SHAPES = {
    "intent_id": _ID,
    "provider_account": ACCOUNT_PATTERN[1:-1],
    "fingerprint/channel": rf"{FINGERPRINT_PATTERN[1:-1]}/(?:email|sms)",
    "subject": rf"{_ID}/{NAME_PATTERN[1:-1]}/{SUBJECT_PATTERN[1:-1]}",
    "name": rf"(?:{'|'.join(ControlScope)})(?::[A-Za-z0-9_-]{{1,64}})?",
    "original key": rf"(?:{_ID}|[A-Za-z0-9._-]+/[0-9]+/[0-9]+)",
}
_KEYS = {kind: re.compile(_SHAPES[topic.key]) for kind, topic in TOPICS.items()}
_REFUSED_BY_JSONB = re.compile("[\x00\ud800-\udfff]")


class RowWriter:
    """Turns records into rows. `letter_key` is the deployment's key of hashes of what may not be shown."""

    def __init__(self, names: TopicNames, *, letter_key: bytes) -> None:
        self._names, self._key = names, letter_key
        self._letters = LetterWriter(letter_key, by="auditor")

    def row(self, message: Message) -> Row:
        """One record as a row of `queries.sql`. Total."""
        kind = self._names.kind_of(message.topic)
        record = decode(kind, message.key, message.value)
        found = self._place(kind, message)
        if isinstance(record, Undecodable):
            return found | self._undecodable(message, record)
        body, sanitised = without_sealed(record), 0
        if not _is_plain(body):
            body, sanitised = clean(body)
        return found | {
            "record": record.record,  # type: ignore[attr-defined]
            "intent_id": getattr(record, "intent_id", None) or found["intent_id"],
            "body": body,
            "sanitised": sanitised,
        }

    def _place(self, kind: TopicKind, message: Message) -> Row:
        key = known_key(kind, message.key)
        return {
            "topic": message.topic,
            "partition": message.partition,
            "kafka_offset": message.offset,
            "log_ms": message.timestamp_ms,
            "intent_id": key if TOPICS[kind].key == "intent_id" else None,
            "key_text": key,
            "key_hmac": None if message.key is None or key is not None else self._hmac(message.key),
            "size": 0 if message.value is None else len(message.value),
            "sanitised": 0,
        }

    def _undecodable(self, message: Message, why: Undecodable) -> Row:
        letter = self._letters.letter(
            Coordinates(topic=message.topic, partition=message.partition, offset=message.offset),
            why.reason,
            value=message.value,
            at_ms=message.timestamp_ms,
        )
        return {"reason": why.reason.value, "pointer": why.pointer, "value_hmac": letter.value_hmac}

    def _hmac(self, key: bytes) -> str:
        return hmac.new(self._key, key, sha256).hexdigest()[:HMAC_CHARS]


def without_sealed(record: Record) -> dict[str, Any]:
    """The record as JSON, the payload replaced by its length and hash."""
    body = record.model_dump(mode="json", exclude_none=True)
    sealed = body.pop("sealed", None)
    if isinstance(sealed, str):
        body["sealed_chars"] = len(sealed)
        body["sealed_sha256"] = sha256(sealed.encode()).hexdigest()
    return body


def without_body(row: Row, note: str) -> Row:
    """The row as it is kept when the database refuses its content: the place, and why the rest is missing."""
    return row | {"body": None, "sanitised": 0, "note": note}


def clean(value: Any) -> tuple[Any, int]:
    """The value as jsonb can hold it, and how many characters and numbers had to be replaced."""
    match value:
        case str():
            return _REFUSED_BY_JSONB.subn(REPLACEMENT, value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            return REPLACEMENT, 1
        case dict():
            pairs = [(clean(str(k)), clean(v)) for k, v in value.items()]
            return {k: v for (k, _), (v, _) in pairs}, sum(a + b for (_, a), (_, b) in pairs)
        case list() | tuple():
            items = [clean(v) for v in value]
            return [v for v, _ in items], sum(n for _, n in items)
    return value, 0


def _is_plain(body: dict[str, Any]) -> bool:
    """Whether jsonb takes it as it is: 1 µs instead of 55. No record of ours can hold a NaN."""
    try:
        return b"\\u0000" not in orjson.dumps(body)
    except TypeError:  # half of a surrogate pair
        return False


def known_key(kind: TopicKind, key: bytes | None) -> str | None:
    """The key when it has the shape this topic's keys have; anything else could be anybody's text."""
    if key is None or len(key) > KEY_CHARS_MAX:
        return None
    try:
        text = key.decode("ascii")
    except UnicodeDecodeError:
        return None
    return text if _KEYS[kind].fullmatch(text) else None
