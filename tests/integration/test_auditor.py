"""Does the audit hold every record once, whatever order, byte, crash or outage comes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from schemas.errors import GuardUnavailable
from schemas.metrics import ROWS as COUNTED
from schemas.record import TopicKind
from schemas.topics import TOPICS, TopicNames
from sinks.audit.loop import AuditorLoop
from sinks.audit.writer import AuditWriter, counts
from sinks.kafka import admin
from sinks.kafka.consumer import Message, read_all
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.postgres.migrate import migrate
from sinks.postgres.pool import Database
from tests import builders
from tests.conftest import Servers
from tests.counting import CountingMeter

K = TopicKind
WAIT_S = 60.0
SESSION_MS = 3_000
LETTER_KEY = b"k" * 32
ROWS = b"SELECT * FROM audit ORDER BY topic, partition, kafka_offset"


@dataclass
class Rig:
    """Topics and a database of this test's own."""

    bootstrap: str
    dsn: str
    names: TopicNames
    database: Database
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    meter: CountingMeter = field(default_factory=CountingMeter)

    def rows(self) -> list[dict[str, Any]]:
        with self.database.transaction() as cursor:
            return cursor.execute(ROWS).fetchall()

    def positions(self) -> dict[tuple[str, int], int]:
        with self.database.transaction() as cursor:
            found = cursor.execute(b"SELECT * FROM audit_positions").fetchall()
        return {(r["topic"], r["partition"]): r["next_offset"] for r in found}

    def publish(self, kind: TopicKind, records: list[tuple[bytes | None, bytes | None]]) -> None:
        given = [OutgoingRecord(self.names[kind], key, value) for key, value in records]
        Publisher(self.bootstrap, client_id="test").publish(given)

    def published(self) -> list[Message]:
        return [m for kind in TOPICS for m in read_all(self.bootstrap, self.names[kind])]

    def writer(self) -> AuditWriter:
        return AuditWriter(self.names, self.database, letter_key=LETTER_KEY, meter=self.meter)

    @contextmanager
    def auditor(self) -> Iterator[threading.Thread]:
        stop = threading.Event()
        loop = AuditorLoop(
            self.names,
            bootstrap=self.bootstrap,
            database=self.database,
            letter_key=LETTER_KEY,
            session_timeout_ms=SESSION_MS,
            meter=self.meter,
        )
        thread = threading.Thread(target=loop.run, args=(stop,))
        thread.start()
        try:
            yield thread
        finally:
            stop.set()
            thread.join(WAIT_S)
            assert not thread.is_alive()

    def process(self, mark: Path, moment: str) -> subprocess.Popen[bytes]:
        """An auditor that lingers `before` or `after` its transaction, or in no moment."""
        command = [sys.executable, "-m", "tests.integration.auditor_process"]
        arguments = [self.bootstrap, self.dsn, self.names.prefix, str(mark), moment]
        made = subprocess.Popen(command + arguments)
        self.processes.append(made)
        return made


@pytest.fixture
def rig(stack: Servers, fresh_dsn: str, prefix: str) -> Iterator[Rig]:
    migrate(fresh_dsn)
    names = TopicNames(prefix)
    admin.create(stack.bootstrap, admin.Layout(names, 4, 1, 1))
    database = Database(fresh_dsn, size_max=4)
    one = Rig(stack.bootstrap, fresh_dsn, names, database)
    yield one
    for process in one.processes:
        process.kill()
        process.wait(WAIT_S)
    database.close()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "not reached in time"
        time.sleep(0.05)


def request(number: int) -> tuple[bytes, bytes]:
    name = f"int-{number:05d}"
    return name.encode(), builders.request(intent_id=name).to_bytes()


def load(rig: Rig, *, count: int = 60) -> None:
    """Records on most topics, sound ones between broken ones."""
    rig.publish(K.INTENTS, [request(n) for n in range(count)])
    rig.publish(K.TICKS, [(builders.ID.encode(), builders.tick(n).to_bytes()) for n in range(10)])
    decisions = builders.started().decisions
    rig.publish(K.DECISIONS, [(d.intent_id.encode(), d.to_bytes()) for d in decisions])
    broken: list[tuple[bytes | None, bytes | None]] = [
        (b"int-00001", b"\x00\x01\xff"),
        (None, b"{}"),
        (b"int-00002", None),
        (b"not ours \x00", b'{"record": "intent_requested", "version": NaN}'),
        (b"int-00003", b'"\\ud83d"'),
        (b"int-00004", b"[" * 20_000),
        (b"int-00005", b"x" * 900_000),
    ]
    rig.publish(K.INTENTS, broken)
    rig.publish(K.CONTROLS, [(b"all", b"{}")])


def check_once(rig: Rig) -> None:
    """Every record of every topic is one row, and nothing else is."""
    expected = Counter((m.topic, m.partition, m.offset) for m in rig.published())
    found = Counter((r["topic"], r["partition"], r["kafka_offset"]) for r in rig.rows())
    assert found == expected
    assert set(expected.values()) == {1}


def test_every_record_of_every_topic_is_a_row_and_any_byte_is_survived(rig: Rig) -> None:
    load(rig)
    total = len(rig.published())
    with rig.auditor():
        wait_for(lambda: len(rig.rows()) == total)
    check_once(rig)
    rows = rig.rows()
    assert rig.meter.of(COUNTED) == total
    assert rig.meter.of(COUNTED, "ticks") == 10
    assert sum(r["record"] is None for r in rows) == 8
    assert {r["reason"] for r in rows if r["record"] is None} >= {
        *("malformed", "null_key", "tombstone", "too_large"),
    }
    assert counts(rig.database, rig.names.prefix)[rig.names[K.TICKS]] == 10
    text = json.dumps(rows, default=str)
    assert builders.SEALED not in text


def test_positions_cover_transaction_markers_so_that_the_end_is_reached(rig: Rig) -> None:
    topic = rig.names[K.TICKS]
    writer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": rig.names.prefix + "tx"})
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    writer.produce(topic, builders.tick(1).to_bytes(), builders.ID.encode(), partition=0)
    writer.commit_transaction(WAIT_S)
    with rig.auditor():
        wait_for(lambda: rig.positions().get((topic, 0)) == 2)
    assert len(rig.rows()) == 1


def test_any_order_and_any_repetition_give_the_same_rows(rig: Rig) -> None:
    load(rig)
    messages = rig.published()
    writer = rig.writer()
    writer.write(messages, {})
    rows, positions = rig.rows(), rig.positions()
    chance = random.Random(7)
    for _ in range(5):
        again = chance.sample(messages, len(messages) // 2)
        writer.write(again, {})
        assert (rig.rows(), rig.positions()) == (rows, positions)


def test_rows_written_backwards_are_the_rows_written_forwards(rig: Rig) -> None:
    load(rig)
    messages = rig.published()
    for message in reversed(messages):
        rig.writer().write([message], {})
    backwards = rig.rows()
    with psycopg.connect(rig.dsn) as connection:
        connection.execute(b"ALTER TABLE audit DISABLE TRIGGER USER")
        connection.execute(b"DELETE FROM audit")
        connection.execute(b"ALTER TABLE audit ENABLE TRIGGER USER")
    rig.writer().write(messages, {})
    assert rig.rows() == backwards


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_around_the_transaction_loses_nothing_and_doubles_nothing(
    rig: Rig, tmp_path: Path, moment: str
) -> None:
    load(rig)
    total = len(rig.published())
    mark = tmp_path / "mark"
    first = rig.process(mark, moment)
    wait_for(mark.exists)
    first.send_signal(signal.SIGKILL)
    first.wait(WAIT_S)
    before = len(rig.rows())
    assert (before == 0) == (moment == "before")
    assert sum(rig.positions().values()) == before, "positions never go ahead of rows"
    rig.process(mark, "none")
    wait_for(lambda: len(rig.rows()) == total)
    check_once(rig)


def test_a_stopped_auditor_ends_by_itself_and_its_successor_goes_on(rig: Rig, tmp_path: Path) -> None:
    load(rig)
    first = rig.process(tmp_path / "mark", "none")
    wait_for(lambda: len(rig.rows()) > 0)
    first.send_signal(signal.SIGTERM)
    assert first.wait(WAIT_S) == 0
    rig.publish(K.INTENTS, [request(n) for n in range(1_000, 1_050)])
    total = len(rig.published())
    rig.process(tmp_path / "mark", "none")
    wait_for(lambda: len(rig.rows()) == total)
    check_once(rig)


def test_two_auditors_share_the_topics_and_a_leaving_one_loses_nothing(rig: Rig, tmp_path: Path) -> None:
    first = rig.process(tmp_path / "mark", "none")
    rig.process(tmp_path / "mark", "none")
    for part in range(6):
        rig.publish(K.INTENTS, [request(part * 100 + n) for n in range(100)])
        if part == 3:
            first.send_signal(signal.SIGKILL)
    wait_for(lambda: len(rig.rows()) == 600)
    check_once(rig)


def test_a_database_that_is_away_is_waited_for(rig: Rig) -> None:
    name = rig.dsn.split("@/")[1].split("?")[0]
    elsewhere = rig.dsn.replace(f"@/{name}?", "@/backstop?")

    def allow(connections: int) -> None:
        with psycopg.connect(elsewhere, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT {connections}'.encode())
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {connections != 0}'.encode())
            if not connections:
                connection.execute(
                    b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
                )

    rig.publish(K.INTENTS, [request(n) for n in range(50)])
    with rig.auditor() as thread:
        wait_for(lambda: len(rig.rows()) == 50)
        allow(0)
        rig.publish(K.INTENTS, [request(n) for n in range(50, 100)])
        with pytest.raises(GuardUnavailable):
            rig.rows()
        time.sleep(2 * 0.5)  # the auditor has tried by then, and waits
        assert thread.is_alive()
        allow(-1)
        wait_for(lambda: len(rig.rows()) == 100)
    check_once(rig)


def test_a_row_the_database_refuses_leaves_its_neighbours_and_its_place(rig: Rig) -> None:
    with psycopg.connect(rig.dsn) as connection:
        connection.execute(b"ALTER TABLE audit ADD CHECK (body->>'intent_id' <> 'int-00007')")
    rig.publish(K.INTENTS, [request(n) for n in range(20)])
    with rig.auditor():
        wait_for(lambda: len(rig.rows()) == 20)
    check_once(rig)
    (bare,) = [r for r in rig.rows() if r["body"] is None]
    assert bare["intent_id"] == "int-00007"
    assert bare["note"] == "the database refused the body (23514)"


def test_nothing_that_is_there_can_be_changed(rig: Rig) -> None:
    rig.publish(K.INTENTS, [request(1)])
    rig.writer().write(rig.published(), {})
    with rig.database.transaction() as cursor:
        cursor.execute(b"SELECT * FROM audit_story('int-00001', 'somebody', 'a test')")
    for statement in (
        b"UPDATE audit SET record = 'x'",
        b"DELETE FROM audit",
        b"TRUNCATE audit",
        b"UPDATE access_log SET who = 'x'",
        b"DELETE FROM access_log",
        b"TRUNCATE access_log",
    ):
        with psycopg.connect(rig.dsn) as connection, pytest.raises(psycopg.errors.RaiseException):
            connection.execute(statement)


def test_a_reader_sees_rows_by_the_function_only_and_leaves_a_trace(rig: Rig) -> None:
    rig.publish(K.INTENTS, [request(1), request(2)])
    rig.writer().write(rig.published(), {})
    with psycopg.connect(rig.dsn) as connection:
        connection.execute(b"SET ROLE backstop_reader")
        found = connection.execute(b"SELECT topic FROM audit_story('int-00001', 'reader', 'ticket 4711')")
        assert len(found.fetchall()) == 1
    for table in (b"audit", b"access_log", b"audit_positions", b"claims"):
        with psycopg.connect(rig.dsn) as connection:
            connection.execute(b"SET ROLE backstop_reader")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(b"SELECT * FROM " + table)
    with rig.database.transaction() as cursor:
        traces = cursor.execute(b"SELECT who, why, what FROM access_log").fetchall()
    assert traces == [{"who": "reader", "why": "ticket 4711", "what": "story int-00001"}]


def test_a_temporary_table_of_the_reader_does_not_stand_in_for_the_audit(rig: Rig) -> None:
    rig.publish(K.INTENTS, [request(1)])
    rig.writer().write(rig.published(), {})
    with psycopg.connect(rig.dsn) as connection:
        connection.execute(b"SET ROLE backstop_reader")
        connection.execute(b"CREATE TEMPORARY TABLE access_log (who text, why text, what text)")
        connection.execute(b"SELECT * FROM audit_story('int-00001', 'reader', 'ticket 4711')")
    with rig.database.transaction() as cursor:
        assert cursor.execute(b"SELECT count(*) AS n FROM access_log").fetchone() == {"n": 1}
