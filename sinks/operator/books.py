"""The books as they stand: what the guard forbids, what the worker counted, what lies on the topics.

It must not change anything; it is what proofs and reconciliation read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from schemas.topics import TOPICS, WORKER_INPUTS, TopicNames
from sinks.kafka.consumer import read_all
from sinks.postgres.pool import Database
from sinks.postgres.queries import load

SQL = load("sinks.operator")


@dataclass(frozen=True, slots=True)
class GuardRow:
    """What the guard holds against one claim; instants in ms by the database's clock."""

    reference: str
    expiry_ms: int
    claimed_ms: int
    closed_ms: int | None
    suppressed_ms: int | None


def guard_rows(database: Database, intents: Iterable[str]) -> list[GuardRow]:
    """One per claim of these intents. Raises `GuardUnavailable`."""
    with database.transaction() as cursor:
        found = cursor.execute(SQL["fences"], {"intents": list(intents)}).fetchall()
    return [
        GuardRow(r["dispatch_key"], r["expiry_ms"], r["claimed_ms"], r["closed_ms"], r["suppressed_ms"])
        for r in found
    ]


def progress(bootstrap: str, names: TopicNames) -> dict[str, dict[str, int]]:
    """The worker's counters per input topic, summed over partitions. Raises `KafkaAway`."""
    rows: dict[tuple[int, bytes], bytes | None] = {}
    for message in read_all(bootstrap, names.changelog("progress")):
        rows[message.partition, message.key or b""] = message.value
    total: dict[str, Counter[str]] = {names[k]: Counter() for k in WORKER_INPUTS}
    for (_, topic), row in rows.items():
        counted: dict[str, int] = orjson.loads(row or b"{}")
        total[topic.decode()].update(counted)
    return {topic: dict(counted) for topic, counted in total.items()}


def on_topics(bootstrap: str, names: TopicNames) -> dict[str, int]:
    """Committed records per topic, by reading them. Raises `KafkaAway`."""
    return {names[kind]: sum(1 for _ in read_all(bootstrap, names[kind])) for kind in TOPICS}
