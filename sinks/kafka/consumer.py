"""Reading topics: a group member that commits only what it is told to, and a reader to the end.

It must not store or commit an offset by itself (case F45): the caller says when work is done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import methodcaller
from types import TracebackType
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from schemas.errors import BackstopError

log = logging.getLogger("backstop.kafka")

Place = tuple[str, int]  # topic, partition
ENDS_TRIES, ENDS_RETRY_S = 30, 0.1  # 3 s: a restarted broker leads again within one
CALL_S = 10.0  # metadata, offsets and commits: a broker that does not answer by then is away


class KafkaAway(BackstopError):
    """The cluster did not answer in time."""

    remedy = "Check that Kafka runs at the address in BACKSTOP_KAFKA; what waits is taken up again by itself."


class KafkaClientFailed(KafkaAway):
    """A client of this process cannot go on, whatever the cluster does; only a new process can."""

    remedy = (
        "Start the process again, as a restart policy does: it goes on from what it committed. When this "
        "comes back at once, the brokers' logs say why."
    )


def client_failed(exc: BaseException) -> KafkaClientFailed:
    """What librdkafka calls fatal. The binding raises it out of `poll` and `flush`: a KafkaException, or a
    SystemError caused by one when a delivery report was told in the same call."""
    cause = exc if isinstance(exc, KafkaException) else exc.__cause__
    why = cause.args[0].name() if isinstance(cause, KafkaException) else type(exc).__name__
    return KafkaClientFailed(f"the Kafka client of this process has failed for good ({why})", code="fatal")


def is_fatal(error: KafkaError) -> bool:
    """A client that had its fatal error before answers with the bare code."""
    return bool(error.fatal() or error.code() == KafkaError._FATAL)  # noqa: SLF001  the public name of the code


@dataclass(frozen=True, slots=True)
class Message:
    """One record as read. `timestamp_ms` is the log's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def _to_message(raw: Any) -> Message:
    """`raw` is a Message of confluent_kafka, which ships no types."""
    return Message(
        raw.topic(),
        raw.partition(),
        raw.offset(),
        raw.timestamp()[1],
        raw.key(),
        raw.value(),
        _headers_of(raw),
    )


# Called like this, CPython checks that a result comes without an exception; confluent_kafka's C code gives
# both for a header name that is not UTF-8, and the exception would surface wherever it liked.
_ask_headers = methodcaller("headers")


def _headers_of(raw: Any) -> tuple[tuple[str, bytes], ...]:
    """None at all when one's name is not text: nothing is decided by a header, and the record counts."""
    try:
        return tuple(_ask_headers(raw) or ())
    except (UnicodeDecodeError, SystemError):
        return ()


class Reader:
    """A member of a consumer group. Eager assignment: a revocation gives everything back at once, so
    `on_revoke` is the one moment to finish or forget what is in flight."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str],
        *,
        isolation: str = "read_committed",
        session_timeout_ms: int = 10_000,
        positions: Callable[[list[Place]], Mapping[Place, int]] | None = None,
        on_assign: Callable[[list[Place]], None] | None = None,
        on_revoke: Callable[[list[Place]], None] | None = None,
    ) -> None:
        self._positions, self._on_assign, self._on_revoke = positions, on_assign, on_revoke
        self._assigned: list[Place] = []
        self._ends_seen: dict[Place, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "session.timeout.ms": session_timeout_ms,
                "heartbeat.interval.ms": max(200, session_timeout_ms // 6),
                "max.poll.interval.ms": max(300_000, session_timeout_ms),
                "partition.assignment.strategy": "range",
                "fetch.wait.max.ms": 100,
                "log_level": 2,
            }
        )
        self._consumer.subscribe(
            list(topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
        )

    def _assign(self, consumer: Consumer, found: list[TopicPartition]) -> None:
        places = [(tp.topic, tp.partition) for tp in found]
        if self._positions is not None:
            known = self._positions(places)
            for tp in found:
                tp.offset = known.get((tp.topic, tp.partition), OFFSET_BEGINNING)
        consumer.assign(found)
        self._assigned = places
        if self._on_assign is not None:
            self._on_assign(places)

    def _revoke(self, consumer: Consumer, found: list[TopicPartition]) -> None:
        if self._on_revoke is not None:
            self._on_revoke([(tp.topic, tp.partition) for tp in found])
        consumer.unassign()
        self._assigned = []

    @property
    def assignment(self) -> list[Place]:
        return list(self._assigned)

    def poll(self, count_max: int, timeout_s: float) -> list[Message]:
        """Up to `count_max` records; empty when nothing came in `timeout_s`. Raises `KafkaClientFailed`."""
        found: list[Message] = []
        for raw in self._taken(count_max, timeout_s):
            error = raw.error()
            if error is None:
                found.append(_to_message(raw))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  the public name of the code
                self._ends_seen[raw.topic(), raw.partition()] = raw.offset()
            elif is_fatal(error):
                raise client_failed(KafkaException(error))
            else:
                log.warning("kafka: %s", error.name())
        return found

    def _taken(self, count_max: int, timeout_s: float) -> list[Any]:
        try:
            # `consume` waits for a full batch: wait for the first record only, then take what is there.
            first = self._consumer.poll(timeout_s)
            return [] if first is None else [first, *self._consumer.consume(count_max - 1, 0)]
        except KafkaException as exc:
            raise client_failed(exc) from None

    def take_ends(self) -> dict[Place, int]:
        """Ends reached since the last call. Unlike the offset of the last record they count transaction
        markers, so they can be compared with a high watermark."""
        found, self._ends_seen = self._ends_seen, {}
        return found

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        """Commit next offsets and wait; False: the broker did not take them. A member that lost its
        partitions is not an error: others redo it."""
        wanted = [TopicPartition(t, p, o) for (t, p), o in offsets.items() if (t, p) in self._assigned]
        if not wanted:
            return True
        try:
            self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as exc:
            log.warning("offsets not committed: %s", exc.args[0].name())
            return False
        return True

    def pause(self, places: Iterable[Place]) -> None:
        self._consumer.pause([TopicPartition(*p) for p in places])

    def resume(self, places: Iterable[Place]) -> None:
        self._consumer.resume([TopicPartition(*p) for p in places])

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_LEADER_MOVES = frozenset(
    {
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


class Ends:
    """Where partitions begin and end now, in one request. Safe to keep and to share between threads."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._places: dict[str, list[TopicPartition]] = {}
        self._pause = threading.Event()

    def of(self, topics: Iterable[str]) -> dict[Place, int]:
        """High watermarks, open transactions included. Raises `KafkaAway`."""
        return self._asked(topics, OffsetSpec.latest())

    def beginnings(self, topics: Iterable[str]) -> dict[Place, int]:
        """The first offsets the log still has. Raises `KafkaAway`."""
        return self._asked(topics, OffsetSpec.earliest())

    def _asked(self, topics: Iterable[str], spec: OffsetSpec) -> dict[Place, int]:
        wanted = list(topics)
        for left in range(ENDS_TRIES, 0, -1):
            try:
                asked = {tp: spec for topic in wanted for tp in self._partitions(topic)}
                if not asked:
                    return {}
                found = self._admin.list_offsets(asked, request_timeout=CALL_S)
                return {(tp.topic, tp.partition): f.result(CALL_S).offset for tp, f in found.items()}
            except (KafkaException, TimeoutError) as exc:
                error = exc.args[0] if isinstance(exc, KafkaException) else None
                # A broker that has just started does not lead its partitions yet: ask again.
                if left == 1 or error is None or error.code() not in _LEADER_MOVES:
                    why = "no answer about the ends of its partitions" if error is None else error.str()
                    raise KafkaAway(f"Kafka: {why}", code="ends") from None
                self._pause.wait(ENDS_RETRY_S)
        raise AssertionError("unreachable")

    def _partitions(self, topic: str) -> list[TopicPartition]:
        """Partition counts never change: asked once."""
        if topic not in self._places:
            partitions = self._admin.list_topics(topic, CALL_S).topics[topic].partitions
            self._places[topic] = [TopicPartition(topic, p) for p in partitions]
        return self._places[topic]


def made_anew(read: Mapping[Place, int], there: Mapping[Place, int]) -> Iterator[str]:
    """Partitions that are `there` at less than what was `read` of them: other topics under old names. What is
    at the same coordinates now was never looked at."""
    for place, position in sorted(read.items()):
        if place in there and position > there[place]:
            yield f"{place[0]}/{place[1]} is at {there[place]} and was read to {position}: it was made anew"


def read_all(
    bootstrap: str, topic: str, *, isolation: str = "read_committed", timeout_s: float = 60.0
) -> Iterator[Message]:
    """Every record of a topic up to the high watermark of now. Raises `KafkaAway` when it takes too long."""
    ends = Ends(bootstrap).of([topic])
    todo = {p for (_, p), end in ends.items() if end > 0}
    consumer = _anonymous(bootstrap, isolation)
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in todo])
        idle_s = 0.0
        while todo:
            batch = consumer.consume(5_000, 0.2)
            idle_s = 0.0 if batch else idle_s + 0.2
            if idle_s > timeout_s:
                raise KafkaAway(
                    f"{topic}: partitions {sorted(todo)} not readable to the end", code="unreadable"
                )
            for raw in batch:
                error = raw.error()
                if error is not None and is_fatal(error):
                    raise client_failed(KafkaException(error))
                if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                    continue
                end, offset = ends[topic, raw.partition()], raw.offset()
                if error is None and offset < end:  # what came since is not asked for
                    yield _to_message(raw)
                if offset + (error is None) >= end:
                    todo.discard(raw.partition())
    finally:
        consumer.close()


def _anonymous(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "backstop-unused",  # librdkafka wants one; nothing is joined or committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
    )
