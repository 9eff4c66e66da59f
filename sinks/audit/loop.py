"""How records arrive at the audit: every topic, from the position Postgres knows, in bounded batches.

It must not decide what is kept (`rows`); a database that is away is waited for, what the log no longer has is
said aloud, and topics made anew under audited names are refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping

from schemas.errors import GuardUnavailable, PreflightFailed
from schemas.metrics import NO_METER, Meter
from schemas.topics import TOPICS, TopicNames
from sinks.audit.writer import AuditWriter
from sinks.kafka.consumer import Ends, KafkaAway, Message, Place, Reader, made_anew
from sinks.postgres.pool import Database

log = logging.getLogger("backstop.auditor")

BATCH_MAX = 1_000  # rows per transaction: 0.1 s measured, far inside the statement timeout of 5 s
POLL_S = 0.1
RETRY_S = 0.5
MADE_ANEW_REMEDY = (
    "Give the new topics a BACKSTOP_PREFIX of their own: the audit keeps the old records under these "
    "coordinates for good, and would take none of the new ones."
)


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
        meter: Meter = NO_METER,
        beat: Callable[[], None] = lambda: None,
        fault: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`beat` is called each time the loop comes round, also while it waits for Postgres."""
        self._beat = beat
        self._writer = AuditWriter(names, database, letter_key=letter_key, meter=meter, fault=fault)
        self._ends_of = Ends(bootstrap)
        self._stop = threading.Event()
        self._waiting: list[Message] = []
        self._ends: dict[Place, int] = {}
        self._is_away = False
        self._reader = Reader(
            bootstrap,
            f"{names.prefix}auditor",
            names.of(TOPICS),
            session_timeout_ms=session_timeout_ms,
            positions=self._positions,
            on_revoke=self._forget,
        )

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set. Raises `KafkaClientFailed` when the client cannot go on, and
        `PreflightFailed` when a topic was made anew."""
        self._stop = stop
        try:
            while not stop.is_set():
                try:
                    self._pass()
                except GuardUnavailable as exc:
                    self._wait(exc)
                self._beat()
        finally:
            self._reader.close()

    def _pass(self) -> None:
        if not self._waiting and not self._ends:
            self._waiting = self._reader.poll(BATCH_MAX, POLL_S)
            self._ends = self._reader.take_ends()
        if self._waiting or self._ends:
            self._writer.write(self._waiting, self._ends)
            self._waiting, self._ends = [], {}
            self._is_back()

    def _positions(self, places: list[Place]) -> Mapping[Place, int]:
        while not self._stop.is_set():
            try:
                known = self._writer.positions(places)
            except GuardUnavailable as exc:
                self._wait(exc)
            else:
                self._is_back()
                self._check_what_is_there(known)
                return known
        return {}

    def _check_what_is_there(self, known: Mapping[Place, int]) -> None:
        topics = {topic for topic, _ in known}
        try:
            first, last = self._ends_of.beginnings(topics), self._ends_of.of(topics)
        except KafkaAway as exc:
            log.warning("whether something is missing is not known: %s", exc)
            return
        for sentence in gone(known, first):
            log.error("%s", sentence)
        renewed = list(made_anew(known, last))
        if renewed:
            failed = PreflightFailed(renewed)
            failed.remedy = MADE_ANEW_REMEDY
            raise failed

    def _wait(self, why: GuardUnavailable) -> None:
        if not self._is_away:
            log.warning("the audit waits: %s", why)
        self._is_away = True
        self._beat()
        self._stop.wait(RETRY_S)

    def _is_back(self) -> None:
        if self._is_away:
            log.warning("the audit goes on")
        self._is_away = False

    def _forget(self, _places: list[Place]) -> None:
        """The partitions went to somebody else, who reads from the positions in Postgres."""
        self._waiting, self._ends = [], {}


def gone(known: Mapping[Place, int], first: Mapping[Place, int]) -> Iterator[str]:
    """What the audit can no longer read: deleted before it came."""
    for place, position in sorted(known.items()):
        if position < first.get(place, 0):
            count = first[place] - position
            yield f"{place[0]}/{place[1]}: {count} offsets were deleted before they were audited"
