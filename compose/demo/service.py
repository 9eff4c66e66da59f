"""The service's side of a run: publishes intents of every kind, and completes some, as a service would.

It must not read what came of them (`run` watches), nor wait.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from compose.clock import SystemClock
from compose.demo.plan import GARBAGE, KINDS, Kind, Twist, person
from schemas.decision import Decision, Phase
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.publisher import IntentPublisher, NewIntent

DEADLINE_S, EXPIRY_S = 18.0, 36.0
LATE_S = 45.0  # how long a held-up request was held up
COMPLETES_S = 6.0  # after the request: the e-mail is out by then
LINK = "https://app.example/r?t="


@dataclass(slots=True)
class Intent:
    """One published intent and what came of it."""

    intent_id: str
    kind: Kind
    last: Decision | None = None
    reasons: set[str] = field(default_factory=set)

    @property
    def is_closed(self) -> bool:
        return self.last is not None and self.last.next_phase is Phase.CLOSED


class Service:
    """`run_id` keeps this run's people apart from any other's. Publishing raises what the publisher does."""

    def __init__(
        self,
        publisher: IntentPublisher,
        *,
        run_id: str,
        deadline_s: float = DEADLINE_S,
        expiry_s: float = EXPIRY_S,
    ) -> None:
        self._publisher, self._run_id = publisher, run_id
        self._deadline, self._expiry = timedelta(seconds=deadline_s), timedelta(seconds=expiry_s)
        self._to_complete: deque[tuple[float, str]] = deque()
        self._clock = SystemClock()
        self.intents: dict[str, Intent] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether completions are still to come."""
        return bool(self._to_complete)

    def use(self, publisher: IntentPublisher) -> None:
        """Go on with another publisher: the client of the one before has failed for good."""
        self._publisher = publisher

    def publish(self, kind: Kind, number: int) -> None:
        """One intent, with what its kind does besides."""
        who = person(kind, number, run=self._run_id)
        intent_id = f"{self._run_id}-{KINDS.index(kind):02d}-{number:03d}"
        late_s = LATE_S if kind.twist is Twist.LATE else 0.0
        asked = self._now() - timedelta(seconds=late_s)
        link = f"{LINK}CANARY{number:04d}"
        variables = {
            "password_reset": {"link": link, "name": "Ada"},
            "signup_verification": {"verification_url": link},
            "build_failure": {"link": link, "project": "engine", "branch": "main"},
        }[kind.policy.split("__")[0]]
        new = NewIntent(
            intent_id=intent_id,
            tenant="tenant-demo",
            policy=kind.policy,
            locale="en" if number % 2 else "fr",
            email=who.email,
            phone=who.phone,
            variables=variables,
            challenge_ref=f"challenge-{number}",
            requested_at=asked,
            deadline=asked + self._deadline,
            expiry=asked + self._expiry,
            sms_consent_at=asked if kind.consent else None,
        )
        if kind.twist is Twist.COMPLETES_FIRST:
            self._publisher.complete(intent_id, at=self._now(), source="demo")
        self._publisher.publish(new)
        if kind.twist is Twist.PUBLISHES_TWICE:
            self._publisher.publish(new)
        if kind.twist is Twist.COMPLETES:
            self._to_complete.append((time.monotonic() + COMPLETES_S, intent_id))
        self.intents[intent_id] = Intent(intent_id, kind)

    def complete_due(self) -> None:
        """Say that a person is done, in time before that person's deadline."""
        while self._to_complete and time.monotonic() >= self._to_complete[0][0]:
            self._publisher.complete(self._to_complete[0][1], at=self._now(), source="demo")
            self._to_complete.popleft()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)


def publish_garbage(raw: Publisher, names: TopicNames) -> int:
    """Records that are not valid ones, on intents; how many."""
    garbage = [
        OutgoingRecord(names[TopicKind.INTENTS], b"garbage-%04d" % n, value)
        for n, value in enumerate(GARBAGE)
    ]
    raw.publish([*garbage, garbage[0]._replace(key=None), garbage[0]._replace(value=None)])
    return len(garbage) + 2
