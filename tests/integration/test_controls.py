"""The whole pipeline as processes: what is ours to mend brings nobody an early SMS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from compose import keys
from compose import settings as configuration
from compose.clock import SystemClock, random_id
from compose.settings import Settings
from schemas.codec import decode
from schemas.control import Control, ControlAction
from schemas.decision import Decision, Phase
from schemas.intent import IntentRequested
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.kafka import admin
from sinks.kafka.consumer import read_all
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.publisher import IntentPublisher, NewIntent
from tests.conftest import Servers
from tests.integration.guard_rig import EMAIL, POLICY, VARIABLES, Rig, eventually, messages, rig

GROUPS = ("worker", "dispatcher", "dispatcher-facts", "poller")
SOON_S, LATER_S, EXPIRY_S = 4.0, 16.0, 40.0
TICKS_MS = 1_500  # a due SMS is ordered within some ticks of 100 ms and sent at once


@dataclass
class Pipeline:
    """Worker, dispatcher, poller and simulator, and a service that publishes to them."""

    rig: Rig
    names: TopicNames
    publisher: IntentPublisher
    raw: Publisher
    bootstrap: str
    asked: dict[str, IntentRequested] = field(default_factory=dict)

    def publish(
        self, deadline_s: float, *, expiry_s: float = EXPIRY_S, to: str = "delivered", ago_s: float = 0.0
    ) -> str:
        """The id of an intent whose person agreed to SMS."""
        intent_id = f"int-{random_id()[:12]}"
        at = _now() - timedelta(seconds=ago_s)
        new = NewIntent(
            intent_id=intent_id,
            tenant="tenant-0001",
            policy=POLICY,
            locale="en",
            email=f"{to}+{intent_id}@example.com",
            phone=f"+4477009000{len(self.asked):02d}",
            variables=VARIABLES,
            challenge_ref=intent_id,
            requested_at=at,
            deadline=at + timedelta(seconds=deadline_s),
            expiry=at + timedelta(seconds=expiry_s),
            sms_consent_at=at,
        )
        self.asked[intent_id] = self.publisher.publish(new)
        return intent_id

    def control(self, action: ControlAction) -> None:
        name = f"provider:{EMAIL}"
        record = Control(
            name=name, action=action, operator="tester", why="a test", at_ms=SystemClock().now_ms()
        )
        self.raw.publish([OutgoingRecord(self.names[TopicKind.CONTROLS], name.encode(), record.to_bytes())])

    def decisions(self, intent_id: str) -> list[Decision]:
        found = (
            decode(TopicKind.DECISIONS, m.key, m.value)
            for m in read_all(self.bootstrap, self.names[TopicKind.DECISIONS])
        )
        return [d for d in found if isinstance(d, Decision) and d.intent_id == intent_id]

    def reasons(self, intent_id: str) -> set[Reason]:
        """Those of its decisions and of the evidence in them."""
        found = self.decisions(intent_id)
        return {d.reason for d in found} | {
            d.evidence.reason for d in found if d.evidence is not None and d.evidence.reason is not None
        }

    def is_delivered(self, intent_id: str) -> bool:
        return any(d.next_phase is Phase.EMAIL_DELIVERED for d in self.decisions(intent_id))

    def is_past_deadline(self, intent_id: str) -> bool:
        """Long enough for an SMS that was due then."""
        return SystemClock().now_ms() > self.asked[intent_id].deadline_ms + TICKS_MS

    def emails(self, intent_id: str) -> int:
        return messages(self.rig.ledger(f"{intent_id}.email"))

    def texts(self, intent_id: str) -> list[int]:
        """When the provider was asked to send an SMS, whatever it answered."""
        return [e["at_ms"] for e in self.rig.ledger(f"{intent_id}.sms")]


@pytest.fixture(scope="module")
def pipeline(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    name = f"pipe{random_id()[:10]}"
    with psycopg.connect(stack.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    dsn = stack.dsn.replace("@/backstop?", f"@/{name}?")
    with rig(stack.bootstrap, dsn, tmp_path_factory.mktemp("pipeline")) as one:
        settings = Settings.model_validate(
            {k.removeprefix("BACKSTOP_").lower(): v for k, v in one.environment.items()}
        )
        names = TopicNames(settings.prefix)
        admin.create(settings.kafka, admin.Layout(names, settings.partitions, 1, 1))
        for process in ("worker", "dispatcher", "poller"):
            one.fleet.add(process, process)
        groups = admin.Groups(settings.kafka)
        eventually(lambda: groups.settled([f"{settings.prefix}{g}" for g in GROUPS]), within_s=40.0)
        held, raw = keys.publisher_keys(settings.keys), Publisher(settings.kafka, client_id="test")
        service = IntentPublisher(
            names,
            publisher=raw,
            sealing=held.sealing,
            fingerprints=held.fingerprints,
            policies=configuration.policies(settings),
        )
        yield Pipeline(one, names, service, raw, settings.kafka)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


def _pause(pipeline: Pipeline) -> None:
    pipeline.control(ControlAction.PAUSE)


def _resume(pipeline: Pipeline) -> None:
    pipeline.control(ControlAction.RESUME)


@pytest.mark.parametrize(
    ("trouble", "mended", "because"),
    [
        pytest.param(_pause, _resume, Reason.CONTROL_PAUSED, id="paused"),
    ],
)
def test_email_trouble_of_ours_brings_no_sms_before_the_deadline_and_none_once_mended(
    pipeline: Pipeline,
    trouble: Callable[[Pipeline], None],
    mended: Callable[[Pipeline], None],
    because: Reason,
) -> None:
    trouble(pipeline)
    try:
        soon = [pipeline.publish(SOON_S) for _ in range(2)]
        later = [pipeline.publish(LATER_S) for _ in range(2)]
        eventually(lambda: all(because in pipeline.reasons(i) for i in [*soon, *later]))
        eventually(lambda: all(pipeline.texts(i) for i in soon))  # past its deadline the ladder goes on
        assert [pipeline.emails(i) for i in [*soon, *later]] == [0] * 4
    finally:
        mended(pipeline)
    eventually(lambda: all(pipeline.is_delivered(i) and pipeline.is_past_deadline(i) for i in later))
    assert [(pipeline.emails(i), pipeline.texts(i)) for i in later] == [(1, [])] * 2
    for intent_id in soon:
        assert min(pipeline.texts(intent_id)) >= pipeline.asked[intent_id].deadline_ms
