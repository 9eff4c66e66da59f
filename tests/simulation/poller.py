"""The poller's process: the real handler, calls side by side, observations before offsets.

It must not give a look-up a meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.codec import Undecodable, decode, headers
from schemas.lookup import Lookup
from schemas.record import TopicKind
from sinks.kafka.consumer import Message, Place
from sinks.kafka.lanes import Offsets
from sinks.kafka.letters import Letters
from sinks.kafka.producer import OutgoingRecord, PublishFailed
from sinks.poller.handle import Answer, Call, Performed, Poller
from sinks.poller.schedule import Order
from tests.simulation.kafka import Away
from tests.simulation.process import Process

if TYPE_CHECKING:
    pass

from tests.simulation.members import BATCH, PASS_MS, RETRY_MS, SimPublisher, SimReader


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
                self._commit()
        finally:
            self._is_telling = False

    def _commit(self) -> None:
        if not self._offsets.commit(self._reader.commit, self.clock.monotonic()):
            self.later(RETRY_MS, self._commit)

    def _outgoing(self, answer: Answer) -> OutgoingRecord:
        found = answer.observation
        made = headers(found, source="backstop/poller", record_id=found.observation_id)
        topic = self.world.names[TopicKind.OBSERVATIONS]
        return OutgoingRecord(topic, found.intent_id.encode(), found.to_bytes(), made)
