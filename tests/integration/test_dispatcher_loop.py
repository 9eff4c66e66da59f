"""Does the dispatcher's loop keep its word on the real broker and the real guard, at their worst too."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from schemas.attempt import AttemptState
from schemas.budget import UNLIMITED
from schemas.ids import Channel
from schemas.instruction import InstructionAction
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.suppression import Suppression, SuppressionAction
from schemas.topics import TOPICS, TopicNames
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.postgres.migrate import migrate
from sinks.providers.base import SubmitResult
from tests.builders import SUBJECT, T0, cancelled, completed, instruction, request, superseded
from tests.conftest import Servers
from tests.fakes_provider import TAKEN
from tests.integration.conftest import MakeTopics
from tests.integration.dispatcher_rig import BULK, KINDS, URGENT, WAIT_S, Crash, Rig
from tests.orders import EMAIL, PHONE, PRINTS

S = Channel.SMS


@pytest.fixture
def rig(stack: Servers, prefix: str, make_topics: MakeTopics, fresh_dsn: str) -> Iterator[Rig]:
    names = TopicNames(prefix)
    make_topics(*(TOPICS[kind].name("") for kind in KINDS))
    migrate(fresh_dsn)
    made = Rig(stack.bootstrap, names, fresh_dsn)
    try:
        yield made
    finally:
        made.close()


def suppression(channel: Channel, action: SuppressionAction = SuppressionAction.SUPPRESS) -> Suppression:
    return Suppression(
        fingerprint=PRINTS.of(EMAIL if channel is Channel.EMAIL else PHONE),
        channel=channel,
        action=action,
        reason=Reason.PERMANENT_BOUNCE,
        cause="op-1",
        at_ms=1_790_000_000_000,
    )


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (completed(0), Reason.COMPLETED),
        (cancelled(0), Reason.CANCELLED),
        (superseded(0), Reason.SUPERSEDED),
        (instruction(0, InstructionAction.COMPLETE), Reason.COMPLETED),
        (instruction(0, InstructionAction.CANCEL), Reason.CANCELLED),
        (instruction(0, InstructionAction.FORCE_CLOSE), Reason.FORCE_CLOSED),
    ],
)
def test_who_is_done_a_moment_before_the_sms_gets_none_whatever_partition_the_word_is_in(
    rig: Rig, end: object, reason: Reason
) -> None:
    rig.start_facts()
    rig.start()
    kind = TopicKind.INSTRUCTIONS if end.__class__.__name__ == "Instruction" else TopicKind.INTENTS
    producer = Producer({"bootstrap.servers": rig.bootstrap})
    for wrong_partition in (0, 1, 2, 3):
        producer.produce(rig.names[kind], end.to_bytes(), b"int-0001-test", wrong_partition)  # type: ignore[attr-defined]
    assert producer.flush(WAIT_S) == 0
    found = rig.answer(rig.order(channel=S))
    assert (found.state, found.reason) == (AttemptState.REFUSED, reason)
    assert rig.text.submitted == []


def test_a_newer_request_a_moment_before_the_sms_ends_it_though_no_worker_has_read_it(rig: Rig) -> None:
    rig.start_facts()
    rig.start()
    producer = Producer({"bootstrap.servers": rig.bootstrap})
    asked = (("int-0001-test", 0, 0), ("int-0002-test", 1, 9_000), ("int-0003-test", 2, 5_000))
    for intent_id, partition, after_ms in asked:
        record = request(intent_id=intent_id, subject_key=SUBJECT, requested_at_ms=T0 + after_ms)
        producer.produce(rig.names[TopicKind.INTENTS], record.to_bytes(), intent_id.encode(), partition)
    assert producer.flush(WAIT_S) == 0
    for intent_id in ("int-0001-test", "int-0003-test"):
        found = rig.answer(rig.order(channel=S, intent_id=intent_id))
        assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.SUPERSEDED)
    assert rig.answer(rig.order(channel=S, intent_id="int-0002-test")).state is AttemptState.ACCEPTED
    assert len(rig.text.submitted) == 1


def test_an_sms_waits_for_nobody_to_say_they_are_done_only_when_all_of_it_was_read(rig: Rig) -> None:
    rig.start()
    rig.publish(TopicKind.INTENTS, completed(0, intent_id="int-0002-test"))
    found = rig.answer(rig.order(channel=S))
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.COMPLETIONS_UNREAD)
    rig.start_facts()
    assert rig.answer(rig.order(2, S)).state is AttemptState.ACCEPTED
    assert len(rig.text.submitted) == 1


def test_an_order_published_again_after_the_end_or_its_time_is_not_sent_again(rig: Rig) -> None:
    rig.start_facts()
    rig.start()
    first = rig.answer(rig.order())
    assert first.state is AttemptState.ACCEPTED
    late = rig.order(intent_id="int-0003-test", not_after_ms=rig.t0)
    assert rig.answer(late).reason is Reason.EXPIRED
    rig.publish(TopicKind.INTENTS, completed(0))
    rig.publish(URGENT, rig.order())
    rig.publish(BULK, rig.order())
    rig.until(lambda: len(rig.attempts()) == 3)
    assert rig.attempts() == [first] * 3
    found = rig.answer(rig.order(channel=S))
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.COMPLETED)
    assert (len(rig.mail.submitted), len(rig.text.submitted)) == (1, 0)


def test_suppression_is_asked_on_the_first_send_on_a_resubmission_and_on_the_fallback(rig: Rig) -> None:
    rig.start_facts()
    rig.start()
    rig.mail.answers = [SubmitResult(AttemptState.UNKNOWN), TAKEN]
    assert rig.answer(rig.order()).state is AttemptState.UNKNOWN
    rig.publish(TopicKind.SUPPRESSIONS, suppression(Channel.EMAIL))
    rig.until(lambda: bool(rig.claims.progress()) and _listed(rig, Channel.EMAIL))
    for asked in (rig.order(2), rig.order(intent_id="int-0002-test")):
        found = rig.answer(asked)
        assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.SUPPRESSED)
    assert rig.answer(rig.order(channel=S)).state is AttemptState.ACCEPTED
    rig.publish(TopicKind.SUPPRESSIONS, suppression(S))
    rig.until(lambda: _listed(rig, S))
    assert rig.answer(rig.order(channel=S, intent_id="int-0002-test")).reason is Reason.SUPPRESSED
    rig.publish(TopicKind.SUPPRESSIONS, suppression(Channel.EMAIL, SuppressionAction.LIFT))
    rig.until(lambda: not _listed(rig, Channel.EMAIL))
    assert rig.answer(rig.order(intent_id="int-0004-test")).state is AttemptState.ACCEPTED
    assert (len(rig.mail.submitted), len(rig.text.submitted)) == (2, 1)


def _listed(rig: Rig, channel: Channel) -> bool:
    with rig.database.transaction() as cursor:
        query = b"SELECT 1 FROM suppressions WHERE channel = %s"
        return cursor.execute(query, (channel.value,)).fetchone() is not None


def test_what_cannot_be_read_or_handled_is_buried_and_blocks_no_neighbour(rig: Rig) -> None:
    def fails(_claim_id: str) -> int | None:
        raise ValueError("canary@example.com")

    broken = MemoryClaims(rig.clock.now_ms, UNLIMITED)
    broken.begin = fails  # type: ignore[method-assign,assignment]
    guard, rig.claims = rig.claims, broken
    rig.publish(URGENT, b"{canary@example.com", rig.order(), b"\x00\xff")
    life = rig.start()
    rig.until(lambda: len(rig.read(TopicKind.DEAD_LETTERS)) == 3)
    rig.until(lambda: rig.lag() == 0)
    life.end()
    rig.claims = guard
    rig.start()
    assert rig.answer(rig.order(intent_id="int-0002-test")).state is AttemptState.ACCEPTED
    letters = b"".join((m.value or b"") + (m.key or b"") for m in rig.read(TopicKind.DEAD_LETTERS))
    assert b"core_error" in letters
    assert b"canary" not in letters


@pytest.mark.parametrize("point", ["after_result", "before_publish", "after_publish"])
def test_a_loop_that_dies_around_its_publishing_says_the_same_again_and_sends_once(
    rig: Rig, point: str
) -> None:
    def die(at: str) -> None:
        if at == point:
            raise Crash(at)

    rig.fault = die
    life = rig.start()
    rig.publish(URGENT, rig.order())
    life.thread.join(WAIT_S)
    assert isinstance(life.failure, Crash)
    assert rig.lag() == 1
    assert len(rig.attempts()) == (point == "after_publish")
    rig.fault = lambda _point: None
    rig.start()
    rig.until(lambda: rig.lag() == 0)
    said = rig.attempts()
    assert said == [said[0]] * (1 + (point == "after_publish"))
    assert said[0].state is AttemptState.ACCEPTED
    assert len(rig.mail.submitted) == 1


def test_told_to_stop_it_finishes_the_call_in_flight_and_commits_it(rig: Rig) -> None:
    called, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        called.set()
        assert go_on.wait(WAIT_S)

    rig.mail.during = slow
    life = rig.start()
    rig.publish(URGENT, rig.order())
    assert called.wait(WAIT_S)
    life.stop.set()
    go_on.set()
    life.end()
    assert life.failure is None
    assert [a.state for a in rig.attempts()] == [AttemptState.ACCEPTED]
    assert rig.lag() == 0


def test_an_order_whose_holder_died_in_its_call_delays_nobody_and_becomes_unknown(rig: Rig) -> None:
    def die(at: str) -> None:
        if at == "after_call":
            raise Crash(at)

    rig.fault = die
    life = rig.start(concurrency=1)
    rig.publish(URGENT, rig.order())
    life.thread.join(WAIT_S)
    rig.fault = lambda _point: None
    rig.start(concurrency=1)
    others = [rig.order(intent_id=f"int-{n:04d}-test") for n in range(2, 8)]
    rig.publish(BULK, *others)
    rig.until(lambda: len(rig.read(TopicKind.ATTEMPTS)) == len(others))
    assert rig.attempts() == [], "the neighbours were served while the order waited for the lease"
    rig.until(lambda: bool(rig.attempts()))
    (said,) = rig.attempts()
    assert said.state is AttemptState.UNKNOWN
    assert len(rig.mail.submitted) == 1 + len(others)


def test_urgent_goes_first_bulk_stays_within_its_limit_and_nothing_is_lost_by_pausing(rig: Rig) -> None:
    rig.claims = MemoryClaims(rig.clock.now_ms, UNLIMITED)
    count, limit, batch = 900, 50, 200
    orders = [rig.order(intent_id=f"int-{n:04d}-bulk") for n in range(count)]
    rig.publish(BULK, *orders)
    in_flight: list[int] = []
    served = threading.Event()

    def watch() -> None:
        in_flight.append(life.loop._offsets.in_flight_of(rig.names[BULK]))
        if len(in_flight) == 100:
            served.set()

    rig.mail.during = watch
    life = rig.start(concurrency=2)
    life.loop._limits[rig.names[BULK]] = limit
    assert served.wait(WAIT_S)
    assert rig.answer(rig.order()).state is AttemptState.ACCEPTED
    before = [s.reference for s in rig.mail.submitted].index("int-0001-test.email")
    rig.until(lambda: rig.lag() == 0)
    assert before < count, "an urgent order does not wait for the bulk to end"
    assert {s.reference for s in rig.mail.submitted} >= {o.dispatch_key for o in orders}
    assert len(rig.mail.submitted) == count + 1
    # The first polls may come before the limit of this test is set.
    assert max(in_flight[100:]) <= limit + batch
