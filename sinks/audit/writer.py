"""Rows and the positions after them, in one transaction: nothing is lost and nothing is there twice.

A row the database refuses does not take its neighbours with it. It must not read topics (`loop`), choose
what is kept of a record (`rows`), or change a row.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import psycopg

from schemas.metrics import NO_METER, ROWS, Meter
from schemas.topics import TopicNames
from sinks.audit.rows import Row, RowWriter, without_body
from sinks.kafka.consumer import Message, Place
from sinks.postgres.pool import Database
from sinks.postgres.queries import load

log = logging.getLogger("backstop.auditor")

SQL = load("sinks.audit")

# What the content of a row can cause; anything else is the database's state and is waited for.
_CONTENT = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
)


class AuditWriter:
    """One per process. Every method raises `GuardUnavailable` when Postgres is away."""

    def __init__(
        self,
        names: TopicNames,
        database: Database,
        *,
        letter_key: bytes,
        meter: Meter = NO_METER,
        fault: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`fault` is for crash tests: called by name around the commit."""
        self._fault, self._meter, self._names = fault, meter, names
        self._database, self._rows = database, RowWriter(names, letter_key=letter_key)

    def positions(self, places: Sequence[Place]) -> dict[Place, int]:
        """Where to go on reading; a partition that was never audited is not in it."""
        with self._database.transaction() as cursor:
            rows = cursor.execute(SQL["positions_read"]).fetchall()
        known = {(str(r["topic"]), int(r["partition"])): int(r["next_offset"]) for r in rows}
        return {place: known[place] for place in places if place in known}

    def write(self, messages: Sequence[Message], ends: Mapping[Place, int]) -> None:
        """Rows of these records and the positions after them, in one transaction.

        `ends` are the positions of partitions read to their end, transaction markers included.
        """
        progress: dict[Place, int] = {}
        for message in messages:
            progress[message.topic, message.partition] = message.offset + 1
        for place, offset in ends.items():
            progress[place] = max(offset, progress.get(place, 0))
        rows = [self._rows.row(m) for m in messages]
        places = [{"topic": t, "partition": p, "next_offset": o} for (t, p), o in progress.items()]
        fault = self._fault if rows else lambda _point: None  # positions alone are no boundary
        fault("before_write")
        with self._database.transaction() as cursor:
            _insert(cursor, rows)
            cursor.execute(SQL["positions_write"], {"places": orjson.dumps(places).decode()})
            fault("in_write")
        for topic, count in Counter(m.topic for m in messages).items():
            self._meter.count(ROWS, self._names.kind_of(topic).value, by=count)
        fault("after_write")


def _insert(cursor: psycopg.Cursor[Any], rows: list[Row]) -> None:
    """All at once; when their content is refused, one by one, and the refused ones without it."""
    if not rows or _try(cursor, rows) is None:
        return
    for row in rows:
        state = _try(cursor, [row])
        if state is not None:
            place = f"{row['topic']}/{row['partition']}/{row['kafka_offset']}"
            log.error("%s: kept without its body: the database refuses it (%s)", place, state)
            bare = without_body(row, f"the database refused the body ({state})")
            cursor.execute(SQL["insert_rows"], _given([bare]))


def _try(cursor: psycopg.Cursor[Any], rows: list[Row]) -> str | None:
    """None when they are in; else the SQLSTATE their content was refused with. Its text quotes the row."""
    try:
        with cursor.connection.transaction():
            cursor.execute(SQL["insert_rows"], _given(rows))
    except _CONTENT as exc:
        return exc.sqlstate or "refused"
    return None


def _given(rows: list[Row]) -> dict[str, str]:
    return {"rows": orjson.dumps(rows).decode()}


def counts(database: Database, prefix: str) -> dict[str, int]:
    """Audit rows per topic under a prefix. Raises `GuardUnavailable`."""
    with database.transaction() as cursor:
        rows = cursor.execute(SQL["counts"], {"prefix": prefix}).fetchall()
    return {str(r["topic"]): int(r["rows"]) for r in rows}
