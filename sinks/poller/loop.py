"""How look-ups arrive and observations leave: published and acknowledged first, offsets last.

Orders come by account, so one process owns an account and its budget. It must not look into an order;
`handle` gives it its meaning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from schemas.codec import Undecodable, decode, headers
from schemas.lookup import Lookup
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.kafka.consumer import Message, Place, Reader
from sinks.kafka.lanes import Offsets
from sinks.kafka.letters import Letters
from sinks.kafka.producer import OutgoingRecord, Publisher, PublishFailed
from sinks.poller.handle import Answer, Call, Performed, Poller, PollerClock
from sinks.poller.schedule import Order

log = logging.getLogger("backstop.poller")

SOURCE = "backstop/poller"
READ_MAX = 500
PASS_S = 0.02  # a fifth of what a budget's burst covers, so that passes cost little of the rate
RETRY_S = 0.5


class LookupReader(Protocol):
    """The part of `sinks.kafka.consumer.Reader` that is used."""

    def poll(self, count_max: int, timeout_s: float) -> list[Message]: ...

    def commit(self, offsets: Mapping[Place, int]) -> bool: ...

    def close(self) -> None: ...


class LookupPublisher(Protocol):
    """The part of `sinks.kafka.producer.Publisher` that is used."""

    def publish(self, records: list[OutgoingRecord]) -> None: ...


OpenReader = Callable[[Callable[[list[Place]], None], Callable[[list[Place]], None]], LookupReader]


def reader(bootstrap: str, names: TopicNames, *, session_timeout_ms: int) -> OpenReader:
    """Opens the group member once the loop's own call-backs (assigned, revoked) are known."""

    def open_it(
        on_assign: Callable[[list[Place]], None], on_revoke: Callable[[list[Place]], None]
    ) -> LookupReader:
        return Reader(
            bootstrap,
            f"{names.prefix}poller",
            names.of((TopicKind.LOOKUPS,)),
            session_timeout_ms=session_timeout_ms,
            on_assign=on_assign,
            on_revoke=on_revoke,
        )

    return open_it


class PollerLoop:
    """Run until `stop` is set. Ends with an exception for a fault of ours, or a client that cannot go on."""

    def __init__(
        self,
        poller: Poller,
        names: TopicNames,
        *,
        open_reader: OpenReader,
        publisher: Publisher | LookupPublisher,
        letters: Letters,
        clock: PollerClock,
        beat: Callable[[], None] = lambda: None,
        fault: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`beat` is called each time the loop comes round, also while it waits for Kafka.

        `fault` is for crash tests: called by name around a look-up and around what is published of it.
        """
        self._fault, self._beat = fault, beat
        self._poller, self._names, self._publisher = poller, names, publisher
        self._letters, self._clock = letters, clock
        self._observations = names[TopicKind.OBSERVATIONS]
        self._offsets, self._arrivals = Offsets(), dict[int, Message]()
        self._count = 0
        self._running: set[Future[Performed]] = set()
        self._pool = ThreadPoolExecutor(poller.running_max, thread_name_prefix="look-up")
        self._reader = open_reader(self._assigned, self._revoked)

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; calls in flight are finished and told, what waits is read again."""
        try:
            while not stop.is_set():
                self._pass(stop)
                self._beat()
        finally:
            wait(self._running)  # at most one call's time
            try:
                self._tell(self._settled(), [], stop)
            finally:
                self._pool.shutdown()
                self._offsets.commit(self._reader.commit, self._clock.monotonic())
                self._reader.close()

    def _pass(self, stop: threading.Event) -> None:
        answers: list[Answer] = []
        letters: list[tuple[Message, OutgoingRecord]] = []
        for message in self._reader.poll(READ_MAX, PASS_S):
            self._offsets.began(message)
            found = decode(TopicKind.LOOKUPS, message.key, message.value)
            if isinstance(found, Undecodable):
                letter = self._letters.record(message, found, at_ms=self._clock.now_ms())
                letters.append((message, letter))
            elif isinstance(found, Lookup):
                answers += self._poller.offer(self._ordered(message, found))
        answers += self._settled()
        calls, over = self._poller.due()
        self._running |= {self._pool.submit(self._perform, call) for call in calls}
        self._tell(answers + over, letters, stop)
        self._offsets.commit(self._reader.commit, self._clock.monotonic())

    def _perform(self, call: Call) -> Performed:
        self._fault("before_call")
        performed = self._poller.perform(call)
        self._fault("after_call")
        return performed

    def _ordered(self, message: Message, lookup: Lookup) -> Order:
        self._count += 1
        self._arrivals[self._count] = message
        return Order(lookup, self._count)

    def _settled(self) -> list[Answer]:
        done, self._running = wait(self._running, timeout=0, return_when=FIRST_COMPLETED)
        return [answer for future in done for answer in self._poller.settle(future.result())]

    def _tell(
        self, answers: list[Answer], letters: list[tuple[Message, OutgoingRecord]], stop: threading.Event
    ) -> None:
        """Publish all, then count the arrivals as finished; nothing is finished that was not acknowledged."""
        records = [letter for _, letter in letters] + [self._outgoing(a) for a in answers]
        if not records:
            return
        self._fault("before_publish")
        if not self._publish(records, stop):
            return
        self._fault("after_publish")
        for message, _ in letters:
            self._offsets.finished(message)
        for answer in answers:
            arrived = self._arrivals.pop(answer.order.ticket, None)
            if arrived is not None:  # else its partition went to somebody else, who asks again
                self._offsets.finished(arrived)

    def _outgoing(self, answer: Answer) -> OutgoingRecord:
        found, arrived = answer.observation, self._arrivals.get(answer.order.ticket)
        carried = dict(arrived.headers).get("traceparent") if arrived is not None else None
        made = headers(found, source=SOURCE, record_id=found.observation_id, traceparent=carried)
        return OutgoingRecord(self._observations, found.intent_id.encode(), found.to_bytes(), made)

    def _publish(self, records: list[OutgoingRecord], stop: threading.Event) -> bool:
        """Until acknowledged, or stopped: then the orders are read again, and asked again."""
        while True:
            try:
                self._publisher.publish(records)
            except PublishFailed as exc:
                log.warning("observations not published yet: %s", exc)
                self._beat()
                if stop.wait(RETRY_S):
                    return False
            else:
                return True

    def _assigned(self, places: list[Place]) -> None:
        if places:
            self._poller.own()

    def _revoked(self, _places: list[Place]) -> None:
        """Eager assignment takes everything back: what waits is forgotten, what runs is still told."""
        self._offsets.forget()
        self._arrivals.clear()
        self._poller.own()
