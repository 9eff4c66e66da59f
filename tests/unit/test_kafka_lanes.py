"""Do offsets cover finished work only, and do lanes keep the order of a key."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial

import pytest

from sinks.kafka.consumer import Message
from sinks.kafka.lanes import Lanes, Offsets

WAIT_S = 10.0


def message(offset: int, *, key: bytes = b"k", partition: int = 0) -> Message:
    return Message("t", partition, offset, 0, key, b"v")


def test_an_offset_waits_for_the_work_before_it() -> None:
    offsets, records = Offsets(), [message(n) for n in (3, 4, 7)]
    for one in records:
        offsets.began(one)
    offsets.finished(records[1])
    offsets.finished(records[2])
    assert offsets.take() == {}
    offsets.finished(records[0])
    assert offsets.take() == {("t", 0): 8}
    assert offsets.take() == {}
    assert offsets.in_flight == 0


def test_partitions_do_not_wait_for_each_other() -> None:
    offsets, slow, quick = Offsets(), message(0), message(5, partition=1)
    offsets.began(slow)
    offsets.began(quick)
    offsets.finished(quick)
    assert offsets.take() == {("t", 1): 6}
    assert offsets.in_flight == 1


def test_what_went_to_somebody_else_is_not_committed() -> None:
    offsets, one = Offsets(), message(0)
    offsets.began(one)
    offsets.forget()
    offsets.finished(one)
    assert offsets.take() == {}


def test_a_commit_the_broker_did_not_take_is_said_again() -> None:
    offsets, one, two = Offsets(), message(0), message(5, partition=1)
    broker: list[dict[tuple[str, int], int]] = []

    def commit(wanted: Mapping[tuple[str, int], int], *, takes: bool) -> bool:
        broker.append(dict(wanted))
        return takes

    offsets.began(one)
    offsets.finished(one)
    assert not offsets.commit(partial(commit, takes=False), 10.0)
    assert not offsets.commit(partial(commit, takes=True), 10.5)
    assert len(broker) == 1, "not in a hurry"
    offsets.began(two)
    offsets.finished(two)
    offsets.commit(partial(commit, takes=False), 10.6)
    assert broker[1] == {("t", 0): 1, ("t", 1): 6}, "but with what comes next"
    assert offsets.commit(partial(commit, takes=True), 11.6)
    assert broker[2] == {("t", 0): 1, ("t", 1): 6}
    offsets.commit(partial(commit, takes=True), 20.0)
    assert len(broker) == 3


def test_what_the_broker_did_not_take_is_not_said_by_who_no_longer_owns_it() -> None:
    offsets, one = Offsets(), message(0)
    offsets.began(one)
    offsets.finished(one)
    offsets.commit(lambda _: False, 10.0)
    offsets.forget()
    offsets.commit(lambda _: pytest.fail("it is another's by now"), 20.0)


def test_records_of_one_key_run_one_after_another_and_other_keys_beside_them() -> None:
    seen: list[tuple[bytes, int]] = []
    gate, beside, done = threading.Event(), threading.Event(), threading.Event()

    def work(one: Message) -> None:
        if one.offset == 0:
            assert beside.wait(WAIT_S), "another key must not wait for this one"
            gate.set()
        seen.append((one.key or b"", one.offset))
        if one.key == b"b":
            beside.set()
        if len(seen) == 4:
            done.set()

    lanes = Lanes(work, concurrency=4)
    for one in (message(0), message(1), message(2), message(3, key=b"b")):
        lanes.offer(one, (0, 0))
    assert done.wait(WAIT_S)
    lanes.close()
    assert gate.is_set()
    assert [offset for key, offset in seen if key == b"k"] == [0, 1, 2]


def test_the_most_urgent_runs_first() -> None:
    seen: list[int] = []
    first, go = threading.Event(), threading.Event()

    def work(one: Message) -> None:
        if one.offset == 0:
            first.set()
            assert go.wait(WAIT_S)
        seen.append(one.offset)

    lanes = Lanes(work, concurrency=1)
    lanes.offer(message(0, key=b"0"), (1, 0))
    assert first.wait(WAIT_S)
    done = threading.Event()
    for number, urgency in ((1, (1, 5)), (2, (0, 9)), (3, (0, 1))):
        lanes.offer(message(number, key=str(number).encode()), urgency)
    lanes._pool.submit(done.set)
    go.set()
    assert done.wait(WAIT_S)
    lanes.close()
    assert seen == [0, 3, 2, 1]


def test_a_failure_is_kept_for_the_loop_and_its_offset_never_moves() -> None:
    offsets, failed = Offsets(), threading.Event()

    def work(one: Message) -> None:
        failed.set()
        raise RuntimeError("broken")

    lanes, one = Lanes(work, concurrency=1), message(0)
    offsets.began(one)
    lanes.offer(one, (0, 0))
    assert failed.wait(WAIT_S)
    lanes.close()
    assert isinstance(lanes.failure, RuntimeError)
    assert offsets.take() == {}


def test_a_rebalance_drops_what_waits_so_that_it_does_not_run_once_more_for_each() -> None:
    seen: list[int] = []
    first, go = threading.Event(), threading.Event()

    def work(one: Message) -> float | None:
        if one.offset == 0:
            first.set()
            assert go.wait(WAIT_S)
        seen.append(one.offset)
        return 0.0 if one.offset == 9 and seen.count(9) == 1 else None

    lanes = Lanes(work, concurrency=1)
    lanes.offer(message(9, key=b"parked"), (0, 0))
    lanes.offer(message(0), (0, 0))
    assert first.wait(WAIT_S)
    lanes.offer(message(1), (0, 0))  # behind the one that runs
    lanes.offer(message(2, key=b"waits"), (0, 0))
    lanes.forget()
    lanes.wake(1.0)
    done = threading.Event()
    for number, key in ((9, b"parked"), (1, b"k"), (2, b"waits")):  # as read again
        lanes.offer(message(number, key=key), (0, 0))
    lanes._pool.submit(done.set)
    go.set()
    assert done.wait(WAIT_S)
    lanes.close()
    assert sorted(seen) == [0, 1, 2, 9, 9]
