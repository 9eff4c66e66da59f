"""Does a mark claim only what was read?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition

from streams.engine.evidence import NOT_READ_MS, Evidence, StableLag

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
TOPICS = frozenset({"a", "b"})


@dataclass
class State:
    position: int = 0
    highwater: int | None = None
    lso: int | None = None
    timestamp: int | None = None
    has_valid_position: bool = True


@dataclass
class Assignment:
    states: dict[Any, State] = field(default_factory=lambda: {A: State(), B: State()})

    @property
    def tps(self) -> Any:
        return self.states.keys()

    def state_value(self, tp: Any) -> State | None:
        return self.states.get(tp)


class Log:
    """Answers fetches: the log's end at the moment of the answer."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.assignment = Assignment()
        self.answers: dict[Any, int] = {}
        fetcher = SimpleNamespace(_proc_fetch_request=self._answer)
        self.evidence = Evidence(fetcher, lambda: self.now_ms)
        self._fetch = fetcher._proc_fetch_request

    async def _answer(self, assignment: Assignment, _node: int, request: Any) -> bool:
        self.now_ms += 5
        for tp, end in self.answers.items():
            assignment.states[tp].highwater = end
            assignment.states[tp].timestamp = self.now_ms
        return True

    def fetch(self, **ends: int) -> None:
        self.answers = {TopicPartition(topic, 0): end for topic, end in ends.items()}
        request = SimpleNamespace(topics=[("a", [(0, 0, 0)]), ("b", [(0, 0, 0)])])
        asyncio.run(self._fetch(self.assignment, 1, request))

    def read_to(self, tp: Any, position: int) -> None:
        self.assignment.states[tp].position = position

    def mark(self) -> int:
        return self.evidence.marks(self.assignment, TOPICS)[0]


def test_nothing_is_claimed_before_every_topic_was_read() -> None:
    log = Log()
    assert log.mark() == NOT_READ_MS
    log.fetch(a=0)
    assert log.mark() == NOT_READ_MS


def test_an_empty_log_is_complete_up_to_the_moment_we_asked() -> None:
    log = Log()
    log.fetch(a=0, b=0)
    assert log.mark() == 1_000


def test_a_mark_waits_until_the_end_seen_then_is_passed() -> None:
    log = Log()
    log.fetch(a=10, b=0)
    assert log.mark() == NOT_READ_MS
    log.read_to(A, 9)
    assert log.mark() == NOT_READ_MS
    log.read_to(A, 10)
    assert log.mark() == 1_000


def test_steady_load_does_not_starve_the_mark() -> None:
    log = Log()
    marks = []
    for turn in range(1, 6):
        log.fetch(a=turn * 10, b=0)
        marks.append(log.mark())
        log.read_to(A, turn * 10 - 5)  # always behind the newest end
        log.mark()
    assert marks[-1] > 1_000


def test_a_mark_is_the_oldest_of_the_input_topics() -> None:
    log = Log()
    log.fetch(a=0, b=0)
    log.mark()
    log.now_ms = 2_000
    log.fetch(a=0)
    assert log.mark() == 1_000


def test_after_a_seek_nothing_is_known() -> None:
    log = Log()
    log.fetch(a=0, b=0)
    log.mark()
    log.evidence.reset()
    assert log.mark() == NOT_READ_MS


def test_other_topics_do_not_count() -> None:
    log = Log()
    log.assignment.states[TopicPartition("changelog", 0)] = State()
    log.fetch(a=0, b=0)
    assert log.mark() == 1_000


def test_readers_held_by_an_open_transaction_are_found_after_the_limit() -> None:
    clock = SimpleNamespace(now=0.0)
    lag, assignment = StableLag(lambda: clock.now, after_s=30.0), Assignment()
    assignment.states[A] = State(lso=5, highwater=9)
    assert lag.held(assignment, TOPICS) == {}
    clock.now = 31.0
    assert lag.held(assignment, TOPICS) == {("a", 0): 31.0}
    assignment.states[A].lso = 6  # moves: somebody commits
    assert lag.held(assignment, TOPICS) == {}
    clock.now = 100.0
    assignment.states[A].lso = 9
    assert lag.held(assignment, TOPICS) == {}
