"""Does the dispatcher send once and say what it knows while its database comes and goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from compose.local.broker import Broker
from compose.local.database import Database as Server
from schemas.attempt import AttemptState
from schemas.errors import GuardUnavailable, PreflightFailed
from schemas.reasons import Reason
from schemas.topics import TOPICS, TopicNames
from sinks.postgres import migrate as migrations
from sinks.postgres.pool import LOCK_TIMEOUT_MS, NOT_REACHED, STATEMENT_TIMEOUT_MS, Database
from sinks.postgres.queries import load
from tests.integration.conftest import MakeTopics
from tests.integration.dispatcher_rig import KINDS, URGENT, Rig


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of this test's own: it is killed and started."""
    one = Server(tmp_path_factory.mktemp("pg"))
    one.start()
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture
def rig(broker: Broker, server: Server, prefix: str, make_topics: MakeTopics) -> Iterator[Rig]:
    make_topics(*(TOPICS[kind].name("") for kind in KINDS))
    migrations.migrate(server.dsn)
    made = Rig(broker.bootstrap, TopicNames(prefix), server.dsn)
    try:
        yield made
    finally:
        if server.pid is None:
            server.start()
        made.close()


def row_state(rig: Rig) -> str | None:
    with psycopg.connect(rig.dsn) as connection:
        found = connection.execute("SELECT state FROM claims WHERE channel = 'email'").fetchone()
    return None if found is None else str(found[0])


def test_a_database_away_before_the_claim_holds_and_the_next_number_is_sent(rig: Rig, server: Server) -> None:
    rig.start()
    assert rig.answer(rig.order(intent_id="int-0002-test")).state is AttemptState.ACCEPTED
    server.kill()
    found = rig.answer(rig.order())
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.GUARD_UNAVAILABLE)
    rig.until(lambda: rig.lag() == 0)
    server.start()
    assert rig.answer(rig.order(2)).state is AttemptState.ACCEPTED
    assert [s.reference for s in rig.mail.submitted].count("int-0001-test.email") == 1


def test_a_database_away_after_the_call_lets_the_attempt_out_first_and_keeps_the_offset(
    rig: Rig, server: Server
) -> None:
    rig.mail.during = server.kill
    rig.start()
    said = rig.answer(rig.order())
    rig.mail.during = lambda: None
    assert (said.state, said.unrecorded) == (AttemptState.ACCEPTED, True)
    assert rig.lag() == 1, "the offset waits for the row"
    server.start()
    rig.until(lambda: rig.lag() == 0)
    assert row_state(rig) == "accepted"
    rig.publish(URGENT, rig.order())
    rig.until(lambda: len(rig.attempts()) == 2)
    assert [a.message_id for a in rig.attempts()] == ["m-1", "m-1"]
    assert len(rig.mail.submitted) == 1


def test_a_database_away_between_claim_and_first_byte_sends_nothing_until_it_is_ordered_again(
    rig: Rig, server: Server
) -> None:
    def kill_once(point: str) -> None:
        if point == "after_claim":
            rig.fault = lambda _point: None
            server.kill()

    rig.fault = kill_once
    rig.start()
    said = rig.answer(rig.order())
    assert (said.state, said.reason, said.unrecorded) == (
        AttemptState.HELD,
        Reason.GUARD_UNAVAILABLE,
        True,
    )
    assert rig.mail.submitted == []
    server.start()
    rig.until(lambda: rig.lag() == 0)
    assert row_state(rig) == "held"
    assert rig.answer(rig.order(2)).state is AttemptState.ACCEPTED
    assert len(rig.mail.submitted) == 1


def test_a_process_that_dies_before_its_row_is_healed_leaves_unknown_and_never_a_second_call(
    rig: Rig, server: Server
) -> None:
    rig.mail.during = server.kill
    life = rig.start()
    assert rig.answer(rig.order()).unrecorded
    rig.mail.during = lambda: None
    life.end()
    server.start()
    assert row_state(rig) == "submitting"
    rig.start()
    rig.until(lambda: rig.lag() == 0)
    assert [a.state for a in rig.attempts()] == [AttemptState.ACCEPTED, AttemptState.UNKNOWN]
    assert len(rig.mail.submitted) == 1


# the pool and the migrations


def test_a_connection_is_in_utc_durable_bounded_and_prepares_nothing(fresh_dsn: str) -> None:
    database = Database(fresh_dsn)
    wanted = {
        b"timezone": "UTC",
        b"synchronous_commit": "on",
        b"statement_timeout": f"{STATEMENT_TIMEOUT_MS // 1000}s",
        b"lock_timeout": f"{LOCK_TIMEOUT_MS // 1000}s",
    }
    with database.transaction() as cursor:
        for name, value in wanted.items():
            (found,) = (cursor.execute(b"SHOW " + name).fetchone() or {}).values()
            assert found == value
        for _ in range(10):
            cursor.execute(b"SELECT %s::int AS n", (1,))
        (prepared,) = cursor.execute(b"SELECT count(*) AS n FROM pg_prepared_statements").fetchall()
        assert prepared["n"] == 0
    database.close()


def test_a_database_that_is_not_there_says_that_nothing_was_committed(fresh_dsn: str) -> None:
    database = Database(fresh_dsn.replace("port=5432", "port=5499"))
    with pytest.raises(GuardUnavailable) as raised, database.transaction():
        pass
    assert raised.value.code == NOT_REACHED
    assert "socket" not in str(raised.value)
    database.close()


def test_migrations_run_once_in_order_however_many_start_at_the_same_time(fresh_dsn: str) -> None:
    applied: list[list[str]] = []
    starts = [
        threading.Thread(target=lambda: applied.append(migrations.migrate(fresh_dsn))) for _ in range(4)
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert sorted(applied, key=len) == [[], [], [], list(migrations.known())]
    assert migrations.differences(fresh_dsn) == []


def test_a_migration_changed_after_it_was_applied_is_refused_by_name(fresh_dsn: str) -> None:
    migrations.migrate(fresh_dsn)
    with psycopg.connect(fresh_dsn) as connection:
        connection.execute("UPDATE migrations SET digest = 'other' WHERE name = '0001_claims.sql'")
    with pytest.raises(PreflightFailed, match=r"0001_claims\.sql"):
        migrations.migrate(fresh_dsn)
    assert migrations.differences(fresh_dsn) == ["database: migration 0001_claims.sql is missing or differs"]


def test_a_database_without_migrations_is_named(fresh_dsn: str) -> None:
    assert migrations.differences(fresh_dsn) == ["database: no migration was applied"]


def test_every_statement_of_the_dispatcher_has_a_name_and_is_understood(fresh_dsn: str) -> None:
    migrations.migrate(fresh_dsn)
    statements = load("sinks.dispatcher")
    with psycopg.connect(fresh_dsn, autocommit=True) as connection:
        for name, statement in statements.items():
            text = statement.decode()
            given = {part.split(")s")[0]: None for part in text.split("%(")[1:]}
            try:
                connection.execute(statement, given)
            except psycopg.errors.NotNullViolation:
                continue
            except psycopg.Error as exc:
                raise AssertionError(f"{name}: {exc}") from exc
