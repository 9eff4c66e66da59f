"""Does the poller keep its word with the real broker, the real wire and a neighbour that comes and goes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, TopicPartition

from compose.clock import SystemClock
from compose.simulator.behaviour import Model
from compose.simulator.server import Server, create_app
from schemas.accounts import Account, Capabilities
from schemas.codec import decode
from schemas.destinations import EmailAddress
from schemas.ids import Channel
from schemas.lookup import Lookup
from schemas.observation import LookupAnswer, Observation, ProviderState
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.kafka.consumer import read_all
from sinks.kafka.letters import Letters
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.poller.handle import Poller
from sinks.poller.loop import PollerLoop, reader
from sinks.providers.base import Provider, Submission
from sinks.providers.credentials import BearerToken
from sinks.providers.registry import build
from tests.conftest import Servers
from tests.integration.conftest import MakeTopics

TOKEN = "tok-1"
CALL_MS = 1_000
SESSION_MS = 3_000
WAIT_S = 40.0
CAPS = Capabilities(
    lookup_by_message_id=True, lookup_by_reference=True, lookup_batch_max=10, lookups_per_s=40.0
)
ACCOUNTS = {
    name: Account(name=name, provider="simulated", channel=Channel.EMAIL, capabilities=CAPS)
    for name in ("mail-a", "mail-b", "mail-c")
}


@dataclass
class Rig:
    """Topics, a simulator with delivered messages, and pollers as threads of their own group members."""

    bootstrap: str
    names: TopicNames
    url: str
    model: Model
    running: list[tuple[threading.Event, threading.Thread]] = field(default_factory=list)

    def providers(self) -> dict[str, Provider]:
        return {
            name: build(account, base_url=self.url, credential=BearerToken(TOKEN), monotonic=time.monotonic)
            for name, account in ACCOUNTS.items()
        }

    def start(self) -> Callable[[], None]:
        """One more poller; call what is returned to tell it to stop, and wait."""
        clock, stop = SystemClock(), threading.Event()
        loop = PollerLoop(
            Poller(self.providers(), clock, call_timeout_ms=CALL_MS, concurrency=6),
            self.names,
            open_reader=reader(self.bootstrap, self.names, session_timeout_ms=SESSION_MS),
            publisher=Publisher(self.bootstrap, client_id="poller"),
            letters=Letters(self.names, by="poller", key=b"k" * 32),
            clock=clock,
        )
        thread = threading.Thread(target=loop.run, args=(stop,))
        thread.start()
        self.running.append((stop, thread))

        def end() -> None:
            stop.set()
            thread.join(WAIT_S)
            assert not thread.is_alive()

        return end

    def order(self, numbers: range, *, within_ms: int = 60_000) -> None:
        """One look-up per number, spread over the accounts, each for a message that was accepted."""
        now, providers = SystemClock().now_ms(), self.providers()
        records = []
        for number in numbers:
            name = list(ACCOUNTS)[number % len(ACCOUNTS)]
            intent = f"int-{number:05d}-test"
            to = EmailAddress.parse("delivered@example.com")
            sent = Submission(f"{intent}.email", to, "no-reply@example.com", "t", "s", "<p>h</p>", 1)
            taken = providers[name].submit(sent, now_ms=now, timeout_ms=5_000)
            found = Lookup.model_validate(
                {
                    "intent_id": intent,
                    "channel": "email",
                    "submission_no": 1,
                    "poll_no": 1,
                    "purpose": "schedule",
                    "provider_account": name,
                    "message_id": taken.message_id if number % 4 else None,
                    "reference": sent.reference,
                    "ordered_at_ms": now,
                    "answer_by_ms": now + within_ms,
                },
                strict=False,
            )
            records.append(OutgoingRecord(self.names[TopicKind.LOOKUPS], name.encode(), found.to_bytes()))
        self.publish(records)

    def publish(self, records: list[OutgoingRecord]) -> None:
        publisher = Publisher(self.bootstrap, client_id="test")
        publisher.publish(records)
        publisher.close()

    def observations(self) -> list[Observation]:
        topic = self.names[TopicKind.OBSERVATIONS]
        found = [decode(TopicKind.OBSERVATIONS, m.key, m.value) for m in read_all(self.bootstrap, topic)]
        assert all(isinstance(o, Observation) for o in found)
        return [o for o in found if isinstance(o, Observation)]

    def lag(self) -> int:
        """Records of the lookups topic that the group has not committed."""
        topic = self.names[TopicKind.LOOKUPS]
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": f"{self.names.prefix}poller", "log_level": 0}
        )
        try:
            places = [
                TopicPartition(topic, p)
                for p in range(len(consumer.list_topics(topic).topics[topic].partitions))
            ]
            committed = consumer.committed(places, timeout=10)
            ends = [consumer.get_watermark_offsets(p, timeout=10)[1] for p in places]
            return sum(end - max(0, c.offset) for end, c in zip(ends, committed, strict=True))
        finally:
            consumer.close()

    def until(self, true: Callable[[], bool]) -> None:
        """Look again until it holds; fails after `WAIT_S`."""
        end, again = time.monotonic() + WAIT_S, threading.Event()
        while not true():
            assert time.monotonic() < end, "it never came true"
            again.wait(0.1)


@pytest.fixture
def rig(stack: Servers, prefix: str, make_topics: MakeTopics) -> Iterator[Rig]:
    make_topics("lookups", "observations", "dead-letters")
    model = Model(ACCOUNTS)
    with Server(create_app(model, SystemClock(), credential=TOKEN)) as url:
        made = Rig(stack.bootstrap, TopicNames(prefix), url, model)
        yield made
        for stop, thread in made.running:
            stop.set()
            thread.join(WAIT_S)


def test_every_order_is_observed_and_committed_while_a_neighbour_joins_and_leaves(rig: Rig) -> None:
    end_first = rig.start()
    rig.order(range(120))
    rig.until(lambda: len(rig.observations()) > 10)
    end_second = rig.start()
    rig.order(range(120, 180))
    rig.until(lambda: len({o.observation_id for o in rig.observations()}) > 150)
    end_first()
    rig.order(range(180, 200))
    rig.until(lambda: rig.lag() == 0)
    end_second()
    seen = rig.observations()
    assert {o.intent_id for o in seen} == {f"int-{n:05d}-test" for n in range(200)}
    assert {o.answer for o in seen} == {LookupAnswer.ANSWERED}
    by_id = {o.observation_id: o.provider_state for o in seen}
    assert set(by_id.values()) <= {ProviderState.ACCEPTED, ProviderState.DELIVERED}


def test_stopped_and_started_again_it_asks_nothing_twice_and_keeps_bad_records_apart(rig: Rig) -> None:
    end = rig.start()
    bad = OutgoingRecord(rig.names[TopicKind.LOOKUPS], b"mail-a", b"{bad canary@example.com")
    rig.publish([bad])
    rig.order(range(30))
    rig.publish([bad._replace(key=None)])
    rig.until(lambda: rig.lag() == 0)
    end()
    end = rig.start()
    rig.order(range(30, 60))
    rig.until(lambda: rig.lag() == 0)
    end()
    counted = Counter(o.observation_id for o in rig.observations())
    assert set(counted.values()) == {1}
    assert len(counted) == 60
    letters = list(read_all(rig.bootstrap, rig.names[TopicKind.DEAD_LETTERS]))
    assert len(letters) == 2
    assert not any(b"canary" in (m.value or b"") + (m.key or b"") for m in letters)


def test_orders_nobody_could_answer_in_time_are_skipped_and_one_refused_account_harms_no_other(
    rig: Rig,
) -> None:
    rig.order(range(9))
    rig.model.broken_credentials.add("mail-a")
    rig.order(range(9, 12), within_ms=1)
    end = rig.start()
    rig.until(lambda: len(rig.observations()) >= 9 + 3 - 2)
    end()
    answers = {str(o.intent_id): o.answer for o in rig.observations()}
    assert [answers[f"int-{n:05d}-test"] for n in (9, 10, 11)] == [LookupAnswer.SKIPPED] * 3
    others = [answers[f"int-{n:05d}-test"] for n in range(9) if n % 3]
    assert others == [LookupAnswer.ANSWERED] * 6
    mine = [answers.get(f"int-{n:05d}-test") for n in (0, 3, 6)]
    assert LookupAnswer.CREDENTIALS in mine
    assert LookupAnswer.ANSWERED not in mine
