"""Does a lane that waits for another holder's lease leave its thread to others, and keep its order."""

from __future__ import annotations

import threading

from sinks.kafka.consumer import Message
from sinks.kafka.lanes import Lanes

WAIT_S = 10.0


def message(offset: int, key: bytes) -> Message:
    return Message("t", 0, offset, 0, key, b"v")


def test_a_parked_lane_serves_others_and_comes_back_in_order_when_its_instant_has_come() -> None:
    seen: list[int] = []
    beside, done = threading.Event(), threading.Event()

    def work(one: Message) -> float | None:
        seen.append(one.offset)
        if seen == [0]:
            return 5.0
        if one.key == b"other":
            beside.set()
        if len(seen) == 4:
            done.set()
        return None

    lanes = Lanes(work, concurrency=1)
    for one in (message(0, b"k"), message(1, b"k"), message(2, b"other")):
        lanes.offer(one, (0, 0))
    assert beside.wait(WAIT_S), "the only thread must not wait for a parked lane"
    lanes.wake(4.9)
    lanes._pool.submit(lambda: None).result(WAIT_S)
    assert seen == [0, 2]
    lanes.wake(5.0)
    assert done.wait(WAIT_S)
    lanes.close()
    assert seen == [0, 2, 0, 1]
