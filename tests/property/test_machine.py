"""The laws of the machine over generated histories: reordered, duplicated, late, with clock jumps."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from schemas.decision import Decision, Phase
from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.tick import Tick
from streams.core.draft import Context
from streams.core.effects import Fate, Step
from streams.core.machine import steps
from streams.core.state import IntentState, from_bytes, to_bytes
from streams.core.table import STEPS
from tests.builders import T0, Play, request, tick
from tests.builders import given as an_input
from tests.property.histories import HISTORIES, Given, History, Player

ONE_INSTANT_TICKS_MAX = 6  # look lost, look due, claim, submissions: each at most once, with room


def _steps(player: Player) -> list[Step]:
    return [s for g in player.given for s in g.found]


def _states(player: Player) -> list[IntentState]:
    return [s.state for s in _steps(player) if s.state is not None and s.state.request_digest]


@given(HISTORIES)
def test_an_sms_is_claimed_at_most_once_and_submissions_are_numbered_one_by_one(history: History) -> None:
    player = Player(history).play()
    assert len({s.claimed_ms for s in _states(player) if s.claimed_ms}) <= 1
    for channel in Channel:
        numbers = [d.submission_no for d in player.game.dispatches if d.channel is channel]
        assert numbers == list(range(1, len(numbers) + 1))


@given(HISTORIES)
def test_an_sms_comes_neither_early_without_a_failure_nor_too_late_to_be_useful(history: History) -> None:
    player = Player(history).play()
    window = history.rules.bounds.min_useful_window_ms
    for state in _states(player):
        if state.claimed_ms and state.email is not None:
            assert state.claimed_ms >= state.deadline_ms or state.email.facts.failed_ms
            assert state.claimed_ms < state.expiry_ms - window
    for found in _steps(player):
        for order in found.dispatches:
            assert found.state is not None
            assert found.state.last_now_ms < order.not_after_ms <= found.state.expiry_ms - window


@given(HISTORIES)
def test_no_sms_is_ordered_that_purpose_consent_or_number_forbid(history: History) -> None:
    player, sms = Player(history).play(), history.rules.sms
    player.drain()
    asked = request(**history.asked)
    agreed, known_ms = asked.sms_consent, asked.phone_verified_at_ms
    forbidden = (
        not sms.allowed
        or asked.sms_fingerprint is None
        or (sms.consent_required and agreed is None)
        or (agreed is not None and T0 - agreed.granted_at_ms < sms.consent_age_ms_min)
        or T0 - (T0 if known_ms is None else known_ms) < sms.phone_age_ms_min
    )
    assert not (forbidden and player.game.sent(Channel.SMS))


@given(HISTORIES)
def test_closed_never_reopens_and_orders_nothing(history: History) -> None:
    player = Player(history).play()
    for item in player.given:
        before = None if item.before is None else from_bytes(item.before)
        if before is None or before.closed is None:
            continue
        for found in item.found:
            assert not found.dispatches
            assert not found.lookups
            if found.state is not None:
                assert found.state.closed is before.closed
                assert found.state.phase is Phase.CLOSED


@given(HISTORIES)
def test_deadline_and_expiry_never_move_and_time_never_goes_back(history: History) -> None:
    player = Player(history).play()
    states = _states(player)
    assert len({(s.deadline_ms, s.expiry_ms) for s in states}) <= 1
    for item in player.given:
        before = None if item.before is None else from_bytes(item.before)
        for found in item.found:
            if before is not None and found.state is not None:
                assert found.state.last_now_ms >= before.last_now_ms


@given(HISTORIES)
def test_every_input_has_exactly_one_fate(history: History) -> None:
    player = Player(history).play()
    parked, released, lost = 0, 0, 0
    for offset, item in enumerate(player.given):
        first, *folded = item.found
        assert first.trigger.offset == offset
        assert not first.was_parked
        assert all(f.was_parked and f.fate is not Fate.PARKED for f in folded)
        assert all((f.decision is not None) == (f.fate is Fate.DECIDED) for f in item.found)
        parked += first.fate is Fate.PARKED
        released += len(folded)
        lost += sum(len(f.given_up) for f in item.found)
    state = player.game.state
    assert parked == released + lost + (0 if state is None else len(state.early))


@given(HISTORIES)
def test_folding_the_decisions_gives_the_state_and_the_chain_verifies(history: History) -> None:
    player = Player(history).play()
    place: Phase | None = None
    digest, seq, closed = "", 0, None
    for found in _steps(player):
        if found.state is None:
            place, digest, seq, closed = None, "", 0, None  # forgotten: a chain begins anew
            continue
        if found.decision is None:
            continue
        decision = Decision.model_validate_json(found.decision_bytes)
        assert decision.to_bytes() == found.decision_bytes
        assert decision.prev_digest == digest
        assert decision.seq == seq + 1
        assert decision.prior_phase == place
        path = [decision.prior_phase or Phase.EMAIL_PENDING, *decision.via, decision.next_phase]
        for before, after in pairwise(path):
            assert before is after or (before, after) in STEPS
        place, seq, closed = decision.next_phase, decision.seq, decision.closed
        digest = sha256(found.decision_bytes).hexdigest()
        assert (found.state.phase, found.state.seq, found.state.closed) == (place, seq, closed)
        assert (decision.outcome is not None) == (decision.next_phase is Phase.CLOSED is not path[0])


@given(HISTORIES)
def test_decision_ids_are_unique(history: History) -> None:
    ids = [d.decision_id for d in Player(history).play().game.decisions]
    assert len(set(ids)) == len(ids)


@given(HISTORIES)
def test_the_same_inputs_give_the_same_bytes(history: History) -> None:
    one, other = Player(history).play(), Player(history).play()
    assert [s.decision_bytes for s in _steps(one)] == [s.decision_bytes for s in _steps(other)]
    assert one.game.state_bytes == other.game.state_bytes


@given(HISTORIES)
def test_any_input_given_twice_changes_nothing_the_second_time(history: History) -> None:
    player = Player(history).play()
    for number, item in enumerate(player.given):
        after = item.found[-1].state
        if after is None or item.found[0].given_up:
            continue
        game = Play(_context_of(player, item), to_bytes(after), offset=1000 + number)
        if isinstance(item.record, Tick) and after.due_ms <= after.last_now_ms:
            continue  # more is due at this instant; how much is bounded by another law
        found = game.give(max(item.at, after.last_now_ms - T0), item.record)
        assert [s.fate for s in found] == [Fate.ABSORBED]
        assert game.state_bytes == to_bytes(after)


def _context_of(player: Player, item: Given) -> Context:
    player.paused, player.controls_offset = item.paused, item.controls_offset
    return player.context()


@given(HISTORIES)
def test_a_tick_that_is_not_due_changes_nothing(history: History) -> None:
    player = Player(history).play()
    for item in player.given:
        state = item.found[-1].state
        if state is None or not state.request_digest or state.due_ms <= state.last_now_ms:
            continue
        at = state.due_ms - 1 - T0
        game = Play(_context_of(player, item), to_bytes(state))
        assert [s.fate for s in game.give(at, tick(at))] == [Fate.ABSORBED]
        assert game.state_bytes == to_bytes(state)


@given(HISTORIES)
def test_at_any_instant_a_few_ticks_leave_nothing_due(history: History) -> None:
    player = Player(history).play()
    for item in player.given:
        state = item.found[-1].state
        if state is None:
            continue
        now = state.last_now_ms - T0
        game = Play(_context_of(player, item), to_bytes(state))
        assert game.until(now, limit=ONE_INSTANT_TICKS_MAX) < ONE_INSTANT_TICKS_MAX


@given(HISTORIES)
def test_time_alone_ends_every_history_in_a_bounded_number_of_ticks(history: History) -> None:
    player = Player(history).play()
    player.drain()
    assert player.game.state is None


@given(HISTORIES)
def test_every_state_survives_its_bytes(history: History) -> None:
    for found in _steps(Player(history).play()):
        if found.state is not None:
            assert from_bytes(to_bytes(found.state)) == found.state


@given(HISTORIES)
def test_what_is_due_is_never_later_than_the_end(history: History) -> None:
    for state in _states(Player(history).play()):
        end = max(state.expiry_ms + history.rules.late_evidence_ms, state.forget_ms)
        assert 0 < state.due_ms <= end
        assert state.due_latest_ms >= state.due_ms


@given(HISTORIES)
def test_someone_who_is_done_gets_nothing_more(history: History) -> None:
    player = Player(history).play()
    done = False
    for found in _steps(player):
        assert not (done and found.dispatches)
        done = done or (found.decision is not None and found.decision.reason is Reason.COMPLETED)


@given(HISTORIES, st.integers(0, 39))
def test_the_core_never_changes_the_state_it_was_given(history: History, at: int) -> None:
    player = Player(history).play()
    item = player.given[at % len(player.given)] if player.given else None
    if item is None or item.before is None:
        return
    before = from_bytes(item.before)
    steps(before, an_input(item.at, item.record), _context_of(player, item))
    assert to_bytes(before) == item.before
