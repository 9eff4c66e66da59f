"""The worker's process: the real processor, views and timers under leases and transactions of the model log.

The eight steps of `streams.engine.app`, one by one: lease, transaction, revocation, stable offsets first, the
changelog up to the high watermark, seek, memory of the last generation only, and any failure ends the
process. It must not know what a record means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.control import Controls
from schemas.control_board import ControlBoard
from schemas.record import TopicKind
from sinks.kafka.consumer import Message, Place
from streams.engine.processor import Output, Step, View
from streams.engine.store import PartitionedState, Tables
from streams.engine.timers import Timers, find_due
from streams.worker.processor import IntentProcessor
from tests.simulation.kafka import Away, Fenced, Write
from tests.simulation.process import Process

TICK_MS = 1_000
WAIT_MS = 100  # between two questions to a broker that does not answer, or offsets that are not stable
CHUNK_MAX = 40
TRANSACTION_MS = 10_000
CALLS_MAX = TRANSACTION_MS // WAIT_MS


@dataclass
class Record:
    """A record in the shape the engine hands out."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@dataclass
class _Pending:
    """What the next transaction will hold."""

    outputs: list[Output] = field(default_factory=list)
    changes: dict[Place, dict[bytes, bytes | None]] = field(default_factory=dict)
    offsets: dict[Place, int] = field(default_factory=dict)
    inputs: list[tuple[Message, Controls]] = field(default_factory=list)  # in the order of processing


class SimWorker(Process):
    """`group` is shared by all workers."""

    kind = "worker"

    def begin(self) -> None:
        world = self.world
        self.group = world.workers
        self.processor: IntentProcessor = world.make_processor()
        self._timers = Timers(50, 5_000)
        self._state = PartitionedState(self.processor.tables)
        self._views: dict[int, View] = {}
        self._positions: dict[Place, int] = {}
        self._generation, self._is_owner = 0, False
        self._assignment: int | None = None  # the generation of the lease; None: it has ended
        self._pending, self._is_committing, self._revoking = _Pending(), False, False
        self._board = ControlBoard()
        self._controls_read = 0
        self._away = 0
        self._is_woken = False
        self.later(self.read_lag_ms(), self._open)

    def _open(self) -> None:
        try:
            self._epoch = self.world.log.init(self.name)
            self._read_controls()
        except Away:
            self.later(WAIT_MS, self._open)
            return
        self.group.join(self)
        self.beat(self)
        self.later(TICK_MS, self._tick)

    # controls

    def controls_changed(self) -> None:
        """Somebody wrote a control: it is seen a little later."""
        if self.is_up:
            self.later(self.read_lag_ms(), self._obey)

    def _obey(self) -> None:
        try:
            self._read_controls()
        except Away:
            self.later(WAIT_MS, self._obey)
            return
        now_ms = self.clock.now_ms()
        for number, keys in self.processor.held_keys().items():
            self._timers.arm_all(number, sorted(keys), now_ms)

    def _read_controls(self) -> None:
        place = (self.world.names[TopicKind.CONTROLS], 0)
        found, self._controls_read = self.world.log.read(place, self._controls_read, 1_000)
        for message in found:
            self._board.take(message.key, message.value, message.offset)
        self.processor.use_controls(self._board.controls)

    # the group

    def revoked(self) -> None:
        """The lease ends; what was decided under it is committed first."""
        if self._revoking:
            return
        self._is_owner, self._revoking, self._assignment = False, True, None
        self._give_back_when_idle()

    def _give_back_when_idle(self) -> None:
        if self._is_committing or self._pending.offsets:
            self._commit()
            return
        self._revoking = False
        self._timers.clear()
        self.group.join(self)

    def put_out(self) -> None:
        """The broker refuses its generation from now on: as with a refused commit, the process ends."""
        self.crash("the group went on without it")

    def assigned(self, generation: int, places: list[Place]) -> None:
        self._assignment = generation
        self.later(self.read_lag_ms(), lambda: self._restore(generation, places))

    # restore

    def _restore(self, generation: int, places: list[Place]) -> None:
        world = self.world
        if self._assignment != generation:
            return  # overtaken by another rebalance
        numbers = {number for _, number in places}
        missing = self._state.keep_only(numbers, generation)
        try:
            offsets = world.log.stable_offsets(world.workers.name, places)
            loaded = None if offsets is None else self._load(missing)
        except Away:
            offsets = loaded = None
        if offsets is None or loaded is None:
            self.later(WAIT_MS, lambda: self._restore(generation, places))
            return
        self._state.install(loaded, numbers, generation)
        parts = {n: self._state.partitions[n] for n in sorted(numbers)}
        due = find_due({n: t[self.processor.timer_table] for n, t in parts.items()}, self.processor.due_of)
        self._views = {n: View(n, tables, self._timers.install(n, due[n])) for n, tables in parts.items()}
        for number in missing:
            self.processor.restored(self._views[number])
        self._positions, self._generation, self._is_owner = dict(offsets), generation, True
        world.readable(self)

    def _load(self, missing: list[int]) -> dict[int, Tables] | None:
        """Changelogs up to the high watermark; None while a transaction below it is open."""
        log, found = self.world.log, dict[int, Tables]()
        for number in missing:
            found[number] = {}
            for table in self.processor.tables:
                place = (self.world.names.changelog(table), number)
                end = log.high(place)
                messages, position = log.read(place, 0, 1_000_000)
                if position < end:
                    return None
                rows: dict[bytes, bytes] = {}
                for message in messages:
                    if message.key is None:
                        continue
                    if message.value is None:
                        rows.pop(message.key, None)
                    else:
                        rows[message.key] = message.value
                found[number][table] = rows
        return found

    # work

    def wake(self) -> None:
        """Something may be there to read."""
        if self.is_up and not self._is_woken:
            self._is_woken = True
            self.later(self.read_lag_ms(), self._work)

    def _work(self) -> None:
        self._is_woken = False
        if not self._is_owner:
            return
        places = sorted(self._positions)
        first = self.world.dice.of("chunks").randrange(len(places)) if places else 0
        more = False
        for place in places[first:] + places[:first]:
            try:
                more |= self._step(place)
            except Away:
                more = True
        self._commit()
        if more:
            self.wake()

    def _step(self, place: Place) -> bool:
        """One chunk of one partition; whether there is more."""
        size = self.world.dice.ms("chunk", 1, CHUNK_MAX)
        found, after = self.world.log.read(place, self._positions[place], size)
        if not found:
            self._positions[place] = after
            return False
        view, controls = self._views[place[1]], self._board.controls
        for m in found:
            record = Record(m.topic, m.partition, m.offset, m.timestamp_ms, m.key, m.value, m.headers)
            self.processor.process(record, view)
        self.processor.end_of_chunk(place[0], view)
        self._positions[place] = after
        self._pending.inputs += [(m, controls) for m in found]
        self._submit(view.take(), place, place[1])
        return True

    def _submit(self, step: Step, source: Place, number: int) -> None:
        pending = self._pending
        pending.outputs += step.outputs
        pending.offsets[source] = self._positions[source]
        for table, changed in step.changes.items():
            where = (self.world.names.changelog(table), number)
            pending.changes.setdefault(where, {}).update(changed)

    def _tick(self) -> None:
        self.later(self.world.dice.ms("tick.ms", TICK_MS - 50, TICK_MS + 50), self._tick)
        if not self._is_owner:
            return
        now_ms = self.clock.now_ms()
        try:
            marks = {n: self._mark(n, now_ms) for n in self._views}
        except Away:
            return
        self._timers.note_evidence({n: m for n, m in marks.items() if m})
        for number, timers in self._timers.items():
            outputs = [
                self.processor.tick(
                    number,
                    key,
                    due,
                    emitted_at_ms=now_ms,
                    evidence_until_ms=max(timers.evidence_until_ms, 0),
                    generation=self._generation,
                )
                for key, due in timers.pop(now_ms, 500)
            ]
            if outputs:
                self._submit(Step(outputs, {}), (self.processor.inputs[0], number), number)
        self._commit()

    def _mark(self, number: int, now_ms: int) -> int:
        """Up to now everything of this partition number was read, or not known."""
        inputs = [(topic, number) for topic in self.processor.inputs]
        return now_ms if all(self._positions[p] >= self.world.log.high(p) for p in inputs) else 0

    # the transaction

    def _commit(self) -> None:
        if self._is_committing or not self._pending.offsets:
            return
        self._is_committing, self._away = True, 0
        pending, self._pending = self._pending, _Pending()
        steps = iter(
            (
                ("before_transaction", lambda: self._produce(pending)),
                ("after_produce", lambda: self._send_offsets(pending)),
                ("before_commit", lambda: self._end(pending)),
                ("after_commit", self._committed),
            )
        )
        self._next(next(steps), steps)

    def _next(self, step: tuple[str, Callable[[], None]], steps: object) -> None:
        point, act = step

        def happen() -> None:
            self.fault(point)
            try:
                act()
            except Away:
                self._away += 1
                if self._away > CALLS_MAX:
                    self.crash("the broker did not answer within a transaction")
                else:
                    self.later(WAIT_MS, happen)
                return
            except Fenced:
                self.crash("fenced")
                return
            following = next(steps, None)  # type: ignore[call-overload]
            if following is not None:
                self._next(following, steps)

        self.later(self.world.dice.ms("broker.ms", 1, 12), happen)

    def _produce(self, pending: _Pending) -> None:
        writes = [
            Write(o.topic, o.key, o.value, tuple(o.headers or ()), o.partition) for o in pending.outputs
        ]
        for (topic, number), changed in pending.changes.items():
            writes += [Write(topic, key, value, (), number) for key, value in changed.items()]
        log, agenda = self.world.log, self.world.agenda
        transaction = log.produce(self.name, self._epoch, writes)
        soon = self.world.dice.falls("log.expires")
        within_ms = self.world.dice.ms("log.expires.ms", 1, 40) if soon else TRANSACTION_MS
        agenda.at(agenda.now_ms + within_ms, lambda: log.expire(self.name, transaction))

    def _send_offsets(self, pending: _Pending) -> None:
        group = self.world.workers
        if not group.is_current(self, self._generation):
            raise Fenced("illegal generation")
        self.world.log.send_offsets(self.name, self._epoch, group.name, pending.offsets)

    def _end(self, pending: _Pending) -> None:
        self.world.log.end(self.name, self._epoch, commit=True)
        self.world.processed += pending.inputs

    def _committed(self) -> None:
        self._is_committing = False
        if self._revoking:
            self._give_back_when_idle()
        elif self._pending.offsets:
            self._commit()
