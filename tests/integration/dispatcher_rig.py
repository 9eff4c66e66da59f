"""A dispatcher's loop on the real broker and a real guard, with a provider that does as it is told.

It must not hold an expectation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from compose.clock import SystemClock, random_id
from schemas.accounts import Account, Capabilities
from schemas.attempt import Attempt
from schemas.budget import UNLIMITED
from schemas.codec import decode
from schemas.control import Controls
from schemas.dispatch import Dispatch
from schemas.ids import Channel
from schemas.price import Prices
from schemas.price import released as released_prices
from schemas.record import Record, TopicKind
from schemas.sealed import UnsealingKeys
from schemas.templates.registry import shipped
from schemas.topics import TopicNames
from sinks.dispatcher.claims import Claims, PostgresClaims
from sinks.dispatcher.facts import ClockGuard, CompletionsRead, FactsReader
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.loop import DispatcherLoop
from sinks.dispatcher.ports import Limits, Ports
from sinks.dispatcher.prepare import Preparer
from sinks.kafka.consumer import Ends, Message, read_all
from sinks.kafka.letters import Letters
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.postgres.pool import Database
from tests.fakes_provider import ScriptedProvider
from tests.orders import PRINTS, PRIVATE, order

WAIT_S = 40.0
SESSION_MS = 3_000
LIMITS = Limits(lease_ms=3_000, call_timeout_ms=1_000, clock_skew_ms_max=500)
COMPLETIONS_WAIT_S = 1.0
KINDS = (
    TopicKind.INTENTS,
    TopicKind.INSTRUCTIONS,
    TopicKind.SUPPRESSIONS,
    TopicKind.DISPATCHES_URGENT,
    TopicKind.DISPATCHES_BULK,
    TopicKind.ATTEMPTS,
    TopicKind.DEAD_LETTERS,
)
URGENT, BULK = TopicKind.DISPATCHES_URGENT, TopicKind.DISPATCHES_BULK


class Crash(BaseException):
    """A process that dies at a fault point: nothing after it runs, nothing is committed."""


@dataclass(slots=True)
class Life:
    """One life of a dispatcher; `end` is SIGTERM. What it died of is in `failure`."""

    loop: DispatcherLoop
    stop: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.loop.run(self.stop)
        except BaseException as exc:
            self.failure = exc

    def end(self) -> None:
        self.stop.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


@dataclass
class Rig:
    """Topics exist and the database at `dsn` is migrated."""

    bootstrap: str
    names: TopicNames
    dsn: str
    lives: list[Life] = field(default_factory=list)
    fault: Callable[[str], None] = field(default=lambda _point: None)

    def __post_init__(self) -> None:
        self.clock = SystemClock()
        self.t0 = self.clock.now_ms()
        self.database = Database(self.dsn)
        self.claims: Claims = PostgresClaims(self.database, UNLIMITED)
        self.mail, self.text = (
            ScriptedProvider(Account(name=n, provider="simulated", channel=c, capabilities=Capabilities()))
            for n, c in (("mail-a", Channel.EMAIL), ("text-a", Channel.SMS))
        )
        self.facts = FactsReader(self.bootstrap, self.names, self.claims, session_timeout_ms=SESSION_MS)
        self._has_facts = False
        self.renew_publisher()

    def renew_publisher(self) -> None:
        """As a new process has one."""
        self.publisher = Publisher(self.bootstrap, client_id="dispatcher", now_ms=self.clock.now_ms)

    def start_facts(self) -> None:
        self.facts.start()
        self._has_facts = True

    def start(self, *, concurrency: int = 4) -> Life:
        """One more dispatcher on the same guard, topics and provider."""
        ports = Ports(
            claims=self.claims,
            providers={"mail-a": self.mail, "text-a": self.text},
            preparer=Preparer(
                unsealing=UnsealingKeys([PRIVATE]),
                fingerprints=PRINTS,
                digest_key=b"d" * 32,
                templates=shipped(),
            ),
            prices=Prices(released_prices()),
            clock=self.clock,
            new_id=random_id,
            controls=Controls,
            completions_read=CompletionsRead(
                Ends(self.bootstrap), self.names, self.claims, wait_s=COMPLETIONS_WAIT_S, clock=self.clock
            ),
            clock_trusted=ClockGuard(
                self.claims,
                self.clock,
                skew_ms_max=LIMITS.clock_skew_ms_max,
                log_apart_ms=lambda: self.publisher.log_apart_ms,
            ),
            fault=lambda point: self.fault(point),
        )
        loop = DispatcherLoop(
            Dispatcher(ports, LIMITS),
            self.names,
            bootstrap=self.bootstrap,
            publisher=self.publisher,
            letters=Letters(self.names, by="dispatcher", key=b"k" * 32),
            clock=self.clock,
            concurrency=concurrency,
            session_timeout_ms=SESSION_MS,
            check=self.facts.check,
            fault=lambda point: self.fault(point),
        )
        self.lives.append(Life(loop))
        return self.lives[-1]

    def order(self, number: int = 1, channel: Channel = Channel.EMAIL, **changes: Any) -> Dispatch:
        return order(number, channel, t0=self.t0, **changes)

    def publish(self, kind: TopicKind, *records: Record | bytes, key: bytes = b"int-0001-test") -> None:
        """Acknowledged. A record goes under its own key, bytes under `key`."""
        publisher = Publisher(self.bootstrap, client_id="test")
        publisher.publish([_outgoing(self.names[kind], r, key) for r in records])
        publisher.close()

    def read(self, kind: TopicKind) -> list[Message]:
        return list(read_all(self.bootstrap, self.names[kind]))

    def attempts(self, intent_id: str = "int-0001-test") -> list[Attempt]:
        """In the order of the log."""
        found = [decode(TopicKind.ATTEMPTS, m.key, m.value) for m in self.read(TopicKind.ATTEMPTS)]
        assert all(isinstance(a, Attempt) for a in found)
        return [a for a in found if isinstance(a, Attempt) and a.intent_id == intent_id]

    def answer(self, asked: Dispatch, kind: TopicKind = URGENT) -> Attempt:
        """Publish the order and wait for the Attempt of its number."""
        self.publish(kind, asked)
        place = (asked.channel, asked.submission_no)
        found: list[Attempt] = []

        def answered() -> bool:
            said = [a for a in self.attempts(asked.intent_id) if (a.channel, a.submission_no) == place]
            found[:] = said
            return bool(said)

        self.until(answered)
        return found[-1]

    def lag(self) -> int:
        """Orders the group has not committed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.names.prefix}dispatcher",
                "log_level": 0,
            }
        )
        try:
            places = [
                TopicPartition(topic, p)
                for topic in self.names.of((URGENT, BULK))
                for p in consumer.list_topics(topic, 10).topics[topic].partitions
            ]
            committed = consumer.committed(places, timeout=10)
            ends = [consumer.get_watermark_offsets(p, timeout=10)[1] for p in places]
            return sum(end - max(0, c.offset) for end, c in zip(ends, committed, strict=True))
        finally:
            consumer.close()

    def until(self, true: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
        """Look again until it holds."""
        end, again = time.monotonic() + within_s, threading.Event()
        while not true():
            assert time.monotonic() < end, f"it never came true: {true.__qualname__}"
            again.wait(0.1)

    def close(self) -> None:
        for life in self.lives:
            life.end()
        if self._has_facts:
            self.facts.stop()
        self.database.close()


def _outgoing(topic: str, record: Record | bytes, key: bytes) -> OutgoingRecord:
    if isinstance(record, bytes):
        return OutgoingRecord(topic, key, record)
    own = getattr(record, "key", None) or getattr(record, "intent_id")  # noqa: B009  records differ in their key
    return OutgoingRecord(topic, own.encode(), record.to_bytes())
