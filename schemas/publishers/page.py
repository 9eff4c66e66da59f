"""The publisher contract as a page, written from the records, the registry and the tables.

Always the same text for the same code; a test holds the committed page against it. What a field means is said
here once, and a field without a meaning is a fault. It must not say anything the code does not do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.codec import headers
from schemas.fingerprints import HEX_CHARS, KEY_BYTES_MIN
from schemas.ids import INSTANT_MS_MAX, INSTANT_MS_MIN
from schemas.intent import SEALED_CHARS_MAX, IntentCancelled, IntentCompleted, IntentRequested
from schemas.publishers import vectors
from schemas.publishers.refusals import (
    BOUNDED,
    POINTERS,
    REQUEST_AHEAD_MS_MAX,
    VARIABLES_AT_DISPATCH,
    VARIABLES_AT_INTAKE,
)
from schemas.publishers.words import MEANINGS, PAGE
from schemas.reasons import Reason, ReasonClass
from schemas.record import RECORD_BYTES_MAX, Record, TopicKind
from schemas.sealed import PAYLOAD_BYTES_MAX
from schemas.templates.links import LINK_CHARS_MAX, LinkFault
from schemas.topics import DAY_MS, PARTITIONS, PARTITIONS_LOCAL, TOPICS, TopicNames

RECORDS: tuple[type[Record], ...] = (IntentRequested, IntentCompleted, IntentCancelled)
_OWN = {Reason.OUT_OF_BOUNDS, Reason.INVALID_VARIABLES}  # their pointers are chosen by what is found


def page() -> str:
    """The whole page, in Markdown."""
    topic = TOPICS[TopicKind.INTENTS]
    return PAGE.format(
        topic=TopicNames()[TopicKind.INTENTS],
        decisions=TopicNames()[TopicKind.DECISIONS],
        letters=TopicNames()[TopicKind.DEAD_LETTERS],
        partitions=PARTITIONS,
        partitions_local=PARTITIONS_LOCAL,
        retention_d=topic.retention_ms // DAY_MS,
        record_bytes=RECORD_BYTES_MAX,
        sealed_chars=SEALED_CHARS_MAX,
        payload_bytes=PAYLOAD_BYTES_MAX,
        link_chars=LINK_CHARS_MAX,
        instants=f"{INSTANT_MS_MIN} to {INSTANT_MS_MAX - 1}",
        ahead_s=REQUEST_AHEAD_MS_MAX // 1_000,
        hex_chars=HEX_CHARS,
        key_bytes=KEY_BYTES_MIN,
        records="\n\n".join(_record(record) for record in RECORDS),
        headers="\n".join(_headers()),
        protected=_bound_fields(),
        links="\n".join(f"| `{fault.value}` | {fault.sentence} |" for fault in LinkFault),
        refusals="\n".join(_refusals()),
        letter_reasons="\n".join(_letters()),
    )


def _record(record: type[Record]) -> str:
    schema = record.model_json_schema()
    defs, required = schema.get("$defs", {}), {*schema["required"], "record", "version"}
    rows = [
        f"| `{name}` | {_type(field, defs)} | {'yes' if name in required else ''} | {_means(record, name)} |"
        for name, field in schema["properties"].items()
    ]
    label = record.model_fields["record"].default
    head = f"### `{label}`\n\n| field | type | must | meaning |\n|---|---|---|---|\n"
    return head + "\n".join(rows)


def _means(record: type[Record], name: str) -> str:
    found = MEANINGS.get(name) or MEANINGS[f"{record.model_fields['record'].default}.{name}"]
    return found.replace("|", "\\|")


def _type(field: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """A field's type in a few words: from its JSON Schema."""
    if "$ref" in field:
        inner = defs[field["$ref"].rsplit("/", 1)[1]]
        return "object: " + ", ".join(f"`{n}` {_type(f, defs)}" for n, f in inner["properties"].items())
    if "anyOf" in field:  # optional: left out, never null
        return next(_type(one, defs) for one in field["anyOf"] if one.get("type") != "null")
    if "const" in field:
        return f"`{field['const']!s}`"
    if field["type"] == "array":
        return f"list of at most {field['maxItems']}: {_type(field['items'], defs)}"
    if field["type"] == "integer":
        return "instant (ms)"
    pattern = field.get("pattern", "")
    return f"text `{pattern}`".replace("|", "\\|") if pattern else "text"


def _headers() -> Iterator[str]:
    example = IntentCompleted(
        intent_id="reset-7f0c1b52",  # type: ignore[arg-type]
        completed_at_ms=vectors.AT_MS,
        source="reset-form",
    )
    made = headers(example, source=vectors.SOURCE, record_id=f"{example.intent_id}:{example.record}")
    yield from (f"| `{name}` | `{value.decode()}` |" for name, value in made)


def _bound_fields() -> str:
    return ", ".join(f"`{name}`" for name in vectors.binding().__slots__)


def _refusals() -> Iterator[str]:
    """Every reason a decision about a request can have that its publisher can do something about."""
    told = {reason: f"`{pointer}`" for reason, pointer in POINTERS.items()} | {
        Reason.OUT_OF_BOUNDS: ", ".join(f"`{pointer}`" for pointer in BOUNDED),
        Reason.INVALID_VARIABLES: f"`{VARIABLES_AT_INTAKE}` (names), `{VARIABLES_AT_DISPATCH}` (values)",
    }
    for reason in Reason:
        if reason in told:
            effect = "held" if reason.reason_class is ReasonClass.OURS else "refused"
            yield f"| `{reason.value}` | {effect} | {told[reason]} | {reason.sentence} |"


def _letters() -> Iterator[str]:
    for reason in Reason:
        if reason.reason_class is ReasonClass.INPUT:
            yield f"| `{reason.value}` | {reason.sentence} |"
