"""Writing topics: acknowledged or raised, with the partitioner every reader of ours expects.

It must not return before the brokers have it: the caller moves its own offset on that word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from schemas.codec import Headers
from schemas.errors import BackstopError

QUEUE_MAX = 100_000  # records waiting in this process; a longer batch drains while it is handed over
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
    """Idempotent producer with acks=all and murmur2 (case F01)."""

    def __init__(
        self, bootstrap: str, *, client_id: str, queue_max: int = QUEUE_MAX, timeout_s: float = PUBLISH_S
    ) -> None:
        self._timeout_s = timeout_s
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
        """All of them acknowledged, or `PublishFailed`."""
        failed: list[str] = []

        def told(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                failed.append(error.name())

        for record in records:
            try:
                self._produce(record, told)
            except KafkaException as exc:  # refused before it was queued: too large, or a fatal state
                failed.append(exc.args[0].name())
        left = self._producer.flush(self._timeout_s)
        if failed or left:
            why = ", ".join(sorted(set(failed))) or "no answer"
            raise PublishFailed(
                f"{len(failed) + left} of {len(records)} records not taken: {why}", code="publish"
            )

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
