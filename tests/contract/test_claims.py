"""One suite for every guard: at most one logical submission per intent and channel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import psycopg
import pytest

from compose.local.database import Database as Server
from schemas.ids import Channel
from schemas.reasons import Reason
from sinks.dispatcher.claims import Claims, PostgresClaims
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.rules import (
    Busy,
    ClaimRequest,
    Expired,
    Grant,
    Lifted,
    Listed,
    Refuse,
    Stored,
    Superseded,
)
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


def test_the_first_order_is_granted_and_its_repeat_waits_for_the_holder(guard: Guard) -> None:
    assert isinstance(guard.claims.claim(order()), Grant)
    assert isinstance(guard.claims.claim(order(claim_id="other")), Busy)


@pytest.mark.parametrize("state", ["accepted", "failed", "refused", "unknown", "not_accepted", "held"])
def test_a_repeated_order_gets_the_stored_result(guard: Guard, state: str) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    assert finish(guard, state)
    found = guard.claims.claim(order(claim_id="other"))
    assert isinstance(found, Stored)
    assert found.result == {"state": state, "n": 1}


def test_an_order_given_without_knowing_that_the_one_before_may_have_left_is_told_so(guard: Guard) -> None:
    """Number 1 was held without a row, number 2 was ordered, and then number 1 was delivered once more."""
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, "unknown")
    found = guard.claims.claim(order(2, after_unknown=False))
    assert isinstance(found, Expired)
    assert (found.row.claim_id, found.submission_no) == ("c-email-1", 2)
    looked = guard.claims.look("int-0001-test", E, 2, after_unknown=False, call_timeout_ms=CALL_MS)
    assert isinstance(looked, Expired)


@pytest.mark.parametrize("second", ["", "not_accepted", "held"])
def test_an_order_that_rests_on_a_forgotten_key_is_told_that_the_one_before_may_have_left(
    guard: Guard, second: str
) -> None:
    """Also when another one came between that surely did not leave, or whose holder died before its call."""
    guard.claims.claim(order())
    submitted_ms = guard.claims.begin("c-email-1")
    assert submitted_ms is not None
    finish(guard, "unknown")
    assert isinstance(guard.claims.claim(order(2, key_until_ms=submitted_ms + CALL_MS + 60_000)), Grant)
    if second:
        finish(guard, second, 2)
    guard.let_pass(LEASE_MS + 1)
    found = guard.claims.claim(order(3, key_until_ms=submitted_ms))
    assert isinstance(found, Expired)
    assert found.submission_no == 3
    assert isinstance(guard.claims.claim(order(4)), Grant)


@pytest.mark.parametrize("state", ["not_accepted", "held"])
def test_an_order_after_one_that_never_left_need_not_know_of_it(guard: Guard, state: str) -> None:
    guard.claims.claim(order())
    finish(guard, state)
    assert isinstance(guard.claims.claim(order(2, after_unknown=False)), Grant)


@pytest.mark.parametrize("state", ["unknown", "not_accepted", "held"])
@pytest.mark.parametrize("number", [2, 3])
def test_the_machines_next_number_is_granted_after_an_open_result(
    guard: Guard, state: str, number: int
) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, state)
    found = guard.claims.claim(order(number))
    assert isinstance(found, Grant)
    assert not found.is_first


@pytest.mark.parametrize("state", ["accepted", "failed", "refused"])
def test_the_next_number_is_answered_from_the_row_after_a_final_result(guard: Guard, state: str) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, state)
    assert isinstance(guard.claims.claim(order(2)), Stored)


def test_an_older_number_is_answered_from_the_row(guard: Guard) -> None:
    guard.claims.claim(order(2))
    finish(guard, "held", 2)
    assert isinstance(guard.claims.claim(order(1)), Stored)


def test_an_older_number_is_over_while_a_higher_one_is_under_way_also_after_its_lease(guard: Guard) -> None:
    """The older one was sent and told as unknown; claimed again it would be sent a second time."""
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, "unknown")
    assert isinstance(guard.claims.claim(order(2, claim_id="claim-2", after_unknown=True)), Grant)
    assert isinstance(guard.claims.claim(order(claim_id="again")), Superseded)
    guard.let_pass(LEASE_MS + CALL_MS)
    assert isinstance(guard.claims.claim(order(claim_id="again")), Superseded)
    assert isinstance(guard.claims.claim(order(2, claim_id="claim-3", after_unknown=True)), Grant)


def test_a_holder_that_died_before_its_call_is_replaced_after_its_lease(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.let_pass(LEASE_MS + 1)
    assert isinstance(guard.claims.claim(order(claim_id="other")), Grant)
    assert guard.claims.begin("c-email-1") is None


def test_a_holder_that_died_in_its_call_leaves_unknown_and_is_not_replaced(guard: Guard) -> None:
    guard.claims.claim(order())
    assert guard.claims.begin("c-email-1") is not None
    guard.let_pass(LEASE_MS + 1)
    assert isinstance(guard.claims.claim(order(claim_id="other")), Busy)
    guard.let_pass(CALL_MS)
    found = guard.claims.claim(order(claim_id="other"))
    assert isinstance(found, Expired)
    assert (found.row.claim_id, found.submission_no) == ("c-email-1", 1)
    assert finish(guard, "unknown")
    assert isinstance(guard.claims.claim(order(2)), Grant)


def test_the_next_number_over_a_call_nobody_answered_for_is_unknown_and_not_granted(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    guard.let_pass(LEASE_MS + CALL_MS + 1)
    found = guard.claims.claim(order(2))
    assert isinstance(found, Expired)
    assert found.submission_no == 2
    finish(guard, "unknown", 2, claim="c-email-1")
    assert isinstance(guard.claims.claim(order(2, claim_id="other")), Stored)
    assert isinstance(guard.claims.claim(order(3)), Grant)


def test_an_order_that_will_not_be_claimed_learns_what_the_row_knows(guard: Guard) -> None:
    def look(number: int) -> object:
        return guard.claims.look(
            "int-0001-test", E, number, after_unknown=number > 1, call_timeout_ms=CALL_MS
        )

    assert look(1) is None
    guard.claims.claim(order())
    assert isinstance(look(1), Busy)
    guard.let_pass(LEASE_MS + 1)
    assert look(1) is None
    guard.claims.claim(order(claim_id="c-email-1b"))
    guard.claims.begin("c-email-1b")
    guard.let_pass(LEASE_MS + CALL_MS + 1)
    assert isinstance(look(1), Expired)
    finish(guard, "not_accepted", claim="c-email-1b")
    assert isinstance(look(1), Stored)
    assert look(2) is None


def test_a_lease_that_is_over_cannot_begin(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.let_pass(LEASE_MS + 1)
    assert guard.claims.begin("c-email-1") is None


def test_a_claim_begins_once(guard: Guard) -> None:
    guard.claims.claim(order())
    assert guard.claims.begin("c-email-1") is not None
    assert guard.claims.begin("c-email-1") is None


def test_a_late_result_does_not_change_the_row_of_its_successor(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    guard.let_pass(LEASE_MS + CALL_MS + 1)
    finish(guard, "unknown")
    guard.claims.claim(order(2))
    assert not finish(guard, "accepted", 1)
    assert isinstance(guard.claims.claim(order(2, claim_id="other")), Busy)


def test_a_row_given_up_as_unknown_takes_what_its_holder_learned_and_never_unlearns(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    assert finish(guard, "unknown")
    assert finish(guard, "accepted")
    assert not finish(guard, "unknown")
    assert guard.claims.claim(order(2)) == Stored({"state": "accepted", "n": 1})


def test_a_claim_whose_answer_was_lost_is_found_again_by_its_id(guard: Guard) -> None:
    guard.claims.claim(order())
    again = guard.claims.claim(order())
    assert isinstance(again, Grant)
    assert guard.claims.begin("c-email-1") is not None
    assert isinstance(guard.claims.claim(order()), Busy)


def test_another_digest_under_the_same_key_conflicts(guard: Guard) -> None:
    guard.claims.claim(order())
    finish(guard, "unknown")
    assert guard.claims.claim(order(2, request_digest="e" * 64)) == Refuse(Reason.CONFLICTING_REQUEST)


@pytest.mark.parametrize(("first", "then"), [(E, S), (S, E)])
def test_another_expiry_under_the_same_id_conflicts_whatever_the_channel(
    guard: Guard, first: Channel, then: Channel
) -> None:
    """The worker forgets an id after its expiry; the guard knows that it had another life."""
    guard.claims.claim(order(channel=first))
    reused = order(channel=then, expiry_ms=4_000_000_060_000, unless_sms_claimed=False)
    assert guard.claims.claim(reused) == Refuse(Reason.CONFLICTING_REQUEST)
    assert isinstance(guard.claims.claim(order(channel=then, unless_sms_claimed=False)), Grant)


def facts(guard: Guard, **changes: object) -> None:
    given: dict[str, object] = {"closed": [], "suppressed": [], "lifted": [], "progress": {}}
    guard.claims.write_facts(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", [Reason.COMPLETED, Reason.CANCELLED, Reason.FORCE_CLOSED])
def test_who_is_done_gets_nothing_not_even_a_byte_after_the_claim(guard: Guard, reason: Reason) -> None:
    guard.claims.claim(order(channel=S))
    facts(guard, closed=[("int-0001-test", reason)])
    assert guard.claims.begin("c-sms-1") is None
    assert guard.claims.stopped_by("c-sms-1") is reason
    assert guard.claims.claim(order()) == Refuse(reason)


def test_a_suppressed_destination_is_refused_under_any_live_key_until_it_is_lifted(guard: Guard) -> None:
    facts(guard, suppressed=[Listed("k0.e.bb", "email", Reason.PERMANENT_BOUNCE, "cause")])
    assert guard.claims.claim(order()) == Refuse(Reason.SUPPRESSED)
    other = order(channel=S, intent_id="int-0002-test", fingerprints=("k1.s.cc",))
    assert isinstance(guard.claims.claim(other), Grant)
    facts(guard, lifted=[Lifted("k0.e.bb", "email")])
    assert isinstance(guard.claims.claim(order()), Grant)


def test_a_result_that_suppresses_does_so_in_the_same_transaction(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    guard.claims.finish(
        "c-email-1",
        intent_id="int-0001-test",
        channel=E,
        submission_no=1,
        state="failed",
        result={},
        suppress=("k1.e.aa", Reason.INVALID_RECIPIENT),
    )
    assert guard.claims.claim(order(intent_id="int-0002-test")) == Refuse(Reason.SUPPRESSED)


def test_an_email_that_never_left_is_skipped_once_the_sms_has_its_claim(guard: Guard) -> None:
    guard.claims.claim(order(channel=S))
    assert guard.claims.claim(order()) == Refuse(Reason.EMAIL_SKIPPED)
    assert isinstance(guard.claims.claim(order(unless_sms_claimed=False)), Grant)


def test_an_email_yields_to_an_sms_claimed_between_its_claim_and_its_first_byte(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.claims.claim(order(channel=S))
    assert guard.claims.begin("c-email-1") is None
    assert guard.claims.stopped_by("c-email-1") is Reason.EMAIL_SKIPPED
    assert guard.claims.begin("c-sms-1") is not None


@pytest.mark.parametrize("between", ["claimed", "not_accepted", "held"])
def test_an_email_that_may_have_left_does_not_yield_whatever_came_of_it_since(
    guard: Guard, between: str
) -> None:
    guard.claims.claim(order())
    guard.claims.begin("c-email-1")
    finish(guard, "unknown")
    guard.claims.claim(order(2))
    if between == "claimed":
        guard.let_pass(LEASE_MS + 1)
    else:
        finish(guard, between, 2)
    guard.claims.claim(order(channel=S))
    assert isinstance(guard.claims.claim(order(3)), Grant)
    assert guard.claims.begin("c-email-3") is not None


def test_a_claim_that_a_successor_has_says_so(guard: Guard) -> None:
    guard.claims.claim(order())
    guard.let_pass(LEASE_MS + 1)
    assert guard.claims.begin("c-email-1") is None
    assert guard.claims.stopped_by("c-email-1") is Reason.LEASE_LOST
    guard.claims.claim(order(claim_id="other"))
    assert guard.claims.stopped_by("c-email-1") is Reason.LEASE_LOST


def test_an_expired_intent_is_refused(guard: Guard) -> None:
    assert guard.claims.claim(order(expiry_ms=1)) == Refuse(Reason.EXPIRED)


def test_the_time_to_live_is_fixed_by_the_first_claim(guard: Guard) -> None:
    first = guard.claims.claim(order())
    finish(guard, "unknown")
    guard.let_pass(5_000)
    second = guard.claims.claim(order(2))
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    assert second.ttl_ms == first.ttl_ms


def test_progress_goes_forward_only(guard: Guard) -> None:
    facts(guard, progress={("t", 0): 5})
    facts(guard, progress={("t", 0): 3, ("t", 1): 1})
    assert guard.claims.progress() == {("t", 0): 5, ("t", 1): 1}


def test_of_eight_that_claim_at_once_one_is_granted(guard: Guard) -> None:
    found: list[object] = []
    start = threading.Barrier(8)

    def race(number: int) -> None:
        start.wait()
        found.append(guard.claims.claim(order(claim_id=f"c-{number}")))

    racers = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sum(isinstance(f, Grant) for f in found) == 1
    assert sum(isinstance(f, Busy) for f in found) == 7
