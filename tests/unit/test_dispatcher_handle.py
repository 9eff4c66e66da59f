"""What an order means, with the guard in memory and a provider that does as it is told."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from schemas.accounts import Account, Capabilities
from schemas.attempt import Attempt, AttemptState
from schemas.control import Controls
from schemas.errors import GuardUnavailable
from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.sealed import UnsealingKeys
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.handle import Dispatcher, Handled, Limits, Ports
from sinks.dispatcher.prepare import Preparer
from sinks.dispatcher.rules import ORDER_FRESH_MS
from sinks.postgres.pool import NOT_REACHED
from sinks.providers.base import SubmitResult
from tests.builders import T0
from tests.fakes_provider import TAKEN, ScriptedProvider
from tests.orders import EMAIL, PRINTS, PRIVATE, VARIABLES, order


@dataclass
class ScriptedClock:
    ms: int = T0
    s: float = 0.0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.s

    def on(self, ms: int) -> None:
        self.ms += ms
        self.s += ms / 1000


class Away(MemoryClaims):
    """A guard that can be away."""

    away: frozenset[str] = frozenset()

    def claim(self, request: Any) -> Any:
        self._check("claim")
        return super().claim(request)

    def begin(self, claim_id: str) -> int | None:
        self._check("begin")
        return super().begin(claim_id)

    def look(self, *given: Any, **more: Any) -> Any:
        self._check("look")
        return super().look(*given, **more)

    def finish(self, claim_id: str, **given: Any) -> bool:
        self._check("finish")
        return super().finish(claim_id, **given)

    def _check(self, what: str) -> None:
        if what in self.away:
            raise GuardUnavailable("away", code=NOT_REACHED)


class Crash(BaseException):
    """A process that dies at a fault point."""


class Bench:
    def __init__(self) -> None:
        self.clock = ScriptedClock()
        self.claims = Away(self.clock.now_ms)
        self.controls = Controls()
        self.completions_read, self.clock_trusted = True, True
        self.crash_at = ""
        self.mail, self.text = (
            ScriptedProvider(Account(name=n, provider="simulated", channel=c, capabilities=Capabilities()))
            for n, c in (("mail-a", Channel.EMAIL), ("text-a", Channel.SMS))
        )
        self.unsealing = UnsealingKeys([PRIVATE])
        self.ids = itertools.count(1)

    def dispatcher(self) -> Dispatcher:
        """A fresh process on the same guard."""
        ports = Ports(
            claims=self.claims,
            providers={"mail-a": self.mail, "text-a": self.text},
            preparer=Preparer(unsealing=self.unsealing, fingerprints=PRINTS, digest_key=b"d" * 32),
            clock=self.clock,
            new_id=lambda: f"claim-{next(self.ids)}",
            controls=lambda: self.controls,
            completions_read=lambda: self.completions_read,
            clock_trusted=lambda: self.clock_trusted,
            fault=self._fault,
        )
        return Dispatcher(ports, Limits(lease_ms=30_000, call_timeout_ms=10_000, clock_skew_ms_max=2_000))

    def _fault(self, point: str) -> None:
        if point == self.crash_at:
            raise Crash(point)

    def handle(self, number: int = 1, channel: Channel = Channel.EMAIL, **changes: Any) -> Handled:
        return self.dispatcher().handle(order(number, channel, **changes))

    def attempt(self, number: int = 1, channel: Channel = Channel.EMAIL, **changes: Any) -> Attempt:
        (found,) = self.handle(number, channel, **changes).attempts
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


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


def test_a_resubmission_has_the_same_bytes_and_time_to_live(bench: Bench) -> None:
    bench.text.answers = [SubmitResult(AttemptState.UNKNOWN), TAKEN]
    bench.handle(channel=Channel.SMS)
    bench.clock.on(5_000)
    assert bench.attempt(2, Channel.SMS).state is AttemptState.ACCEPTED
    first, second = bench.text.submitted
    assert (first.text, first.ttl_ms, first.reference) == (second.text, second.ttl_ms, second.reference)


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


@pytest.mark.parametrize(
    ("point", "calls", "then"),
    [
        ("before_claim", 1, AttemptState.ACCEPTED),
        ("after_claim", 1, AttemptState.ACCEPTED),
        ("before_call", 0, AttemptState.UNKNOWN),
        ("after_call", 1, AttemptState.UNKNOWN),
        ("before_result", 1, AttemptState.UNKNOWN),
        ("after_result", 1, AttemptState.ACCEPTED),
    ],
)
def test_a_crash_at_any_boundary_leaves_at_most_one_submission(
    bench: Bench, point: str, calls: int, then: AttemptState
) -> None:
    bench.crash_at = point
    with pytest.raises(Crash):
        bench.handle()
    bench.crash_at = ""
    waiting = bench.handle()
    if waiting.wait_until_ms is not None:
        bench.clock.on(waiting.wait_until_ms - bench.clock.ms + 1)
    assert bench.attempt().state is then
    assert len(bench.mail.submitted) == calls


def test_a_guard_that_is_away_before_the_claim_holds(bench: Bench) -> None:
    bench.claims.away = frozenset({"claim"})
    assert bench.attempt().reason is Reason.GUARD_UNAVAILABLE
    bench.claims.away = frozenset()
    assert bench.attempt(2).state is AttemptState.ACCEPTED
    assert len(bench.mail.submitted) == 1


STOPS: dict[str, tuple[Callable[[Bench], None], dict[str, Any]]] = {
    "paused": (lambda bench: setattr(bench, "controls", Controls(["provider:mail-a"])), {}),
    "clock": (lambda bench: setattr(bench, "clock_trusted", False), {}),
    "key unknown": (lambda bench: setattr(bench, "unsealing", UnsealingKeys([])), {}),
    "key shredded": (lambda bench: setattr(bench, "unsealing", UnsealingKeys([], shredded=["s1"])), {}),
    "expired": (lambda bench: bench.clock.on(900_000), {}),
    "account gone": (lambda bench: None, {"provider_account": "mail-z"}),
}


@pytest.mark.parametrize("stop", STOPS)
def test_what_was_sent_is_said_again_whatever_would_stop_it_now(bench: Bench, stop: str) -> None:
    first = bench.attempt()
    set_up, changes = STOPS[stop]
    set_up(bench)
    assert bench.attempt(**changes) == first
    second = bench.attempt(2, **changes)
    assert (second.submission_no, second.state, second.message_id) == (2, first.state, first.message_id)
    assert len(bench.mail.submitted) == 1


@pytest.mark.parametrize("stop", STOPS)
def test_what_may_have_been_sent_is_unknown_whatever_would_stop_it_now(bench: Bench, stop: str) -> None:
    bench.crash_at = "after_call"
    with pytest.raises(Crash):
        bench.handle()
    bench.crash_at = ""
    set_up, changes = STOPS[stop]
    set_up(bench)
    waiting = bench.handle(**changes).wait_until_ms
    bench.clock.on(0 if waiting is None else waiting - bench.clock.ms + 1)
    found = bench.attempt(**changes)
    assert (found.state, found.submission_no) == (AttemptState.UNKNOWN, 1)


def test_a_crashed_call_told_as_held_while_nobody_could_look_is_not_sent_again_unknowingly(
    bench: Bench,
) -> None:
    bench.crash_at = "after_call"
    with pytest.raises(Crash):
        bench.handle()
    bench.crash_at = ""
    bench.claims.away = frozenset({"claim", "look"})
    assert bench.attempt().reason is Reason.GUARD_UNAVAILABLE
    bench.claims.away = frozenset()
    bench.clock.on(41_000)
    found = bench.attempt(2)
    assert (found.state, found.submission_no) == (AttemptState.UNKNOWN, 2)
    assert bench.attempt(2) == found
    assert len(bench.mail.submitted) == 1
    assert bench.attempt(3).state is AttemptState.ACCEPTED, "the machine decided knowing it"


def test_an_order_whose_hold_was_answered_by_the_next_number_and_that_comes_again_is_sent_once(
    bench: Bench,
) -> None:
    bench.clock_trusted = False
    assert bench.attempt().reason is Reason.CLOCK_SKEWED  # its offset is not committed: it comes again
    bench.clock_trusted = True
    bench.mail.answers = [SubmitResult(AttemptState.UNKNOWN), TAKEN]
    assert bench.attempt().state is AttemptState.UNKNOWN
    second = bench.attempt(2, after_unknown=False)
    assert (second.state, second.submission_no) == (AttemptState.UNKNOWN, 2)
    assert len(bench.mail.submitted) == 1


def test_an_order_given_after_a_hold_is_answered_under_its_number_when_the_held_one_ended_the_ladder(
    bench: Bench,
) -> None:
    bench.clock_trusted = False
    assert bench.attempt().reason is Reason.CLOCK_SKEWED  # its offset is not committed: it comes again
    bench.clock_trusted = True
    bench.mail.answers = [SubmitResult(AttemptState.FAILED, Reason.INVALID_RECIPIENT)]
    first = bench.attempt()
    second = bench.attempt(2, after_unknown=False)
    assert (second.state, second.reason, second.submission_no) == (first.state, first.reason, 2)
    assert second.attempt_id == first.attempt_id.replace(":1:", ":2:")
    assert second.message_id == first.message_id
    assert len(bench.mail.submitted) == 1


UNSURE = SubmitResult(AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)
WINDOW_MS = 100_000  # how long the provider of these tests knows a key


def test_an_order_that_rests_on_a_key_the_provider_has_forgotten_is_given_back_as_unknown(
    bench: Bench,
) -> None:
    bench.mail.answers = [UNSURE, TAKEN]
    bench.attempt()
    bench.clock.on(WINDOW_MS)  # this dispatcher was away
    found = bench.attempt(2, key_until_ms=T0 + WINDOW_MS)
    assert (found.state, found.submission_no) == (AttemptState.UNKNOWN, 2)
    assert len(bench.mail.submitted) == 1
    assert bench.attempt(3).state is AttemptState.ACCEPTED, "the policy took the risk, knowingly"


def test_an_order_that_rests_on_a_key_goes_out_while_the_provider_knows_it(bench: Bench) -> None:
    bench.mail.answers = [UNSURE, TAKEN]
    bench.attempt()
    assert bench.attempt(2, key_until_ms=T0 + WINDOW_MS).state is AttemptState.ACCEPTED


def test_a_hold_in_between_does_not_make_a_forgotten_key_safe(bench: Bench) -> None:
    bench.mail.answers = [UNSURE, SubmitResult(AttemptState.NOT_ACCEPTED, Reason.THROTTLED), TAKEN]
    bench.attempt()
    assert bench.attempt(2, key_until_ms=T0 + WINDOW_MS).state is AttemptState.NOT_ACCEPTED
    bench.clock.on(WINDOW_MS)
    found = bench.attempt(3, after_unknown=False, key_until_ms=T0 + WINDOW_MS)
    assert (found.state, found.submission_no) == (AttemptState.UNKNOWN, 3)
    assert len(bench.mail.submitted) == 2


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


def test_an_email_yields_to_an_sms_claimed_between_its_claim_and_its_first_byte(bench: Bench) -> None:
    plain = bench.claims.begin

    def sms_meanwhile(claim_id: str) -> int | None:
        bench.claims.begin = plain  # type: ignore[method-assign]
        assert bench.attempt(channel=Channel.SMS).state is AttemptState.ACCEPTED
        return plain(claim_id)

    bench.claims.begin = sms_meanwhile  # type: ignore[method-assign]
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.EMAIL_SKIPPED)
    assert bench.mail.submitted == []


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


def test_an_email_that_never_left_is_skipped_after_the_sms(bench: Bench) -> None:
    bench.handle(channel=Channel.SMS)
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.EMAIL_SKIPPED)


def test_an_email_first_read_after_the_deadline_is_given_back_to_the_machine(bench: Bench) -> None:
    bench.clock.on(70_000)
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.EMAIL_SKIPPED)
    assert bench.mail.submitted == []


def test_an_email_ordered_again_after_the_deadline_goes_out(bench: Bench) -> None:
    bench.clock.on(70_000)
    assert bench.attempt().state is AttemptState.HELD
    again = bench.attempt(2, ordered_at_ms=T0 + 70_000)
    assert again.state is AttemptState.ACCEPTED


def test_an_email_that_left_before_the_deadline_is_answered_from_its_row_after_it(bench: Bench) -> None:
    first = bench.attempt()
    bench.clock.on(70_000)
    assert bench.attempt() == first
    assert len(bench.mail.submitted) == 1


def test_a_policy_that_extends_sends_the_email_after_the_deadline(bench: Bench) -> None:
    bench.clock.on(70_000)
    assert bench.attempt(unless_sms_claimed=False).state is AttemptState.ACCEPTED


def test_an_email_ordered_after_the_deadline_is_good_for_a_while_and_then_given_back(bench: Bench) -> None:
    """It knew of the deadline, and not of the SMS that was claimed while it waited."""
    late = T0 + 70_000
    bench.clock.on(70_500)
    assert bench.attempt(ordered_at_ms=late).state is AttemptState.ACCEPTED
    bench = Bench()
    bench.clock.on(70_000 + ORDER_FRESH_MS)
    found = bench.attempt(ordered_at_ms=late)
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.EMAIL_SKIPPED)
    assert not bench.mail.submitted


def test_an_email_claimed_before_the_deadline_and_held_up_over_it_is_given_back(bench: Bench) -> None:
    begin = bench.claims.begin

    def slow(claim_id: str) -> int | None:
        found = begin(claim_id)
        bench.clock.on(10_000)  # frozen over the deadline
        return found

    bench.clock.on(55_000)
    bench.claims.begin = slow  # type: ignore[method-assign]
    found = bench.attempt()
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.EMAIL_SKIPPED)
    assert not bench.mail.submitted
