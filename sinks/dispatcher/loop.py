"""How orders arrive and results leave: urgent first, in order per intent, offsets last.

It must not look into an order beyond its urgency; `handle` gives it its meaning.
"""

from __future__ import annotations

import logging
import threading

from schemas.attempt import Attempt
from schemas.codec import Undecodable, decode, headers
from schemas.dispatch import Dispatch
from schemas.errors import GuardUnavailable
from schemas.record import TopicKind
from schemas.suppression import Suppression
from schemas.topics import TopicNames
from sinks.dispatcher.handle import Dispatcher, Handled, HandlerClock
from sinks.kafka.consumer import Message, Reader
from sinks.kafka.lanes import Lanes, Offsets
from sinks.kafka.letters import Letters
from sinks.kafka.producer import OutgoingRecord, Publisher, PublishFailed

log = logging.getLogger("backstop.dispatcher")

SOURCE = "backstop/dispatcher"
POLL_S = 0.05
RETRY_S = 0.5
BUSY_S_MAX = 1.0  # how long a lane sleeps before it asks again about another holder's lease
IN_FLIGHT_MAX = 2_000  # orders read and not finished: 2 000 × 10 KiB = 20 MiB


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
    ) -> None:
        self._dispatcher, self._names, self._publisher = dispatcher, names, publisher
        self._letters, self._clock = letters, clock
        self._urgent = names[TopicKind.DISPATCHES_URGENT]
        self._offsets = Offsets()
        self._stop = threading.Event()
        self._lanes = Lanes(self._work, concurrency=concurrency)
        self._reader = Reader(
            bootstrap,
            f"{names.prefix}dispatcher",
            names.of((TopicKind.DISPATCHES_URGENT, TopicKind.DISPATCHES_BULK)),
            session_timeout_ms=session_timeout_ms,
            on_revoke=lambda _places: self._offsets.forget(),
        )

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; what is in flight is finished first."""
        try:
            while not stop.is_set() and self._lanes.failure is None:
                if self._offsets.in_flight < IN_FLIGHT_MAX:
                    for message in self._reader.poll(200, POLL_S):
                        self._offsets.began(message)
                        self._lanes.offer(message, self._urgency(message))
                else:
                    stop.wait(POLL_S)
                self._reader.commit(self._offsets.take())
        finally:
            self._stop.set()
            self._lanes.close()
            self._reader.commit(self._offsets.take())
            self._reader.close()
        if self._lanes.failure is not None:
            raise self._lanes.failure

    def _urgency(self, message: Message) -> tuple[int, int]:
        return (0 if message.topic == self._urgent else 1, message.timestamp_ms)

    def _work(self, message: Message) -> None:
        """One order to its end: result and Attempt are safe, or the offset stays where it is."""
        order = decode(self._names.kind_of(message.topic), message.key, message.value)
        if isinstance(order, Undecodable):
            if self._publish([self._letters.record(message, order, at_ms=self._clock.now_ms())]):
                self._offsets.finished(message)
            return
        if not isinstance(order, Dispatch):
            raise TypeError("a dispatch topic holds dispatches")
        while not self._stop.is_set():
            handled = self._dispatcher.handle(order)
            if handled.wait_until_ms is not None:
                left_s = (handled.wait_until_ms - self._clock.now_ms()) / 1000
                self._stop.wait(min(max(left_s, 0.02), BUSY_S_MAX))
                continue
            if self._publish(self._outgoing(handled)) and self._heal(handled):
                self._offsets.finished(message)
            return

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
