"""Reads a broadcast topic of one partition from its beginning, before a process is ready and ever after.

It must not join a group or commit: every process reads every record, for ever. It knows nothing of meaning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from schemas.errors import PreflightFailed

READY_WITHIN_S = 30.0
POLL_S = 0.2  # how soon a record is seen; well within one tick

Take = Callable[[bytes | None, bytes | None, int], None]


class BroadcastReader:
    """`take(key, value, offset)` for every record, then `on_change()` once the end was reached and after
    every later record; both from the reader's thread."""

    def __init__(self, bootstrap: str, topic: str, take: Take, on_change: Callable[[], None]) -> None:
        self._topic, self._take, self._on_change = topic, take, on_change
        self._stop, self._caught_up = threading.Event(), threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "backstop-broadcast-unused",  # required by librdkafka; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        self._thread = threading.Thread(target=self._run, name="broadcast", daemon=True)

    def start(self) -> None:
        """Read to the end of the topic; raises `PreflightFailed` when that cannot be done in time."""
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        self._thread.start()
        if not self._caught_up.wait(READY_WITHIN_S):
            self.stop()
            raise PreflightFailed([f"{self._topic}: could not be read within {READY_WITHIN_S:.0f} s"])

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5.0)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._take(message.key(), message.value(), message.offset())
                if self._caught_up.is_set():
                    self._on_change()
            elif error.code() == KafkaError._PARTITION_EOF and not self._caught_up.is_set():
                self._on_change()
                self._caught_up.set()
