"""How orders arrive and results leave: urgent first, in order per intent, offsets last.

It must not look into an order beyond its urgency; `handle` gives it its meaning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.ports import HandlerClock
from sinks.dispatcher.work import OrderWork
from sinks.kafka.consumer import Message, Place, Reader
from sinks.kafka.lanes import Lanes, Offsets
from sinks.kafka.letters import Letters
from sinks.kafka.producer import Publisher

POLL_S = 0.05
BATCH_COUNT_MAX = 200
# Orders read and not finished, per topic; 2 000 × 10 KiB = 20 MiB. A full topic is paused, so that urgent
# orders never wait outside behind bulk ones, and polling goes on however slow providers are (case F46).
URGENT_IN_FLIGHT_MAX, BULK_IN_FLIGHT_MAX = 1_500, 500


class DispatcherLoop:
    """Run until `stop` is set. Ends with an exception for a fault of ours, or a client that cannot go on."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        names: TopicNames,
        *,
        bootstrap: str,
        publisher: Publisher,
        letters: Letters,
        clock: HandlerClock,
        concurrency: int,
        session_timeout_ms: int,
        check: Callable[[], None] = lambda: None,
        beat: Callable[[], None] = lambda: None,
        fault: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`check` raises when something beside this loop, without which nothing may be sent, has failed;
        `beat` is called each time the loop comes round."""
        self._clock, self._check, self._beat = clock, check, beat
        self._urgent = names[TopicKind.DISPATCHES_URGENT]
        self._limits = {
            self._urgent: URGENT_IN_FLIGHT_MAX,
            names[TopicKind.DISPATCHES_BULK]: BULK_IN_FLIGHT_MAX,
        }
        self._paused: set[str] = set()
        self._offsets = Offsets()
        self._stop = threading.Event()
        work = OrderWork(
            dispatcher,
            names,
            publisher=publisher,
            letters=letters,
            clock=clock,
            stop=self._stop,
            finished=self._offsets.finished,
            fault=fault,
        )
        self._lanes = Lanes(work, concurrency=concurrency)
        self._reader = Reader(
            bootstrap,
            f"{names.prefix}dispatcher",
            names.of((TopicKind.DISPATCHES_URGENT, TopicKind.DISPATCHES_BULK)),
            session_timeout_ms=session_timeout_ms,
            on_revoke=self._revoked,
        )

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; what is in flight is finished first."""
        try:
            while not stop.is_set() and self._lanes.failure is None:
                self._check()
                for message in self._reader.poll(BATCH_COUNT_MAX, POLL_S):
                    self._offsets.began(message)
                    self._lanes.offer(message, self._urgency(message))
                self._lanes.wake(self._clock.monotonic())
                self._offsets.commit(self._reader.commit, self._clock.monotonic())
                self._balance()
                self._beat()
        finally:
            self._stop.set()
            self._lanes.close()
            self._offsets.commit(self._reader.commit, self._clock.monotonic())
            self._reader.close()
        if self._lanes.failure is not None:
            raise self._lanes.failure

    def _revoked(self, _places: list[Place]) -> None:
        """What is finished is said once more while the partitions are still ours; what waits is forgotten."""
        self._offsets.commit(self._reader.commit, self._clock.monotonic())
        self._lanes.forget()
        self._offsets.forget()
        self._paused.clear()  # a new assignment begins unpaused

    def _balance(self) -> None:
        """Pause a topic of which enough is in flight; resume it when there is room again."""
        for topic, count_max in self._limits.items():
            is_full = self._offsets.in_flight_of(topic) >= count_max
            if is_full == (topic in self._paused):
                continue
            places = [place for place in self._reader.assignment if place[0] == topic]
            if is_full:
                self._reader.pause(places)
                self._paused.add(topic)
            else:
                self._reader.resume(places)
                self._paused.discard(topic)

    def _urgency(self, message: Message) -> tuple[int, int]:
        return (0 if message.topic == self._urgent else 1, message.timestamp_ms)
