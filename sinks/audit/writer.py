"""What the audit keeps of a record: its coordinates, its clear fields, and never what was sealed.

Rows and positions are written in one transaction; any byte can be audited, because what jsonb cannot hold
is replaced visibly and counted (case F03). It must not read topics (`loop`) or change a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson

from schemas.codec import Undecodable, decode
from schemas.ids import FINGERPRINT_PATTERN, ID_PATTERN
from schemas.letters import LetterWriter
from schemas.record import Coordinates, Record
from schemas.topics import TopicNames
from sinks.kafka.consumer import Message, Place
from sinks.postgres.pool import Database
from sinks.postgres.queries import load

SQL = load("sinks.audit")

KEY_CHARS_MAX = 200
_KEYS = re.compile(
    rf"(?:{ID_PATTERN[1:-1]}|{FINGERPRINT_PATTERN[1:-1]}/(?:email|sms)"
    r"|[a-z]+(?::[A-Za-z0-9_-]{1,64})?|[a-z0-9.-]+/[0-9]+/[0-9]+)"
)
_ID = re.compile(ID_PATTERN[1:-1])
REPLACEMENT = "\ufffd"  # what a character jsonb cannot hold becomes


class AuditWriter:
    """One per process. Every method raises `GuardUnavailable` when Postgres is away."""

    def __init__(self, names: TopicNames, database: Database, *, letter_key: bytes) -> None:
        self._names, self._database = names, database
        self._letters = LetterWriter(letter_key, by="auditor")

    def positions(self, places: Sequence[Place]) -> dict[Place, int]:
        """Where to go on reading; a partition that was never audited is not in it."""
        with self._database.transaction() as cursor:
            rows = cursor.execute(SQL["positions_read"]).fetchall()
        known = {(str(r["topic"]), int(r["partition"])): int(r["next_offset"]) for r in rows}
        return {place: known[place] for place in places if place in known}

    def write(self, messages: Sequence[Message], ends: Mapping[Place, int]) -> None:
        """Rows of these records and the positions after them, in one transaction."""
        progress: dict[Place, int] = {}
        for message in messages:
            progress[message.topic, message.partition] = message.offset + 1
        for place, offset in ends.items():
            progress[place] = max(offset, progress.get(place, 0))
        rows = [self.row(m) for m in messages]
        with self._database.transaction() as cursor:
            if rows:
                cursor.execute(SQL["insert_rows"], {"rows": orjson.dumps(rows).decode()})
            for (topic, partition), offset in progress.items():
                read = {"topic": topic, "partition": partition, "next_offset": offset}
                cursor.execute(SQL["position_write"], read)

    def row(self, message: Message) -> dict[str, Any]:
        """One record as a row. Total: any bytes give a row that jsonb takes."""
        kind = self._names.kind_of(message.topic)
        record = decode(kind, message.key, message.value)
        key = _known_key(message.key)
        found: dict[str, Any] = {
            "topic": message.topic,
            "partition": message.partition,
            "kafka_offset": message.offset,
            "log_ms": message.timestamp_ms,
            "intent_id": key if key is not None and _ID.fullmatch(key) else None,
            "key_text": key,
            "size": 0 if message.value is None else len(message.value),
            "sanitised": 0,
        }
        if isinstance(record, Undecodable):
            return found | self._undecodable(message, record)
        intent_id = getattr(record, "intent_id", None) or found["intent_id"]
        body, sanitised = clean(without_sealed(record))
        return found | {
            "record": record.record,  # type: ignore[attr-defined]
            "intent_id": intent_id,
            "body": body,
            "sanitised": sanitised,
        }

    def _undecodable(self, message: Message, why: Undecodable) -> dict[str, Any]:
        letter = self._letters.letter(
            Coordinates(topic=message.topic, partition=message.partition, offset=message.offset),
            why.reason,
            value=message.value,
            at_ms=message.timestamp_ms,
        )
        return {"reason": why.reason.value, "pointer": why.pointer, "value_hmac": letter.value_hmac}


def counts(database: Database, prefix: str) -> dict[str, int]:
    """Audit rows per topic under a prefix. Raises `GuardUnavailable`."""
    with database.transaction() as cursor:
        rows = cursor.execute(SQL["counts"], {"prefix": prefix}).fetchall()
    return {str(r["topic"]): int(r["rows"]) for r in rows}


def without_sealed(record: Record) -> dict[str, Any]:
    """The record as JSON, the payload replaced by its length and hash."""
    body = record.model_dump(mode="json", exclude_none=True)
    sealed = body.pop("sealed", None)
    if isinstance(sealed, str):
        body["sealed_chars"] = len(sealed)
        body["sealed_sha256"] = sha256(sealed.encode()).hexdigest()
    return body


def clean(value: Any) -> tuple[Any, int]:
    """The value as jsonb can hold it, and how many characters had to be replaced."""
    match value:
        case str():
            kept = "".join(REPLACEMENT if c == "\x00" or "\ud800" <= c <= "\udfff" else c for c in value)
            return kept, sum(a != b for a, b in zip(value, kept, strict=True))
        case float() if value != value or value in (float("inf"), float("-inf")):
            return REPLACEMENT, 1
        case dict():
            pairs = [(clean(str(k)), clean(v)) for k, v in value.items()]
            return {k: v for (k, _), (v, _) in pairs}, sum(a + b for (_, a), (_, b) in pairs)
        case list() | tuple():
            items = [clean(v) for v in value]
            return [v for v, _ in items], sum(n for _, n in items)
    return value, 0


def _known_key(key: bytes | None) -> str | None:
    """A key of a shape of ours; anything else could be anybody's text."""
    if key is None or len(key) > KEY_CHARS_MAX:
        return None
    try:
        text = key.decode("ascii")
    except UnicodeDecodeError:
        return None
    return text if _KEYS.fullmatch(text) else None
