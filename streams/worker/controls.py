"""Reads the controls topic, from its beginning, before the worker is ready and as long as it runs.

It must not keep a group or commit: every worker reads every control, for ever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from schemas.codec import Undecodable, decode
from schemas.control import Control, Controls
from schemas.errors import PreflightFailed
from schemas.record import TopicKind

log = logging.getLogger("backstop.worker.controls")

READY_WITHIN_S = 30.0
POLL_S = 0.2  # how soon a control is seen; well within one tick


class ControlsReader:
    """`on_change` is called from the reader's thread with the controls in force."""

    def __init__(self, bootstrap: str, topic: str, on_change: Callable[[Controls], None]) -> None:
        self._topic, self._on_change = topic, on_change
        self._latest: dict[str, Control] = {}
        self._stop = threading.Event()
        self._read = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "backstop-controls-unused",  # required by librdkafka; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        self._thread = threading.Thread(target=self._run, name="controls", daemon=True)

    def start(self) -> None:
        """Read to the end of the topic; raises `PreflightFailed` when that cannot be done in time."""
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        self._thread.start()
        if not self._read.wait(READY_WITHIN_S):
            self.stop()
            raise PreflightFailed(
                [f"{self._topic}: controls could not be read within {READY_WITHIN_S:.0f} s"]
            )

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
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF and not self._read.is_set():  # noqa: SLF001
                    self._publish(message.offset() - 1)
                    self._read.set()
                continue
            self._take(message.key(), message.value(), message.offset())

    def _take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        control = decode(TopicKind.CONTROLS, key, value)
        if isinstance(control, Undecodable):
            log.error("control at offset %d ignored: %s %s", offset, control.reason.value, control.pointer)
            return
        if isinstance(control, Control):
            self._latest[control.name] = control
            if self._read.is_set():
                self._publish(offset)

    def _publish(self, offset: int) -> None:
        self._on_change(Controls.of(self._latest, offset=offset))
