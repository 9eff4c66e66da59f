"""Release from a hold and from quarantine, and ticks that say nothing."""

from __future__ import annotations

import pytest

from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind, Phase
from schemas.ids import Channel
from schemas.instruction import InstructionAction as Order
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from schemas.tick import TickCause
from streams.core import due
from streams.core.effects import Fate
from streams.core.state import to_bytes
from tests.builders import (
    DEADLINE_MS,
    EXPIRY_MS,
    OVER_MS,
    T0,
    Play,
    attempt,
    completed,
    instruction,
    observation,
    policy,
    started,
    tick,
)


def test_a_tick_of_a_closed_intent_says_nothing() -> None:
    game = started()
    game.give(1000, completed(1000))
    assert [s.fate for s in game.give(2000, tick(2000))] == [Fate.ABSORBED]


def test_release_tries_a_hold_at_once_and_again_says_nothing() -> None:
    game = started()
    game.give(1000, attempt(1000, A.HELD, reason=Reason.SPEND_EXHAUSTED))
    game.give(1500, instruction(1500, Order.RELEASE))
    assert game.last.reason is Reason.RELEASED
    assert game.live.due_ms == T0 + 1500
    assert [s.fate for s in game.give(1500, instruction(1501, Order.RELEASE))] == [Fate.ABSORBED]
    game.until(1500)
    assert game.sent(Channel.EMAIL) == 2


def test_release_of_what_is_not_held_is_absorbed() -> None:
    game = started()
    assert [s.fate for s in game.give(1500, instruction(1500, Order.RELEASE))] == [Fate.ABSORBED]


def test_a_control_tick_releases_only_what_a_control_held() -> None:
    for reason, sent in ((Reason.CONTROL_PAUSED, 2), (Reason.KEY_UNKNOWN, 1)):
        game = started()
        game.give(1000, attempt(1000, A.HELD, reason=reason))
        game.give(1500, tick(1500, cause=TickCause.CONTROL))
        assert game.sent(Channel.EMAIL) == sent


def _quarantined() -> Play:
    game = started()
    state = game.live
    due.quarantine(state, policy())
    game.state_bytes = to_bytes(state)
    return game


def test_a_quarantined_intent_does_nothing_until_its_time_is_over() -> None:
    game = _quarantined()
    assert game.live.due_ms == T0 + EXPIRY_MS
    game.give(1000, observation(1000, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    game.give(DEADLINE_MS, tick(DEADLINE_MS))
    assert game.sent(Channel.SMS) == 0
    game.until(EXPIRY_MS)
    assert game.live.closed is CloseKind.EXPIRED


def test_release_from_quarantine_weighs_a_delivery_learnt_meanwhile() -> None:
    game = _quarantined()
    game.give(1000, observation(1000, P.DELIVERED))
    game.give(2000, instruction(2000, Order.RELEASE))
    assert game.phase() is Phase.EMAIL_DELIVERED
    game.until(OVER_MS)
    assert game.sent(Channel.SMS) == 0


def test_release_from_quarantine_weighs_a_failure_learnt_meanwhile() -> None:
    game = _quarantined()
    game.give(1000, observation(1000, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    game.give(2000, instruction(2000, Order.RELEASE))
    assert game.phase() is Phase.SMS_CLAIMED


def test_a_completion_ends_a_quarantined_intent() -> None:
    game = _quarantined()
    game.give(1000, completed(1000))
    assert game.live.closed is CloseKind.COMPLETED


def test_a_quarantine_in_the_grace_is_not_due_all_the_time() -> None:
    game = started()
    game.until(EXPIRY_MS)
    assert game.phase() is Phase.SMS_CLAIMED
    state = game.live
    due.quarantine(state, policy())
    assert state.due_ms == T0 + EXPIRY_MS + 600_000


@pytest.mark.parametrize("at", range(0, DEADLINE_MS, 7919))
def test_a_tick_that_is_not_due_changes_nothing(at: int) -> None:
    game = started()
    kept = game.state_bytes
    assert [s.fate for s in game.give(at, tick(at))] == [Fate.ABSORBED]
    assert game.state_bytes == kept
