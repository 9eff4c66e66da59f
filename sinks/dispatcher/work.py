"""One order from its record to safe results: handle, publish, heal, and only then finished.

Shared by the real loop and the simulation. It must not read or commit anything: whoever hands a record in
moves its offset once `finished` was called for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from schemas.attempt import Attempt
from schemas.codec import Undecodable, decode, headers
from schemas.dispatch import Dispatch
from schemas.errors import GuardUnavailable
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.suppression import Suppression
from schemas.topics import TopicNames
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.ports import Handled, HandlerClock
from sinks.kafka.consumer import Message
from sinks.kafka.letters import Letters
from sinks.kafka.producer import OutgoingRecord, PublishFailed

log = logging.getLogger("backstop.dispatcher")

SOURCE = "backstop/dispatcher"
RETRY_S = 0.5
BUSY_S_MIN, BUSY_S_MAX = 0.02, 1.0  # how long a lane is parked before it asks again about another's lease


class ResultPublisher(Protocol):
    """The part of `sinks.kafka.producer.Publisher` that is used."""

    def publish(self, records: Sequence[OutgoingRecord]) -> None: ...


class Stopping(Protocol):
    """The part of `threading.Event` that is used."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...


class OrderWork:
    """`work(message)` may run in several threads, for different intents."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        names: TopicNames,
        *,
        publisher: ResultPublisher,
        letters: Letters,
        clock: HandlerClock,
        stop: Stopping,
        finished: Callable[[Message], None],
        fault: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`fault` is for crash tests: called by name before and after results are published."""
        self._dispatcher, self._names, self._publisher = dispatcher, names, publisher
        self._letters, self._clock, self._stop = letters, clock, stop
        self._finished, self._fault = finished, fault

    def __call__(self, message: Message) -> float | None:
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
            self._finished(message)
        return None

    def _bury(self, message: Message, why: Undecodable) -> None:
        if self._publish([self._letters.record(message, why, at_ms=self._clock.now_ms())]):
            self._finished(message)

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
