"""The dispatcher and the poller around their real handlers, on the agenda: arrival, time and death only.

A handler runs at the start of a call on a clock that the call moves on; what it says is published at the
call's end. A process that is down lets its input wait; one that goes down during a call loses its result, as
a killed process does. It must not give an order a meaning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from compose.scenario.format import Fault, Process
from compose.scenario.log import Agenda, MemoryLog, Stored
from schemas.budget import shipped
from schemas.codec import decode, headers
from schemas.dispatch import Dispatch
from schemas.errors import GuardUnavailable
from schemas.intent import IntentCancelled, IntentCompleted, IntentRequested, IntentSuperseded
from schemas.lookup import Lookup
from schemas.record import Record, TopicKind
from schemas.suppression import Suppression
from schemas.topics import TopicNames
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.facts import gathered
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.ports import Handled
from sinks.poller.handle import Answer, Call, Performed, Poller
from sinks.poller.schedule import Order

PASS_MS = 20  # as `sinks.poller.loop.PASS_S`
RETRY_MS = 500  # as `sinks.dispatcher.work.RETRY_S`
BUSY_MS_MIN = 20
_FACTS = (IntentRequested, IntentCompleted, IntentCancelled, IntentSuperseded, Suppression)


class CallClock:
    """The agenda's time, ahead of it while a call runs."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda, self._ahead_ms = agenda, 0

    def now_ms(self) -> int:
        return self._agenda.now_ms + self._ahead_ms

    def monotonic(self) -> float:
        return self.now_ms() / 1000

    def spend(self, ms: int) -> None:
        self._ahead_ms += ms

    def back(self) -> int:
        """End of the call: how long it took."""
        spent, self._ahead_ms = self._ahead_ms, 0
        return spent


class Outages:
    """When which process is down: [from, until)."""

    def __init__(self, faults: tuple[Fault, ...], zero_ms: int) -> None:
        self._spans = [(f.process, zero_ms + f.since, zero_ms + f.until) for f in faults]

    def is_down(self, process: Process, at_ms: int) -> bool:
        return self.was_down(process, at_ms, at_ms)

    def was_down(self, process: Process, since_ms: int, until_ms: int) -> bool:
        """Whether it was down at any moment of this span, both ends included."""
        return any(p is process and a <= until_ms and since_ms < b for p, a, b in self._spans)


class Killed(BaseException):
    """The process ends here, in the middle of whatever it does."""


class GuardedClaims(MemoryClaims):
    """The guard in memory, away while the database is."""

    def __init__(self, clock_ms: Callable[[], int], outages: Outages) -> None:
        super().__init__(clock_ms, shipped())
        self._now_ms, self._outages = clock_ms, outages

    def claim(self, request: Any) -> Any:
        self._ask()
        return super().claim(request)

    def begin(self, claim_id: str) -> int | None:
        self._ask()
        return super().begin(claim_id)

    def finish(self, claim_id: str, **given: Any) -> bool:
        self._ask()
        return super().finish(claim_id, **given)

    def write_facts(self, **given: Any) -> None:
        self._ask()
        super().write_facts(**given)

    def _ask(self) -> None:
        if self._outages.is_down(Process.DATABASE, self._now_ms()):
            raise GuardUnavailable("the database is down", code="guard_unavailable")


class MemoryDispatcher:
    """One lane, as an intent has one; who is done is read beside it."""

    def __init__(
        self, log: MemoryLog, names: TopicNames, *, claims: GuardedClaims, clock: CallClock, outages: Outages
    ) -> None:
        self._log, self._names, self._agenda = log, names, log.agenda
        self._claims, self._clock, self._outages = claims, clock, outages
        self._waiting: deque[Dispatch] = deque()
        self._facts: deque[tuple[Record, int]] = deque()  # each with its log time
        self._is_busy = False
        self._began_ms = self._life = 0
        self.dispatcher: Dispatcher | None = None
        log.readers.append(self._arrived)

    @property
    def is_up(self) -> bool:
        return not self._outages.is_down(Process.DISPATCHER, self._agenda.now_ms)

    def fault(self, _point: str) -> None:
        """The handler's fault points: a process that went down meanwhile gets no further."""
        if self._outages.was_down(Process.DISPATCHER, self._began_ms, self._clock.now_ms()):
            raise Killed

    def up(self) -> None:
        """A new process: who is done first, then the orders without a committed offset."""
        self._is_busy = False
        self._life += 1
        self.work()

    def completions_read(self) -> bool:
        self._read_facts()
        return not self._facts

    def _arrived(self, stored: Stored) -> None:
        kind = self._names.kind_of(stored.topic)
        if kind not in (
            TopicKind.DISPATCHES_URGENT,
            TopicKind.DISPATCHES_BULK,
            TopicKind.INTENTS,
            TopicKind.SUPPRESSIONS,
        ):
            return
        record = decode(kind, stored.key, stored.value)
        if isinstance(record, Dispatch):
            self._waiting.append(record)
        elif isinstance(record, _FACTS):
            self._facts.append((record, stored.timestamp))
        self._agenda.at(self._agenda.now_ms, self.work)

    def _read_facts(self) -> None:
        while self._facts and self.is_up:
            try:
                said = gathered([self._facts[0]])
                self._claims.write_facts(
                    closed=said.closed,
                    suppressed=said.suppressed,
                    lifted=said.lifted,
                    consented=said.consented,
                    asked=said.asked,
                    progress={},
                )
            except GuardUnavailable:
                self._agenda.at(self._agenda.now_ms + RETRY_MS, self.work)
                return
            self._facts.popleft()

    def work(self) -> None:
        """The next order, if the process is up and its lane is free."""
        if not self.is_up:
            return
        self._read_facts()
        if self._is_busy or not self._waiting or self.dispatcher is None:
            return
        order = self._waiting[0]
        self._is_busy, self._began_ms = True, self._agenda.now_ms
        try:
            handled = self.dispatcher.handle(order)
        except Killed:
            self._clock.back()
            return  # `up` takes the order again
        end_ms = self._agenda.now_ms + self._clock.back()
        if handled.wait_until_ms is not None:
            again_ms = max(handled.wait_until_ms, self._agenda.now_ms + BUSY_MS_MIN)
            self._in_this_life(again_ms, self._free)
        else:
            self._in_this_life(end_ms, lambda: self._publish(handled))

    def _in_this_life(self, at_ms: int, act: Callable[[], None]) -> None:
        """Later, unless the process that wants it has died by then."""
        life = self._life
        self._agenda.at(at_ms, lambda: act() if self.is_up and life == self._life else None)

    def _free(self) -> None:
        self._is_busy = False
        self.work()

    def _publish(self, handled: Handled) -> None:
        for suppression in handled.suppressions:
            self._append(TopicKind.SUPPRESSIONS, suppression.key, suppression, suppression.cause)
        for attempt in handled.attempts:
            self._append(TopicKind.ATTEMPTS, attempt.intent_id, attempt, attempt.attempt_id)
        self._heal(handled)

    def _append(self, kind: TopicKind, key: str, record: Record, record_id: str) -> None:
        made = tuple(headers(record, source="backstop/dispatcher", record_id=record_id))
        self._log.append(self._names[kind], key.encode(), record.to_bytes(), made)

    def _heal(self, handled: Handled) -> None:
        """The offset waits for the row."""
        try:
            if handled.heal is not None:
                handled.heal()
        except GuardUnavailable:
            self._in_this_life(self._agenda.now_ms + RETRY_MS, lambda: self._heal(handled))
            return
        self._waiting.popleft()
        self._free()


class MemoryPoller:
    """Passes while something waits; a new process starts with empty budgets and reads its orders again."""

    def __init__(
        self,
        log: MemoryLog,
        names: TopicNames,
        *,
        make: Callable[[], Poller],
        clock: CallClock,
        outages: Outages,
    ) -> None:
        self._log, self._names, self._agenda = log, names, log.agenda
        self._make, self._clock, self._outages = make, clock, outages
        self._open: dict[int, Order] = {}  # by ticket: not answered yet
        self._asked: set[int] = set()
        self._poller = make()
        self._poller.own()
        self._next_pass_ms = 0
        log.readers.append(self._arrived)

    @property
    def is_up(self) -> bool:
        return not self._outages.is_down(Process.POLLER, self._agenda.now_ms)

    def up(self) -> None:
        self._poller = self._make()
        self._poller.own()
        self._asked.clear()
        for order in list(self._open.values()):
            self._offer(order)

    def _arrived(self, stored: Stored) -> None:
        if stored.topic != self._names[TopicKind.LOOKUPS]:
            return
        record = decode(TopicKind.LOOKUPS, stored.key, stored.value)
        if isinstance(record, Lookup):
            order = Order(record, stored.offset)
            self._open[order.ticket] = order
            if self.is_up:
                self._offer(order)

    def _offer(self, order: Order) -> None:
        self._tell(self._poller.offer(order))
        self._plan(self._agenda.now_ms)

    def _plan(self, at_ms: int) -> None:
        if self._next_pass_ms <= self._agenda.now_ms or at_ms < self._next_pass_ms:
            self._next_pass_ms = at_ms
            self._agenda.at(at_ms, self._pass)

    def _pass(self) -> None:
        if not self.is_up:
            return
        calls, over = self._poller.due()
        self._tell(over)
        for call in calls:
            self._perform(call)
        if self._open.keys() - self._asked:
            self._plan(self._agenda.now_ms + PASS_MS)

    def _perform(self, call: Call) -> None:
        self._asked |= {o.ticket for o in call.orders}
        poller = self._poller
        done = poller.perform(call)
        self._agenda.at(self._agenda.now_ms + self._clock.back(), lambda: self._settle(poller, done))

    def _settle(self, poller: Poller, done: Performed) -> None:
        if poller is self._poller and self.is_up:  # else that process died with its calls
            self._tell(poller.settle(done))

    def _tell(self, answers: list[Answer]) -> None:
        for answer in answers:
            seen = answer.observation
            self._open.pop(answer.order.ticket, None)
            made = tuple(headers(seen, source="backstop/poller", record_id=seen.observation_id))
            self._log.append(
                self._names[TopicKind.OBSERVATIONS], seen.intent_id.encode(), seen.to_bytes(), made
            )
