"""The table: every move it names is reached by inputs, and every other move is refused."""

from __future__ import annotations

from itertools import pairwise

import pytest

from schemas.attempt import AttemptState as A
from schemas.decision import Phase
from schemas.ids import Channel
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from streams.core.draft import Context, Draft
from streams.core.machine import step
from streams.core.table import STEPS, TABLE, Move, mermaid
from tests.builders import Play, attempt, completed, context, given, observation, policy, started

BOUNCE = observation(3000, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE)
FALLBACK = context(policy(bounce_after_delivered="fallback"))
NO_SMS = context(policy(sms__allowed=False))


def _delivered() -> Play:
    game = started(ctx=FALLBACK)
    game.then(1000, attempt(1000, A.ACCEPTED))
    game.then(2000, observation(2000, P.DELIVERED))
    return game


def _claimed() -> Play:
    game = started()
    game.then(3000, BOUNCE)
    return game


def _sms(state: A) -> Play:
    game = _claimed()
    game.then(4000, attempt(4000, state, Channel.SMS, reason=_WHY.get(state)))
    return game


def _sms_later(state: P, told: A = A.ACCEPTED) -> Play:
    game = _sms(told)
    game.then(5000, observation(5000, state, Channel.SMS, reason=_WHY.get(state)))
    return game


_WHY = {A.FAILED: Reason.INVALID_RECIPIENT, P.FAILED_PERMANENT: Reason.BLOCKED}


def _at_deadline() -> Play:
    game = started()
    game.until(60_000)
    return game


def _bounced(ctx: Context | None, base: Play | None = None) -> Play:
    game = base or started(ctx=ctx)
    game.then(3000, BOUNCE)
    return game


REACHED: dict[tuple[Phase, Move], Play] = {
    (Phase.EMAIL_PENDING, Move.EMAIL_DELIVERED): _delivered(),
    (Phase.EMAIL_PENDING, Move.EMAIL_FAILED): _bounced(None),
    (Phase.EMAIL_PENDING, Move.CLAIM): _at_deadline(),
    (Phase.EMAIL_INVALID, Move.CLAIM): _bounced(None),
    (Phase.EMAIL_INVALID, Move.NO_CHANNEL_LEFT): _bounced(NO_SMS),
    (Phase.EMAIL_DELIVERED, Move.CLAIM_AFTER_DELIVERY): _bounced(None, _delivered()),
    (Phase.SMS_CLAIMED, Move.SMS_ACCEPTED): _sms(A.ACCEPTED),
    (Phase.SMS_CLAIMED, Move.SMS_DELIVERED): _sms_later(P.DELIVERED, A.UNKNOWN),
    (Phase.SMS_CLAIMED, Move.SMS_FAILED): _sms(A.FAILED),
    (Phase.SMS_ACCEPTED, Move.SMS_DELIVERED): _sms_later(P.DELIVERED),
    (Phase.SMS_ACCEPTED, Move.SMS_FAILED): _sms_later(P.FAILED_PERMANENT),
}


def _path(game: Play) -> list[tuple[Phase | None, Phase | None]]:
    found: list[tuple[Phase | None, Phase | None]] = []
    for decision in game.decisions:
        places = [decision.prior_phase, *decision.via, decision.next_phase]
        found += list(pairwise(places))
    return found


@pytest.mark.parametrize(("place", "move"), [k for k in TABLE if k[1] is not Move.CLOSE])
def test_every_move_of_the_table_is_reached(place: Phase, move: Move) -> None:
    assert (place, TABLE[place, move]) in _path(REACHED[place, move])


CLOSABLE = {
    Phase.EMAIL_PENDING: started(),
    Phase.EMAIL_DELIVERED: _delivered(),
    Phase.EMAIL_INVALID: _bounced(context(policy(sms__account="text-b"))),  # held: no such account here
    Phase.SMS_CLAIMED: _claimed(),
    Phase.SMS_ACCEPTED: _sms(A.ACCEPTED),
    Phase.SMS_DELIVERED: _sms(A.DELIVERED),
    Phase.EXHAUSTED: _bounced(NO_SMS),
}


@pytest.mark.parametrize("place", [p for p in Phase if p is not Phase.CLOSED])
def test_a_completion_closes_from_every_phase(place: Phase) -> None:
    game = CLOSABLE[place]
    assert game.phase() is place
    game.give(50_000, completed(50_000))
    assert game.last.prior_phase is place
    assert game.phase() is Phase.CLOSED


@pytest.mark.parametrize("place", list(Phase))
@pytest.mark.parametrize("move", list(Move))
def test_a_move_the_table_does_not_have_is_refused(place: Phase, move: Move) -> None:
    if (place, move) in TABLE:
        return
    game = started()
    state = game.live
    state.phase = place
    draft = Draft(state, given(3000, BOUNCE), game.context)
    with pytest.raises(KeyError):
        draft.move(move)


def test_nothing_leads_out_of_closed_and_nothing_leads_back_from_a_claim() -> None:
    after_claim = {Phase.SMS_CLAIMED, Phase.SMS_ACCEPTED, Phase.SMS_DELIVERED, Phase.EXHAUSTED, Phase.CLOSED}
    assert not [s for s in STEPS if s[0] is Phase.CLOSED]
    assert all(after in after_claim for before, after in STEPS if before in after_claim)


def test_the_diagram_draws_every_move() -> None:
    drawn = mermaid()
    for (place, move), after in TABLE.items():
        if move is not Move.CLOSE:
            assert f"{place.value} --> {after.value}: {move.value}" in drawn
    assert drawn.startswith("stateDiagram-v2")


def test_a_step_never_touches_the_state_it_was_given() -> None:
    game = started()
    before = game.live
    kept = repr(before)
    found = step(before, given(3000, BOUNCE), game.context)
    assert found.state is not before
    assert repr(before) == kept
