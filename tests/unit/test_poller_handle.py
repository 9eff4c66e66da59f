"""Does the poller answer every order, when it asks and when it does not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from schemas.metrics import LOOKUPS, MALFORMED_RETRY_AFTER
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason
from sinks.poller.handle import CREDENTIALS_PAUSE_MS, PAUSE_MS_MAX, Answer, Poller
from sinks.poller.schedule import Order
from sinks.providers import retry_after
from sinks.providers.base import LookupRequest, LookupResult
from tests.counting import CountingMeter
from tests.unit.poller_fakes import T0, HandClock, TellingProvider, lookup, provider

TIMEOUT_MS = 1_000
L = LookupAnswer


class Bench:
    """A poller over fake providers; calls are made at once, on this thread."""

    def __init__(self, *names: str, waiting_max: int = 100, **capabilities: Any) -> None:
        self.clock = HandClock()
        self.providers = {n: provider(n, self.clock, **capabilities) for n in names or ("mail-a",)}
        self.meter = CountingMeter()
        self.poller = Poller(
            self.providers,
            self.clock,
            call_timeout_ms=TIMEOUT_MS,
            concurrency=8,
            waiting_max=waiting_max,
            meter=self.meter,
        )
        self.poller.own()
        self.tickets = 0

    def offer(self, number: int, **changes: Any) -> list[Answer]:
        self.tickets += 1
        return self.poller.offer(Order(lookup(number, **changes), self.tickets))

    def go(self, until_ms: int, step_ms: int = 50) -> list[Answer]:
        """Pass after pass until T0 + `until_ms`."""
        answers = []
        while True:
            calls, over = self.poller.due()
            answers += over
            for call in calls:
                answers += self.poller.settle(self.poller.perform(call))
            if self.clock.at_ms >= T0 + until_ms:
                return answers
            self.clock.at_ms += step_ms

    @property
    def mail(self) -> TellingProvider:
        return self.providers["mail-a"]


def kinds(answers: Sequence[Answer]) -> list[LookupAnswer]:
    return [a.observation.answer for a in answers]


def test_an_order_yields_one_observation_with_everything_the_machine_needs() -> None:
    bench = Bench()
    bench.offer(1, fingerprint="k1.e." + "a" * 32, poll_no=3, submission_no=2)
    (answer,) = bench.go(3_000)
    seen = answer.observation
    assert seen.observation_id == "int-0001-test:email:2:3"
    assert (seen.answer, seen.provider_state, seen.raw_token) == (
        L.ANSWERED,
        ProviderState.DELIVERED,
        "delivered",
    )
    assert (seen.message_id, seen.fingerprint) == ("m-1", "k1.e." + "a" * 32)
    assert seen.paused_until_ms is None
    assert seen.observed_at_ms == bench.mail.asked[0][0]


def test_a_new_owner_waits_one_interval_and_the_calls_time_and_then_keeps_the_pace() -> None:
    bench = Bench(lookups_per_s=2.0)
    for number in range(3):
        bench.offer(number)
    bench.go(5_000)
    assert [at - T0 for at, _ in bench.mail.asked] == [1_500, 2_000, 2_500]


def test_before_it_owns_anything_a_poller_asks_nobody() -> None:
    bench = Bench()
    bench.poller = Poller(bench.providers, bench.clock, call_timeout_ms=1, concurrency=1)
    bench.offer(1)
    assert bench.poller.due() == ([], [])


def test_a_rebalance_forgets_what_waits_and_empties_the_bucket_again() -> None:
    bench = Bench(lookups_per_s=2.0)
    bench.offer(1)
    bench.go(1_400)
    bench.poller.own()
    bench.offer(2)
    bench.go(5_000)
    assert bench.mail.asked == [(T0 + 2_900, ["int-0002-test.email"])]


def test_the_earliest_answer_by_is_asked_first() -> None:
    bench = Bench()
    for number, by_ms in ((1, 9_000), (2, 5_000), (3, 7_000)):
        bench.offer(number, by_ms=by_ms)
    answers = bench.go(3_000)
    assert [a.order.lookup.intent_id for a in answers] == ["int-0002-test", "int-0003-test", "int-0001-test"]


def test_orders_by_id_share_a_call_up_to_the_accounts_batch_and_nothing_overtakes() -> None:
    bench = Bench(lookup_batch_max=3)
    for number in range(8):
        bench.offer(number, by_ms=9_000 + number, **({"message_id": None} if number == 4 else {}))
    bench.go(3_000)
    assert [[int(r[4:8]) for r in asked] for _, asked in bench.mail.asked] == [[0, 1, 2], [3], [4], [5, 6, 7]]


def test_an_account_that_only_knows_references_makes_one_call_per_order() -> None:
    bench = Bench(lookup_batch_max=3, lookup_by_message_id=False)
    for number in range(3):
        bench.offer(number)
    bench.go(3_000)
    assert [len(asked) for _, asked in bench.mail.asked] == [1, 1, 1]


def test_an_order_whose_time_is_over_is_skipped_and_not_asked() -> None:
    bench = Bench()
    bench.offer(1, by_ms=500)
    answers = bench.go(3_000)
    assert kinds(answers) == [L.SKIPPED]
    assert answers[0].observation.observed_at_ms == T0 + 500
    assert bench.mail.asked == []


def test_one_order_too_many_is_skipped_and_it_is_the_one_with_most_time() -> None:
    bench = Bench(waiting_max=2)
    assert bench.offer(1, by_ms=5_000) == []
    assert bench.offer(2, by_ms=9_000) == []
    (skipped,) = bench.offer(3, by_ms=7_000)
    assert (skipped.order.lookup.intent_id, skipped.observation.answer) == ("int-0002-test", L.SKIPPED)
    (skipped,) = bench.offer(4, by_ms=8_000)
    assert skipped.order.lookup.intent_id == "int-0004-test"
    assert len(bench.go(4_000)) == 2


def test_an_account_that_is_not_configured_is_answered_with_its_reason() -> None:
    (answer,) = Bench().offer(1, account="mail-z")
    assert (answer.observation.answer, answer.observation.reason) == (L.SKIPPED, Reason.ACCOUNT_UNKNOWN)


def test_retry_after_pauses_its_account_only_and_travels_on_the_observation() -> None:
    bench = Bench("mail-a", "mail-b")
    until = T0 + 10_000
    bench.mail.answer = lambda _r: LookupResult(L.THROTTLED, retry_at_ms=until)
    for number in range(6):
        bench.offer(number, account=("mail-a", "mail-b")[number % 2], by_ms=60_000)
    answers = bench.go(5_000)
    assert kinds(answers).count(L.ANSWERED) == 3
    (throttled,) = [a.observation for a in answers if a.observation.answer is L.THROTTLED]
    assert throttled.paused_until_ms == until
    bench.mail.answer = lambda _r: LookupResult(L.NOT_FOUND)
    assert kinds(bench.go(12_000)) == [L.NOT_FOUND] * 2
    assert [at >= until for at, _ in bench.mail.asked] == [False, True, True]


def test_a_pause_longer_than_an_orders_time_answers_it_at_once_and_says_until_when() -> None:
    bench = Bench()
    until = T0 + 3_600_000
    bench.mail.answer = lambda _r: LookupResult(L.THROTTLED, retry_at_ms=until)
    bench.offer(1, by_ms=15_000)
    bench.offer(2, by_ms=16_000)
    first, second = bench.go(3_000)
    assert (first.observation.answer, second.observation.answer) == (L.THROTTLED, L.SKIPPED)
    assert second.observation.paused_until_ms == until
    assert second.observation.observed_at_ms < T0 + 3_000


def test_a_pause_named_by_a_clock_that_was_wrong_ends_within_the_hour() -> None:
    bench = Bench()
    bench.mail.answer = lambda _r: LookupResult(L.THROTTLED, retry_at_ms=T0 + 30 * 86_400_000)
    bench.offer(1)
    bench.go(3_000)
    bench.clock.at_ms += PAUSE_MS_MAX
    bench.offer(2, by_ms=PAUSE_MS_MAX + 60_000)
    bench.mail.answer = lambda _r: LookupResult(L.NOT_FOUND)
    assert kinds(bench.go(PAUSE_MS_MAX + 6_000)) == [L.NOT_FOUND]


def test_a_named_pause_is_never_cut_by_the_bound_on_pauses() -> None:
    assert retry_after.CAP_MS <= PAUSE_MS_MAX


@pytest.mark.parametrize(("answer", "late_ms"), [(L.NOT_FOUND, 0), (L.ANSWERED, 4_000)])
def test_not_found_is_observed_when_it_was_asked_and_a_state_when_it_was_told(
    answer: LookupAnswer, late_ms: int
) -> None:
    bench = Bench()

    def slowly(_request: object) -> LookupResult:
        bench.clock.at_ms += 4_000
        state = ProviderState.ACCEPTED if answer is L.ANSWERED else None
        return LookupResult(answer, provider_state=state)

    bench.mail.answer = slowly
    bench.offer(1)
    (found,) = bench.go(3_000)
    assert found.observation.observed_at_ms - bench.mail.asked[0][0] == late_ms


def test_throttled_without_a_time_backs_off_by_itself_and_starts_over_after_an_answer() -> None:
    bench = Bench()
    bench.mail.answer = lambda _r: LookupResult(L.THROTTLED, retry_after_malformed=True)
    for number in range(8):
        bench.offer(number, by_ms=200_000)
    bench.go(16_500)
    asked = [at - T0 for at, _ in bench.mail.asked]
    assert [b - a for a, b in pairwise(asked)] == [1_000, 2_000, 4_000, 8_000]
    assert bench.meter.of(MALFORMED_RETRY_AFTER) == len(asked)
    assert bench.meter.of(LOOKUPS, "throttled") == len(asked)
    bench.mail.answer = lambda _r: LookupResult(L.ANSWERED, ProviderState.ACCEPTED)
    bench.go(32_150)
    bench.mail.answer = lambda _r: LookupResult(L.THROTTLED)
    bench.go(34_000)
    assert [at - T0 for at, _ in bench.mail.asked[-3:]] == [32_100, 32_200, 33_200]


def test_refused_credentials_pause_the_account_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.mail.answer = lambda _r: LookupResult(L.CREDENTIALS, reason=Reason.CREDENTIALS_REFUSED)
    for number in range(3):
        bench.offer(number, by_ms=90_000)
    answers = bench.go(30_000)
    assert kinds(answers) == [L.CREDENTIALS]
    seen = answers[0].observation
    assert seen.paused_until_ms == seen.observed_at_ms + CREDENTIALS_PAUSE_MS
    assert "mail-a" in caplog.text


@pytest.mark.parametrize("answer", [L.UNAVAILABLE, L.MALFORMED, L.NOT_FOUND])
def test_an_answer_about_one_message_pauses_nobody(answer: LookupAnswer) -> None:
    bench = Bench()
    bench.mail.answer = lambda _r: LookupResult(
        answer, retry_at_ms=None if answer is L.UNAVAILABLE else T0 + 50_000
    )
    bench.offer(1)
    bench.offer(2)
    answers = bench.go(3_000)
    assert kinds(answers) == [answer] * 2
    assert {a.observation.paused_until_ms for a in answers} == {None}


def test_a_service_that_names_the_end_of_its_outage_is_left_alone_until_then() -> None:
    bench = Bench()
    bench.mail.answer = lambda _r: LookupResult(L.UNAVAILABLE, retry_at_ms=T0 + 9_000)
    bench.offer(1)
    bench.offer(2)
    assert kinds(bench.go(8_000)) == [L.UNAVAILABLE]


def _wrong_count(_requests: object, **_times: int) -> list[LookupResult]:
    return []


def _raises(_requests: object, **_times: int) -> list[LookupResult]:
    raise KeyError("canary@example.com")


@pytest.mark.parametrize("broken", [_wrong_count, _raises])
def test_a_broken_adapter_is_an_answer_and_says_nothing_it_was_given(
    broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(lookup_batch_max=5)
    bench.mail.look_up = broken  # type: ignore[method-assign]
    bench.offer(1)
    bench.offer(2)
    assert kinds(bench.go(3_000)) == [L.MALFORMED] * 2
    assert "canary" not in caplog.text


def test_a_result_no_record_may_hold_is_malformed() -> None:
    bench = Bench()
    bench.mail.answer = lambda _r: LookupResult(L.ANSWERED, ProviderState.DELIVERED, raw_token="two words")
    bench.offer(1)
    (answer,) = bench.go(3_000)
    assert (answer.observation.answer, answer.observation.provider_state) == (L.MALFORMED, None)


def test_a_slow_account_holds_its_own_share_of_the_calls_only() -> None:
    bench = Bench("mail-a", "mail-b", lookups_per_s=100.0)
    for number in range(40):
        bench.offer(number, account=("mail-a", "mail-b")[number % 2])
    bench.clock.at_ms += 5_000
    calls, _ = bench.poller.due()  # none of them ends
    assert sorted(c.account for c in calls) == ["mail-a"] * 4 + ["mail-b"] * 4
    assert bench.poller.running_max == 8
    mine = [c for c in calls if c.account == "mail-b"]
    for call in mine:
        bench.poller.settle(bench.poller.perform(call))
    assert {c.account for c in bench.poller.due()[0]} == {"mail-b"}


def test_the_request_carries_what_the_order_names() -> None:
    bench = Bench()
    seen: list[LookupRequest] = []
    bench.mail.answer = lambda r: seen.append(r) or LookupResult(L.NOT_FOUND)  # type: ignore[func-returns-value]
    bench.offer(1, message_id=None, submission_no=4)
    bench.go(3_000)
    assert seen == [LookupRequest("int-0001-test.email", None, 4)]
