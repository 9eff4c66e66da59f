"""The public contract as documents: a JSON Schema per record, one AsyncAPI document, the manifests.

Texts out of the registry and the models, always the same ones; it must not write a file
(`tests/contract/regenerate.py` does, and a test compares what is committed).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from schemas.manifest import MANIFEST, manifest
from schemas.record import Record
from schemas.topics import DAY_MS, FOREVER_MS, TOPICS, Topic, TopicNames

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"


def records() -> dict[str, type[Record]]:
    """Every record on a topic, by `name.vN`, in alphabetical order."""
    found = {_label(r): r for topic in TOPICS.values() for r in topic.records}
    return dict(sorted(found.items()))


def documents() -> dict[str, str]:
    """File name to text of everything under `schemas/released`, the manifest included."""
    found = {f"{label}.json": _text(_schema(record)) for label, record in records().items()}
    found["asyncapi.json"] = _text(_asyncapi())
    return found | {MANIFEST: manifest({name: text.encode() for name, text in found.items()})}


def _label(record: type[Record]) -> str:
    fields = record.model_fields
    return f"{fields['record'].default}.v{fields['version'].default}"


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _schema(record: type[Record]) -> dict[str, Any]:
    """What a reader may rely on: name and version are always there."""
    found = record.model_json_schema()
    required = [
        "record",
        "version",
        *(n for n in found.get("required", ()) if n not in ("record", "version")),
    ]
    return {"$schema": DRAFT, "$id": f"{_label(record)}.json"} | found | {"required": required}


def _asyncapi() -> dict[str, Any]:
    names = TopicNames()
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Backstop",
            "version": "1",
            "description": "Topics and records. Keys are raw bytes; partitions by murmur2 of the key.",
        },
        "defaultContentType": "application/json",
        "channels": {kind.value: _channel(names[kind], topic) for kind, topic in TOPICS.items()},
        "operations": _operations(),
        "components": {"messages": {label: _message(label) for label in records()}},
    }


def _channel(address: str, topic: Topic) -> dict[str, Any]:
    kept = "for ever" if topic.retention_ms == FOREVER_MS else f"{topic.retention_ms // DAY_MS} d"
    return {
        "address": address,
        "description": f"Key: {topic.key}. Kept {kept}{', compacted' if topic.compacted else ''}.",
        "messages": {_label(r): {"$ref": f"#/components/messages/{_label(r)}"} for r in topic.records},
    }


def _operations() -> dict[str, Any]:
    """One operation per process and topic: who writes, who reads."""
    found = {}
    for kind, topic in TOPICS.items():
        for action, processes in (("send", topic.writers), ("receive", topic.readers)):
            for process in processes:
                name = f"{process}.{action}.{kind.value}"
                found[name] = {"action": action, "channel": {"$ref": f"#/channels/{kind.value}"}}
    return found


def _message(label: str) -> dict[str, Any]:
    return {
        "name": label,
        "contentType": "application/json",
        "headers": _HEADERS,
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"./{label}.json"}},
    }


_HEADERS = {
    "type": "object",
    "required": ["ce_specversion", "ce_type", "ce_source", "ce_id", "content-type"],
    "properties": {
        "ce_specversion": {"const": "1.0"},
        "ce_type": {"type": "string", "description": "backstop.<record>.v<version>"},
        "ce_source": {"type": "string"},
        "ce_id": {"type": "string"},
        "content-type": {"const": "application/json"},
        "traceparent": {"type": "string", "description": "W3C Trace Context, when there is one"},
    },
}
