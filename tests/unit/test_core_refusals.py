"""Is a refusal told to its publisher, with the field of the request that it is about, whoever found it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.attempt import AttemptState
from schemas.decision import Decision, Phase
from schemas.publishers.refusals import REQUEST_AHEAD_MS_MAX
from schemas.reasons import Reason
from tests.builders import (
    DEADLINE_MS,
    EXPIRY_MS,
    T0,
    Play,
    attempt,
    completed,
    context,
    policy,
    request,
    started,
)

WHO = "accounts-web"
WINDOW_MS = policy().bounds.min_useful_window_ms
AHEAD_MS = REQUEST_AHEAD_MS_MAX + 1

AT_INTAKE: dict[str, tuple[dict[str, Any], Reason, str]] = {
    "an expiry that has passed": (
        {"deadline_ms": T0 - 2, "expiry_ms": T0 - 1, "requested_at_ms": T0 - 60_000},
        Reason.EXPIRED_AT_INTAKE,
        "/expiry_ms",
    ),
    "a policy nobody has": ({"policy": "password_reset:v99"}, Reason.POLICY_UNKNOWN, "/policy"),
    "another purpose's policy": ({"purpose": "build_failure"}, Reason.PURPOSE_MISMATCH, "/purpose"),
    "a request from the future": (
        {
            "requested_at_ms": T0 + AHEAD_MS,
            "deadline_ms": T0 + AHEAD_MS + DEADLINE_MS,
            "expiry_ms": T0 + AHEAD_MS + EXPIRY_MS,
        },
        Reason.OUT_OF_BOUNDS,
        "/requested_at_ms",
    ),
    "a deadline too soon": ({"deadline_ms": T0 + 1}, Reason.OUT_OF_BOUNDS, "/deadline_ms"),
    "no time left for an SMS": (
        {"deadline_ms": T0 + EXPIRY_MS - WINDOW_MS},
        Reason.OUT_OF_BOUNDS,
        "/deadline_ms",
    ),
    "an expiry too late": ({"expiry_ms": T0 + 86_400_000 * 30}, Reason.OUT_OF_BOUNDS, "/expiry_ms"),
}


def asked(ctx: Any = None, **changes: Any) -> Decision:
    game = Play(ctx or context())
    game.give(0, request(publisher=WHO, **changes))
    return game.last


@pytest.mark.parametrize("name", AT_INTAKE)
def test_a_refusal_at_intake_names_the_publisher_and_the_field(name: str) -> None:
    changes, reason, pointer = AT_INTAKE[name]
    found = asked(**changes)
    assert (found.reason, found.publisher, found.pointer) == (reason, WHO, pointer)


def test_variables_of_wrong_names_are_told_at_intake_as_the_names() -> None:
    found = asked(context(template_problem=Reason.INVALID_VARIABLES))
    assert (found.reason, found.publisher, found.pointer) == (Reason.INVALID_VARIABLES, WHO, "/variables")


@pytest.mark.parametrize(
    "reason",
    [Reason.INVALID_VARIABLES, Reason.SEAL_BROKEN, Reason.BINDING_MISMATCH, Reason.KEY_SHREDDED],
)
def test_what_only_the_dispatcher_can_see_is_told_as_the_sealed_field(reason: Reason) -> None:
    game = started(publisher=WHO)
    game.give(100, attempt(100, AttemptState.REFUSED, reason=reason))
    assert game.phase() is Phase.CLOSED
    assert (game.last.reason, game.last.publisher, game.last.pointer) == (reason, WHO, "/sealed")


def test_a_refusal_after_a_hold_still_names_who_asked() -> None:
    """Its policy comes with another purpose than the request has: told on a tick, from what was kept."""
    policies = context().policies
    game = Play(replace(context(), policies={}))
    game.give(0, request(publisher=WHO, purpose="build_failure"))
    assert (game.last.reason, game.last.pointer) == (Reason.POLICY_UNKNOWN, "/policy")
    game.context = replace(game.context, policies=policies)
    game.until(20_000)
    found = game.last
    assert (found.reason, found.publisher, found.pointer) == (Reason.PURPOSE_MISMATCH, WHO, "/purpose")


def test_another_request_under_a_used_id_is_told_to_who_sent_the_other_one() -> None:
    game = started(publisher=WHO)
    game.give(10, request(publisher="billing", locale="fr"))
    found = game.last
    assert (found.reason, found.publisher, found.pointer) == (
        Reason.CONFLICTING_REQUEST,
        "billing",
        "/intent_id",
    )


def test_a_request_that_is_taken_names_who_asked_and_nothing_to_correct() -> None:
    found = asked()
    assert (found.reason, found.publisher, found.pointer) == (Reason.INTAKE, WHO, None)


def test_what_is_no_refusal_names_nobody() -> None:
    game = started(publisher=WHO)
    game.give(10, completed(10))
    assert (game.last.reason, game.last.publisher, game.last.pointer) == (Reason.COMPLETED, None, None)


def test_a_publisher_without_a_name_is_told_the_field_all_the_same() -> None:
    game = Play(context())
    game.give(0, request(policy="password_reset:v99"))
    assert (game.last.publisher, game.last.pointer) == (None, "/policy")
