"""What an order to look up means: ask when the account's budget allows, answer every order exactly once.

Whatever happens is an answer: too late, too many, paused, unknown account and a broken adapter are told like
a delivery (SYSTEM.md §7). «Not found» is passed on as it is; the machine knows when it counts. An operator's
pause never stops polling (SYSTEM.md §5, kill switch), so no control is read here. It must not schedule the
next look-up, ask twice, or keep what was said.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from schemas.lookup import Lookup
from schemas.metrics import LOOKUPS, MALFORMED_RETRY_AFTER, NO_METER, Meter
from schemas.observation import LookupAnswer, Observation
from schemas.reasons import Reason
from sinks.poller.budget import Budget
from sinks.poller.schedule import WAITING_MAX, Order, Waiting
from sinks.providers.base import LookupRequest, LookupResult, Provider

log = logging.getLogger("backstop.poller")

# Refused keys are asked again once a minute: soon enough after a rotation, too seldom to lock an account.
CREDENTIALS_PAUSE_MS = 60_000
# Without a usable Retry-After: 1, 2, 4 … 60 s, back to the start with the first answer.
THROTTLE_PAUSE_MS = 1_000
THROTTLE_PAUSE_MS_MAX = 60_000
# No provider may name more (`retry_after.CAP_MS`): what lies further ahead was named before our clock was set
# back, and would silence the account for as long as the clock had been wrong.
PAUSE_MS_MAX = 3_600_000


# Answers whose Retry-After is about the account and not about one message.
_PAUSING = frozenset({LookupAnswer.THROTTLED, LookupAnswer.UNAVAILABLE, LookupAnswer.CREDENTIALS})


class PollerClock(Protocol):
    """`now_ms` may jump; `monotonic` (seconds) may not."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make: orders of one account."""

    account: str
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class Performed:
    """A call that was made, with one result per order, when it was asked and when they were learnt."""

    call: Call
    results: Sequence[LookupResult]
    asked_ms: int
    at_ms: int

    def observed_ms(self, result: LookupResult) -> int:
        """«Not found» is true of the instant it was asked: a slow answer must not make it count (§5.4)."""
        return min(self.asked_ms, self.at_ms) if result.answer is LookupAnswer.NOT_FOUND else self.at_ms


@dataclass(frozen=True, slots=True)
class Answer:
    """The one observation an order yields."""

    order: Order
    observation: Observation


class Poller:
    """`offer` orders, make the calls that are `due` with `perform` (in threads), `settle` each afterwards.

    All but `perform` belong to one thread. `concurrency` calls run at once, each account having its share,
    so that a slow provider holds its own share only.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        clock: PollerClock,
        *,
        call_timeout_ms: int,
        concurrency: int,
        waiting_max: int = WAITING_MAX,
        meter: Meter = NO_METER,
    ) -> None:
        self._clock, self._call_timeout_ms = clock, call_timeout_ms
        share = max(1, concurrency // max(1, len(providers)))
        self.running_max = max(1, share * len(providers))
        self._accounts = {
            name: _Account(provider, share, Waiting(waiting_max)) for name, provider in providers.items()
        }
        self._meter = meter

    def own(self) -> None:
        """Partitions were given to us: others may just have spent the budgets. Waiting orders are forgotten
        (they are read again), and pauses stay: forgetting them would only bring the next refusal."""
        since_s = self._clock.monotonic()
        for account in self._accounts.values():
            account.waiting = Waiting(account.waiting.orders_max)
            account.budget = Budget(
                account.provider.account.capabilities.lookups_per_s,
                owned_since_s=since_s,
                call_timeout_s=self._call_timeout_ms / 1000,
            )

    def offer(self, order: Order) -> list[Answer]:
        """Take an order in; the answers that are clear at once."""
        account = self._accounts.get(order.lookup.provider_account)
        if account is None:
            log.error("look-up for account %s, which is not configured", order.lookup.provider_account)
            return [self._skip(order, reason=Reason.ACCOUNT_UNKNOWN)]
        refused = account.waiting.push(order)
        return [] if refused is None else [self._skip(refused, paused_until_ms=account.paused_until_ms)]

    def due(self) -> tuple[list[Call], list[Answer]]:
        """Calls that may be made now, and the orders whose time is over: those are answered `skipped`."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        calls: list[Call] = []
        answers: list[Answer] = []
        for name, account in self._accounts.items():
            # While the account is paused nobody whose time ends before can be answered: told at once, so
            # that the machine plans for after the pause instead of waiting for nothing.
            account.paused_until_ms = min(account.paused_until_ms, now_ms + PAUSE_MS_MAX)
            over_ms = max(now_ms, account.paused_until_ms)
            paused_ms = account.paused_until_ms if account.paused_until_ms > now_ms else 0
            answers += [self._skip(o, paused_until_ms=paused_ms) for o in account.waiting.pop_until(over_ms)]
            while account.may_ask(now_ms) and account.budget is not None and account.budget.take(now_s):
                account.running += 1
                calls.append(Call(name, account.waiting.pop_batch(account.batch_max)))
        return calls, answers

    def perform(self, call: Call) -> Performed:
        """Make the call: at most `call_timeout_ms`, in any thread. Never raises."""
        provider = self._accounts[call.account].provider
        requests = [_request(order.lookup) for order in call.orders]
        asked_ms = self._clock.now_ms()
        try:
            results = provider.look_up(requests, now_ms=asked_ms, timeout_ms=self._call_timeout_ms)
        except Exception as exc:  # noqa: BLE001  one bad answer must not stop the polling of everybody
            log.error("adapter of account %s failed: %s", call.account, type(exc).__name__)  # noqa: TRY400
            results = ()
        if len(results) != len(requests):
            results = [LookupResult(LookupAnswer.MALFORMED)] * len(requests)
        return Performed(call, results, asked_ms, self._clock.now_ms())

    def settle(self, done: Performed) -> list[Answer]:
        """The answers of a call that was made; pauses its account when the provider says so."""
        account = self._accounts[done.call.account]
        account.running -= 1
        account.learn(done.results, done.at_ms)
        if any(r.retry_after_malformed for r in done.results):
            self._meter.count(MALFORMED_RETRY_AFTER)
        if any(r.answer is LookupAnswer.CREDENTIALS for r in done.results):
            log.error("account %s: the provider refuses our credentials or our account", done.call.account)
        paused_ms = account.paused_until_ms if account.paused_until_ms > done.at_ms else 0
        return [
            self._answer(order, result, at_ms=done.observed_ms(result), paused_until_ms=paused_ms)
            for order, result in zip(done.call.orders, done.results, strict=True)
        ]

    def _skip(self, order: Order, *, reason: Reason | None = None, paused_until_ms: int = 0) -> Answer:
        result = LookupResult(LookupAnswer.SKIPPED, reason=reason)
        return self._answer(order, result, at_ms=self._clock.now_ms(), paused_until_ms=paused_until_ms)

    def _answer(self, order: Order, result: LookupResult, *, at_ms: int, paused_until_ms: int) -> Answer:
        try:
            found = observation(order.lookup, result, at_ms=at_ms, paused_until_ms=paused_until_ms)
        except ValidationError:  # an adapter let through what no record may hold
            result = LookupResult(LookupAnswer.MALFORMED)
            found = observation(order.lookup, result, at_ms=at_ms, paused_until_ms=paused_until_ms)
        self._meter.count(LOOKUPS, found.answer.value)
        return Answer(order, found)


class _Account:
    """One account: its orders, its budget (None until owned), its pause, its calls that run."""

    def __init__(self, provider: Provider, share: int, waiting: Waiting) -> None:
        self.provider, self.waiting = provider, waiting
        self.budget: Budget | None = None
        self.paused_until_ms = 0
        self.running = 0
        self._share = share
        self._throttled = 0
        caps = provider.account.capabilities
        # Only look-ups by id share a call: anything else would be a call that the budget does not see.
        self.batch_max = caps.lookup_batch_max if caps.lookup_by_message_id else 1

    def may_ask(self, now_ms: int) -> bool:
        return len(self.waiting) > 0 and self.running < self._share and now_ms >= self.paused_until_ms

    def learn(self, results: Sequence[LookupResult], at_ms: int) -> None:
        """A named time pauses; being throttled or refused pauses without one as well. Never shortens."""
        kinds = {r.answer for r in results}
        until_ms = max((r.retry_at_ms or 0 for r in results if r.answer in _PAUSING), default=0)
        if LookupAnswer.THROTTLED in kinds:
            self._throttled += 1
            own_ms = min(THROTTLE_PAUSE_MS << min(self._throttled - 1, 16), THROTTLE_PAUSE_MS_MAX)
            until_ms = until_ms or at_ms + own_ms
        elif kinds & {LookupAnswer.ANSWERED, LookupAnswer.NOT_FOUND}:
            self._throttled = 0
        if LookupAnswer.CREDENTIALS in kinds:
            until_ms = max(until_ms, at_ms + CREDENTIALS_PAUSE_MS)
        self.paused_until_ms = max(self.paused_until_ms, until_ms)


def _request(lookup: Lookup) -> LookupRequest:
    return LookupRequest(
        reference=lookup.reference,
        message_id=lookup.message_id,
        submission_no=lookup.submission_no,
        submitted_ms=lookup.submitted_at_ms,
        fingerprint=lookup.fingerprint,
    )


def observation(lookup: Lookup, result: LookupResult, *, at_ms: int, paused_until_ms: int = 0) -> Observation:
    """The record an order yields. Its id is the order's: told twice it is the same observation."""
    return Observation(
        observation_id=f"{lookup.intent_id}:{lookup.channel.value}:{lookup.submission_no}:{lookup.poll_no}",
        intent_id=lookup.intent_id,
        channel=lookup.channel,
        submission_no=lookup.submission_no,
        poll_no=lookup.poll_no,
        answer=result.answer,
        provider_state=result.provider_state,
        reason=result.reason,
        raw_token=result.raw_token,
        provider_account=lookup.provider_account,
        message_id=result.message_id or lookup.message_id,
        fingerprint=lookup.fingerprint,
        provider_time_ms=result.provider_time_ms,
        observed_at_ms=at_ms,
        paused_until_ms=paused_until_ms or None,
    )
