"""Who is done, who must not be written to, what is paused, what time it is: read beside the orders.

It must not decide; it fills the guard and answers whether it is up to date.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from schemas.codec import Undecodable, decode
from schemas.errors import GuardUnavailable
from schemas.instruction import Instruction, InstructionAction
from schemas.intent import IntentCancelled, IntentCompleted
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.suppression import Suppression, SuppressionAction
from schemas.topics import TopicNames
from sinks.dispatcher.claims import Claims
from sinks.dispatcher.handle import HandlerClock
from sinks.kafka.consumer import KafkaAway, Message, Place, Reader

log = logging.getLogger("backstop.dispatcher")

COUNT_MAX = 2_000
POLL_S = 0.1
RETRY_S = 0.5
DONE_KINDS = (TopicKind.INTENTS, TopicKind.INSTRUCTIONS)
_ENDS = {
    InstructionAction.COMPLETE: Reason.COMPLETED,
    InstructionAction.CANCEL: Reason.CANCELLED,
    InstructionAction.FORCE_CLOSE: Reason.FORCE_CLOSED,
}


class FactsReader:
    """Reads intents, instructions and suppressions into the guard, positions in the same transaction.

    Reads uncommitted: a completion somebody wrote counts, whatever becomes of the transaction around it.
    """

    def __init__(self, bootstrap: str, names: TopicNames, claims: Claims, *, session_timeout_ms: int) -> None:
        self._names, self._claims = names, claims
        self._stop = threading.Event()
        self._reader = Reader(
            bootstrap,
            f"{names.prefix}dispatcher-facts",
            names.of((*DONE_KINDS, TopicKind.SUPPRESSIONS)),
            isolation="read_uncommitted",
            session_timeout_ms=session_timeout_ms,
            positions=self._positions,
        )
        self._thread = threading.Thread(target=self._run, name="facts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10.0)
        self._reader.close()

    def _positions(self, places: list[Place]) -> Mapping[Place, int]:
        while not self._stop.is_set():
            try:
                known = self._claims.progress()
                return {place: known[place] for place in places if place in known}
            except GuardUnavailable:
                self._stop.wait(RETRY_S)
        return {}

    def _run(self) -> None:
        waiting: list[Message] = []
        ends: dict[Place, int] = {}
        while not self._stop.is_set():
            try:
                if not waiting and not ends:
                    waiting = self._reader.poll(COUNT_MAX, POLL_S)
                    ends = self._reader.take_ends()
                if waiting or ends:
                    write_facts(self._claims, self._names, waiting, ends)
                    waiting, ends = [], {}
            except GuardUnavailable as exc:
                log.warning("who is done cannot be written: %s", exc)
                self._stop.wait(RETRY_S)
            except KafkaAway as exc:
                log.warning("who is done cannot be read: %s", exc)
                self._stop.wait(RETRY_S)


def write_facts(
    claims: Claims, names: TopicNames, messages: Sequence[Message], ends: Mapping[Place, int]
) -> None:
    """What these records say, and how far the topics were read, in one transaction of the guard.

    `ends`: positions of partitions read to their end, transaction markers included.
    """
    closed: list[tuple[str, Reason]] = []
    suppressed: list[tuple[str, str, Reason, str]] = []
    lifted: list[tuple[str, str]] = []
    progress: dict[Place, int] = {}
    for message in messages:
        progress[message.topic, message.partition] = message.offset + 1
        record = decode(names.kind_of(message.topic), message.key, message.value)
        if isinstance(record, Suppression):
            if record.action is SuppressionAction.SUPPRESS:
                suppressed.append((record.fingerprint, record.channel.value, record.reason, record.cause))
            else:
                lifted.append((record.fingerprint, record.channel.value))
        elif not isinstance(record, Undecodable):
            end = _end_of(record)
            if end is not None:
                closed.append(end)
    for place, offset in ends.items():
        progress[place] = max(offset, progress.get(place, 0))
    claims.write_facts(closed=closed, suppressed=suppressed, lifted=lifted, progress=progress)


def _end_of(record: object) -> tuple[str, Reason] | None:
    match record:
        case IntentCompleted():
            return record.intent_id, Reason.COMPLETED
        case IntentCancelled():
            return record.intent_id, Reason.CANCELLED
        case Instruction() if record.action in _ENDS:
            return record.intent_id, _ENDS[record.action]
    return None


class LogEnds(Protocol):
    """The part of `sinks.kafka.consumer.Ends` that is used."""

    def of(self, topics: Iterable[str]) -> dict[Place, int]: ...


class CompletionsRead:
    """Whether everything that lies in intents and instructions now has been read into the guard.

    All partitions count: a completion may sit in a wrong one. Waits for at most `wait_s`. Callers that come
    while the ends are being asked for share the next answer: one that was begun after they came.
    """

    STEP_S = 0.02

    def __init__(
        self,
        ends: LogEnds,
        names: TopicNames,
        claims: Claims,
        *,
        wait_s: float,
        clock: HandlerClock,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """`pause` waits for seconds; by default the calling thread does."""
        self._topics, self._claims, self._wait_s, self._clock = names.of(DONE_KINDS), claims, wait_s, clock
        self._ends, self._lock, self._pause = ends, threading.Lock(), pause or threading.Event().wait
        self._known: dict[Place, int] = {}
        self._begun_s = float("-inf")

    def __call__(self) -> bool:
        """Raises `GuardUnavailable`."""
        came_s = self._clock.monotonic()
        try:
            with self._lock:
                if self._begun_s < came_s:
                    begun_s = self._clock.monotonic()
                    self._known = self._ends.of(self._topics)
                    self._begun_s = begun_s
                ends = self._known
        except KafkaAway as exc:
            log.warning("ends of intents unknown: %s", exc)
            return False
        while True:
            read = self._claims.progress()
            if all(read.get(place, 0) >= end for place, end in ends.items()):
                return True
            if self._clock.monotonic() >= came_s + self._wait_s:
                return False
            self._pause(self.STEP_S)


class ClockGuard:
    """Compares our clock with the guard's every 10 s; too far apart means hold."""

    EVERY_S = 10.0

    def __init__(self, claims: Claims, clock: HandlerClock, *, skew_ms_max: int) -> None:
        self._claims, self._clock, self._skew_ms_max = claims, clock, skew_ms_max
        self._next, self._trusted, self._lock = float("-inf"), False, threading.Lock()

    def __call__(self) -> bool:
        """Raises `GuardUnavailable`."""
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._next:
                before = self._clock.now_ms()
                theirs = self._claims.now_ms()
                after = self._clock.now_ms()
                # The true difference lies within the time the question took.
                apart = max(before - theirs, theirs - after, 0)
                self._trusted = apart <= self._skew_ms_max
                self._next = now + self.EVERY_S
                if not self._trusted:
                    log.error("our clock and the database's are %d ms apart: nothing is sent", apart)
            return self._trusted
