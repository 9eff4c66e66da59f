"""Decisions as they become readable, with the instant each was seen; and how far every reader is behind.

It must not ask a process of ours how it does.
"""

from __future__ import annotations

import threading

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from compose.clock import SystemClock
from compose.demo.run import World, books_of
from schemas.codec import decode
from schemas.decision import Decision
from schemas.errors import GuardUnavailable
from schemas.record import TopicKind
from sinks.kafka.consumer import KafkaAway, Message, Reader, read_all

READ_MAX, POLL_S = 2_000, 0.1
REOPEN_S = 1.0
ASK_S = 10.0


class Watch:
    """A read_committed reader of decisions: hidden behind a hung transaction is not seen."""

    def __init__(self, world: World) -> None:
        self._world, self._clock = world, SystemClock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._seen: set[tuple[int, int]] = set()
        self.arrivals: list[tuple[int, int]] = []  # when seen (ms), partition
        self.closed: set[str] = set()
        self.last: dict[str, Decision] = {}  # the newest of each intent

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def now_ms(self) -> int:
        """By the clock that arrivals are seen with."""
        return self._clock.now_ms()

    def next_everywhere(self, after_ms: int, partitions: int) -> int | None:
        """ms until each partition had a decision seen after `after_ms`; None while one had none.

        An upper bound of how long a partition was without a worker: it also holds the wait for an input.
        """
        first: dict[int, int] = {}
        for at_ms, partition in list(self.arrivals):
            if at_ms > after_ms:
                first.setdefault(partition, at_ms)
        return max(first.values()) - after_ms if len(first) == partitions else None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._read()
            except KafkaAway:  # this client has failed for good: another one
                self._stop.wait(REOPEN_S)

    def _read(self) -> None:
        group = f"{self._world.names.prefix}crash-watch"
        with Reader(
            self._world.bootstrap, group, [self._world.names[TopicKind.DECISIONS]], session_timeout_ms=6_000
        ) as reader:
            while not self._stop.is_set():
                for message in reader.poll(READ_MAX, POLL_S):
                    self._take(message)

    def _take(self, message: Message) -> None:
        place = (message.partition, message.offset)
        if place in self._seen:
            return
        self._seen.add(place)
        self.arrivals.append((self._clock.now_ms(), message.partition))
        decision = decode(TopicKind.DECISIONS, message.key, message.value)
        if not isinstance(decision, Decision):
            return
        known = self.last.get(decision.intent_id)
        if known is None or decision.seq > known.seq:
            self.last[decision.intent_id] = decision
        if decision.closed is not None:
            self.closed.add(decision.intent_id)


class Lag:
    """Records not yet worked on, per reader; every call asks the cluster and the database."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of_group(self, name: str, kinds: tuple[TopicKind, ...]) -> int:
        """Records at or after what the group has committed; transaction markers are no records."""
        group = f"{self._world.names.prefix}{name}"
        # A client from before a broker was killed was seen to get no answer about groups for minutes.
        admin = AdminClient({"bootstrap.servers": self._world.bootstrap, "log_level": 0})
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result(ASK_S)
        committed = {(tp.topic, tp.partition): tp.offset for tp in found.topic_partitions}
        return sum(
            message.offset >= committed.get((message.topic, message.partition), 0)
            for topic in self._world.names.of(kinds)
            for message in read_all(self._world.bootstrap, topic)
        )

    def is_zero(self) -> bool:
        """Every input decided, every order and look-up done, every record audited. Not known is not zero."""
        try:
            return (
                all(proof.holds for proof in books_of(self._world))
                and self.of_group("dispatcher", (TopicKind.DISPATCHES_URGENT, TopicKind.DISPATCHES_BULK)) == 0
                and self.of_group("poller", (TopicKind.LOOKUPS,)) == 0
            )
        except (KafkaAway, KafkaException, GuardUnavailable, TimeoutError):
            return False
