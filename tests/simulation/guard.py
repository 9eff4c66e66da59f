"""The database as a model of what its transactions promise: they fail, they hang, and sometimes the commit is
there and its answer is not.

Claims are the real `MemoryClaims`, which passes the same contract as Postgres (`tests/contract/test_claims`);
the audit's tables stand behind the real `AuditWriter` and its named statements. It must not decide anything.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
import psycopg

from schemas.errors import GuardUnavailable
from schemas.ids import Channel
from schemas.reasons import Reason
from sinks.audit import writer as audit_writer
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.rules import ClaimRequest, Grant, Listed, Verdict
from sinks.kafka.consumer import Place
from sinks.postgres.pool import NOT_REACHED
from tests.simulation.faults import Dice
from tests.simulation.fibers import Fibers

QUICK_MS, SLOW_MS = (1, 15), (500, 4_500)


@dataclass(frozen=True, slots=True)
class Granted:
    """What the guard's log shows: a claim it gave, a first byte it allowed (begin), a suppression it took, or
    an intent it was told to be over (closed), at its own clock's instant. `opted_out_ms`: when the person
    said STOP, if that is the reason."""

    at_ms: int
    what: str
    claim_id: str
    intent_id: str = ""
    channel: Channel = Channel.EMAIL
    submission_no: int = 0
    fingerprints: tuple[str, ...] = ()
    opted_out_ms: int | None = None


class Database:
    """Whether it answers now. One for claims and audit."""

    def __init__(self, dice: Dice, fibers: Fibers) -> None:
        self._dice, self._fibers = dice, fibers
        self.is_up = True

    def transact(self, work: Callable[[], Any]) -> Any:
        """Run `work` as one transaction, with everything that may happen around it."""
        slow = self._dice.falls("guard.slow")
        self._fibers.pause(self._dice.ms("guard.ms", *(SLOW_MS if slow else QUICK_MS)))
        self.check()
        if self._dice.falls("guard.failed"):
            raise GuardUnavailable("the transaction failed", code="guard_unavailable")
        found = work()
        self._fibers.pause(self._dice.ms("guard.ms", *QUICK_MS))
        if self._dice.falls("guard.doubtful"):
            raise GuardUnavailable("the answer was lost", code="guard_unavailable")
        return found

    def check(self) -> None:
        if not self.is_up:
            raise GuardUnavailable("the database is away", code=NOT_REACHED)


class SimClaims:
    """`sinks.dispatcher.claims.Claims` of one process, on the shared rows."""

    def __init__(self, shared: MemoryClaims, database: Database, history: list[Granted]) -> None:
        self._shared, self._database, self._history = shared, database, history

    def now_ms(self) -> int:
        self._database.check()
        return self._shared.now_ms()

    def claim(self, request: ClaimRequest) -> Verdict:
        def work() -> Verdict:
            found = self._shared.claim(request)
            if isinstance(found, Grant):
                self._history.append(
                    Granted(
                        self._shared.now_ms(),
                        "claim",
                        request.claim_id,
                        request.intent_id,
                        request.channel,
                        request.submission_no,
                        request.fingerprints,
                    )
                )
            return found

        return cast("Verdict", self._database.transact(work))

    def begin(self, claim_id: str) -> int | None:
        def work() -> int | None:
            at_ms = self._shared.begin(claim_id)
            if at_ms is not None:
                self._history.append(Granted(at_ms, "begin", claim_id))
            return at_ms

        return cast("int | None", self._database.transact(work))

    def look(self, *args: Any, **given: Any) -> Any:
        return self._database.transact(lambda: self._shared.look(*args, **given))

    def stopped_by(self, claim_id: str) -> Any:
        return self._database.transact(lambda: self._shared.stopped_by(claim_id))

    def finish(self, claim_id: str, **given: Any) -> bool:
        def work() -> bool:
            found = self._shared.finish(claim_id, **given)
            if given.get("suppress") is not None:
                self._suppressed(Listed(given["suppress"][0], given["channel"], given["suppress"][1], ""))
            return found

        return cast("bool", self._database.transact(work))

    def write_facts(self, **given: Any) -> None:
        def work() -> None:
            before = set(self._shared._closed)
            self._shared.write_facts(**given)
            over = {i for i, _ in given["closed"]} | (set(self._shared._closed) - before)
            for intent_id in sorted(over):
                self._history.append(Granted(self._shared.now_ms(), "closed", "", intent_id))
            for one in given["suppressed"]:
                self._suppressed(one)

        self._database.transact(work)

    def _suppressed(self, one: Listed) -> None:
        now_ms = self._shared.now_ms()
        stopped_ms = (now_ms if one.at_ms is None else one.at_ms) if one.reason is Reason.OPTED_OUT else None
        self._history.append(
            Granted(
                now_ms,
                "suppressed",
                "",
                channel=Channel(one.channel),
                fingerprints=(one.fingerprint,),
                opted_out_ms=stopped_ms,
            )
        )

    def progress(self) -> dict[Place, int]:
        return cast("dict[Place, int]", self._database.transact(self._shared.progress))


@dataclass
class AuditTables:
    """Committed rows by coordinates, and positions."""

    rows: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)
    positions: dict[Place, int] = field(default_factory=dict)


class AuditDatabase:
    """The part of `sinks.postgres.pool.Database` the audit uses, with its savepoints."""

    def __init__(self, tables: AuditTables, database: Database, dice: Dice) -> None:
        self._tables, self._database, self._dice = tables, database, dice

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Committed at the end, as a whole. Raises `GuardUnavailable`."""
        self._database.check()
        if self._dice.falls("guard.failed"):
            raise GuardUnavailable("the transaction failed", code="guard_unavailable")
        working = copy.copy(self._tables)
        working.rows, working.positions = dict(self._tables.rows), dict(self._tables.positions)
        yield AuditCursor(working, self._dice)
        self._tables.rows, self._tables.positions = working.rows, working.positions
        if self._dice.falls("guard.doubtful"):
            raise GuardUnavailable("the answer was lost", code="guard_unavailable")


class AuditCursor:
    """Knows the audit's statements by their text, and nothing else."""

    def __init__(self, tables: AuditTables, dice: Dice) -> None:
        self._tables, self._dice = tables, dice
        self._found: list[dict[str, Any]] = []
        self.connection = self

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A savepoint."""
        before = dict(self._tables.rows)
        try:
            yield
        except psycopg.Error:
            self._tables.rows = before
            raise

    def execute(self, statement: Any, given: Mapping[str, str] | None = None) -> AuditCursor:
        known = audit_writer.SQL
        if statement is known["insert_rows"]:
            self._insert(orjson.loads((given or {})["rows"]))
        elif statement is known["positions_write"]:
            for row in orjson.loads((given or {})["places"]):
                place = (row["topic"], row["partition"])
                before = self._tables.positions.get(place, 0)
                self._tables.positions[place] = max(before, row["next_offset"])
        elif statement is known["positions_read"]:
            self._found = [
                {"topic": topic, "partition": number, "next_offset": offset}
                for (topic, number), offset in self._tables.positions.items()
            ]
        else:
            raise TypeError("a statement the audit does not have")
        return self

    def fetchall(self) -> list[dict[str, Any]]:
        return self._found

    def _insert(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row.get("body") is not None and self._refuses(row):
                raise psycopg.errors.UntranslatableCharacter("refused")
            self._tables.rows.setdefault((row["topic"], row["partition"], row["kafka_offset"]), row)

    def _refuses(self, row: Mapping[str, Any]) -> bool:
        """The same row is always refused."""
        place = f"{row['topic']}/{row['partition']}/{row['kafka_offset']}"
        return self._dice.is_marked("audit.refuses", place)
