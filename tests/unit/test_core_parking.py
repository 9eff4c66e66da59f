"""Facts before their intent, requests that cannot start, and what is remembered after the end."""

from __future__ import annotations

import pytest

from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind, Phase
from schemas.ids import Channel
from schemas.instruction import InstructionAction as Order
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from streams.core.effects import Fate
from streams.core.state import EARLY_FACTS_MAX
from tests.builders import (
    EXPIRY_MS,
    T0,
    Play,
    attempt,
    completed,
    context,
    instruction,
    observation,
    play,
    policy,
    request,
)


@pytest.mark.parametrize(
    ("changes", "at", "reason"),
    [
        ({}, EXPIRY_MS, Reason.EXPIRED_AT_INTAKE),
        ({}, EXPIRY_MS - 30_000, Reason.EXPIRED_AT_INTAKE),
        ({"purpose": "build_failure"}, 0, Reason.PURPOSE_MISMATCH),
        ({"deadline_ms": T0 + 999}, 0, Reason.OUT_OF_BOUNDS),
        ({"deadline_ms": T0 + 600_001}, 0, Reason.OUT_OF_BOUNDS),
        ({"expiry_ms": T0 + 3_600_001}, 0, Reason.OUT_OF_BOUNDS),
        ({"expiry_ms": T0 + 90_000}, 0, Reason.OUT_OF_BOUNDS),
        ({"requested_at_ms": T0 + 300_001, "deadline_ms": T0 + 400_000}, 0, Reason.OUT_OF_BOUNDS),
    ],
)
def test_a_request_that_cannot_start_ends_with_its_reason(
    changes: dict[str, object], at: int, reason: Reason
) -> None:
    game = Play(context())
    game.give(at, request(**changes))
    assert game.last.reason is reason
    assert game.dispatches == []
    assert game.live.phase is Phase.CLOSED
    assert game.steps[-1].drop_sealed
    assert not game.steps[-1].keep_sealed


@pytest.mark.parametrize("reason", [Reason.TEMPLATE_UNKNOWN, Reason.INVALID_VARIABLES])
def test_a_template_problem_holds_or_ends_by_its_class(reason: Reason) -> None:
    game = Play(context(template_problem=reason))
    game.give(0, request())
    assert game.last.reason is reason
    assert (game.live.closed is None) is (reason is Reason.TEMPLATE_UNKNOWN)


def test_an_unknown_policy_holds_until_a_worker_knows_it() -> None:
    game = Play(context())
    game.give(0, request(policy="password_reset:v9"))
    assert game.last.reason is Reason.POLICY_UNKNOWN
    assert game.steps[0].keep_sealed
    assert game.live.due_ms == T0 + 5000
    game.until(40_000)
    assert len(game.decisions) == 1
    game.context = context(policy(policy="password_reset:v9"))
    game.until(75_000)  # 5 + 10 + 20 + 40 s: the fifth trial finds it, and the deadline is over
    assert [d.channel for d in game.dispatches] == [Channel.EMAIL, Channel.SMS]


def test_an_unknown_policy_is_held_no_longer_than_the_expiry() -> None:
    game = Play(context())
    game.give(0, request(policy="password_reset:v9"))
    game.until(EXPIRY_MS)
    assert game.live.closed is CloseKind.EXPIRED
    game.until(EXPIRY_MS + 3_600_000)
    assert game.state is None


def test_facts_before_their_intent_are_parked_and_folded_in_their_order() -> None:
    game = play((0, attempt(0, A.ACCEPTED)), (10, observation(10, P.DELIVERED)))
    assert [s.fate for s in game.steps] == [Fate.PARKED, Fate.PARKED]
    found = game.give(100, request())
    assert [s.fate for s in found] == [Fate.DECIDED] * 3
    assert [s.was_parked for s in found] == [False, True, True]
    assert [s.trigger.offset for s in found] == [2, 0, 1]
    assert game.phase() is Phase.EMAIL_DELIVERED
    assert game.live.early == []


def test_a_parked_fact_told_again_is_absorbed() -> None:
    game = play((0, attempt(0, A.ACCEPTED)))
    kept = game.state_bytes
    assert [s.fate for s in game.give(3, attempt(0, A.ACCEPTED))] == [Fate.ABSORBED]
    assert game.state_bytes == kept


def test_parking_is_bounded_and_ends_are_given_up_last() -> None:
    game = play((0, completed(0)), (1, instruction(1, Order.CANCEL)))
    for n in range(EARLY_FACTS_MAX + 3):
        game.give(10 + n, observation(10 + n, P.ACCEPTED, poll_no=n + 1))
    assert len(game.live.early) == EARLY_FACTS_MAX
    lost = [g for s in game.steps for g in s.given_up]
    assert [g.reason for g in lost] == [Reason.PARKING_FULL] * 5
    assert all(g.fact.kind == "observation" for g in lost)
    game.give(5000, request())
    assert game.dispatches == []


def test_parked_facts_whose_intent_never_comes_are_given_up_by_age() -> None:
    game = play((0, completed(0)), (1, attempt(1, A.ACCEPTED)))
    game.until(599_999)
    assert game.state is not None
    game.until(600_001)
    assert game.state is None
    assert [g.reason for g in game.steps[-1].given_up] == [Reason.ORPHAN_EXPIRED] * 2
