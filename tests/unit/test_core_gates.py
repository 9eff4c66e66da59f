"""The gates before a claim: each answers open, refuse or hold, and the record shows all of them."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.control import Controls
from schemas.decision import Phase, Verdict
from schemas.ids import Channel
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from schemas.tick import TickCause
from streams.core import gates
from streams.core.draft import Context
from tests.builders import DEADLINE_MS, EXPIRY_MS, T0, Play, context, observation, policy, started, tick

REFUSALS: list[tuple[str, Reason, dict[str, Any], dict[str, Any]]] = [
    ("purpose", Reason.PURPOSE_FORBIDS_SMS, {"sms__allowed": False}, {}),
    ("phone", Reason.NO_PHONE, {}, {"sms_fingerprint": None}),
    ("consent", Reason.NO_CONSENT, {}, {"sms_consent": None}),
    ("country", Reason.COUNTRY_NOT_ALLOWED, {}, {"country": "FR"}),
]


@pytest.mark.parametrize(("gate", "reason", "rules", "asked"), REFUSALS)
def test_a_refusing_gate_is_final_and_named(
    gate: str, reason: Reason, rules: dict[str, Any], asked: dict[str, Any]
) -> None:
    game = started(ctx=context(policy(**rules)), **asked)
    game.until(EXPIRY_MS + 700_000)
    assert game.sent(Channel.SMS) == 0
    refused = [d for d in game.decisions if d.gates]
    assert [d.reason for d in refused] == [reason]
    said = {g.gate: g for g in refused[0].gates}
    assert said[gate].verdict is Verdict.REFUSE
    assert [g for g, r in said.items() if r.verdict is not Verdict.OPEN] == [gate]


@pytest.mark.parametrize(("gate", "reason", "rules", "asked"), REFUSALS)
def test_a_refusal_after_a_conclusive_failure_leaves_no_channel(
    gate: str, reason: Reason, rules: dict[str, Any], asked: dict[str, Any]
) -> None:
    game = started(ctx=context(policy(**rules)), **asked)
    game.give(3000, observation(3000, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    assert game.phase() is Phase.EXHAUSTED
    assert game.last.reason is reason
    assert set(game.last.notes) >= {Reason.PERMANENT_BOUNCE, Reason.EXHAUSTED}


def test_a_policy_without_consent_requirement_needs_none() -> None:
    game = started(ctx=context(policy(sms__consent_required=False)), sms_consent=None)
    game.until(DEADLINE_MS)
    assert game.phase() is Phase.SMS_CLAIMED


@pytest.mark.parametrize(("forbids", "claims"), [(True, 0), (False, 1)])
def test_a_complaint_forbids_sms_where_the_policy_says_so(forbids: bool, claims: int) -> None:
    game = started(ctx=context(policy(sms__complaint_forbids=forbids)))
    game.give(3000, observation(3000, P.FAILED_PERMANENT, reason=Reason.COMPLAINT))
    assert game.sent(Channel.SMS) == claims


def _paused(*names: str, offset: int = 7) -> Context:
    return context(controls=Controls(names, offset=offset))


@pytest.mark.parametrize(
    "name",
    ["all", "channel:sms", "purpose:password_reset", "provider:text-a", "tenant:tenant-0001", "country:GB"],
)
def test_every_scope_of_the_kill_switch_holds_the_claim(name: str) -> None:
    game = started(ctx=_paused(name))
    game.until(DEADLINE_MS)
    assert game.last.reason is Reason.CONTROL_PAUSED
    assert [g.detail for g in game.last.gates if g.verdict is Verdict.HOLD] == [name]
    assert game.last.controls_offset == 7
    assert game.sent(Channel.SMS) == 0


@pytest.mark.parametrize("name", ["channel:email", "purpose:build_failure", "provider:mail-a", "country:US"])
def test_a_control_of_another_scope_holds_nothing(name: str) -> None:
    game = started(ctx=_paused(name))
    game.until(DEADLINE_MS)
    assert game.sent(Channel.SMS) == 1


def test_a_route_without_an_account_here_is_held() -> None:
    game = started(ctx=context(policy(sms__account="text-b")))
    game.until(DEADLINE_MS)
    assert game.last.reason is Reason.ACCOUNT_UNKNOWN
    assert game.live.hold_reason is Reason.ACCOUNT_UNKNOWN


def test_a_refusal_outranks_a_hold() -> None:
    ctx = context(policy(sms__allowed=False), controls=Controls(["all"], offset=1))
    game = started(ctx=ctx)
    game.until(DEADLINE_MS)
    assert game.last.reason is Reason.PURPOSE_FORBIDS_SMS


def test_a_record_of_a_claim_shows_every_gate_open() -> None:
    game = started()
    game.until(DEADLINE_MS)
    names = [g.gate for g in game.last.gates]
    assert names == list(gates.GATES)
    assert gates.verdict(game.last.gates) is None


def _held_ticks(game: Play) -> list[int]:
    """Instants (ms after the deadline) at which the held claim was tried."""
    start = game.live.deadline_ms
    found = []
    for _ in range(9):
        found.append(game.live.claim_due_ms - start)
        game.until(game.live.claim_due_ms - T0)
    return found


def test_a_hold_is_decided_once_and_tried_at_5_10_20_40_60_seconds() -> None:
    game = started(ctx=_paused("all"))
    game.until(DEADLINE_MS)
    decided = len(game.decisions)
    assert _held_ticks(game) == [5000, 15_000, 35_000, 75_000, 135_000, 195_000, 255_000, 315_000, 375_000]
    assert len(game.decisions) == decided


def test_a_control_change_is_tried_at_once_and_told_once_per_offset() -> None:
    game = started(ctx=_paused("all"))
    game.until(DEADLINE_MS)
    game.context = _paused("all", offset=8)
    game.give(DEADLINE_MS + 1000, tick(DEADLINE_MS + 1000, cause=TickCause.CONTROL))
    assert game.last.controls_offset == 8
    kept = game.state_bytes
    game.give(DEADLINE_MS + 1001, tick(DEADLINE_MS + 1001, cause=TickCause.CONTROL))
    assert game.state_bytes == kept  # not even the next trial is put off
    game.context = context(controls=Controls(offset=9))
    game.give(DEADLINE_MS + 2000, tick(DEADLINE_MS + 2000, cause=TickCause.CONTROL))
    assert game.phase() is Phase.SMS_CLAIMED


def test_a_hold_that_outlives_the_useful_time_ends_in_a_refusal() -> None:
    game = started(ctx=_paused("all"))
    game.until(EXPIRY_MS - 30_000)
    assert game.last.reason is Reason.TOO_LATE_FOR_SMS
    assert game.sent(Channel.SMS) == 0


def test_a_pause_never_brings_an_sms_forward() -> None:
    game = started(ctx=_paused("provider:mail-a"))
    game.until(DEADLINE_MS - 1)
    assert game.sent(Channel.SMS) == 0
