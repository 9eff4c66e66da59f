"""What an order means, with the guard in memory and a provider that does as it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.attempt import Attempt, AttemptState
from schemas.control import Controls
from schemas.errors import GuardUnavailable
from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.sealed import UnsealingKeys
from sinks.providers.base import SubmitResult
from tests.builders import T0
from tests.dispatcher_bench import Bench
from tests.fakes_provider import TAKEN
from tests.orders import EMAIL, PRINTS, VARIABLES


def test_an_order_is_submitted_once_and_its_repeats_are_answered_from_the_row(bench: Bench) -> None:
    first = bench.attempt()
    assert (first.state, first.message_id) == (AttemptState.ACCEPTED, "m-1")
    assert [bench.attempt() for _ in range(7)] == [first] * 7
    assert len(bench.mail.submitted) == 1


def test_both_channels_carry_the_dispatch_key_and_the_same_link(bench: Bench) -> None:
    bench.handle()
    bench.handle(channel=Channel.SMS)
    (mail,), (text,) = bench.mail.submitted, bench.text.submitted
    assert (mail.reference, text.reference) == ("int-0001-test.email", "int-0001-test.sms")
    assert VARIABLES["link"] in mail.text
    assert VARIABLES["link"] in text.text
    assert "canary" not in repr(mail) + repr(text)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tenant": "tenant-0002"}, Reason.BINDING_MISMATCH),
        ({"deadline_ms": T0 + 1}, Reason.BINDING_MISMATCH),
        ({"country": "US"}, Reason.BINDING_MISMATCH),
        ({"email_fingerprint": "k1.e." + "0" * 32}, Reason.BINDING_MISMATCH),
        ({"sealed": "a.b.c.d.e"}, Reason.SEAL_BROKEN),
        ({"payload_variables": {"link": "https://evil.example/", "name": "A"}}, Reason.INVALID_VARIABLES),
        ({"payload_variables": {"name": "A"}}, Reason.INVALID_VARIABLES),
        ({"not_after_ms": T0}, Reason.EXPIRED),
        ({"not_after_ms": T0 + 12_000}, Reason.EXPIRED),
    ],
)
def test_what_is_wrong_with_an_order_is_refused_and_nothing_leaves(
    bench: Bench, changes: dict[str, Any], reason: Reason
) -> None:
    found = bench.attempt(**changes)
    assert (found.state, found.reason) == (AttemptState.REFUSED, reason)
    assert bench.mail.submitted == []


def test_what_is_ours_is_held_and_never_refused(bench: Bench) -> None:
    held: dict[Reason, Callable[[], None]] = {
        Reason.CONTROL_PAUSED: lambda: setattr(bench, "controls", Controls(["provider:text-a"])),
        Reason.COMPLETIONS_UNREAD: lambda: setattr(bench, "completions_read", False),
        Reason.CLOCK_SKEWED: lambda: setattr(bench, "clock_trusted", False),
        Reason.KEY_UNKNOWN: lambda: setattr(bench, "unsealing", UnsealingKeys([])),
    }
    for reason, set_up in held.items():
        bench.__init__()  # type: ignore[misc]
        set_up()
        found = bench.attempt(channel=Channel.SMS)
        assert (found.state, found.reason) == (AttemptState.HELD, reason)
    bench.__init__()  # type: ignore[misc]
    assert bench.attempt(template="password_reset:v99").reason is Reason.TEMPLATE_UNKNOWN
    assert bench.attempt(provider_account="mail-z").reason is Reason.ACCOUNT_UNKNOWN
    assert bench.mail.submitted == bench.text.submitted == []


def test_a_shredded_key_ends_the_intent(bench: Bench) -> None:
    bench.unsealing = UnsealingKeys([], shredded=["s1"])
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.KEY_SHREDDED)


def test_unread_completions_hold_an_sms_and_not_an_email(bench: Bench) -> None:
    bench.completions_read = False
    assert bench.attempt().state is AttemptState.ACCEPTED
    assert bench.attempt(channel=Channel.SMS).reason is Reason.COMPLETIONS_UNREAD


def test_a_completion_between_claim_and_first_byte_stops_the_sms(bench: Bench) -> None:
    plain = bench.claims.begin

    def completed_meanwhile(claim_id: str) -> int | None:
        bench.claims.write_facts(
            closed=[("int-0001-test", Reason.COMPLETED)], suppressed=[], lifted=[], progress={}
        )
        return plain(claim_id)

    bench.claims.begin = completed_meanwhile  # type: ignore[method-assign]
    found = bench.attempt(channel=Channel.SMS)
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.COMPLETED)
    assert bench.text.submitted == []


def test_a_kill_switch_thrown_between_claim_and_first_byte_stops_it(bench: Bench) -> None:
    plain = bench.claims.begin

    def thrown_meanwhile(claim_id: str) -> int | None:
        found = plain(claim_id)
        bench.controls = Controls(["all"])
        return found

    bench.claims.begin = thrown_meanwhile  # type: ignore[method-assign]
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.CONTROL_PAUSED)
    assert bench.mail.submitted == []


def test_a_pause_between_claim_and_first_byte_outlives_the_lease_and_nothing_leaves(bench: Bench) -> None:
    plain = bench.claims.begin

    def frozen(claim_id: str) -> int | None:
        found = plain(claim_id)
        bench.clock.on(25_000)
        return found

    bench.claims.begin = frozen  # type: ignore[method-assign]
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.LEASE_LOST)
    assert bench.mail.submitted == []


def test_a_result_after_the_lease_is_recorded_and_published_but_does_not_change_the_row(bench: Bench) -> None:
    def successor() -> None:
        bench.clock.on(41_000)
        bench.mail.during = lambda: None
        assert bench.attempt().state is AttemptState.UNKNOWN
        late.append(bench.attempt(2))

    late: list[Attempt] = []
    bench.mail.during = successor
    bench.mail.answers = [TAKEN, SubmitResult(AttemptState.UNKNOWN)]
    first = bench.attempt()
    assert (first.state, first.submission_no) == (AttemptState.UNKNOWN, 1)
    assert late[0].submission_no == 2
    assert len(bench.claims.late) == 1


def test_a_guard_that_is_away_before_the_claim_holds(bench: Bench) -> None:
    bench.claims.away = frozenset({"claim"})
    assert bench.attempt().reason is Reason.GUARD_UNAVAILABLE
    bench.claims.away = frozenset()
    assert bench.attempt(2).state is AttemptState.ACCEPTED
    assert len(bench.mail.submitted) == 1


def test_a_refusal_waits_for_the_guard_because_the_order_may_have_been_sent(bench: Bench) -> None:
    bench.claims.away = frozenset({"look"})
    found = bench.attempt(not_after_ms=T0)
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.GUARD_UNAVAILABLE)


def test_a_claim_that_was_committed_without_an_answer_is_found_again_and_goes_on(bench: Bench) -> None:
    plain, lost = bench.claims.claim, iter((True, False))

    def answer_lost(request: Any) -> Any:
        found = plain(request)
        if next(lost):
            raise GuardUnavailable("cut off at the commit", code="guard_unavailable")
        return found

    bench.claims.claim = answer_lost  # type: ignore[method-assign]
    assert bench.attempt().state is AttemptState.ACCEPTED
    assert len(bench.mail.submitted) == 1


def test_an_adapter_that_fails_leaves_unknown_and_nothing_of_its_text(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ValueError("canary@example.com")

    bench.mail.during = broken
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)
    assert bench.attempt() == found
    assert len(bench.mail.submitted) == 1
    assert "ValueError" in caplog.text
    assert "canary" not in caplog.text


def test_a_guard_that_is_away_before_the_first_byte_holds(bench: Bench) -> None:
    bench.claims.away = frozenset({"begin", "finish"})
    found = bench.handle()
    assert found.attempts[0].reason is Reason.GUARD_UNAVAILABLE
    assert found.heal is not None
    assert bench.mail.submitted == []


def test_a_guard_that_is_away_after_the_call_publishes_first_and_heals_later(bench: Bench) -> None:
    bench.claims.away = frozenset({"finish"})
    found = bench.handle()
    (attempt,) = found.attempts
    assert (attempt.state, attempt.unrecorded) == (AttemptState.ACCEPTED, True)
    bench.claims.away = frozenset()
    assert found.heal is not None
    found.heal()
    assert bench.attempt().state is AttemptState.ACCEPTED
    assert len(bench.mail.submitted) == 1


def test_a_refused_recipient_is_suppressed_for_every_later_intent_and_path(bench: Bench) -> None:
    bench.mail.answers = [SubmitResult(AttemptState.FAILED, Reason.INVALID_RECIPIENT, suppress=True)]
    found = bench.handle()
    assert [(s.fingerprint, s.reason) for s in found.suppressions] == [
        (PRINTS.of(EMAIL), Reason.INVALID_RECIPIENT)
    ]
    other = bench.attempt(intent_id="int-0002-test")
    assert (other.state, other.reason) == (AttemptState.REFUSED, Reason.SUPPRESSED)
    assert bench.attempt(channel=Channel.SMS).state is AttemptState.ACCEPTED
