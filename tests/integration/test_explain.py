"""Is the story read from the real audit: verified, logged, and never without who and why."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from schemas.errors import GuardUnavailable
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.audit.writer import AuditWriter
from sinks.kafka.consumer import Message
from sinks.operator import explain
from sinks.operator.text import OperatorTextRefused
from sinks.postgres.migrate import migrate
from sinks.postgres.pool import Database
from tests import builders
from tests.builders import DEADLINE_MS, ID, T0

NAMES = TopicNames()
WHO, WHY = "op-1", "ticket 4711"
TRACES = b"SELECT who, why, what FROM access_log ORDER BY id"


@pytest.fixture
def audit(fresh_dsn: str) -> Iterator[Database]:
    """The audit of one intent that went to SMS at its deadline."""
    migrate(fresh_dsn)
    one = Database(fresh_dsn, size_max=2)
    game = builders.play((0, builders.request()))
    game.until(DEADLINE_MS + 10_000)
    decided = [
        Message(NAMES[TopicKind.DECISIONS], 0, n, d.now_ms, ID.encode(), d.to_bytes())
        for n, d in enumerate(game.decisions)
    ]
    asked = Message(NAMES[TopicKind.INTENTS], 0, 9, T0, ID.encode(), builders.request().to_bytes())
    writer = AuditWriter(NAMES, one, letter_key=b"k" * 32)
    writer.write([*reversed(decided), asked], {})
    yield one
    one.close()


def test_the_story_read_from_the_audit_has_a_whole_chain(audit: Database) -> None:
    story = explain.tell(ID, explain.load(audit, ID, names=NAMES, who=WHO, why=WHY))
    assert story.chain.endswith("decisions verified")
    assert story.phase == "sms_claimed"
    assert explain.render(story).count("DECISION") == int(story.chain.split()[2])
    with audit.transaction() as cursor:
        assert cursor.execute(TRACES).fetchall() == [{"who": WHO, "why": WHY, "what": f"story {ID}"}]


def test_the_story_is_of_the_asked_topics_only(audit: Database) -> None:
    """Two deployments may share a database, and a prefix may begin another."""
    other = TopicNames(f"{NAMES.prefix}replay.")
    done = builders.completed(5_000).to_bytes()
    message = Message(other[TopicKind.INTENTS], 0, 0, T0 + 5_000, ID.encode(), done)
    AuditWriter(other, audit, letter_key=b"k" * 32).write([message], {})
    mine = explain.load(audit, ID, names=NAMES, who=WHO, why=WHY)
    assert {r["topic"] for r in mine} == {NAMES[TopicKind.INTENTS], NAMES[TopicKind.DECISIONS]}
    theirs = explain.load(audit, ID, names=other, who=WHO, why=WHY)
    assert [r["record"] for r in theirs] == ["intent_completed"]


def test_the_guards_row_is_part_of_the_story(audit: Database) -> None:
    with audit.transaction() as cursor:
        cursor.execute(CLAIM, {"id": ID, "now": T0 + DEADLINE_MS})
    story = explain.tell(ID, explain.load(audit, ID, names=NAMES, who=WHO, why=WHY))
    assert "the guard's row: sms submission 2, unknown" in explain.render(story)
    assert "but nothing here ordered sms dispatch 2 (claims/0/0)" in story.chain


CLAIM = b"""
INSERT INTO claims (intent_id, channel, tenant, fingerprint, request_digest, dispatch_key, template, ttl_ms,
                    expiry_ms, submission_no, provider_account, state, claim_id, lease_until_ms,
                    first_claimed_ms, claimed_ms)
VALUES (%(id)s, 'sms', 't', 'f', 'd', 'k', 'x:v1', 1, 1, 2, 'a', 'unknown', 'c', 1, %(now)s, %(now)s)"""


def test_an_intent_nobody_heard_of_is_said_to_be_unknown_and_the_look_is_logged(audit: Database) -> None:
    with pytest.raises(explain.IntentUnknown, match="nothing is audited under int-9999") as caught:
        explain.load(audit, "int-9999", names=NAMES, who=WHO, why=WHY)
    assert "backstop auditor" in caught.value.remedy
    with audit.transaction() as cursor:
        assert len(cursor.execute(TRACES).fetchall()) == 1


@pytest.mark.parametrize(("who", "why"), [("", WHY), (WHO, ""), (WHO, "asked by ada@example.com")])
def test_nobody_reads_without_a_name_and_a_reason_that_may_be_kept(
    audit: Database, who: str, why: str
) -> None:
    with pytest.raises(OperatorTextRefused):
        explain.load(audit, ID, names=NAMES, who=who, why=why)
    with audit.transaction() as cursor:
        assert cursor.execute(TRACES).fetchall() == []


def test_the_database_itself_refuses_to_be_read_without_a_reason(audit: Database) -> None:
    with pytest.raises(GuardUnavailable), audit.transaction() as cursor:
        cursor.execute(b"SELECT * FROM intent_story(%s, 'op-1', '', '{}')", (ID,))


def test_a_row_the_database_kept_without_its_body_is_told_with_why(fresh_dsn: str) -> None:
    migrate(fresh_dsn)
    with psycopg.connect(fresh_dsn) as connection:
        connection.execute(b"ALTER TABLE audit ADD CHECK (record <> 'decision' OR body IS NULL)")
    one = Database(fresh_dsn, size_max=2)
    asked, decided = builders.request(), builders.started().decisions[0]
    messages = [
        Message(NAMES[TopicKind.INTENTS], 0, 0, T0, ID.encode(), asked.to_bytes()),
        Message(NAMES[TopicKind.DECISIONS], 0, 0, T0, ID.encode(), decided.to_bytes()),
    ]
    AuditWriter(NAMES, one, letter_key=b"k" * 32).write(messages, {})
    story = explain.tell(ID, explain.load(one, ID, names=NAMES, who=WHO, why=WHY))
    one.close()
    assert "decision, not readable: the database refused the body (23514)" in explain.render(story)
    assert "not verified" in story.chain
