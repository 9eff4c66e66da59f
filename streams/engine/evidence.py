"""Up to which instant has each partition number been read completely?

A fetch answer says how far a log reached when the broker answered, hence at least when we asked. Once
our position has passed that end, everything that was in the log at that instant has been handed out.
The end is kept until it is reached, so that steady load cannot starve the mark. This must not make
requests of its own and lives in the consumer thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokafka import TopicPartition

NOT_READ_MS = 0


class Evidence:
    """Marks from the fetches aiokafka makes anyway."""

    def __init__(self, fetcher: Any, now_ms: Callable[[], int]) -> None:
        self._asked: dict[Any, int] = {}  # topic partition -> when its last answered fetch began
        self._goal: dict[Any, tuple[int, int]] = {}  # topic partition -> (end of the log, asked)
        self._clear: dict[Any, int] = {}  # topic partition -> all that was there then has been read
        inner = fetcher._proc_fetch_request

        async def timed(assignment: Any, node_id: Any, request: Any) -> Any:
            asked_ms = now_ms()
            result = await inner(assignment, node_id, request)
            for topic, partitions in request.topics:
                for partition, *_ in partitions:
                    tp = TopicPartition(topic, partition)
                    state = assignment.state_value(tp)
                    # An answer that was discarded leaves the time stamp of the state alone.
                    if state is not None and (state.timestamp or 0) > asked_ms:
                        self._asked[tp] = asked_ms
            return result

        fetcher._proc_fetch_request = timed

    def reset(self) -> None:
        """After a seek nothing is known."""
        self._asked.clear()
        self._goal.clear()
        self._clear.clear()

    def marks(self, assignment: Any, topics: frozenset[str]) -> dict[int, int]:
        """{partition number: instant in ms}; NOT_READ_MS while one of its topics was not read to its end."""
        marks: dict[int, int] = {}
        for tp in assignment.tps:
            if tp.topic not in topics:
                continue
            mark = self._mark_of(tp, assignment.state_value(tp))
            known = marks.get(tp.partition)
            marks[tp.partition] = mark if known is None else min(known, mark)
        return marks

    def _mark_of(self, tp: Any, state: Any) -> int:
        goal = self._goal.get(tp)
        position = state.position if state.has_valid_position else -1
        if goal is not None and position >= goal[0]:
            self._clear[tp] = goal[1]
            goal = None
        if goal is None and state.highwater is not None and tp in self._asked:
            goal = self._goal[tp] = (state.highwater, self._asked[tp])
            if position >= goal[0]:
                self._clear[tp] = goal[1]
        return self._clear.get(tp, NOT_READ_MS)


class StableLag:
    """How long readers of committed records have been held at one place by an open transaction."""

    def __init__(self, monotonic: Callable[[], float], after_s: float) -> None:
        self._monotonic, self._after_s = monotonic, after_s
        self._held: dict[Any, tuple[int, float]] = {}  # topic partition -> (stable offset, since)

    def held(self, assignment: Any, topics: frozenset[str]) -> dict[tuple[str, int], float]:
        """{(topic, partition): seconds} of those held for longer than the limit."""
        out: dict[tuple[str, int], float] = {}
        now = self._monotonic()
        for tp in assignment.tps:
            if tp.topic not in topics:
                continue
            state = assignment.state_value(tp)
            if state.lso is None or state.highwater is None or state.lso >= state.highwater:
                self._held.pop(tp, None)
                continue
            known = self._held.get(tp)
            if known is None or known[0] != state.lso:
                self._held[tp] = (state.lso, now)
            elif now - known[1] > self._after_s:
                out[tp.topic, tp.partition] = now - known[1]
        return out
