"""Is there any input that breaks the poller's laws: budget, order, and one answer per order."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from schemas.observation import LookupAnswer
from sinks.poller.budget import Budget
from sinks.poller.handle import Answer, Call, Poller
from sinks.poller.schedule import Order, Waiting
from sinks.providers.base import LookupRequest, LookupResult
from tests.unit.poller_fakes import DELIVERED, T0, HandClock, lookup, provider

TIMEOUT_S = 1.0
RATES = st.one_of(
    st.sampled_from([0.1, 1 / 60, 0.7, 1.0, 3.0, 6 / 60, 9.99, 10.0, 25.0, 100.0, 333.0]),
    st.floats(min_value=0.01, max_value=500.0, allow_nan=False),
)
GAPS_MS = st.lists(st.one_of(st.integers(0, 30), st.integers(0, 3_000)), min_size=5, max_size=60)
DENSE_MS = [5_000] + [5] * 300  # a full bucket, then somebody who never stops asking


def spent(budget: Budget, gaps_ms: list[int], each: int = 60) -> list[int]:
    """When calls were made, in ms, by somebody who asks `each` times at every instant."""
    now_ms, calls = 0, []
    for gap in gaps_ms:
        now_ms += gap
        calls += [now_ms for _ in range(each) if budget.take(now_ms / 1000)]
    return calls


@given(RATES, GAPS_MS)
@example(25.0, DENSE_MS)
@example(19.9, DENSE_MS)
@example(333.0, DENSE_MS)
def test_no_window_of_a_second_or_of_whole_intervals_holds_more_calls_than_documented(
    rate: float, gaps_ms: list[int]
) -> None:
    budget = Budget(rate, owned_since_s=0.0, call_timeout_s=TIMEOUT_S)
    calls = spent(budget, gaps_ms)
    if rate >= 1:
        # A documented 1.5 a second is 3 in two seconds: one single second may hold 2 of them.
        most = ceil(rate)
        assert all(later - earlier >= 1_000 for earlier, later in zip(calls, calls[most:], strict=False))
    else:
        assert all((b - a) / 1000 * rate >= 1 - 1e-3 for a, b in pairwise(calls))


@given(RATES, st.integers(0, 5_000), GAPS_MS)
def test_a_new_owner_spends_nothing_before_an_interval_and_a_call_have_passed(
    rate: float, since_ms: int, gaps_ms: list[int]
) -> None:
    budget = Budget(rate, owned_since_s=since_ms / 1000, call_timeout_s=TIMEOUT_S)
    earliest_ms = since_ms + TIMEOUT_S * 1000 + budget.interval_us / 1000 - 1
    assert all(at >= earliest_ms for at in spent(budget, gaps_ms))


@given(RATES)
@example(9.99)
@example(19.9)
@example(10.0)
def test_whoever_asks_every_twenty_milliseconds_gets_nearly_the_whole_rate(rate: float) -> None:
    budget = Budget(rate, owned_since_s=-TIMEOUT_S, call_timeout_s=TIMEOUT_S)
    step_ms = 20 if rate > 1 else 500
    span_s = max(5, int(10 / rate))
    calls = spent(budget, [step_ms] * (span_s * 1000 // step_ms))
    assert len(calls) >= span_s * rate * 0.79 - 2


@given(
    st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=40), st.integers(1, 5), st.integers(1, 12)
)
def test_the_queue_hands_out_by_time_and_hands_back_what_does_not_fit(
    orders: list[tuple[int, bool]], batch: int, room: int
) -> None:
    waiting, back = Waiting(room), []
    for ticket, (by_ms, by_id) in enumerate(orders):
        found = lookup(ticket, by_ms=by_ms, message_id="m-1" if by_id else None)
        refused = waiting.push(Order(found, ticket))
        back += [] if refused is None else [refused]
        assert len(waiting) <= room
    handed: list[Order] = []
    while len(waiting):
        found_batch = waiting.pop_batch(batch)
        assert 1 <= len(found_batch) <= batch
        assert len(found_batch) == 1 or all(o.lookup.message_id is not None for o in found_batch)
        handed += found_batch
    assert sorted(o.ticket for o in handed + back) == list(range(len(orders)))
    keys = [(o.lookup.answer_by_ms, o.ticket) for o in handed]
    assert keys == sorted(keys)
    assert all((o.lookup.answer_by_ms, o.ticket) > max(keys, default=(0, 0)) for o in back)


@dataclass
class Told:
    """What the machine of this test knows."""

    offered: dict[int, int] = field(default_factory=dict)  # ticket → answer_by
    answered: dict[int, LookupAnswer] = field(default_factory=dict)


class PollerUnderAnyOrder(RuleBasedStateMachine):
    """Orders, passes, slow answers, throttles, refusals and time in any interleaving, over two accounts."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.told, self.open = HandClock(), Told(), list[Call]()
        self.next: dict[str, LookupResult] = {"mail-a": DELIVERED, "mail-b": DELIVERED}
        self.providers = {
            name: provider(name, self.clock, lookups_per_s=5.0, lookup_batch_max=3) for name in self.next
        }
        for name, found in self.providers.items():
            found.answer = lambda _request, name=name: self.next[name]  # type: ignore[misc]
        self.poller = Poller(self.providers, self.clock, call_timeout_ms=1_000, concurrency=4, waiting_max=6)
        self.poller.own()
        self.paused_until: dict[str, int] = dict.fromkeys(self.next, 0)
        self.asked_at: dict[str, list[int]] = {name: [] for name in self.next}

    @rule(
        account=st.sampled_from(["mail-a", "mail-b", "mail-z"]),
        by_ms=st.integers(0, 20_000),
        by_id=st.booleans(),
    )
    def offer(self, account: str, by_ms: int, by_id: bool) -> None:
        ticket = len(self.told.offered)
        until_ms = self.clock.at_ms - T0 + by_ms
        order = lookup(ticket, account=account, by_ms=until_ms, message_id="m-1" if by_id else None)
        self.told.offered[ticket] = order.answer_by_ms
        self.take(self.poller.offer(Order(order, ticket)))

    @rule(
        account=st.sampled_from(["mail-a", "mail-b"]),
        answer=st.sampled_from(LookupAnswer),
        retry_ms=st.none() | st.integers(1_000, 30_000),
    )
    def will_answer(self, account: str, answer: LookupAnswer, retry_ms: int | None) -> None:
        retry_at = None if retry_ms is None else self.clock.at_ms + retry_ms
        self.next[account] = LookupResult(answer, retry_at_ms=retry_at)

    @rule(ms=st.integers(0, 4_000))
    def time_passes(self, ms: int) -> None:
        self.clock.at_ms += ms

    @rule()
    def look(self) -> None:
        calls, over = self.poller.due()
        self.take(over)
        for call in calls:
            assert self.clock.at_ms >= self.paused_until[call.account], "asked during its pause"
            assert all(o.lookup.answer_by_ms > self.clock.at_ms for o in call.orders), "asked too late"
            self.asked_at[call.account].append(self.clock.at_ms)
        self.open += calls

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 100))
    def a_call_ends(self, which: int) -> None:
        done = self.poller.perform(self.open.pop(which % len(self.open)))
        answers = self.poller.settle(done)
        for answer in answers:
            until = answer.observation.paused_until_ms or 0
            name = done.call.account
            self.paused_until[name] = max(self.paused_until[name], until)
        self.take(answers)

    def take(self, answers: list[Answer]) -> None:
        for answer in answers:
            ticket = answer.order.ticket
            assert ticket not in self.told.answered, "answered twice"
            self.told.answered[ticket] = answer.observation.answer

    @invariant()
    def no_second_holds_more_calls_than_the_budget(self) -> None:
        for times in self.asked_at.values():
            assert all(sum(t <= at < t + 1_000 for at in times) <= 5 for t in times[-12:])

    def teardown(self) -> None:
        """Time goes on: whatever was offered is answered in the end, each order once."""
        for _ in range(400):
            self.look()
            while self.open:
                self.a_call_ends(0)
            self.clock.at_ms += 100
        assert self.told.answered.keys() == self.told.offered.keys()


PollerUnderAnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestPollerUnderAnyOrder = PollerUnderAnyOrder.TestCase


@given(st.integers(1_000, 3_600_000), st.integers(1, 20))
def test_whatever_one_account_is_told_the_other_is_asked_at_the_same_instants(
    retry_ms: int, orders: int
) -> None:
    def asked(throttled: bool) -> list[int]:
        clock = HandClock()
        providers = {name: provider(name, clock) for name in ("mail-a", "mail-b")}
        if throttled:

            def answer(_request: LookupRequest) -> LookupResult:
                return LookupResult(LookupAnswer.THROTTLED, retry_at_ms=clock.at_ms + retry_ms)

            providers["mail-a"].answer = answer
        poller = Poller(providers, clock, call_timeout_ms=1_000, concurrency=4)
        poller.own()
        for ticket in range(2 * orders):
            poller.offer(Order(lookup(ticket, account=("mail-a", "mail-b")[ticket % 2]), ticket))
        for _ in range(100):
            for call in poller.due()[0]:
                poller.settle(poller.perform(call))
            clock.at_ms += 50
        return [at for at, _ in providers["mail-b"].asked]

    assert asked(throttled=True) == asked(throttled=False)
    assert len(asked(throttled=True)) == orders
