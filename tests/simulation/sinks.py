"""Dispatcher, poller and auditor as processes: their real handlers, and loops on the model log.

The loops keep the rules of `sinks.*.loop`: order per intent, offsets that cover finished work only, results
published before their offset. They must not give a record a meaning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from schemas.codec import Undecodable, decode, headers
from schemas.control_board import ControlBoard
from schemas.errors import GuardUnavailable
from schemas.lookup import Lookup
from schemas.record import TopicKind
from sinks.audit.writer import AuditWriter
from sinks.dispatcher.facts import DONE_KINDS, ClockGuard, CompletionsRead, write_facts
from sinks.dispatcher.handle import Dispatcher, Ports
from sinks.dispatcher.work import OrderWork
from sinks.kafka.consumer import KafkaAway, Message, Place
from sinks.kafka.lanes import Offsets
from sinks.kafka.letters import Letters
from sinks.kafka.producer import OutgoingRecord, PublishFailed
from sinks.poller.handle import Answer, Call, Performed, Poller
from sinks.poller.schedule import Order
from tests.simulation.groups import Group
from tests.simulation.kafka import Away, Write
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

RETRY_MS = 500
PASS_MS = 20
LANES = 8
BATCH = 100


class SimPublisher:
    """`sinks.kafka.producer.Publisher` of one process: acknowledged, refused, or written without a word."""

    def __init__(self, world: World) -> None:
        self._world = world

    def publish(self, records: Sequence[OutgoingRecord]) -> None:
        world = self._world
        world.fibers.pause(world.dice.ms("broker.ms", 1, 12))
        try:
            world.log.append(Write(r.topic, r.key, r.value, tuple(r.headers or ())) for r in records)
        except Away:
            raise PublishFailed("the broker is away", code="publish") from None
        world.fibers.pause(world.dice.ms("broker.ms", 1, 12))


class Stop:
    """`threading.Event` for a process that never stops in order: waiting lets others act."""

    def __init__(self, world: World) -> None:
        self._world = world

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float) -> bool:
        self._world.fibers.pause(int(timeout * 1000))
        return False


class SimReader:
    """One group membership of a process: what it owns, and how far it has read, a little late."""

    def __init__(
        self,
        process: Process,
        group: Group,
        *,
        committed: bool = True,
        own: Callable[[int, list[Place]], None],
        forget: Callable[[], None],
    ) -> None:
        """`own` is told what is ours in a generation; `forget`, that nothing is any more."""
        self._process, self.group, self._committed = process, group, committed
        self._own, self._forget = own, forget
        self.name = process.name
        self.positions: dict[Place, int] = {}
        self.generation = 0
        self._assignment: int | None = None

    @property
    def life(self) -> int:
        return self._process.life

    def join(self) -> None:
        self.group.join(self)
        self._process.beat(self)

    def revoked(self) -> None:
        self._forget()
        self.positions, self._assignment = {}, None
        self.group.join(self)

    def put_out(self) -> None:
        self.revoked()

    def assigned(self, generation: int, places: list[Place]) -> None:
        self._assignment = generation
        self._process.later(self._process.read_lag_ms(), lambda: self._take(generation, places))

    def _take(self, generation: int, places: list[Place]) -> None:
        if self.is_current(generation):
            self._own(generation, places)

    def is_current(self, generation: int) -> bool:
        return self._assignment == generation and self.group.is_current(self, generation)

    def begin(self, generation: int, positions: dict[Place, int]) -> None:
        """Read from here on."""
        if self.is_current(generation):
            self.generation, self.positions = generation, positions

    def begin_committed(self, generation: int, places: list[Place], then: Callable[[], None]) -> None:
        """Read from the group's committed offsets on, once they can be asked for."""
        try:
            known = self._process.world.log.stable_offsets(self.group.name, places)
        except Away:
            known = None
        if known is None:
            self._process.later(RETRY_MS, lambda: self.begin_committed(generation, places, then))
            return
        self.begin(generation, known)
        then()

    def poll(self, count_max: int) -> list[Message]:
        """What is there; `Away`. One partition after the other."""
        found: list[Message] = []
        for place in sorted(self.positions):
            messages, after = self._process.world.log.read(
                place, self.positions[place], count_max - len(found), committed=self._committed
            )
            self.positions[place] = after
            found += messages
            if len(found) >= count_max:
                break
        return found

    def commit(self, offsets: dict[Place, int]) -> None:
        """Of what it owns in the present generation; others redo the rest."""
        wanted = {p: o for p, o in offsets.items() if p in self.positions}
        if wanted and self.is_current(self.generation):
            self._process.world.log.commit(self.group.name, wanted)


class Controls:
    """The controls one process has seen so far."""

    def __init__(self, process: Process) -> None:
        self._process, self.board, self._read = process, ControlBoard(), 0

    def read(self) -> None:
        """To the end. Raises `Away`."""
        world = self._process.world
        place = (world.names[TopicKind.CONTROLS], 0)
        found, self._read = world.log.read(place, self._read, 1_000)
        for message in found:
            self.board.take(message.key, message.value, message.offset)

    def read_later(self) -> None:
        def happen() -> None:
            try:
                self.read()
            except Away:
                self._process.later(RETRY_MS, happen)

        self._process.later(self._process.read_lag_ms(), happen)


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
            claims=claims,  # type: ignore[arg-type]
            providers=world.providers,
            preparer=world.preparer,
            clock=self.clock,
            new_id=world.new_claim_id,
            controls=lambda: self._controls.board.controls,
            completions_read=self._completions_read,
            clock_trusted=ClockGuard(claims, self.clock, skew_ms_max=world.limits.clock_skew_ms_max),  # type: ignore[arg-type]
            fault=self.fault,
        )  # fmt: skip
        self._claims = claims
        self._asks = CompletionsRead(
            _Ends(world), world.names, claims, wait_s=2.0, clock=self.clock,  # type: ignore[arg-type]
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
        try:
            self._reader.commit(self._offsets.take())
        except Away:
            return


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
                    write_facts(self._process._claims, world.names, self._waiting, self._ends)  # type: ignore[arg-type]
                    self._waiting, self._ends = [], {}
                except GuardUnavailable:
                    world.fibers.pause(RETRY_MS)
        finally:
            self._is_busy = False


class SimPoller(Process):
    kind = "poller"

    def begin(self) -> None:
        world = self.world
        self._poller = Poller(
            world.providers, self.clock, call_timeout_ms=world.limits.call_timeout_ms, concurrency=8
        )
        self._offsets, self._arrivals = Offsets(), dict[int, Message]()
        self._count = 0
        self._reader = SimReader(self, world.pollers, own=self._own, forget=self._give_back)
        self._publisher = SimPublisher(world)
        self._done: list[Performed] = []
        self._is_woken = self._is_telling = False
        self._untold: list[tuple[list[Answer], list[tuple[Message, OutgoingRecord]]]] = []
        self._letters = Letters(world.names, by="poller", key=world.key)
        self.later(self.read_lag_ms(), self._reader.join)

    def controls_changed(self) -> None:
        """A pause never stops polling."""

    def _give_back(self) -> None:
        self._offsets.forget()
        self._arrivals.clear()
        self._poller.own()

    def _own(self, generation: int, places: list[Place]) -> None:
        self._poller.own()
        self._reader.begin_committed(generation, places, self.wake)

    def wake(self) -> None:
        if self.is_up and not self._is_woken:
            self._is_woken = True
            self.later(self.read_lag_ms() + PASS_MS, self._pass)

    def _pass(self) -> None:
        self._is_woken = False
        answers: list[Answer] = []
        letters: list[tuple[Message, OutgoingRecord]] = []
        try:
            for message in self._reader.poll(BATCH):
                self._offsets.began(message)
                found = decode(TopicKind.LOOKUPS, message.key, message.value)
                if isinstance(found, Undecodable):
                    letters.append((message, self._letters.record(message, found, at_ms=self.clock.now_ms())))
                elif isinstance(found, Lookup):
                    self._count += 1
                    self._arrivals[self._count] = message
                    answers += self._poller.offer(Order(found, self._count))
        except Away:
            self.later(RETRY_MS, self.wake)
        done, self._done = self._done, []
        for performed in done:
            answers += self._poller.settle(performed)
        calls, over = self._poller.due()
        for call in calls:
            self.spawn(lambda call=call: self._perform(call))  # type: ignore[misc]
        if answers or over or letters:
            self._untold.append((answers + over, letters))
            self._tell_on()
        if self._arrivals:
            self.later(PASS_MS * 5, self.wake)

    def _perform(self, call: Call) -> None:
        self.fault("before_look_up")
        performed = self._poller.perform(call)
        self.fault("after_look_up")
        self._done.append(performed)
        self.wake()

    def _tell_on(self) -> None:
        if not self._is_telling:
            self._is_telling = True
            self.spawn(self._tell)

    def _tell(self) -> None:
        try:
            while self._untold:
                answers, letters = self._untold[0]
                records = [letter for _, letter in letters]
                records += [self._outgoing(answer) for answer in answers]
                self.fault("before_publish")
                try:
                    self._publisher.publish(records)
                except PublishFailed:
                    self.world.fibers.pause(RETRY_MS)
                    continue
                self.fault("after_publish")
                self._untold.pop(0)
                for message, _ in letters:
                    self._offsets.finished(message)
                for answer in answers:
                    arrived = self._arrivals.pop(answer.order.ticket, None)
                    if arrived is not None:
                        self._offsets.finished(arrived)
                try:
                    self._reader.commit(self._offsets.take())
                except Away:
                    continue
        finally:
            self._is_telling = False

    def _outgoing(self, answer: Answer) -> OutgoingRecord:
        found = answer.observation
        made = headers(found, source="backstop/poller", record_id=found.observation_id)
        topic = self.world.names[TopicKind.OBSERVATIONS]
        return OutgoingRecord(topic, found.intent_id.encode(), found.to_bytes(), made)


class SimAuditor(Process):
    """The real writer; positions are in the database, so the group only shares the partitions."""

    kind = "auditor"

    def begin(self) -> None:
        world = self.world
        self._writer = AuditWriter(world.names, world.audit_database, letter_key=world.key)  # type: ignore[arg-type]
        self._reader = SimReader(self, world.auditors, own=self._own, forget=self._give_back)
        self._waiting: list[Message] = []
        self._ends: dict[Place, int] = {}
        self._is_woken = False
        self.later(self.read_lag_ms(), self._reader.join)

    def controls_changed(self) -> None: ...

    def _give_back(self) -> None:
        self._waiting, self._ends = [], {}

    def _own(self, generation: int, places: list[Place]) -> None:
        if not self._reader.is_current(generation):
            return
        try:
            known = self._writer.positions(places)
        except GuardUnavailable:
            self.later(RETRY_MS, lambda: self._own(generation, places))
            return
        self._reader.begin(generation, {place: known.get(place, 0) for place in places})
        self.wake()

    def wake(self) -> None:
        if self.is_up and not self._is_woken:
            self._is_woken = True
            self.later(self.read_lag_ms(), self._pass)

    def _pass(self) -> None:
        self._is_woken = False
        more = False
        try:
            if not self._waiting and not self._ends:
                before = dict(self._reader.positions)
                self._waiting = self._reader.poll(BATCH)
                now = self._reader.positions
                more = len(self._waiting) >= BATCH
                self._ends = {} if more else {p: now[p] for p in now if now[p] != before[p]}
            if self._waiting or self._ends:
                self.fault("before_audit")
                self._writer.write(self._waiting, self._ends)
                self.fault("after_audit")
                self._waiting, self._ends = [], {}
        except (Away, GuardUnavailable):
            self.later(RETRY_MS, self.wake)
            return
        if more:
            self.wake()


DONE_TOPICS = (*DONE_KINDS, TopicKind.SUPPRESSIONS)
