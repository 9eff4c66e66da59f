"""A guard to ask, in memory or in Postgres, and orders to ask it with. It must not hold an expectation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

import psycopg
import pytest

from compose.local.database import Database as Server
from schemas.budget import UNLIMITED, Budgets
from schemas.ids import Channel
from sinks.dispatcher import counted
from sinks.dispatcher.claims import Claims, PostgresClaims
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.rules import ClaimRequest
from sinks.dispatcher.spend import HOUR_MS, NOTHING, Cost, Used
from sinks.postgres.migrate import migrate
from sinks.postgres.pool import Database

E, S = Channel.EMAIL, Channel.SMS


LEASE_MS, CALL_MS = 30_000, 10_000
RACERS_MAX = 16


# What an SMS of `order` costs, unless a test says otherwise.
COST = Cost(
    tenant="tenant-0001",
    country="GB",
    purpose="password_reset",
    number_range="k1.r.aa",
    is_instant=False,
    segments=1,
    amount=Decimal("0.05"),
    currency="EUR",
)


@dataclass
class Guard:
    """A guard, a way to let its clock pass, the same with limits, and what it counted in a scope."""

    claims: Claims
    let_pass: Callable[[int], None]
    hours_pass: Callable[[int], None]
    limit: Callable[[Budgets], None]
    used: Callable[[str], Used]


def _in_memory() -> Guard:
    now = [1_790_000_000_000]

    def on(ms: int) -> None:
        now[0] += ms

    claims = MemoryClaims(lambda: now[0], UNLIMITED)

    def limit(budgets: Budgets) -> None:
        claims._budgets = budgets

    def used(scope: str) -> Used:
        return claims._counts.read([scope], COST.currency, now[0])[scope]

    return Guard(claims, on, lambda count: on(count * HOUR_MS), limit, used)


def _in_postgres(database: Database) -> Guard:
    """The database's clock cannot be moved: what it knows is made older instead."""

    def older(ms: int) -> None:
        with database.transaction() as cursor:
            cursor.execute(b"UPDATE claims SET lease_until_ms = lease_until_ms - %s", (ms,))

    def hours_older(count: int) -> None:
        older(count * HOUR_MS)
        with database.transaction() as cursor:  # by way of negative hours: rows must not meet
            cursor.execute(b"UPDATE sms_spend SET hour_ms = -hour_ms")
            cursor.execute(b"UPDATE sms_spend SET hour_ms = -hour_ms - %s", (count * HOUR_MS,))
            cursor.execute(b"UPDATE claims SET spend_hour_ms = spend_hour_ms - %s", (count * HOUR_MS,))

    def limit(budgets: Budgets) -> None:
        made.claims = PostgresClaims(database, budgets)

    def used(scope: str) -> Used:
        with database.transaction() as cursor:
            return counted.read(cursor, [scope], COST.currency, made.claims.now_ms()).get(scope, NOTHING)

    made = Guard(PostgresClaims(database, UNLIMITED), older, hours_older, limit, used)
    return made


@pytest.fixture(params=["memory", "postgres"])
def guard(request: pytest.FixtureRequest) -> Iterator[Guard]:
    if request.param == "memory":
        yield _in_memory()
        return
    server: Server = request.getfixturevalue("database")
    name = "claims_" + request.node.name.encode().hex()[-30:]
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{name}"'.encode())
        admin.execute(f'CREATE DATABASE "{name}"'.encode())
    dsn = server.dsn.replace("@/backstop?", f"@/{name}?")
    migrate(dsn)
    database = Database(dsn, size_max=RACERS_MAX)
    yield _in_postgres(database)
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
        cost=COST if channel is S else None,
        claim_id=f"c-{channel.value}-{number}",
        lease_ms=LEASE_MS,
        call_timeout_ms=CALL_MS,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def finish(
    guard: Guard,
    state: str,
    number: int = 1,
    channel: Channel = E,
    claim: str | None = None,
    intent_id: str = "int-0001-test",
) -> bool:
    return guard.claims.finish(
        claim or f"c-{channel.value}-{number}",
        intent_id=intent_id,
        channel=channel,
        submission_no=number,
        state=state,
        result={"state": state, "n": number},
    )


def facts(guard: Guard, **changes: object) -> None:
    given: dict[str, object] = {"closed": [], "suppressed": [], "lifted": [], "progress": {}}
    guard.claims.write_facts(**(given | changes))  # type: ignore[arg-type]
