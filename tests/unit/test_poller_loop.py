"""Does an order's offset wait for its observation, whatever happens in between. Scripted log, no broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.codec import decode
from schemas.lookup import Lookup
from schemas.observation import LookupAnswer, Observation
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.kafka.consumer import Message, Place
from sinks.kafka.letters import Letters
from sinks.kafka.producer import OutgoingRecord, PublishFailed
from sinks.poller.handle import Poller
from sinks.poller.loop import PollerLoop
from sinks.providers.base import LookupRequest, LookupResult
from tests.unit.poller_fakes import DELIVERED, T0, HandClock, TellingProvider, lookup, provider

NAMES = TopicNames()
TOPIC = NAMES[TopicKind.LOOKUPS]
PLACE: Place = (TOPIC, 0)
TRACE = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"


def arrived(offset: int, found: Lookup | bytes, partition: int = 0) -> Message:
    value = found if isinstance(found, bytes) else found.to_bytes()
    return Message(TOPIC, partition, offset, T0, b"mail-a", value, (("traceparent", TRACE),))


@dataclass
class ScriptedLog:
    """Reader and publisher in one: batches to read, what was published and committed, in one history."""

    batches: list[list[Message]] = field(default_factory=list)
    history: list[tuple[str, object]] = field(default_factory=list)
    published: list[OutgoingRecord] = field(default_factory=list)
    failures: int = 0
    on_assign: Callable[[list[Place]], None] = lambda _places: None
    on_revoke: Callable[[list[Place]], None] = lambda _places: None

    def poll(self, count_max: int, timeout_s: float) -> list[Message]:
        assert timeout_s < 1
        return self.batches.pop(0) if self.batches else []

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        self.history.append(("commit", dict(offsets)))
        return True

    def publish(self, records: list[OutgoingRecord]) -> None:
        if self.failures:
            self.failures -= 1
            raise PublishFailed("away", code="publish")
        self.published += records
        self.history.append(("publish", len(records)))

    def close(self) -> None:
        self.history.append(("close", None))

    @property
    def commits(self) -> list[object]:
        return [what for kind, what in self.history if kind == "commit"]


class Bench:
    """The loop with a scripted log; `passes` runs it pass by pass, moving the clock."""

    def __init__(self) -> None:
        self.clock, self.log = HandClock(), ScriptedLog()
        self.beats: list[int] = []  # how much had happened in the log each time
        self.mail: TellingProvider = provider("mail-a", self.clock)
        poller = Poller({"mail-a": self.mail}, self.clock, call_timeout_ms=100, concurrency=2)

        def opened(
            on_assign: Callable[[list[Place]], None], on_revoke: Callable[[list[Place]], None]
        ) -> ScriptedLog:
            self.log.on_assign, self.log.on_revoke = on_assign, on_revoke
            return self.log

        self.loop = PollerLoop(
            poller,
            NAMES,
            open_reader=opened,
            publisher=self.log,
            letters=Letters(NAMES, by="poller", key=b"k" * 32),
            clock=self.clock,
            beat=lambda: self.beats.append(len(self.log.history)),
        )
        self.log.on_assign([PLACE])
        self.stop = threading.Event()

    def passes(self, count: int = 20, step_ms: int = 100) -> None:
        for _ in range(count):
            self.loop._pass(self.stop)
            for running in list(self.loop._running):
                running.exception(timeout=5)
            self.clock.at_ms += step_ms

    def observations(self) -> list[Observation]:
        topic = NAMES[TopicKind.OBSERVATIONS]
        found = [
            decode(TopicKind.OBSERVATIONS, r.key, r.value) for r in self.log.published if r.topic == topic
        ]
        return [o for o in found if isinstance(o, Observation)]


def test_an_order_becomes_an_observation_keyed_by_its_intent_and_only_then_an_offset() -> None:
    bench = Bench()
    bench.log.batches = [[arrived(7, lookup(1))]]
    bench.passes()
    (record,) = bench.log.published
    assert record.key == b"int-0001-test"
    assert dict(record.headers or [])["traceparent"] == TRACE
    assert dict(record.headers or [])["ce_id"] == b"int-0001-test:email:1:1"
    assert bench.log.history == [("publish", 1), ("commit", {PLACE: 8})]
    assert bench.observations()[0].answer is LookupAnswer.ANSWERED


def test_a_later_order_answered_first_moves_no_offset_past_an_open_one() -> None:
    bench = Bench()
    bench.log.batches = [[arrived(0, lookup(1, by_ms=9_000)), arrived(1, lookup(2, by_ms=5_000))]]
    bench.passes()
    assert [o.intent_id for o in bench.observations()] == ["int-0002-test", "int-0001-test"]
    assert bench.log.commits == [{PLACE: 2}]


def test_what_cannot_be_decoded_is_a_dead_letter_and_holds_nothing_up() -> None:
    bench = Bench()
    bench.log.batches = [[arrived(0, b"{bad canary"), arrived(1, lookup(1))]]
    bench.passes()
    letter = bench.log.published[0]
    assert letter.topic == NAMES[TopicKind.DEAD_LETTERS]
    assert b"canary" not in (letter.value or b"")
    assert bench.log.commits == [{PLACE: 1}, {PLACE: 2}]


def test_nothing_is_committed_until_the_brokers_have_the_observation() -> None:
    bench = Bench()
    bench.log.batches, bench.log.failures = [[arrived(0, lookup(1))]], 1
    bench.passes(8)
    assert [kind for kind, _ in bench.log.history] == ["publish", "commit"]
    assert bench.log.failures == 0
    assert len(bench.mail.asked) == 1
    assert bench.beats == [0], "waiting for the brokers is no standstill"


def test_an_outage_of_the_brokers_at_the_end_leaves_the_order_uncommitted() -> None:
    bench = Bench()
    bench.log.batches = [[arrived(0, lookup(1, by_ms=1))]]
    bench.log.failures = 1_000_000
    bench.stop.set()
    bench.clock.at_ms += 10
    bench.loop._pass(bench.stop)
    bench.loop.run(bench.stop)
    assert bench.log.history == [("close", None)]


def test_told_to_stop_it_finishes_the_calls_in_flight_and_leaves_the_rest_to_be_read_again() -> None:
    bench, begun, go_on = Bench(), threading.Event(), threading.Event()

    def slow(request: LookupRequest) -> LookupResult:
        begun.set()
        go_on.wait(5)
        return DELIVERED

    bench.mail.answer = slow
    bench.log.batches = [[arrived(0, lookup(1)), arrived(1, lookup(2))]]
    bench.clock.at_ms += 500
    running = threading.Thread(target=bench.loop.run, args=(bench.stop,))
    running.start()
    assert begun.wait(5)
    bench.stop.set()
    go_on.set()
    running.join(5)
    assert not running.is_alive()
    assert [o.intent_id for o in bench.observations()] == ["int-0001-test"]
    assert bench.log.history == [("publish", 1), ("commit", {PLACE: 1}), ("close", None)]


def test_partitions_taken_away_are_neither_asked_for_nor_committed_and_given_back_are_read_again() -> None:
    bench = Bench()
    bench.log.batches = [[arrived(0, lookup(1))]]
    bench.passes(1)
    bench.log.on_revoke([PLACE])
    bench.passes(20)
    assert (bench.mail.asked, bench.log.history) == ([], [])
    bench.log.on_assign([PLACE])
    bench.log.batches = [[arrived(0, lookup(1))]]
    bench.passes(20)
    assert bench.log.history == [("publish", 1), ("commit", {PLACE: 1})]


def test_a_call_that_ends_after_its_partition_went_away_is_told_and_not_committed() -> None:
    bench = Bench()
    bench.clock.at_ms += 500
    bench.log.batches = [[arrived(0, lookup(1))]]
    bench.passes(1)
    bench.log.on_revoke([PLACE])
    bench.passes(3)
    assert bench.log.history == [("publish", 1)]


def test_every_order_of_a_flood_is_answered_and_every_offset_committed() -> None:
    bench = Bench()
    orders = [arrived(n, lookup(n % 10_000, by_ms=1_500)) for n in range(12_000)]
    bench.log.batches = [orders[n : n + 500] for n in range(0, len(orders), 500)]
    bench.passes(60)
    assert len(bench.log.published) == len(orders)
    assert bench.log.commits[-1] == {PLACE: len(orders)}
