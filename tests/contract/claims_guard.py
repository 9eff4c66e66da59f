"""A guard to ask, in memory or in Postgres, and orders to ask it with. It must not hold an expectation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import psycopg
import pytest

from compose.local.database import Database as Server
from schemas.ids import Channel
from sinks.dispatcher.claims import Claims, PostgresClaims
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.rules import ClaimRequest
from sinks.postgres.migrate import migrate
from sinks.postgres.pool import Database

E, S = Channel.EMAIL, Channel.SMS


LEASE_MS, CALL_MS = 30_000, 10_000


@dataclass
class Guard:
    """A guard and a way to let its clock pass."""

    claims: Claims
    let_pass: Callable[[int], None]


@pytest.fixture(params=["memory", "postgres"])
def guard(request: pytest.FixtureRequest) -> Iterator[Guard]:
    if request.param == "memory":
        now = [1_790_000_000_000]

        def on(ms: int) -> None:
            now[0] += ms

        yield Guard(MemoryClaims(lambda: now[0]), on)
        return
    server: Server = request.getfixturevalue("database")
    name = "claims_" + request.node.name.encode().hex()[-30:]
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{name}"'.encode())
        admin.execute(f'CREATE DATABASE "{name}"'.encode())
    dsn = server.dsn.replace("@/backstop?", f"@/{name}?")
    migrate(dsn)
    database = Database(dsn)

    def older(ms: int) -> None:
        """The database's clock cannot be moved: its leases are made older instead."""
        with database.transaction() as cursor:
            cursor.execute(b"UPDATE claims SET lease_until_ms = lease_until_ms - %s", (ms,))

    yield Guard(PostgresClaims(database), older)
    database.close()


def order(number: int = 1, channel: Channel = E, **changes: object) -> ClaimRequest:
    base = ClaimRequest(
        intent_id="int-0001-test",
        channel=channel,
        tenant="tenant-0001",
        fingerprint="k1.e.aa",
        fingerprints=("k1.e.aa", "k0.e.bb"),
        request_digest="d" * 64,
        dispatch_key=f"int-0001-test.{channel.value}",
        template="password_reset:v1",
        expiry_ms=4_000_000_000_000,
        submission_no=number,
        account="mail-a",
        unless_sms_claimed=channel is E,
        after_unknown=number > 1,
        claim_id=f"c-{channel.value}-{number}",
        lease_ms=LEASE_MS,
        call_timeout_ms=CALL_MS,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def finish(guard: Guard, state: str, number: int = 1, channel: Channel = E, claim: str | None = None) -> bool:
    return guard.claims.finish(
        claim or f"c-{channel.value}-{number}",
        intent_id="int-0001-test",
        channel=channel,
        submission_no=number,
        state=state,
        result={"state": state, "n": number},
    )


def facts(guard: Guard, **changes: object) -> None:
    given: dict[str, object] = {"closed": [], "suppressed": [], "lifted": [], "progress": {}}
    guard.claims.write_facts(**(given | changes))  # type: ignore[arg-type]
