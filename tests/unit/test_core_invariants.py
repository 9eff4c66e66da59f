"""Each invariant fails on a planted bug, so that none of them is a sentence without teeth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.attempt import AttemptState as A
from schemas.decision import CloseKind, GateResult, Phase, Verdict
from schemas.errors import InvariantBroken
from schemas.ids import Channel
from schemas.observation import ProviderState as P
from schemas.reasons import Reason
from streams.core import acts, claim, gates, invariants, machine, polling
from streams.core.draft import Draft
from streams.core.effects import Fate, LookupOrder, Step
from streams.core.state import Track
from streams.core.table import STEPS, TABLE, Move
from tests.builders import (
    DEADLINE_MS,
    EXPIRY_MS,
    T0,
    Play,
    attempt,
    completed,
    context,
    observation,
    policy,
    started,
    subject_seen,
    tick,
)

Patch = pytest.MonkeyPatch


def _pending() -> Play:
    game = started()
    game.give(1000, attempt(1000, A.ACCEPTED))
    return game


def _claimed() -> Play:
    game = started()
    game.until(DEADLINE_MS)
    return game


def _spoil(patch: Patch, harm: Callable[[Draft, Step], None]) -> None:
    """Every step of the machine is followed by `harm` before it is checked."""
    real = machine._dispatch

    def harmed(state: object, known: object, draft: Draft) -> Step:
        found = real(state, known, draft)  # type: ignore[arg-type]
        harm(draft, found)
        return found

    patch.setattr(machine, "_dispatch", harmed)


def _field(name: str, value: object) -> Callable[[Draft, Step], None]:
    return lambda draft, _step: setattr(draft.state, name, value)


def _look(draft: Draft, step: Step) -> None:
    step.lookups.append(LookupOrder(Channel.EMAIL, 1, 9, "audit", "mail-a", None, 0, 0))  # type: ignore[arg-type]


def _forget_decision(_draft: Draft, step: Step) -> None:
    step.fate = Fate.ABSORBED


def _skip_number(draft: Draft, _step: Step) -> None:
    assert draft.state.email is not None
    draft.state.email.submission_no += 2


def _no_track(draft: Draft, _step: Step) -> None:
    draft.state.sms = None


def _tell_subject(_draft: Draft, step: Step) -> None:
    step.subject = subject_seen(0)


SPOILED: list[tuple[str, Callable[[], Play], Callable[[Draft, Step], None]]] = [
    ("the first request stands", _pending, _field("request_digest", "f" * 32)),
    ("deadline and expiry never move", _pending, _field("deadline_ms", 1_790_000_000_001)),
    ("deadline and expiry never move", _pending, _field("expiry_ms", 1_790_009_999_999)),
    ("time does not go back", _pending, _field("last_now_ms", 1)),
    ("one decision is one step of the chain", _pending, _field("seq", 99)),
    ("a phase changes by a move only", _pending, _field("phase", Phase.SMS_DELIVERED)),
    ("an SMS exists only by a claim", _pending, _field("claimed_ms", 1_790_000_070_000)),
    ("an SMS is claimed at most once", _claimed, _field("claimed_ms", 1_790_000_099_999)),
    ("an SMS exists only by a claim", _claimed, _no_track),
    ("submissions are numbered one by one", _pending, _skip_number),
    ("a decided input has one decision", _pending, _forget_decision),
    ("a subject is told of with its request only", _pending, _tell_subject),
]


@pytest.mark.parametrize(("sentence", "before", "harm"), SPOILED)
def test_a_spoiled_step_is_caught(
    sentence: str, before: Callable[[], Play], harm: Callable[[Draft, Step], None], monkeypatch: Patch
) -> None:
    game = before()
    kept = game.state_bytes
    _spoil(monkeypatch, harm)
    with pytest.raises(InvariantBroken, match=sentence):
        game.give(DEADLINE_MS + 500, observation(DEADLINE_MS + 500, P.FAILED_TEMPORARY))
    assert game.state_bytes == kept


def _closed() -> Play:
    game = _pending()
    game.give(2000, completed(2000))
    return game


@pytest.mark.parametrize(
    ("sentence", "harm"),
    [
        ("closed never reopens", _field("closed", None)),
        ("closed never reopens", _field("closed", CloseKind.EXPIRED)),
        ("closed orders nothing", _look),
    ],
)
def test_a_closed_intent_that_stirs_is_caught(
    sentence: str, harm: Callable[[Draft, Step], None], monkeypatch: Patch
) -> None:
    game = _closed()
    _spoil(monkeypatch, harm)
    with pytest.raises(InvariantBroken, match=sentence):
        game.give(3000, observation(3000, P.FAILED_TEMPORARY))


def test_an_absorbed_step_that_orders_is_caught(monkeypatch: Patch) -> None:
    game = _pending()
    _spoil(monkeypatch, _look)
    with pytest.raises(InvariantBroken, match="changes nothing orders nothing"):
        game.give(3000, tick(3000))


def _claim_always(draft: Draft, why: Reason) -> None:
    draft.gates = gates.before_claim(
        draft.state, acts.policy_of(draft), draft.context.controls, now_ms=draft.now_ms, route_known=True
    )
    _claim_anyway(draft, why)


def _claim_anyway(draft: Draft, why: Reason) -> None:
    draft.move(Move.CLAIM)
    draft.state.sms = Track(account="text-a")
    acts.order_submission(draft, Channel.SMS)
    draft.because(why)


def test_a_second_claim_is_caught(monkeypatch: Patch) -> None:
    game = _claimed()
    monkeypatch.setitem(TABLE, (Phase.SMS_CLAIMED, Move.CLAIM), Phase.SMS_CLAIMED)
    monkeypatch.setattr(invariants, "STEPS", {*STEPS, (Phase.SMS_CLAIMED,) * 2})
    monkeypatch.setattr(machine, "_sms_consequences", lambda d: _claim_always(d, Reason.DEADLINE_REACHED))
    with pytest.raises(InvariantBroken, match="an SMS is claimed at most once"):
        game.give(DEADLINE_MS + 500, attempt(DEADLINE_MS + 500, A.ACCEPTED, Channel.SMS))


def test_a_way_the_table_does_not_have_is_caught(monkeypatch: Patch) -> None:
    game = _pending()
    monkeypatch.setitem(TABLE, (Phase.EMAIL_PENDING, Move.EMAIL_DELIVERED), Phase.SMS_DELIVERED)
    with pytest.raises(InvariantBroken, match="the table has no way from email_pending to sms_delivered"):
        game.give(3000, observation(3000, P.DELIVERED))


def test_an_sms_before_the_deadline_is_caught(monkeypatch: Patch) -> None:
    game = _pending()
    monkeypatch.setattr(machine, "_sms_consequences", lambda d: _claim_always(d, Reason.DEADLINE_REACHED))
    with pytest.raises(InvariantBroken, match="no SMS before the deadline without a failure"):
        game.give(3000, observation(3000, P.FAILED_TEMPORARY))


def test_an_sms_too_late_to_be_useful_is_caught(monkeypatch: Patch) -> None:
    game = _pending()
    monkeypatch.setattr(claim, "last_useful_ms", lambda state, _policy: state.expiry_ms)
    monkeypatch.setattr(gates, "verdict", lambda _results: None)
    monkeypatch.setattr(acts, "last_useful_ms", lambda state, _policy: state.expiry_ms)
    late = EXPIRY_MS - 10_000
    with pytest.raises(InvariantBroken, match="no SMS too late to be useful"):
        game.give(late, observation(late, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))


def test_an_sms_past_a_closed_gate_is_caught(monkeypatch: Patch) -> None:
    game = started(sms_consent=None)
    monkeypatch.setattr(gates, "verdict", lambda _results: None)
    with pytest.raises(InvariantBroken, match="no SMS past a closed gate"):
        game.give(DEADLINE_MS, tick(DEADLINE_MS))


AGE_MS = 86_400_000
NOT_PERMITTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("no SMS for a purpose that forbids it", {"sms__allowed": False}, {}),
    ("no SMS to a number that is not allowed", {}, {"sms_fingerprint": None}),
    ("no SMS to a number that is not allowed", {}, {"country": "FR"}),
    ("no SMS without a consent", {}, {"sms_consent": None}),
    ("no SMS on a consent that is too recent", {"sms__consent_age_ms_min": AGE_MS}, {}),
    ("no SMS to a number that is too recent", {"sms__phone_age_ms_min": 1}, {}),
    (
        "no SMS to a number that is too recent",
        {"sms__phone_age_ms_min": AGE_MS},
        {"phone_verified_at_ms": T0 - AGE_MS + 1},
    ),
]


@pytest.mark.parametrize(("sentence", "rules", "asked"), NOT_PERMITTED)
def test_an_sms_that_is_not_permitted_is_caught_though_every_gate_says_open(
    monkeypatch: Patch, sentence: str, rules: dict[str, Any], asked: dict[str, Any]
) -> None:
    game = started(ctx=context(policy(**rules)), **asked)
    said = tuple(GateResult(gate=gate, verdict=Verdict.OPEN) for gate in gates.GATES)
    monkeypatch.setattr(gates, "before_claim", lambda *_, **__: said)
    with pytest.raises(InvariantBroken, match=sentence):
        game.give(DEADLINE_MS, tick(DEADLINE_MS))


@pytest.mark.parametrize(
    ("sentence", "rules"), [(n[0], n[1]) for n in NOT_PERMITTED if n[1]], ids=lambda one: str(one)
)
def test_an_sms_ordered_again_after_a_hold_is_held_to_the_policy_as_well(
    sentence: str, rules: dict[str, Any]
) -> None:
    """The gates are asked at the claim; a policy that changed under its name is nobody's permission."""
    game = _claimed()
    at = DEADLINE_MS + 500
    game.give(at, attempt(at, A.HELD, Channel.SMS))
    assert game.live.sms is not None
    game.context = context(policy(**rules))
    with pytest.raises(InvariantBroken, match=sentence):
        game.until(game.live.sms.retry_ms - T0)


def test_an_sms_for_someone_who_is_done_is_caught(monkeypatch: Patch) -> None:
    game = started()
    _spoil(monkeypatch, _field("completed", True))
    with pytest.raises(InvariantBroken, match="no SMS for someone who is done"):
        game.give(DEADLINE_MS, tick(DEADLINE_MS))


def test_an_order_too_late_is_caught(monkeypatch: Patch) -> None:
    game = started()
    monkeypatch.setattr(acts, "last_useful_ms", lambda state, _policy: state.deadline_ms)
    with pytest.raises(InvariantBroken, match="nothing is ordered too late"):
        game.give(DEADLINE_MS, tick(DEADLINE_MS))


def test_an_email_after_the_claim_is_caught(monkeypatch: Patch) -> None:
    game = _claimed()

    def email_again(draft: Draft, _channel: Channel) -> None:
        acts.order_submission(draft, Channel.EMAIL)

    monkeypatch.setattr(polling, "after_news", email_again)
    with pytest.raises(InvariantBroken, match="no e-mail is ordered after the SMS claim"):
        game.give(DEADLINE_MS + 500, attempt(DEADLINE_MS + 500, A.ACCEPTED))


def test_a_broken_invariant_is_confined_to_its_intent() -> None:
    assert InvariantBroken("a sentence").scope == "intent"
