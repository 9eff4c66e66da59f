"""Assurance: what a policy demands of purpose, consent and number is asked on every way to an SMS.

The ages to the millisecond, and each refusal on each path; the laws over any history are in tests/property.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.attempt import AttemptState as A
from schemas.control import Controls
from schemas.decision import Phase, Verdict
from schemas.ids import Channel
from schemas.instruction import InstructionAction
from schemas.intent import SmsConsent
from schemas.observation import ProviderState as P
from schemas.policy import BounceAfterDelivered, Policy
from schemas.reasons import Reason, ReasonClass
from schemas.tick import TickCause
from streams.core import gates
from streams.core.draft import Context
from streams.core.due import quarantine
from streams.core.state import to_bytes
from tests.builders import (
    DEADLINE_MS,
    EXPIRY_MS,
    T0,
    Play,
    attempt,
    context,
    instruction,
    observation,
    play,
    policy,
    request,
    started,
    tick,
)

AGE_MS = 86_400_000
OVER = EXPIRY_MS + 700_000


def consent(age_ms: int) -> SmsConsent:
    return SmsConsent(granted_at_ms=T0 - age_ms, text_ref="consent-3")


AGES: list[tuple[str, str, Reason, Callable[[int], dict[str, Any]]]] = [
    (
        "consent_age",
        "sms__consent_age_ms_min",
        Reason.CONSENT_TOO_RECENT,
        lambda age_ms: {"sms_consent": consent(age_ms)},
    ),
    (
        "phone_age",
        "sms__phone_age_ms_min",
        Reason.PHONE_TOO_RECENT,
        lambda age_ms: {"phone_verified_at_ms": T0 - age_ms},
    ),
]


@pytest.mark.parametrize(("gate", "rule", "reason", "aged"), AGES, ids=[a[0] for a in AGES])
@pytest.mark.parametrize(("age_ms", "opens"), [(AGE_MS - 1, False), (AGE_MS, True), (AGE_MS + 1, True)])
def test_an_age_opens_at_exactly_what_the_policy_demands(
    gate: str, rule: str, reason: Reason, aged: Callable[[int], dict[str, Any]], age_ms: int, opens: bool
) -> None:
    game = started(ctx=context(policy(**{rule: AGE_MS})), **aged(age_ms))
    game.until(DEADLINE_MS)
    assert game.sent(Channel.SMS) == opens
    said = {g.gate: g for g in game.last.gates}[gate]
    if opens:
        assert said.verdict is Verdict.OPEN
        return
    assert (said.verdict, said.reason) == (Verdict.REFUSE, reason)
    assert said.detail == "86399999 ms, 86400000 ms demanded"
    assert (game.last.reason, game.last.reason_class) == (reason, ReasonClass.POLICY)
    game.until(OVER)
    assert game.sent(Channel.SMS) == 0


@pytest.mark.parametrize(("gate", "rule", "reason", "aged"), AGES, ids=[a[0] for a in AGES])
def test_waiting_for_the_deadline_or_in_a_hold_makes_nothing_older(
    gate: str, rule: str, reason: Reason, aged: Callable[[int], dict[str, Any]]
) -> None:
    """Measured at the claim, a consent of one second would be a minute old at the deadline."""
    del gate
    game = started(
        ctx=context(policy(**{rule: DEADLINE_MS}), controls=Controls(["all"], offset=1)), **aged(1)
    )
    game.until(DEADLINE_MS)
    assert game.last.reason is reason


@pytest.mark.parametrize("late_ms", [0, 250_000])
def test_a_request_that_reaches_the_log_late_is_judged_by_its_own_instants(late_ms: int) -> None:
    """Neither the log's clock nor a worker's counts: the same request, the same verdict, whenever read."""
    rules = policy(sms__consent_age_ms_min=AGE_MS, sms__phone_age_ms_min=AGE_MS)
    for age_ms, sms in ((AGE_MS - 1, 0), (AGE_MS, 1)):
        asked = request(sms_consent=consent(age_ms), phone_verified_at_ms=T0 - age_ms)
        game = play((late_ms, asked), ctx=context(rules))
        game.until(late_ms + DEADLINE_MS)
        assert game.sent(Channel.SMS) == sms


def test_a_number_of_which_nobody_says_since_when_is_refused_where_an_age_is_demanded() -> None:
    game = started(ctx=context(policy(sms__phone_age_ms_min=1)))
    game.until(DEADLINE_MS)
    assert game.last.reason is Reason.PHONE_TOO_RECENT
    assert [g.detail for g in game.last.gates if g.gate == "phone_age"] == ["not said, 1 ms demanded"]


def test_a_number_verified_with_the_request_itself_has_no_age() -> None:
    game = started(ctx=context(policy(sms__phone_age_ms_min=1)), phone_verified_at_ms=T0)
    game.until(DEADLINE_MS)
    assert game.last.reason is Reason.PHONE_TOO_RECENT


def test_a_consent_dated_after_its_request_is_no_old_one() -> None:
    game = started(ctx=context(policy(sms__consent_age_ms_min=1)), sms_consent=consent(-5))
    game.until(DEADLINE_MS)
    assert game.last.reason is Reason.CONSENT_TOO_RECENT


def test_a_policy_that_demands_no_age_asks_for_none() -> None:
    game = started(sms_consent=consent(0))
    game.until(DEADLINE_MS)
    assert game.phase() is Phase.SMS_CLAIMED


def test_who_has_no_number_or_no_consent_is_told_that_and_not_an_age() -> None:
    rules = policy(sms__consent_age_ms_min=AGE_MS, sms__phone_age_ms_min=AGE_MS)
    game = started(ctx=context(rules), sms_consent=None, sms_fingerprint=None)
    game.until(DEADLINE_MS)
    assert [g.gate for g in game.last.gates if g.verdict is not Verdict.OPEN] == ["phone", "consent"]


# every way to an SMS

RULES: list[tuple[Reason, dict[str, Any], dict[str, Any]]] = [
    (Reason.PURPOSE_FORBIDS_SMS, {"sms__allowed": False}, {}),
    (Reason.CONSENT_TOO_RECENT, {"sms__consent_age_ms_min": AGE_MS}, {"sms_consent": consent(AGE_MS - 1)}),
    (
        Reason.PHONE_TOO_RECENT,
        {"sms__phone_age_ms_min": AGE_MS},
        {"phone_verified_at_ms": T0 - AGE_MS + 1},
    ),
    (Reason.PHONE_TOO_RECENT, {"sms__phone_age_ms_min": AGE_MS}, {}),
]
Way = Callable[[Policy, dict[str, Any]], Play]


def _bounced(at: int) -> Any:
    return observation(at, P.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE)


def _at_the_deadline(rules: Policy, asked: dict[str, Any]) -> Play:
    game = started(ctx=context(rules), **asked)
    game.until(DEADLINE_MS)
    return game


def _at_intake_past_the_deadline(rules: Policy, asked: dict[str, Any]) -> Play:
    game = play((DEADLINE_MS + 5_000, request(**asked)), ctx=context(rules))
    game.until(DEADLINE_MS + 20_000)
    return game


def _at_once(rules: Policy, asked: dict[str, Any]) -> Play:
    game = started(ctx=context(rules), **asked)
    game.give(3000, _bounced(3000))
    return game


def _after_a_delivery(rules: Policy, asked: dict[str, Any]) -> Play:
    fallback = rules.model_copy(update={"bounce_after_delivered": BounceAfterDelivered.FALLBACK})
    game = started(ctx=context(fallback), **asked)
    game.give(1000, attempt(1000, A.ACCEPTED))
    game.give(2000, observation(2000, P.DELIVERED))
    game.give(3000, _bounced(3000))
    return game


def _paused(rules: Policy, offset: int, *names: str) -> Context:
    return context(rules, controls=Controls(names, offset=offset))


def _after_a_pause(rules: Policy, asked: dict[str, Any]) -> Play:
    game = started(ctx=_paused(rules, 7, "all"), **asked)
    game.until(DEADLINE_MS)
    game.context = _paused(rules, 8)
    game.give(DEADLINE_MS + 1000, tick(DEADLINE_MS + 1000, cause=TickCause.CONTROL))
    game.until(DEADLINE_MS + 1000)
    return game


def _by_instruction(rules: Policy, asked: dict[str, Any]) -> Play:
    game = started(ctx=_paused(rules, 7, "all"), **asked)
    game.until(DEADLINE_MS)
    game.context = context(rules)
    game.give(DEADLINE_MS + 1000, instruction(DEADLINE_MS + 1000, InstructionAction.RELEASE))
    game.until(DEADLINE_MS + 1000)
    return game


def _out_of_quarantine(rules: Policy, asked: dict[str, Any]) -> Play:
    game = started(ctx=context(rules), **asked)
    state = game.live
    quarantine(state, rules)
    game.state_bytes = to_bytes(state)
    game.give(3000, _bounced(3000))
    game.give(4000, instruction(4000, InstructionAction.RELEASE))
    return game


WAYS: list[Way] = [
    _at_the_deadline,
    _at_intake_past_the_deadline,
    _at_once,
    _after_a_delivery,
    _after_a_pause,
    _by_instruction,
    _out_of_quarantine,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_every_way_leads_to_an_sms_when_nothing_forbids_it(way: Way) -> None:
    assert way(policy(), {}).sent(Channel.SMS) == 1


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
@pytest.mark.parametrize(
    ("reason", "rules", "asked"), RULES, ids=[f"{n}-{r[0].value}" for n, r in enumerate(RULES)]
)
def test_no_way_leads_past_a_refusal_and_a_replay_says_the_same(
    way: Way, reason: Reason, rules: dict[str, Any], asked: dict[str, Any]
) -> None:
    game = way(policy(**rules), asked)
    assert reason in game.reasons
    game.until(OVER)
    assert game.sent(Channel.SMS) == 0
    again = way(policy(**rules), asked)
    again.until(OVER)
    assert [s.decision_bytes for s in again.steps] == [s.decision_bytes for s in game.steps]


def _refused_then(rules: dict[str, Any], asked: dict[str, Any]) -> Play:
    game = _at_the_deadline(policy(**rules), asked)
    at = DEADLINE_MS + 1000
    game.give(at, instruction(at, InstructionAction.RELEASE))
    game.give(at, request(**asked))
    game.give(at + 1000, _bounced(at + 1000))
    return game


@pytest.mark.parametrize(
    ("reason", "rules", "asked"), RULES, ids=[f"{n}-{r[0].value}" for n, r in enumerate(RULES)]
)
def test_what_was_refused_is_refused_again_after_a_release_a_repeat_and_a_bounce(
    reason: Reason, rules: dict[str, Any], asked: dict[str, Any]
) -> None:
    game = _refused_then(rules, asked)
    assert game.reasons.count(reason) == 2  # at the deadline, and when the e-mail failed for good
    assert game.phase() is Phase.EXHAUSTED
    assert game.sent(Channel.SMS) == 0


def test_an_old_request_repeated_with_an_older_consent_changes_nothing() -> None:
    """Who was refused for the age cannot get it by asking again under the same id: the first stands."""
    rules = policy(sms__consent_age_ms_min=AGE_MS)
    game = started(ctx=context(rules), sms_consent=consent(1))
    game.give(1000, request(sms_consent=consent(AGE_MS)))
    game.until(DEADLINE_MS)
    assert game.reasons[1] is Reason.CONFLICTING_REQUEST
    assert game.last.reason is Reason.CONSENT_TOO_RECENT


def test_a_record_of_a_claim_names_the_ages_among_its_open_gates() -> None:
    rules = policy(sms__consent_age_ms_min=AGE_MS, sms__phone_age_ms_min=AGE_MS)
    game = started(ctx=context(rules), sms_consent=consent(AGE_MS), phone_verified_at_ms=T0 - AGE_MS)
    game.until(DEADLINE_MS)
    assert {"consent_age", "phone_age"} <= {g.gate for g in game.last.gates}
    assert gates.verdict(game.last.gates) is None
