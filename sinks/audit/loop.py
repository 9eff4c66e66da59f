"""How records arrive at the audit: every topic, from the position Postgres knows, in bounded batches.

It must not decide what is kept (`writer`); a database that is away is waited for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from schemas.errors import GuardUnavailable
from schemas.topics import TOPICS, TopicNames
from sinks.audit.writer import AuditWriter
from sinks.kafka.consumer import KafkaAway, Message, Place, Reader
from sinks.postgres.pool import Database

log = logging.getLogger("backstop.auditor")

BATCH_MAX = 1_000  # rows per transaction: well inside the statement timeout
POLL_S = 0.1
RETRY_S = 0.5


class AuditorLoop:
    """Run until `stop` is set; what was read and not written is read again."""

    def __init__(
        self,
        names: TopicNames,
        *,
        bootstrap: str,
        database: Database,
        letter_key: bytes,
        session_timeout_ms: int,
    ) -> None:
        self._writer = AuditWriter(names, database, letter_key=letter_key)
        self._stop = threading.Event()
        self._waiting: list[Message] = []
        self._ends: dict[Place, int] = {}
        self._reader = Reader(
            bootstrap,
            f"{names.prefix}auditor",
            names.of(TOPICS),
            session_timeout_ms=session_timeout_ms,
            positions=self._positions,
            on_revoke=self._forget,
        )

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set."""
        self._stop = stop
        try:
            while not stop.is_set():
                try:
                    self._pass()
                except (GuardUnavailable, KafkaAway) as exc:
                    log.warning("the audit waits: %s", exc)
                    stop.wait(RETRY_S)
        finally:
            self._reader.close()

    def _pass(self) -> None:
        if not self._waiting and not self._ends:
            self._waiting = self._reader.poll(BATCH_MAX, POLL_S)
            self._ends = self._reader.take_ends()
        if self._waiting or self._ends:
            self._writer.write(self._waiting, self._ends)
            self._waiting, self._ends = [], {}

    def _positions(self, places: list[Place]) -> Mapping[Place, int]:
        while not self._stop.is_set():
            try:
                return self._writer.positions(places)
            except GuardUnavailable as exc:
                log.warning("the audit does not know where it is yet: %s", exc)
                self._stop.wait(RETRY_S)
        return {}

    def _forget(self, _places: list[Place]) -> None:
        """The partitions went to somebody else, who reads from the positions in Postgres."""
        self._waiting, self._ends = [], {}
