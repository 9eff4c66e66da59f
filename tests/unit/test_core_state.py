"""What is remembered of an intent: its row, and the glance a restart takes at it."""

from __future__ import annotations

import msgspec
import pytest

from schemas.attempt import AttemptState
from schemas.reasons import Reason
from streams.core.state import Glance, IntentState, from_bytes, glance, holds, to_bytes
from tests.builders import attempt, context, started


def _held() -> IntentState:
    game = started(context())
    game.give(500, attempt(500, AttemptState.HELD, reason=Reason.CONTROL_PAUSED))
    return game.live


def _accepted() -> IntentState:
    game = started(context())
    game.give(500, attempt(500, AttemptState.ACCEPTED))
    return game.live


@pytest.mark.parametrize(
    "state", [IntentState("int-0001"), _accepted(), _held()], ids=["new", "live", "held"]
)
def test_a_glance_sees_what_the_whole_row_says(state: IntentState) -> None:
    row = to_bytes(state)
    seen, whole = glance(row), from_bytes(row)
    for name in ("request_digest", "closed", "hold_reason", "due_ms", "due_latest_ms"):
        assert getattr(seen, name) == getattr(whole, name)
    assert holds(seen) == holds(whole)


def test_a_glance_knows_no_field_the_row_does_not_have() -> None:
    row = {f.name for f in msgspec.structs.fields(IntentState)}
    assert {f.name for f in msgspec.structs.fields(Glance)} <= row


def test_a_held_submission_is_a_hold() -> None:
    assert holds(glance(to_bytes(_held())))
    assert not holds(glance(to_bytes(_accepted())))
