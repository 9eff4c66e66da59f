"""Supersession in real worker processes that are killed: each older intent is told once, the newest stays."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from schemas.decision import CloseKind, Decision
from schemas.intent import IntentRequested, IntentSuperseded
from schemas.record import TopicKind
from sinks.kafka.consumer import read_all
from tests import builders
from tests.conftest import Servers
from tests.integration.test_worker import HOUR_MS, check_books, now_ms
from tests.integration.workers import Deployment, deployment, wait_for

K = TopicKind
REQUESTS = 5  # of one subject
BATCH = 20  # subjects
PAUSE_S = 0.25  # 400 requests a second: what is read back after each kill stays small


def asked(subject: int, number: int, at_ms: int) -> tuple[bytes, bytes]:
    name = f"int-{subject:05d}-{number}"
    record = builders.request(
        intent_id=name,
        subject_key=f"k1.u.{subject:032x}",
        requested_at_ms=at_ms,
        deadline_ms=at_ms + 600_000,
        expiry_ms=at_ms + HOUR_MS,
    )
    return name.encode(), record.to_bytes()


def batch_of(first: int, dice: random.Random) -> list[tuple[bytes, bytes]]:
    """Each subject's requests a few milliseconds apart, some at one instant, all of them shuffled."""
    made, at_ms = [], now_ms() - 1_000
    for subject in range(first, first + BATCH):
        made += [asked(subject, number, at_ms + dice.randint(0, 4)) for number in range(REQUESTS)]
    dice.shuffle(made)
    return made


def newest(published: list[tuple[bytes, bytes]]) -> set[str]:
    found: dict[str, tuple[int, str]] = {}
    for _, value in published:
        record = IntentRequested.model_validate_json(value)
        subject = record.subject_key or ""
        found[subject] = max(found.get(subject, (0, "")), (record.requested_at_ms, record.intent_id))
    return {intent_id for _, intent_id in found.values()}


def told(one: Deployment) -> Counter[str]:
    return Counter(r.intent_id for r in one.records(K.INTENTS) if isinstance(r, IntentSuperseded))


@pytest.mark.timeout(300)
def test_under_sigkill_every_older_intent_is_told_once_and_the_newest_of_each_subject_stays(
    stack: Servers, prefix: str, tmp_path: Path
) -> None:
    with deployment(stack.bootstrap, prefix, tmp_path) as one:
        one.start("a")
        one.start("b")
        stop, published, dice = threading.Event(), list[tuple[bytes, bytes]](), random.Random(8)

        def load() -> None:
            while not stop.wait(PAUSE_S):
                batch = batch_of(len(published) // REQUESTS, dice)
                one.publish(K.INTENTS, batch)
                published.extend(batch)

        feeder = threading.Thread(target=load)
        feeder.start()
        try:
            for slot in ("a", "b", "a"):
                before = sum(told(one).values())
                wait_for(lambda: sum(told(one).values()) > before)  # noqa: B023  called at once
                one.processes[slot].kill()
                one.processes[slot].wait()
                one.start(slot)
        finally:
            stop.set()
            feeder.join()
        wait_for(one.drained, within_s=120.0)
        assert set(one.stop().values()) == {0}
        check_books(one)
        survivors = newest(published)
        older = {key.decode() for key, _ in published} - survivors
        assert told(one) == Counter(older)
        decided = [d for d in one.records(K.DECISIONS) if isinstance(d, Decision)]
        assert {d.intent_id for d in decided if d.closed is CloseKind.SUPERSEDED} == older
        rows = {m.key for m in read_all(one.bootstrap, one.names.changelog("subjects"))}
        assert len(rows) == len(survivors)
