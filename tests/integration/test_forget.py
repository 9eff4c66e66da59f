"""Is a person gone from the books who asked to be, and nobody else; is what keeps them safe still there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from schemas.decision import CloseKind, Phase
from schemas.record import TopicKind
from sinks.operator import forgetting
from sinks.postgres.migrate import migrate
from sinks.postgres.pool import Database
from tests.conftest import Servers
from tests.integration import pipeline_rig
from tests.integration.guard_rig import eventually
from tests.integration.pipeline_rig import Pipeline

pytestmark = pytest.mark.proof

WHY = ("--why", "ticket 4711")
TABLES = ("audit", "claims", "late_results", "closed", "consents", "withdrawals", "subjects", "forgotten")


@dataclass(frozen=True, slots=True)
class Case:
    """`gone` was forgotten by its address, `other` is another's, `live` was under way and cancelled."""

    pipeline: Pipeline
    dsn: str
    gone: str
    other: str
    live: str
    before: dict[str, list[str]]
    refused: subprocess.CompletedProcess[str]
    listed: dict[str, Any]
    done: dict[str, Any]
    cancelled: dict[str, Any]


def dump(dsn: str, intent_id: str | None = None) -> dict[str, list[str]]:
    """Every row of every table as text, or those that name the intent."""
    found = {}
    with psycopg.connect(dsn) as connection:
        for table in TABLES:
            rows = connection.execute(f"SELECT t::text FROM {table} AS t ORDER BY 1".encode()).fetchall()
            found[table] = [text for (text,) in rows if intent_id is None or intent_id in text]
    return found


def prints(one: Pipeline, intent_id: str) -> list[str]:
    asked = one.asked[intent_id]
    return [p for p in (asked.email_fingerprint, asked.sms_fingerprint) if p is not None]


def audited_to_the_end(one: Pipeline, intent_id: str) -> None:
    """Until the story ends in a closed chain and nothing of it is on its way to the auditor."""

    def is_told() -> bool:
        said = one.backstop("explain", intent_id, "--json", *WHY, check=False)
        return said.returncode == 0 and json.loads(said.stdout)["closed"] is not None

    eventually(is_told, within_s=30.0)


@pytest.fixture(scope="module")
def case(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    dsn = stack.new_database("forget")
    with pipeline_rig.pipeline(stack.bootstrap, dsn, tmp_path_factory.mktemp("forget")) as one:
        one.rig.fleet.add("auditor", "auditor")
        gone, other = one.publish(2.0, to="never"), one.publish(2.0, to="never")
        one.until_said(Phase.SMS_CLAIMED, gone, other)
        one.complete(gone, other)
        one.until_said(Phase.CLOSED, gone, other)
        for intent_id in (gone, other):
            audited_to_the_end(one, intent_id)
        live = one.publish(40.0, to="never")
        one.until_said(Phase.EMAIL_PENDING, live)
        eventually(lambda: bool(dump(dsn, live)["audit"]))
        before = dump(dsn, other)
        listed = json.loads(forget(one, live, "--dry-run", "--json").stdout)
        refused = forget(one, live, "--yes", check=False)
        done = json.loads(forget(one, gone, "--yes", "--json").stdout)
        cancelled = json.loads(forget(one, live, "--yes", "--cancel", "--json").stdout)
        one.until_said(Phase.CLOSED, live)
        yield Case(one, dsn, gone, other, live, before, refused, listed, done, cancelled)


def forget(
    one: Pipeline, intent_id: str, *arguments: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    return one.backstop("forget", *WHY, "--destination", one.given[intent_id].email, *arguments, check=check)


def test_nothing_in_the_audit_leads_to_the_person_any_more(case: Case) -> None:
    one = case.pipeline
    audited = "\n".join(dump(case.dsn)["audit"])
    messages = [m["id"] for m in [*one.emails(case.gone), *one.texts(case.gone)] if m.get("id")]
    assert not [word for word in [*prints(one, case.gone), *messages] if word in audited]
    assert all(word in audited for word in prints(one, case.other))
    assert case.done["audit_rows"] > 5


def test_a_claim_keeps_its_fingerprint_until_nothing_can_be_sent_any_more(case: Case) -> None:
    """A sweep after the expiry takes it, though nobody can find the intent by the person then."""
    one = case.pipeline
    assert case.done["claims_kept"] == 1
    assert prints(one, case.gone)[0] in "\n".join(dump(case.dsn)["claims"])
    with closing(Database(case.dsn, size_max=1)) as database:
        later_ms = one.asked[case.gone].expiry_ms + 1
        swept = forgetting.forget(database, (), (), names=one.names, now_ms=later_ms, who="it", why="a test")
    assert swept.claims == 2
    everything = dump(case.dsn)
    del everything["consents"]  # of the number, which is another test's
    assert not [p for p in prints(one, case.gone) if p in str(everything)]


def test_what_comes_late_about_a_forgotten_intent_is_taken_by_the_next_sweep(case: Case) -> None:
    with psycopg.connect(case.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO audit (topic, partition, kafka_offset, log_ms, record, intent_id, size, body)"
            " VALUES (%s, 0, 999999, 0, 'observation', %s, 1, %s)",
            (
                case.pipeline.names[TopicKind.OBSERVATIONS],
                case.gone,
                Jsonb({"fingerprint": "k1.e.late", "answer": "answered", "channel": "email", "poll_no": 9}),
            ),
        )
    swept = json.loads(case.pipeline.backstop("forget", *WHY, "--sweep", "--json").stdout)
    assert swept["audit_rows"] == 1
    assert "k1.e.late" not in str(dump(case.dsn))


def test_what_was_done_and_why_is_still_told(case: Case) -> None:
    said = case.pipeline.backstop("explain", case.gone, *WHY).stdout
    assert "decisions verified" in said
    assert "sms" in said.lower()


def test_nobody_else_is_touched(case: Case) -> None:
    after = dump(case.dsn, case.other)
    assert case.before["audit"]
    assert {table: [r for r in rows if r not in after[table]] for table, rows in case.before.items()} == {
        table: [] for table in TABLES
    }


def test_a_number_is_forgotten_with_its_consent(case: Case) -> None:
    one = case.pipeline
    fingerprint = prints(one, case.gone)[1]
    phone = one.given[case.gone].phone
    assert phone is not None
    again = json.loads(one.backstop("forget", *WHY, "--destination", phone, "--yes", "--json").stdout)
    assert (again["consents"], again["intents"]) == (1, 0)
    assert fingerprint not in "\n".join(dump(case.dsn)["consents"])


def test_what_is_not_over_is_refused_and_named_beforehand(case: Case) -> None:
    assert case.refused.returncode == 2
    assert "not over" in case.refused.stderr
    assert "--cancel" in case.refused.stderr
    assert [(i["intent_id"], i["is_live"]) for i in case.listed["intents"]] == [(case.live, True)]


def test_with_cancel_it_ends_unsent_and_is_forgotten(case: Case) -> None:
    one = case.pipeline
    assert case.cancelled["cancelled"] == [case.live]
    assert one.stories()[case.live][-1].closed is CloseKind.CANCELLED
    assert one.sent(case.live) == (1, 0)


def test_no_command_says_the_address(case: Case) -> None:
    said = case.refused.stdout + case.refused.stderr + json.dumps([case.done, case.listed, case.cancelled])
    assert "@" not in said


def test_the_forgetting_is_on_record(case: Case) -> None:
    with psycopg.connect(case.dsn) as connection:
        whats = [w for (w,) in connection.execute("SELECT what FROM access_log WHERE why = 'ticket 4711'")]
        kept = [i for (i,) in connection.execute("SELECT intent_id FROM forgotten ORDER BY at")]
    assert f"forget {case.gone}" in whats
    assert set(kept) == {case.gone, case.live}


def test_the_audit_is_still_append_only_for_everybody_else(fresh_dsn: str) -> None:
    migrate(fresh_dsn)
    for change in ("UPDATE audit SET body = NULL", "DELETE FROM audit", "TRUNCATE audit"):
        with psycopg.connect(fresh_dsn) as connection:
            with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                connection.execute(change.encode())
            connection.rollback()
            connection.execute("SET backstop.forgetting = 'on'")
            if not change.startswith("UPDATE"):
                with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                    connection.execute(change.encode())
