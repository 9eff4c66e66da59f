"""Who is done, who must not be written to, what is paused, what time it is: read beside the orders.

It must not decide; it fills the guard and answers whether it is up to date.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from schemas.codec import decode
from schemas.errors import GuardUnavailable, PreflightFailed
from schemas.instruction import Instruction, InstructionAction
from schemas.intent import IntentCancelled, IntentCompleted, IntentRequested, IntentSuperseded
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.subject import SubjectSeen
from schemas.suppression import Suppression, SuppressionAction
from schemas.topics import TopicNames
from sinks.dispatcher.claims import Claims
from sinks.dispatcher.ports import HandlerClock
from sinks.dispatcher.rules import Lifted, Listed
from sinks.dispatcher.subjects import asked
from sinks.kafka.consumer import Ends, KafkaAway, Message, Place, Reader, made_anew

log = logging.getLogger("backstop.dispatcher")

COUNT_MAX = 2_000
POLL_S = 0.1
RETRY_S = 0.5
DONE_KINDS = (TopicKind.INTENTS, TopicKind.INSTRUCTIONS)
MADE_ANEW_REMEDY = (
    "Take a new BACKSTOP_PREFIX. Or, once every intent of the old topics is past its expiry, delete the rows "
    "of the topics named above from the table closed_progress: they are then read from their beginning."
)
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
        self._topics, self._ends = names.of((*DONE_KINDS, TopicKind.SUPPRESSIONS)), Ends(bootstrap)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._at: dict[Place, int] = {}
        self._reader = Reader(
            bootstrap,
            f"{names.prefix}dispatcher-facts",
            self._topics,
            isolation="read_uncommitted",
            session_timeout_ms=session_timeout_ms,
            positions=self._positions,
        )
        self._thread = threading.Thread(target=self._run, name="facts", daemon=True)

    def start(self) -> None:
        """Raises `PreflightFailed` when the guard has read further than the topics go, `GuardUnavailable` or
        `KafkaAway`."""
        _refuse(made_anew(self._claims.progress(), self._ends.of(self._topics)))
        self._thread.start()

    def check(self) -> None:
        """Raises what ended the reading: from then on nobody knows who is done."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(10.0)
        self._reader.close()

    def _positions(self, places: list[Place]) -> Mapping[Place, int]:
        while not self._stop.is_set():
            try:
                known = self._claims.progress()
                self._at = {place: known[place] for place in places if place in known}
            except GuardUnavailable:
                self._stop.wait(RETRY_S)
            else:
                return self._at
        return {}

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as exc:  # noqa: BLE001  told by `check` in the loop, which ends the process
            self._failure = exc

    def _read(self) -> None:
        waiting: list[Message] = []
        ends: dict[Place, int] = {}
        while not self._stop.is_set():
            try:
                if not waiting and not ends:
                    waiting = self._reader.poll(COUNT_MAX, POLL_S)
                    ends = self._reader.take_ends()
                    # A topic that is made anew under a running process is read from its beginning.
                    _refuse(
                        made_anew(self._at, {(m.topic, m.partition): m.offset for m in reversed(waiting)})
                    )
                if waiting or ends:
                    write_facts(self._claims, self._names, waiting, ends)
                    waiting, ends = [], {}
            except GuardUnavailable as exc:
                log.warning("who is done cannot be written: %s", exc)
                self._stop.wait(RETRY_S)


def _refuse(differences: Iterable[str]) -> None:
    found = list(differences)
    if found:
        failed = PreflightFailed(found)
        failed.remedy = MADE_ANEW_REMEDY
        raise failed


def write_facts(
    claims: Claims, names: TopicNames, messages: Sequence[Message], ends: Mapping[Place, int]
) -> None:
    """What these records say, and how far the topics were read, in one transaction of the guard.

    `ends`: positions of partitions read to their end, transaction markers included.
    """
    read = []
    progress: dict[Place, int] = {}
    for message in messages:
        progress[message.topic, message.partition] = message.offset + 1
        record = decode(names.kind_of(message.topic), message.key, message.value)
        read.append((record, message.timestamp_ms))
    for place, offset in ends.items():
        progress[place] = max(offset, progress.get(place, 0))
    said = gathered(read)
    claims.write_facts(
        closed=said.closed,
        suppressed=said.suppressed,
        lifted=said.lifted,
        consented=said.consented,
        asked=said.asked,
        progress=progress,
    )


@dataclass(slots=True)
class Said:
    """What records say to the guard; the arguments of `Claims.write_facts`."""

    closed: list[tuple[str, Reason]] = field(default_factory=list)
    suppressed: list[Listed] = field(default_factory=list)
    lifted: list[Lifted] = field(default_factory=list)
    consented: dict[str, int] = field(default_factory=dict)
    asked: list[SubjectSeen] = field(default_factory=list)


def gathered(read: Iterable[tuple[object, int]]) -> Said:
    """What these records, each with its log time (ms), say together, in their order; what says nothing, or
    cannot be read, is passed over."""
    said = Said()
    for record, log_ms in read:
        if isinstance(record, Suppression):
            _put(record, said.suppressed, said.lifted)
        elif isinstance(record, IntentRequested):
            seen = asked(record, log_ms=log_ms)
            if seen is not None:
                said.asked.append(seen)
            consent_ms = _consent_of(record)
            if consent_ms is not None and record.sms_fingerprint is not None:
                known_ms = said.consented.get(record.sms_fingerprint, 0)
                said.consented[record.sms_fingerprint] = max(consent_ms, known_ms)
        else:
            end = _end_of(record)
            if end is not None:
                said.closed.append(end)
    return said


def _put(record: Suppression, suppressed: list[Listed], lifted: list[Lifted]) -> None:
    """What one record does to the list. The guard takes off first and then puts on, so what a later record
    of the same destination undoes is dropped here: a STOP after a consent in one batch must stay."""
    place = (record.fingerprint, record.channel.value)
    if record.action is SuppressionAction.LIFT:
        by_consent = record.reason is Reason.CONSENT_GIVEN
        suppressed[:] = [
            one
            for one in suppressed
            if (one.fingerprint, one.channel) != place or (one.reason is Reason.OPTED_OUT and not by_consent)
        ]
        lifted.append(Lifted(*place, record.at_ms if by_consent else None))
        return
    suppressed.append(Listed(*place, record.reason, record.cause, record.at_ms, record.operator, record.why))


def _consent_of(asked: IntentRequested) -> int | None:
    """When the person agreed to SMS, as this request says; nobody has agreed later than it was asked."""
    if asked.sms_consent is None:
        return None
    return min(asked.sms_consent.granted_at_ms, asked.requested_at_ms)


def _end_of(record: object) -> tuple[str, Reason] | None:
    match record:
        case IntentCompleted():
            return record.intent_id, Reason.COMPLETED
        case IntentCancelled():
            return record.intent_id, Reason.CANCELLED
        case IntentSuperseded():
            return record.intent_id, Reason.SUPERSEDED
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
        self._read: dict[Place, int] = {}
        self._renewed: str | None = None
        self._begun_s = float("-inf")

    def __call__(self) -> bool:
        """Raises `GuardUnavailable`."""
        came_s = self._clock.monotonic()
        try:
            with self._lock:
                if self._begun_s < came_s:
                    begun_s, before = self._clock.monotonic(), self._read
                    self._known = self._ends.of(self._topics)
                    self._begun_s = begun_s
                    self._renewed = next(made_anew(before, self._known), None)
                ends, renewed = self._known, self._renewed
        except KafkaAway as exc:
            log.warning("ends of intents unknown: %s", exc)
            return False
        if renewed is not None:  # what was read says nothing about the topic of now
            log.error("no SMS is sent: %s", renewed)
            return False
        while True:
            read = self._read = self._claims.progress()
            if all(read.get(place, 0) >= end for place, end in ends.items()):
                return True
            if self._clock.monotonic() >= came_s + self._wait_s:
                return False
            self._pause(self.STEP_S)


class ClockGuard:
    """Compares our clock with the guard's every 10 s, and with the log's by what we published last; too far
    apart from either means hold. A hold is published too, so a clock that was set right is seen to be."""

    EVERY_S = 10.0

    def __init__(
        self,
        claims: Claims,
        clock: HandlerClock,
        *,
        skew_ms_max: int,
        log_apart_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`log_apart_ms` is None while nothing was published yet."""
        self._claims, self._clock, self._skew_ms_max = claims, clock, skew_ms_max
        self._log_apart_ms = log_apart_ms
        self._next, self._apart_ms, self._lock = float("-inf"), 0, threading.Lock()
        self._said: str | None = None

    def __call__(self) -> bool:
        """Raises `GuardUnavailable`."""
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._next:
                before = self._clock.now_ms()
                theirs = self._claims.now_ms()
                after = self._clock.now_ms()
                # The true difference lies within the time the question took.
                self._apart_ms = max(before - theirs, theirs - after, 0)
                self._next = now + self.EVERY_S
            return self._within("the database's", self._apart_ms) and self._within(
                "the log's", self._log_apart_ms() or 0
            )

    def _within(self, whose: str, apart_ms: int) -> bool:
        if apart_ms <= self._skew_ms_max:
            if self._said == whose:
                self._said = None
                log.warning("our clock and %s agree again", whose)
            return True
        if self._said != whose:
            self._said = whose
            log.error("our clock and %s are %d ms apart: nothing is sent", whose, apart_ms)
        return False
