"""Two dispatchers read two requests of one subject at the same time: exactly one of them stays."""

from __future__ import annotations

import threading

import psycopg
import pytest

from compose.clock import SystemClock
from schemas.budget import UNLIMITED
from schemas.subject import SubjectSeen
from sinks.dispatcher.claims import PostgresClaims
from sinks.postgres.migrate import migrate
from sinks.postgres.pool import Database
from tests.builders import subject_seen
from tests.integration.guard_rig import eventually

FIRST, SECOND = "first-0001", "second-001"


def seen(intent_id: str, after_ms: int) -> SubjectSeen:
    now_ms = SystemClock().now_ms()
    changes = {"requested_at_ms": now_ms + after_ms, "forget_at_ms": now_ms + 3_600_000}
    return subject_seen(0, intent_id).model_copy(update=changes)


@pytest.mark.parametrize(("ahead", "behind"), [(FIRST, SECOND), (SECOND, FIRST)])
def test_two_readers_that_know_nothing_of_a_subject_do_not_both_take_theirs_for_the_newest(
    fresh_dsn: str, ahead: str, behind: str
) -> None:
    migrate(fresh_dsn)
    asked = {FIRST: seen(FIRST, 0), SECOND: seen(SECOND, 5)}
    written, go_on = threading.Event(), threading.Event()

    def before_the_commit(point: str) -> None:
        if point == "in_facts":
            written.set()
            assert go_on.wait(30.0)

    def write(claims: PostgresClaims, intent_id: str) -> threading.Thread:
        given = {"closed": [], "suppressed": [], "lifted": [], "progress": {}, "asked": [asked[intent_id]]}
        thread = threading.Thread(target=claims.write_facts, kwargs=given)
        thread.start()
        return thread

    one, other = Database(fresh_dsn, idle_ms_max=60_000), Database(fresh_dsn)
    try:
        slow = write(PostgresClaims(one, UNLIMITED, fault=before_the_commit), ahead)
        assert written.wait(30.0)
        fast = write(PostgresClaims(other, UNLIMITED), behind)
        eventually(lambda: _waits(fresh_dsn))
        go_on.set()
        slow.join(30.0)
        fast.join(30.0)
    finally:
        go_on.set()
        one.close()
        other.close()
    with psycopg.connect(fresh_dsn) as connection:
        assert connection.execute("SELECT intent_id FROM closed").fetchall() == [(FIRST,)]
        assert connection.execute("SELECT intent_id FROM subjects").fetchall() == [(SECOND,)]


def _waits(dsn: str) -> bool:
    """Whether a transaction of this database waits for another."""
    asked = """SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    with psycopg.connect(dsn) as connection:
        (count,) = connection.execute(asked).fetchone() or (0,)
    return bool(count)
