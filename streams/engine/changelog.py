"""Reading state and offsets back with librdkafka: blocking, in a thread of its own.

Order matters to whoever calls: stable offsets first, the changelog after, so that every record the
offsets cover is decided. It must not write, and must never end a transaction of somebody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from streams.engine.errors import RestoreFailed
from streams.engine.logs import librdkafka_logger

Partition = tuple[str, int]  # topic, partition number
Loaded = dict[Partition, dict[bytes, bytes]]

CALL_TIMEOUT_S = 10.0
OFFSETS_TIMEOUT_S = 5.0
PAUSE_S = 0.05
READ_BATCH = 10_000
READ_WAIT_S = 0.02  # a batch that is not full is waited for to its end, also the last one
QUEUE_KILOBYTES_MAX = 131_072  # 128 MB: what is read ahead while a batch is applied

_AGAIN = frozenset(
    {
        KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD,
        KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR, KafkaError.REQUEST_TIMED_OUT,
    }
)  # fmt: skip


class ChangelogReader:
    """One restore. Every `report_s` seconds of waiting `on_blocked` is told for which partitions; None
    means for the group's committed offsets.
    """

    def __init__(
        self,
        bootstrap: str,
        group_id: str,
        *,
        deadline: float,
        report_s: float,
        on_blocked: Callable[[list[Partition] | None], None],
    ) -> None:
        self.cancelled = False  # set from the event loop when the rebalance was overtaken
        self._deadline, self._report_s, self._on_blocked = deadline, report_s, on_blocked
        self._next_report = time.monotonic() + report_s
        base: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,  # for OffsetFetch only: it never subscribes
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "fetch.min.bytes": 1,
            "queued.max.messages.kbytes": QUEUE_KILOBYTES_MAX,
            # Default 1000 ms: a pause each time the local queue is full.
            "fetch.queue.backoff.ms": 5,
        }
        self._committed = {**base, "isolation.level": "read_committed"}
        self._all = {**base, "isolation.level": "read_uncommitted"}

    def stable_offsets(self, sources: list[Partition]) -> dict[Partition, int]:
        """Committed offsets with no transaction pending on them; 0 where nothing was committed.

        read_committed makes librdkafka ask for stable offsets: accepted but undecided ones are waited
        for (EndTxn is not checked against the generation, so an old owner may still commit them).
        """
        if not sources:
            return {}
        consumer = Consumer(self._committed, logger=librdkafka_logger())
        try:
            while True:
                try:
                    found = consumer.committed([TopicPartition(*tp) for tp in sources], OFFSETS_TIMEOUT_S)
                    for tp in found:
                        if tp.error:
                            raise KafkaException(tp.error)
                    return {(tp.topic, tp.partition): max(tp.offset, 0) for tp in found}
                except KafkaException as exc:
                    if exc.args[0].code() not in _AGAIN:
                        raise
                    self._check(None)
                    time.sleep(PAUSE_S)
        finally:
            consumer.close()

    def ends(self, partitions: list[Partition]) -> dict[Partition, int]:
        """High watermarks: ends that include open transactions."""
        consumer = Consumer(self._all, logger=librdkafka_logger())
        try:
            return {tp: self._end(consumer, tp) for tp in partitions}
        finally:
            consumer.close()

    def load(self, ends: dict[Partition, int]) -> tuple[Loaded, int]:
        """Changelog partitions up to `ends`, last value per key; and how many records that took.

        Waits for open transactions below the ends: a later owner's committed records may lie behind.
        """
        states: Loaded = {tp: {} for tp in ends}
        todo = {tp for tp, end in ends.items() if end > 0}
        if not todo:
            return states, 0
        consumer = Consumer(self._committed, logger=librdkafka_logger())
        count = 0
        try:
            consumer.list_topics(timeout=CALL_TIMEOUT_S)  # the leaders are known: saves 0.5 s
            consumer.assign([TopicPartition(*tp, OFFSET_BEGINNING) for tp in todo])
            while todo:
                self._check(sorted(todo))
                count += _apply(consumer.consume(READ_BATCH, READ_WAIT_S), states, todo, ends)
        finally:
            consumer.close()
        return states, count

    def _end(self, consumer: Any, tp: Partition) -> int:
        while True:
            try:
                return int(consumer.get_watermark_offsets(TopicPartition(*tp), CALL_TIMEOUT_S)[1])
            except KafkaException as exc:
                if exc.args[0].code() not in _AGAIN:
                    raise
                self._check([tp])
                time.sleep(PAUSE_S)

    def _check(self, waiting: list[Partition] | None) -> None:
        now = time.monotonic()
        if self.cancelled:
            raise RestoreFailed("overtaken by another rebalance", code="overtaken")
        if now > self._deadline:
            raise RestoreFailed(f"not readable in time: {_names(waiting)}", code="restore_timeout")
        if now > self._next_report:
            self._next_report = now + self._report_s
            self._on_blocked(waiting)


def _apply(messages: list[Any], states: Loaded, todo: set[Partition], ends: dict[Partition, int]) -> int:
    count = 0
    for message in messages:
        tp = (message.topic(), message.partition())
        error = message.error()
        if error is None:
            count += 1
            value = message.value()
            if value is None:
                states[tp].pop(message.key(), None)
            else:
                states[tp][message.key()] = value
        elif error.code() == KafkaError._PARTITION_EOF:
            # Its offset counts control records too; a number of records would not.
            if message.offset() >= ends[tp]:
                todo.discard(tp)
        elif error.fatal():
            raise KafkaException(error)
    return count


def _names(partitions: list[Partition] | None) -> str:
    if partitions is None:
        return "the group's committed offsets"
    return ", ".join(f"{topic}/{number}" for topic, number in partitions)
