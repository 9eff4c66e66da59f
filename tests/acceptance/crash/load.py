"""A service under load: intents of every kind at a steady pace, published until they are taken.

It must not read what came of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from compose.demo.plan import KINDS, Kind, Twist
from compose.demo.service import Intent, Service
from schemas.decision import CloseKind
from schemas.errors import BackstopError
from sinks.publisher import IntentPublisher

DEADLINE_S, EXPIRY_S = 10.0, 25.0  # a crash and the take-over fit before the deadline
RETRY_S = 0.5
STOP_S = 20.0  # the last completion is due 6 s after its request
FRESH_PUBLISHER_AFTER = 4  # failures in a row: its client may have failed for good


class Load:
    """`start`, then `pause` and `resume` at will; `stop` returns once the last completion is published."""

    def __init__(self, publisher: Callable[[], IntentPublisher], *, run_id: str, per_s: float) -> None:
        self._open, self._run_id, self._pause_s = publisher, run_id, 1.0 / per_s
        self._services: list[Service] = []
        self._stop, self._go = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.failure: BaseException | None = None

    @property
    def intents(self) -> dict[str, Intent]:
        """All that were published."""
        return {
            intent_id: one
            for service in list(self._services)
            for intent_id, one in list(service.intents.items())
        }

    @property
    def is_owing(self) -> bool:
        """Whether completions are still to be published."""
        return any(one.is_waiting for one in list(self._services))

    def start(self) -> None:
        """Paused: `resume` lets it publish."""
        self._thread.start()

    def pause(self) -> None:
        """Returns when nothing is being published any more."""
        self._go.clear()
        self._idle.wait()

    def resume(self) -> None:
        self._go.set()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._publisher = self._open()
            orders = self._all()
            while not (self._stop.is_set() and not self.is_owing):
                for one in self._services:
                    self._until_taken(one.complete_due)
                if self._go.is_set() and not self._stop.is_set():
                    self._idle.clear()
                    service, kind, number = next(orders)
                    self._until_taken(partial(service.publish, kind, number))
                else:
                    self._idle.set()
                time.sleep(self._pause_s)
        except BaseException as exc:
            self.failure = exc
        finally:
            self._idle.set()

    def _all(self) -> Iterator[tuple[Service, Kind, int]]:
        """Wave after wave of all kinds; who bounced before is written to again at the end of a wave."""
        ending = [k for k in KINDS if k.ended is not CloseKind.UNRESOLVED]  # that one waits for late evidence
        later = [k for k in ending if k.twist is Twist.SAME_PERSON_LATER]
        first = [k for k in ending if k not in later]
        while True:
            run_id = f"{self._run_id}{len(self._services):02d}"
            service = Service(self._publisher, run_id=run_id, deadline_s=DEADLINE_S, expiry_s=EXPIRY_S)
            self._services.append(service)
            for kinds in (first, later):
                for number in range(max(k.count for k in kinds)):
                    for kind in kinds:
                        if number < kind.count:
                            yield service, kind, number

    def _until_taken(self, publish: Callable[[], None]) -> None:
        failures = 0
        while True:
            try:
                publish()
            except BackstopError:
                failures += 1
                if failures % FRESH_PUBLISHER_AFTER == 0:
                    self._publisher = self._open()
                    for service in self._services:
                        service.use(self._publisher)
                time.sleep(RETRY_S)
            else:
                return
