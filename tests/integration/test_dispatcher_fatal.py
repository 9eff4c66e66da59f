"""Does the dispatcher end with a clear word when it can never go on, and hold when clocks differ."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from schemas.attempt import AttemptState
from schemas.errors import PreflightFailed
from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.topics import TOPICS, TopicNames
from sinks.kafka.consumer import KafkaClientFailed, Message
from sinks.postgres.migrate import migrate
from tests.builders import completed
from tests.conftest import Servers
from tests.fatal import plant
from tests.integration.conftest import MakeTopics
from tests.integration.dispatcher_rig import KINDS, URGENT, WAIT_S, Rig


@pytest.fixture
def rig(stack: Servers, prefix: str, make_topics: MakeTopics, fresh_dsn: str) -> Iterator[Rig]:
    for kind in KINDS:
        made = {"message.timestamp.type": TOPICS[kind].config(min_insync=1)["message.timestamp.type"]}
        make_topics(TOPICS[kind].name(""), config=made)
    migrate(fresh_dsn)
    rig = Rig(stack.bootstrap, TopicNames(prefix), fresh_dsn)
    try:
        yield rig
    finally:
        rig.close()


def test_a_producer_that_failed_for_good_ends_the_loop_and_the_next_life_says_what_was_done(rig: Rig) -> None:
    def fail(at: str) -> None:
        if at == "before_publish":
            plant(rig.publisher._producer)

    rig.fault = fail
    life = rig.start()
    rig.publish(URGENT, rig.order())
    life.thread.join(WAIT_S)
    assert isinstance(life.failure, KafkaClientFailed)
    assert (rig.attempts(), rig.lag()) == ([], 1)
    rig.fault = lambda _point: None
    rig.renew_publisher()
    rig.start()
    rig.until(lambda: rig.lag() == 0)
    assert [a.state for a in rig.attempts()] == [AttemptState.ACCEPTED]
    assert len(rig.mail.submitted) == 1


def test_a_reader_of_who_is_done_that_failed_ends_the_loop(rig: Rig) -> None:
    rig.start_facts()
    life = rig.start()
    assert rig.answer(rig.order()).state is AttemptState.ACCEPTED

    def fails(count_max: int, timeout_s: float) -> list[Message]:
        raise KafkaClientFailed("planted", code="fatal")

    rig.facts._reader.poll = fails  # type: ignore[method-assign]
    life.thread.join(WAIT_S)
    assert isinstance(life.failure, KafkaClientFailed)


def made_anew(rig: Rig, make_topics: MakeTopics) -> None:
    topic = rig.names[TopicKind.INTENTS]
    admin = AdminClient({"bootstrap.servers": rig.bootstrap, "log_level": 0})
    for gone in admin.delete_topics([topic], operation_timeout=WAIT_S).values():
        gone.result(WAIT_S)
    rig.until(lambda: topic not in admin.list_topics(timeout=10).topics)
    make_topics(TOPICS[TopicKind.INTENTS].name(""))


def test_topics_made_anew_under_old_progress_are_refused_before_anything_is_sent(rig: Rig) -> None:
    rig.claims.write_facts(
        closed=[], suppressed=[], lifted=[], progress={(rig.names[TopicKind.INTENTS], 0): 7}
    )
    with pytest.raises(
        PreflightFailed, match=r"intents/0 is at 0 and was read to 7: it was made anew"
    ) as caught:
        rig.start_facts()
    assert "closed_progress" in caught.value.remedy
    assert "BACKSTOP_PREFIX" in caught.value.remedy


def test_under_a_topic_made_anew_while_it_runs_no_sms_is_sent(rig: Rig, make_topics: MakeTopics) -> None:
    """The client may not notice for minutes; the ends of the topic tell at once."""
    rig.publish(TopicKind.INTENTS, *(completed(0, intent_id=f"int-{n:04d}-test") for n in range(40)))
    rig.start_facts()
    rig.start()
    other = rig.order(channel=Channel.SMS, intent_id="int-9999-test")
    assert rig.answer(other).state is AttemptState.ACCEPTED
    made_anew(rig, make_topics)
    rig.publish(TopicKind.INTENTS, completed(0))
    found = rig.answer(rig.order(channel=Channel.SMS))
    assert (found.state, found.reason) == (AttemptState.HELD, Reason.COMPLETIONS_UNREAD)
    assert len(rig.text.submitted) == 1


def test_a_clock_far_from_the_logs_holds_everything_until_it_is_set_right(rig: Rig) -> None:
    apart_ms = 3_600_000
    rig.publisher._now_ms = lambda: rig.clock.now_ms() + apart_ms
    rig.start()
    assert rig.answer(rig.order(intent_id="int-0002-test")).state is AttemptState.ACCEPTED, (
        "nothing known yet"
    )
    assert abs((rig.publisher.log_apart_ms or 0) - apart_ms) < 1_000
    held = rig.answer(rig.order())
    assert (held.state, held.reason) == (AttemptState.HELD, Reason.CLOCK_SKEWED)
    rig.publisher._now_ms = rig.clock.now_ms
    assert rig.answer(rig.order(2)).reason is Reason.CLOCK_SKEWED, "the hold's own record tells the time"
    assert rig.answer(rig.order(3)).state is AttemptState.ACCEPTED
    assert len(rig.mail.submitted) == 2
