"""Reads a broadcast topic of one partition from its beginning, before a process is ready and ever after.

A reader that has failed is said, never ignored: a process with stale controls would not see a kill switch. It
must not join a group or commit: every process reads every record, for ever. It knows nothing of meaning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from schemas.errors import BackstopError, PreflightFailed

READY_WITHIN_S = 30.0
POLL_S = 0.2  # how soon a record is seen; well within one tick


class BroadcastFailed(BackstopError):
    """The client that reads the topic never works again."""

    remedy = "Start the process again; what waits is taken up by itself."


Take = Callable[[bytes | None, bytes | None, int], None]


class BroadcastReader:
    """`take(key, value, offset)` for every record, then `on_change()` once the end was reached and after
    every later record; `on_failure` with what ended the reading. All from the reader's thread."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        take: Take,
        on_change: Callable[[], None],
        on_failure: Callable[[BaseException], None] = lambda _exc: None,
    ) -> None:
        self._topic, self._take, self._on_change = topic, take, on_change
        self._on_failure = on_failure
        self._failure: BaseException | None = None
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
        """Read to the end of the topic; raises `PreflightFailed` when that cannot be done in time, and
        whatever ended the reading before."""
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        self._thread.start()
        if not self._caught_up.wait(READY_WITHIN_S):
            self.stop()
            raise PreflightFailed([f"{self._topic}: could not be read within {READY_WITHIN_S:.0f} s"])
        self.check()

    def check(self) -> None:
        """Raises what ended the reading: from then on nobody here knows what is paused."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5.0)
        self._consumer.close()

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as exc:  # noqa: BLE001  told to whoever must not go on without it
            self._failure = exc
            self._caught_up.set()
            self._on_failure(exc)

    def _read(self) -> None:
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
            elif error.fatal():
                raise BroadcastFailed(f"{self._topic} can no longer be read: {error.name()}", code="fatal")
