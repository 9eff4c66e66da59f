"""Bytes to records and back. What cannot be decoded is a value with a reason, never an exception.

It must not keep or quote the bytes: an undecodable record may hold a secret.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Union

from pydantic import Field, TypeAdapter, ValidationError

from schemas.reasons import Reason
from schemas.record import RECORD_BYTES_MAX, Record, TopicKind
from schemas.topics import TOPICS

Headers = list[tuple[str, bytes]]

_POINTER_CHARS_MAX = 120


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Why a record could not be used: `pointer` names fields only (RFC 6901), `size` is in bytes."""

    reason: Reason
    pointer: str = ""
    detail: str = ""
    size: int = 0


def _adapter(records: tuple[type[Record], ...]) -> TypeAdapter[Any]:
    if len(records) == 1:
        return TypeAdapter(records[0])
    union: Any = Annotated[Union[records], Field(discriminator="record")]  # noqa: UP007
    return TypeAdapter(union)


_ADAPTERS = {kind: _adapter(topic.records).validator for kind, topic in TOPICS.items()}
_KEY_OF = {
    kind: topic.key
    for kind, topic in TOPICS.items()
    if topic.key in ("intent_id", "provider_account", "name")
} | {TopicKind.SUPPRESSIONS: "key", TopicKind.SUBJECTS: "key"}
_NAMES = {kind: {r.model_fields["record"].default for r in topic.records} for kind, topic in TOPICS.items()}


def decode(kind: TopicKind, key: bytes | None, value: bytes | None) -> Record | Undecodable:
    """The record in `value`, or why not. Total: any bytes give an answer."""
    if value is None:
        return Undecodable(Reason.TOMBSTONE if key is not None else Reason.NULL_KEY)
    size = len(value)
    if not key:
        return Undecodable(Reason.NULL_KEY, size=size)
    if size > RECORD_BYTES_MAX:
        return Undecodable(Reason.TOO_LARGE, size=size)
    try:
        record: Record = _ADAPTERS[kind].validate_json(value)
    except ValidationError as exc:
        return _diagnose(kind, value, exc)
    # Both have defaults for a writer's convenience; on the wire they must be said.
    if "record" not in record.model_fields_set:
        return Undecodable(Reason.UNKNOWN_RECORD, "/record", size=size)
    if "version" not in record.model_fields_set:
        return Undecodable(Reason.UNKNOWN_VERSION, "/version", size=size)
    field = _KEY_OF.get(kind)
    if field is not None and getattr(record, field).encode() != key:
        return Undecodable(Reason.KEY_MISMATCH, f"/{field}" if field != "key" else "", size=size)
    return record


def _diagnose(kind: TopicKind, value: bytes, exc: ValidationError) -> Undecodable:
    """The slow path: name what is wrong without quoting it."""
    size = len(value)
    problem = exc.errors(include_input=False, include_context=False, include_url=False)[0]
    if problem["type"] in ("json_invalid", "json_type", "recursion_loop"):
        return Undecodable(Reason.MALFORMED, detail="not JSON", size=size)
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return Undecodable(Reason.MALFORMED, detail="not JSON", size=size)
    if not isinstance(parsed, dict):
        return Undecodable(Reason.MALFORMED, detail="not an object", size=size)
    name = parsed.get("record")
    if name not in _NAMES[kind] if isinstance(name, str) else True:
        return Undecodable(Reason.UNKNOWN_RECORD, "/record", size=size)
    if parsed.get("version") != 1 or isinstance(parsed.get("version"), bool):
        return Undecodable(Reason.UNKNOWN_VERSION, "/version", size=size)
    pointer, said = _pointer(kind, problem["loc"]), problem["type"]
    misfit = _pointer(kind, (said,))  # two fields that do not fit together
    if misfit and not pointer:
        return Undecodable(Reason.INVALID_FIELD, misfit, "misfit", size)
    return Undecodable(Reason.INVALID_FIELD, pointer, said, size)


def _pointer(kind: TopicKind, loc: tuple[int | str, ...]) -> str:
    """Known field names and indexes only: an unknown key could be anybody's text."""
    known = {f for r in TOPICS[kind].records for f in r.model_fields}
    parts = [str(p) for p in loc if isinstance(p, int) or p in known or p in _NESTED]
    return ("/" + "/".join(parts))[:_POINTER_CHARS_MAX] if parts else ""


_NESTED = {"granted_at_ms", "text_ref", "topic", "partition", "offset"}


def encode(record: Record) -> bytes:
    """Canonical bytes; refuses what no reader would accept."""
    value = record.to_bytes()
    if len(value) > RECORD_BYTES_MAX:
        raise ValueError(f"record of {len(value)} bytes; at most {RECORD_BYTES_MAX}")
    return value


def headers(record: Any, *, source: str, record_id: str, traceparent: bytes | None = None) -> Headers:
    """CloudEvents 1.0 binary-mode headers; `record` is any of our records."""
    found: Headers = [
        ("ce_specversion", b"1.0"),
        ("ce_type", f"backstop.{record.record}.v{record.version}".encode()),
        ("ce_source", source.encode()),
        ("ce_id", record_id.encode()),
        ("content-type", b"application/json"),
    ]
    if traceparent is not None:
        found.append(("traceparent", traceparent))
    return found
