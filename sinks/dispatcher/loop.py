"""How orders arrive and results leave: urgent first, in order per intent, offsets last.

It must not look into an order beyond its urgency; `handle` gives it its meaning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from schemas.attempt import Attempt
from schemas.codec import Undecodable, decode, headers
from schemas.dispatch import Dispatch
from schemas.errors import GuardUnavailable
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.suppression import Suppression
from schemas.topics import TopicNames
from sinks.dispatcher.handle import Dispatcher, Handled, HandlerClock
from sinks.kafka.consumer import Message, Place, Reader
from sinks.kafka.lanes import Lanes, Offsets
from sinks.kafka.letters import Letters
from sinks.kafka.producer import OutgoingRecord, Publisher, PublishFailed

log = logging.getLogger("backstop.dispatcher")

SOURCE = "backstop/dispatcher"
POLL_S = 0.05
RETRY_S = 0.5
BATCH_COUNT_MAX = 200
BUSY_S_MIN, BUSY_S_MAX = 0.02, 1.0  # how long a lane is parked before it asks again about another's lease
# Orders read and not finished, per topic; 2 000 × 10 KiB = 20 MiB. A full topic is paused, so that urgent
# orders never wait outside behind bulk ones, and polling goes on however slow providers are (case F46).
URGENT_IN_FLIGHT_MAX, BULK_IN_FLIGHT_MAX = 1_500, 500


class DispatcherLoop:
    """Run until `stop` is set. Ends with an exception only for a fault of ours."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        names: TopicNames,
        *,
        bootstrap: str,
        publisher: Publisher,
        letters: Letters,
        clock: HandlerClock,
        concurrency: int,
        session_timeout_ms: int,
        fault: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`fault` is for crash tests: called by name before and after results are published."""
        self._dispatcher, self._names, self._publisher = dispatcher, names, publisher
        self._letters, self._clock, self._fault = letters, clock, fault
        self._urgent = names[TopicKind.DISPATCHES_URGENT]
        self._limits = {
            self._urgent: URGENT_IN_FLIGHT_MAX,
            names[TopicKind.DISPATCHES_BULK]: BULK_IN_FLIGHT_MAX,
        }
        self._paused: set[str] = set()
        self._offsets = Offsets()
        self._stop = threading.Event()
        self._lanes = Lanes(self._work, concurrency=concurrency)
        self._reader = Reader(
            bootstrap,
            f"{names.prefix}dispatcher",
            names.of((TopicKind.DISPATCHES_URGENT, TopicKind.DISPATCHES_BULK)),
            session_timeout_ms=session_timeout_ms,
            on_revoke=self._revoked,
        )

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; what is in flight is finished first."""
        try:
            while not stop.is_set() and self._lanes.failure is None:
                for message in self._reader.poll(BATCH_COUNT_MAX, POLL_S):
                    self._offsets.began(message)
                    self._lanes.offer(message, self._urgency(message))
                self._lanes.wake(self._clock.monotonic())
                self._reader.commit(self._offsets.take())
                self._balance()
        finally:
            self._stop.set()
            self._lanes.close()
            self._reader.commit(self._offsets.take())
            self._reader.close()
        if self._lanes.failure is not None:
            raise self._lanes.failure

    def _revoked(self, _places: list[Place]) -> None:
        self._offsets.forget()
        self._paused.clear()  # a new assignment begins unpaused

    def _balance(self) -> None:
        """Pause a topic of which enough is in flight; resume it when there is room again."""
        for topic, count_max in self._limits.items():
            is_full = self._offsets.in_flight_of(topic) >= count_max
            if is_full == (topic in self._paused):
                continue
            places = [place for place in self._reader.assignment if place[0] == topic]
            if is_full:
                self._reader.pause(places)
                self._paused.add(topic)
            else:
                self._reader.resume(places)
                self._paused.discard(topic)

    def _urgency(self, message: Message) -> tuple[int, int]:
        return (0 if message.topic == self._urgent else 1, message.timestamp_ms)

    def _work(self, message: Message) -> float | None:
        """One order to its end: result and Attempt are safe, or the offset stays where it is.

        Returns the monotonic instant (s) to come back at while another holder is at it.
        """
        order = decode(self._names.kind_of(message.topic), message.key, message.value)
        if isinstance(order, Undecodable):
            self._bury(message, order)
            return None
        if not isinstance(order, Dispatch):
            raise TypeError("a dispatch topic holds dispatches")
        if self._stop.is_set():
            return None
        try:
            handled = self._dispatcher.handle(order)
        except AssertionError:
            raise
        except Exception as exc:  # noqa: BLE001  a fault of ours with one order must not block its neighbours
            log.error("order at %s/%d failed: %s", message.topic, message.offset, type(exc).__name__)  # noqa: TRY400
            self._bury(message, Undecodable(Reason.CORE_ERROR, detail=type(exc).__name__))
            return None
        if handled.wait_until_ms is not None:
            left_s = (handled.wait_until_ms - self._clock.now_ms()) / 1000
            return self._clock.monotonic() + min(max(left_s, BUSY_S_MIN), BUSY_S_MAX)
        self._fault("before_publish")
        if self._publish(self._outgoing(handled)) and self._heal(handled):
            self._fault("after_publish")
            self._offsets.finished(message)
        return None

    def _bury(self, message: Message, why: Undecodable) -> None:
        if self._publish([self._letters.record(message, why, at_ms=self._clock.now_ms())]):
            self._offsets.finished(message)

    def _outgoing(self, handled: Handled) -> list[OutgoingRecord]:
        found = [self._suppression(s) for s in handled.suppressions]
        return found + [self._attempt(a) for a in handled.attempts]

    def _attempt(self, attempt: Attempt) -> OutgoingRecord:
        made = headers(attempt, source=SOURCE, record_id=attempt.attempt_id)
        topic = self._names[TopicKind.ATTEMPTS]
        return OutgoingRecord(topic, attempt.intent_id.encode(), attempt.to_bytes(), made)

    def _suppression(self, record: Suppression) -> OutgoingRecord:
        made = headers(record, source=SOURCE, record_id=f"{record.cause}:{record.channel.value}")
        topic = self._names[TopicKind.SUPPRESSIONS]
        return OutgoingRecord(topic, record.key.encode(), record.to_bytes(), made)

    def _publish(self, records: list[OutgoingRecord]) -> bool:
        """Until acknowledged, or stopped: then the order is read again and answered from its row."""
        while True:
            try:
                self._publisher.publish(records)
            except PublishFailed as exc:
                log.warning("results not published yet: %s", exc)
                if self._stop.wait(RETRY_S):
                    return False
            else:
                return True

    def _heal(self, handled: Handled) -> bool:
        """Write the row the guard could not take; the offset waits for it."""
        while handled.heal is not None:
            try:
                handled.heal()
            except GuardUnavailable as exc:
                log.warning("result not recorded yet: %s", exc)
                if self._stop.wait(RETRY_S):
                    return False
            else:
                return True
        return True
