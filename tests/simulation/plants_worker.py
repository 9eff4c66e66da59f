"""Bugs planted in the worker and around its transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.engine import timers
from streams.worker import accounting
from tests.simulation.kafka import Write
from tests.simulation.planting import patched, sees
from tests.simulation.worker import SimWorker

# the worker and its transaction


@sees("one_decision_per_input", "chains_are_whole", "replay_gives_the_same_bytes")
def changelog_outside_the_transaction() -> Iterator[None]:
    before = SimWorker._produce

    def produce(self: Any, pending: Any) -> None:
        for (topic, number), changed in pending.changes.items():
            self.world.log.append([Write(topic, k, v, (), number) for k, v in changed.items()])
        pending.changes.clear()
        before(self, pending)

    with patched(SimWorker, "_produce", produce):
        yield


@sees("one_decision_per_input", "chains_are_whole", "books_balance", "replay_gives_the_same_bytes")
def ticks_during_a_rebalance() -> Iterator[None]:
    """A revocation ends neither the lease nor the timers, and a transaction is not held to its generation."""

    def revoked(self: Any) -> None:
        self._assignment = None
        self.group.join(self)

    def send_offsets(self: Any, pending: Any) -> None:
        self.world.log.send_offsets(self.name, self._epoch, self.group.name, pending.offsets)

    def submit(self: Any, step: Any, source: Any, number: int) -> None:
        if source in self._positions:
            before(self, step, source, number)

    before = SimWorker._submit
    with (
        patched(SimWorker, "revoked", revoked),
        patched(SimWorker, "_send_offsets", send_offsets),
        patched(SimWorker, "_submit", submit),
    ):
        yield


@sees("evidence_comes_first")
def tick_before_its_evidence() -> Iterator[None]:
    with patched(SimWorker, "_mark", lambda _self, _number, now_ms: now_ms):
        yield


@sees("books_balance", "every_input_is_read")
def input_without_a_fate() -> Iterator[None]:
    before, count = accounting.Tally.add, iter(range(10**9))

    def add(self: Any, *given: Any, **more: Any) -> None:
        if next(count) % 40:
            before(self, *given, **more)

    with patched(accounting.Tally, "add", add):
        yield


@sees("every_intent_settles")
def timers_never_fire() -> Iterator[None]:
    with patched(timers.PartitionTimers, "pop", lambda *_: []):
        yield
