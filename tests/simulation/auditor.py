"""The auditor's process: the real writer on the model's tables.

It must not decide what is kept.
"""

from __future__ import annotations

from schemas.errors import GuardUnavailable
from sinks.audit.writer import AuditWriter
from sinks.kafka.consumer import Message, Place
from tests.simulation.kafka import Away
from tests.simulation.members import BATCH, RETRY_MS, SimReader
from tests.simulation.process import Process


class SimAuditor(Process):
    """The real writer; positions are in the database, so the group only shares the partitions."""

    kind = "auditor"

    def begin(self) -> None:
        world = self.world
        self._writer = AuditWriter(world.names, world.audit_database, letter_key=world.key)  # type: ignore[arg-type]
        self._reader = SimReader(self, world.auditors, own=self._own, forget=self._give_back)
        self._waiting: list[Message] = []
        self._ends: dict[Place, int] = {}
        self._is_woken = False
        self.later(self.read_lag_ms(), self._reader.join)

    def controls_changed(self) -> None: ...

    def _give_back(self) -> None:
        self._waiting, self._ends = [], {}

    def _own(self, generation: int, places: list[Place]) -> None:
        if not self._reader.is_current(generation):
            return
        try:
            known = self._writer.positions(places)
        except GuardUnavailable:
            self.later(RETRY_MS, lambda: self._own(generation, places))
            return
        self._reader.begin(generation, {place: known.get(place, 0) for place in places})
        self.wake()

    def wake(self) -> None:
        if self.is_up and not self._is_woken:
            self._is_woken = True
            self.later(self.read_lag_ms(), self._pass)

    def _pass(self) -> None:
        self._is_woken = False
        more = bool(self._waiting or self._ends)  # written the second time: there may be more behind it
        try:
            if not self._waiting and not self._ends:
                before = dict(self._reader.positions)
                self._waiting = self._reader.poll(BATCH)
                now = self._reader.positions
                more = len(self._waiting) >= BATCH
                self._ends = {} if more else {p: now[p] for p in now if now[p] != before[p]}
            if self._waiting or self._ends:
                self.fault("before_audit")
                self._writer.write(self._waiting, self._ends)
                self.fault("after_audit")
                self._waiting, self._ends = [], {}
        except (Away, GuardUnavailable):
            self.later(RETRY_MS, self.wake)
            return
        if more:
            self.wake()
