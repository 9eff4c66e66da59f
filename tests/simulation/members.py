"""What the loops of dispatcher, poller and auditor are made of: a group membership with its positions, a
publisher, the controls a process has seen.

The rules are those of `sinks.kafka`: positions are given back at a revocation, and a commit of a past
generation is refused. It must not give a record a meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from schemas.control_board import ControlBoard
from schemas.record import TopicKind
from sinks.kafka.consumer import Message, Place
from sinks.kafka.producer import OutgoingRecord, PublishFailed
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

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        """Of what it owns in the present generation; others redo the rest. False: it was not taken."""
        wanted = {p: o for p, o in offsets.items() if p in self.positions}
        if not wanted or not self.is_current(self.generation):
            return True
        world = self._process.world
        try:
            if world.dice.falls("log.commit_lost"):
                return False
            world.log.commit(self.group.name, wanted)
        except Away:
            return False
        return True


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
