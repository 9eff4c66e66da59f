"""The dispatcher's process: its real order work and guard, and loops on the model log.

Order per intent, offsets that cover finished work only. It must not give an order a meaning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from schemas.errors import GuardUnavailable
from schemas.record import TopicKind
from sinks.dispatcher.facts import DONE_KINDS, ClockGuard, CompletionsRead, write_facts
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.ports import Ports
from sinks.dispatcher.work import OrderWork
from sinks.kafka.consumer import KafkaAway, Message, Place
from sinks.kafka.lanes import Offsets
from sinks.kafka.letters import Letters
from tests.simulation.kafka import Away
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

from tests.simulation.members import BATCH, LANES, RETRY_MS, Controls, SimPublisher, SimReader, Stop


class SimDispatcher(Process):
    kind = "dispatcher"

    def begin(self) -> None:
        world = self.world
        self._controls = Controls(self)
        self._offsets = Offsets()
        self._lanes: dict[bytes, deque[Message]] = {}
        self._running = 0
        self._ready: deque[bytes] = deque()
        self._reader = SimReader(
            self,
            world.dispatchers,
            own=lambda g, places: self._reader.begin_committed(g, places, self.wake),
            forget=lambda: self._offsets.forget(),
        )
        self._facts = _Facts(self)
        self._is_woken = False
        claims = world.make_claims()
        ports = Ports(
            claims=claims,
            providers=world.providers,
            preparer=world.preparer,
            prices=world.prices,
            clock=self.clock,
            new_id=world.new_claim_id,
            controls=lambda: self._controls.board.controls,
            completions_read=self._completions_read,
            clock_trusted=ClockGuard(claims, self.clock, skew_ms_max=world.limits.clock_skew_ms_max),
            fault=self.fault,
        )  # fmt: skip
        self._claims = claims
        self._asks = CompletionsRead(
            _Ends(world), world.names, claims, wait_s=2.0, clock=self.clock,
            pause=lambda s: world.fibers.pause(int(s * 1000)),
        )  # fmt: skip
        self._work = OrderWork(
            Dispatcher(ports, world.limits),
            world.names,
            publisher=SimPublisher(world),
            letters=Letters(world.names, by="dispatcher", key=world.key),
            clock=self.clock,
            stop=Stop(world),
            finished=lambda message: self._offsets.finished(message),
            fault=self.fault,
        )
        self.later(self.read_lag_ms(), self._open)

    def _completions_read(self) -> bool:
        fiber = self.world.fibers.current
        if fiber is not None:
            fiber.taken_up_ms = self.world.agenda.now_ms
        return self._asks()

    def _open(self) -> None:
        try:
            self._controls.read()
        except Away:
            self.later(RETRY_MS, self._open)
            return
        self._reader.join()
        self._facts.join()

    def controls_changed(self) -> None:
        if self.is_up:
            self._controls.read_later()

    # work

    def wake(self) -> None:
        if self.is_up and not self._is_woken:
            self._is_woken = True
            self.later(self.read_lag_ms(), self._pass)
        if self.is_up:
            self._facts.wake()

    def _pass(self) -> None:
        self._is_woken = False
        try:
            for message in self._reader.poll(BATCH):
                self._offsets.began(message)
                key = message.key or b""
                lane = self._lanes.get(key)
                if lane is not None:
                    lane.append(message)
                else:
                    self._lanes[key] = deque((message,))
                    self._ready.append(key)
        except Away:
            self.later(RETRY_MS, self.wake)
        self._run()
        self._commit()

    def _run(self) -> None:
        while self._ready and self._running < LANES:
            key = self._ready.popleft()
            self._running += 1
            self.spawn(lambda key=key: self._lane(key))  # type: ignore[misc]

    def _lane(self, key: bytes) -> None:
        """All records of a key, one after the other, in a call of its own."""
        lane = self._lanes[key]
        while lane:
            again_s = self._work(lane[0])
            if again_s is None:
                lane.popleft()
            else:
                self.world.fibers.pause(max(1, int((again_s - self.clock.monotonic()) * 1000)))
        del self._lanes[key]
        self._running -= 1
        self.later(0, self._run)
        self.later(1, self._commit)

    def _commit(self) -> None:
        if not self._offsets.commit(self._reader.commit, self.clock.monotonic()):
            self.later(RETRY_MS, self._commit)


class _Ends:
    """`sinks.kafka.consumer.Ends` on the model log."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of(self, topics: Iterable[str]) -> dict[Place, int]:
        wanted = set(topics)
        try:
            return {p: self._world.log.high(p) for p in self._world.log.places if p[0] in wanted}
        except Away:
            raise KafkaAway("away", code="away") from None


class _Facts:
    """Who is done, read beside the orders: positions are in the guard, in the same transaction."""

    def __init__(self, process: SimDispatcher) -> None:
        self._process = process
        self._reader = SimReader(
            process,
            process.world.facts_readers,
            committed=False,
            own=lambda g, places: process.spawn(lambda: self._find_positions(g, places)),
            forget=self._forget,
        )
        self._waiting: list[Message] = []
        self._ends: dict[Place, int] = {}
        self._is_busy = False

    def join(self) -> None:
        self._reader.join()

    def _forget(self) -> None:
        self._waiting, self._ends = [], {}

    def _find_positions(self, generation: int, places: list[Place]) -> None:
        fibers = self._process.world.fibers
        while self._reader.is_current(generation):
            try:
                known = self._process._claims.progress()
            except GuardUnavailable:
                fibers.pause(RETRY_MS)
                continue
            self._forget()
            self._reader.begin(generation, {place: known.get(place, 0) for place in places})
            self.wake()
            return

    def wake(self) -> None:
        if not self._is_busy and self._reader.positions:
            self._is_busy = True
            self._process.later(self._process.read_lag_ms(), lambda: self._process.spawn(self._write))

    def _write(self) -> None:
        world = self._process.world
        try:
            while self._process.is_up:
                if not self._waiting and not self._ends:
                    try:
                        before = dict(self._reader.positions)
                        self._waiting = self._reader.poll(BATCH)
                        if len(self._waiting) < BATCH:
                            now = self._reader.positions
                            self._ends = {p: now[p] for p in now if now[p] != before[p]}
                    except Away:
                        world.fibers.pause(RETRY_MS)
                        continue
                if not self._waiting and not self._ends:
                    return
                try:
                    write_facts(self._process._claims, world.names, self._waiting, self._ends)
                    self._waiting, self._ends = [], {}
                except GuardUnavailable:
                    world.fibers.pause(RETRY_MS)
        finally:
            self._is_busy = False


DONE_TOPICS = (*DONE_KINDS, TopicKind.SUPPRESSIONS)
