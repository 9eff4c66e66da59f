"""At most one logical submission, with real processes that race, freeze and die around a real guard."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from schemas.attempt import AttemptState
from schemas.reasons import Reason
from tests.conftest import Servers
from tests.integration.guard_rig import EMAIL, EMAIL_KEYED, SMS, WAIT_S, Rig, eventually, messages, rig

RACERS = 8
FAULT_POINTS = ("before_claim", "after_claim", "before_call", "after_call", "before_result", "after_result")
# Short enough to wait for: lease 2.5 s + call 1 s until `unknown`. Long enough for a busy machine: from its
# claim to its last check a holder has 1.5 s.
CLOCKS = {"BACKSTOP_CALL_TIMEOUT_MS": "1000", "BACKSTOP_LEASE_MS": "2500"}


@pytest.fixture(scope="module")
def short(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Short leases, for whoever waits for one to end."""
    dsn = stack.new_database("guard")
    with rig(stack.bootstrap, dsn, tmp_path_factory.mktemp("guard"), changes=CLOCKS) as one:
        yield one


@pytest.mark.parametrize("account", [EMAIL, SMS])
def test_eight_dispatchers_given_the_same_order_make_one_provider_call(
    stack: Servers, fresh_dsn: str, tmp_path_factory: pytest.TempPathFactory, account: str
) -> None:
    with rig(stack.bootstrap, fresh_dsn, tmp_path_factory.mktemp("race")) as one:
        racers = [one.dispatcher() for _ in range(RACERS)]
        one.ready(*racers)
        for round_no in range(5):
            order = one.order(f"int-race-{round_no:04d}", account=account)
            for racer in racers:
                racer.give(order)
            answers = [racer.answer() for racer in racers]
            assert answers[0].state is AttemptState.ACCEPTED
            assert answers == [answers[0]] * RACERS
            assert len(one.ledger(order.dispatch_key)) == 1
        assert len({r.process.pid for r in racers}) == RACERS


def test_a_dispatcher_frozen_after_its_claim_sends_nothing_once_another_took_over(short: Rig) -> None:
    order = short.order("int-frozen-claim")
    frozen, other = short.dispatcher("after_claim", "SIGSTOP", "1"), short.dispatcher()
    short.ready(frozen, other)
    frozen.give(order)
    eventually(frozen.is_stopped)
    assert short.ledger(order.dispatch_key) == []
    assert other.ask(order).state is AttemptState.ACCEPTED
    frozen.resume()
    late = frozen.answer()
    assert (late.state, late.reason) == (AttemptState.HELD, Reason.LEASE_LOST)
    assert len(short.ledger(order.dispatch_key)) == 1
    (kept,) = short.rows("SELECT claim_id FROM late_results WHERE intent_id = %s", order.intent_id)
    assert kept["claim_id"] == late.claim_id


def test_the_result_of_a_dispatcher_frozen_in_its_call_makes_known_what_was_given_up(short: Rig) -> None:
    order = short.order("int-frozen-call")
    frozen, other = short.dispatcher("after_call", "SIGSTOP", "1"), short.dispatcher()
    short.ready(frozen, other)
    frozen.give(order)
    eventually(frozen.is_stopped)
    taken_over = other.ask(order)
    assert taken_over.state is AttemptState.UNKNOWN
    assert other.ask(order) == taken_over
    frozen.resume()
    late = frozen.answer()
    assert (late.state, late.claim_id) == (AttemptState.ACCEPTED, taken_over.claim_id)
    assert other.ask(order) == late
    assert len(short.ledger(order.dispatch_key)) == 1


def test_a_result_that_comes_after_the_next_number_went_out_is_kept_as_late_and_still_said(
    short: Rig,
) -> None:
    first = short.order("int-frozen-late", account=EMAIL_KEYED)
    second = short.order("int-frozen-late", 2, account=EMAIL_KEYED)
    frozen, other = short.dispatcher("after_call", "SIGSTOP", "1"), short.dispatcher()
    short.ready(frozen, other)
    frozen.give(first)
    eventually(frozen.is_stopped)
    assert other.ask(first).state is AttemptState.UNKNOWN
    current = other.ask(second)
    assert current.state is AttemptState.ACCEPTED
    frozen.resume()
    late = frozen.answer()
    assert (late.state, late.submission_no) == (AttemptState.ACCEPTED, 1)
    (kept,) = short.rows("SELECT claim_id, result FROM late_results WHERE intent_id = %s", first.intent_id)
    assert (kept["claim_id"], kept["result"]["message_id"]) == (late.claim_id, late.message_id)
    assert other.ask(second) == current
    assert messages(short.ledger(first.dispatch_key)) == 1


def test_the_next_number_is_sent_while_the_holder_of_the_first_is_frozen_in_its_call(short: Rig) -> None:
    """The residue SYSTEM.md names: frozen between last check and first byte; the key makes it one message."""
    first = short.order("int-frozen-byte", account=EMAIL_KEYED)
    second = short.order("int-frozen-byte", 2, account=EMAIL_KEYED)
    frozen, other = short.dispatcher("before_call", "SIGSTOP", "1"), short.dispatcher()
    short.ready(frozen, other)
    frozen.give(first)
    eventually(frozen.is_stopped)
    assert other.ask(first).state is AttemptState.UNKNOWN
    assert short.ledger(first.dispatch_key) == []
    assert other.ask(second).state is AttemptState.ACCEPTED
    frozen.resume()
    frozen.answer()
    assert messages(short.ledger(first.dispatch_key)) == 1


@pytest.mark.parametrize("point", FAULT_POINTS)
def test_a_killed_dispatcher_leaves_at_most_one_message_and_its_order_is_answered(
    short: Rig, point: str
) -> None:
    intent_id = f"int-killed-{point}"
    order = short.order(intent_id, account=EMAIL_KEYED)
    doomed, heir = short.dispatcher(point, "SIGKILL", "1"), short.dispatcher()
    short.ready(doomed, heir)
    doomed.give(order)
    assert doomed.process.wait(WAIT_S) == -signal.SIGKILL
    left = messages(short.ledger(order.dispatch_key))
    assert left == (point in ("after_call", "before_result", "after_result"))
    answer = heir.ask(order)
    may_have_left = point in ("before_call", "after_call", "before_result")
    assert answer.state is (AttemptState.UNKNOWN if may_have_left else AttemptState.ACCEPTED)
    assert heir.ask(order) == answer
    if may_have_left:
        again = heir.ask(short.order(intent_id, 2, account=EMAIL_KEYED))
        assert again.state is AttemptState.ACCEPTED
    assert messages(short.ledger(order.dispatch_key)) == 1
