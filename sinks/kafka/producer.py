"""Writing topics: acknowledged or raised, with the partitioner every reader of ours expects.

It must not return before the brokers have it: the caller moves its own offset on that word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Producer

from schemas.codec import Headers
from schemas.errors import BackstopError
from sinks.kafka.consumer import KafkaClientFailed, client_failed, is_fatal

QUEUE_MAX = 100_000  # records waiting in this process; a longer batch drains while it is handed over
STEP_S = 0.01  # another thread may serve our report: look again soon
PUBLISH_S = 30.0  # a cluster that has not taken a record by then is away


class PublishFailed(BackstopError):
    """Some records were not acknowledged; nothing after them may be taken as done."""

    remedy = "Check that Kafka runs and has enough in-sync replicas; publishing again is safe."


class OutgoingRecord(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None


class Publisher:
    """Idempotent producer with acks=all and murmur2 (case F01).

    `now_ms` is our clock; with it every acknowledged record tells how far the log's clock is from ours.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        queue_max: int = QUEUE_MAX,
        timeout_s: float = PUBLISH_S,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._timeout_s, self._now_ms = timeout_s, now_ms
        self._log_apart_ms: int | None = None
        self._dead: KafkaClientFailed | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "lz4",
                "linger.ms": 2,
                "queue.buffering.max.messages": queue_max,
                "delivery.timeout.ms": int(timeout_s * 1000),
                "log_level": 2,
            }
        )

    def publish(self, records: Sequence[OutgoingRecord]) -> None:
        """All of them acknowledged, or `PublishFailed`: try again. `KafkaClientFailed`: this producer never
        takes another record (out of order for the broker, no longer authorised), end the process."""
        if self._dead is not None:
            raise self._dead
        try:
            failed, left = self._hand_over(records)
        except (KafkaException, SystemError) as exc:
            self._dead = client_failed(self._reason(exc))
            raise self._dead from None
        if failed or left:
            why = ", ".join(sorted(set(failed))) or "no answer"
            raise PublishFailed(
                f"{len(failed) + left} of {len(records)} records not taken: {why}", code="publish"
            )

    def _hand_over(self, records: Sequence[OutgoingRecord]) -> tuple[list[str], int]:
        """Names of what went wrong, and how many were never answered. Waits for these records only: other
        threads of this publisher have their own."""
        failed: list[str] = []
        answered: list[bool] = []
        before_ms = self._now_ms() if self._now_ms is not None else 0

        def told(error: KafkaError | None, message: Any) -> None:
            answered.append(error is None)
            if error is not None:
                failed.append(error.name())
            elif self._now_ms is not None:
                self._compare(before_ms, message.timestamp(), self._now_ms())

        for record in records:
            try:
                self._produce(record, told)
            except KafkaException as exc:
                if is_fatal(exc.args[0]):
                    raise
                told(exc.args[0], None)  # refused before it was queued: too large
        idle_s = 0.0
        while len(answered) < len(records) and idle_s < 2 * self._timeout_s:
            idle_s += 0.0 if self._producer.poll(STEP_S) else STEP_S
        return failed, len(records) - len(answered)

    def _reason(self, exc: Exception) -> Exception:
        """Producing only says «fatal»; what it was comes out of the next poll."""
        try:
            self._producer.poll(0)
        except (KafkaException, SystemError) as told:
            return told
        return exc

    @property
    def log_apart_ms(self) -> int | None:
        """How far the log's clock is from ours at least, by the last record it stamped; None: none yet."""
        return self._log_apart_ms

    def _compare(self, before_ms: int, stamp: tuple[int, int], after_ms: int) -> None:
        """The log stamped the record between these two instants of ours, or its clock is not ours."""
        kind, at_ms = stamp
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            self._log_apart_ms = max(before_ms - at_ms, at_ms - after_ms, 0)

    def _produce(self, record: OutgoingRecord, told: Any) -> None:
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key, headers=record.headers or None, on_delivery=told
                )
            except BufferError:  # the local queue is full: let it drain, lose nothing
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def close(self) -> int:
        """Flush within bounds; how many records are left undelivered."""
        return int(self._producer.flush(self._timeout_s))
