"""Policies: read whole or refused with every wrong field named; the released ones hold together."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from schemas.errors import PolicyError
from schemas.ids import INSTANT_MS_MAX
from schemas.policy import Policy, UndispatchedEmail, parse, released, table
from schemas.topics import INTENT_RETENTION_MS
from tests.builders import POLICY_TEXT, policy

DAY_MS = 86_400_000


def test_the_released_policies_are_three_purposes() -> None:
    assert {p.purpose for p in released().values()} == {
        "password_reset",
        "signup_verification",
        "build_failure",
    }


@pytest.mark.parametrize("name", sorted(released()))
def test_a_released_policy_leaves_time_for_an_sms_after_its_latest_deadline(name: str) -> None:
    rules = released()[name]
    assert rules.bounds.deadline_ms_max + rules.bounds.min_useful_window_ms < rules.bounds.expiry_ms_max
    assert rules.look_wait_ms < rules.bounds.min_useful_window_ms
    assert rules.claim_hold_ms_max < rules.bounds.min_useful_window_ms
    assert rules.bounds.expiry_ms_max + rules.late_evidence_ms < INTENT_RETENTION_MS
    assert rules.bounds.expiry_ms_max <= DAY_MS


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy": "build_failure:v7"}, "named after its purpose"),
        ({"policy": "password_reset"}, "policy"),
        ({"bounds__deadline_ms_max": 3_600_000}, "bounds"),
        ({"bounds__deadline_ms_min": 700_000}, "bounds"),
        ({"undispatched_email": "extend"}, "extend_ms_max"),
        ({"when_unsure": "guess"}, "when_unsure"),
        ({"sms__countries": ["gb"]}, "countries"),
        ({"email__submissions_max": 0}, "submissions_max"),
        ({"late_evidence_ms": -1}, "late_evidence_ms"),
        ({"fresh_ms": INSTANT_MS_MAX}, "fresh_ms"),
        ({"fresh_mss": 1}, "fresh_mss"),
        ({"sms__allow": True}, "allow"),
        ({"sms__consent_age_ms_min": -1}, "consent_age_ms_min"),
        ({"sms__phone_age_ms_min": -1}, "phone_age_ms_min"),
        ({"sms__consent_age_ms_min": 1, "sms__consent_required": False}, "needs sms.consent_required"),
    ],
)
def test_a_policy_that_does_not_hold_together_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        policy(**changes)


def test_a_variant_is_named_purpose_two_underscores_variant() -> None:
    assert policy(policy="password_reset__fast:v1").purpose == "password_reset"


def test_a_policy_that_is_not_toml_is_refused_with_its_name() -> None:
    with pytest.raises(PolicyError, match="policy broken is not TOML"):
        parse("policy = ", name="broken")


def test_every_wrong_field_is_named_at_once() -> None:
    text = POLICY_TEXT.replace('urgency = "urgent"', 'urgency = "now"').replace(
        "fresh_ms = 10000", "fresh_ms = -1"
    )
    with pytest.raises(PolicyError, match=r"urgency.*fresh_ms") as caught:
        parse(text, name="twice")
    assert caught.value.remedy


def test_two_policies_of_one_name_are_refused() -> None:
    with pytest.raises(PolicyError, match="two policies are called password_reset:v7"):
        table([policy(), policy()])


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        policy().fresh_ms = 1  # type: ignore[misc]


def test_defaults_are_the_careful_choice() -> None:
    rules: Policy = policy()
    assert rules.undispatched_email is UndispatchedEmail.SKIP_EMAIL
    assert rules.when_unsure.value == "wait"
    assert rules.bounce_after_delivered.value == "keep"
    assert rules.sms.consent_required
    assert (rules.sms.consent_age_ms_min, rules.sms.phone_age_ms_min) == (0, 0)
