"""The consumer thread: stock aiokafka with stable reads, short polls, evidence marks and seek epochs.

It must not decide what is processed: that is `consumer.py`, on the event loop.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from faust.transport.drivers import aiokafka as stock

from streams.engine import group_metadata
from streams.engine.chunk import Lease
from streams.engine.evidence import Evidence, StableLag

# One fetch per broker at a time: a long poll on idle partitions holds up busy ones for this long.
FETCH_MAX_WAIT_MS = 25


class Fetched(NamedTuple):
    """One consistent look of the consumer thread."""

    epoch: int  # seek epoch these records belong to
    records: dict[Any, list[Any]]  # topic partition -> records
    marks: dict[int, int]  # partition number -> read completely up to this instant (ms)
    held: dict[tuple[str, int], float]  # partitions held by an open transaction, for how long (s)


class RebalanceListener(stock.ConsumerRebalanceListener):
    """Notes who we are at the only moment it is certain: right after SyncGroup, in the consumer thread."""

    async def on_partitions_assigned(self, assigned: Any) -> None:
        thread = self._thread
        coordinator = thread._ensure_consumer()._coordinator
        generation, member = coordinator.generation, coordinator.member_id
        if generation > 0 and member:
            conf = thread.app.conf
            metadata = group_metadata.encode(
                conf.id, generation, member, conf.consumer_group_instance_id or None
            )
            thread.consumer.next_lease = Lease(generation, member, metadata)
        thread.pause_changelogs(assigned)
        await super().on_partitions_assigned(assigned)


class ConsumerThread(stock.AIOKafkaConsumerThread):
    """aiokafka in its own thread and loop."""

    seek_epoch = 0
    evidence: Evidence | None = None
    stable_lag: StableLag | None = None

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Stock ties this to its exactly_once; our inputs are written in transactions too.
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_MAX_WAIT_MS
        return consumer

    def pause_changelogs(self, assigned: Any) -> None:
        """aiokafka must not prefetch changelogs: recovery reads them itself."""
        changelogs = self.app.tables.changelog_topics
        tps = [tp for tp in assigned if tp.topic in changelogs]
        if tps:
            self._ensure_consumer().pause(*tps)

    async def _fetch_records(
        self, consumer: Any, active_partitions: Any, timeout: Any = None, max_records: Any = None
    ) -> Fetched:
        app = self.app
        if self.evidence is None:
            self.evidence = Evidence(consumer._fetcher, app.settings.now_ms)
            self.stable_lag = StableLag(time.monotonic, app.settings.unstable_after_s)
        records = await super()._fetch_records(consumer, active_partitions, timeout, max_records)
        # No await from here on: epoch, records and marks are of one moment.
        assignment = consumer._subscription.subscription.assignment
        marks: dict[int, int] = {}
        held: dict[tuple[str, int], float] = {}
        if assignment is not None:
            marks = self.evidence.marks(assignment, app.inputs)
            held = self.stable_lag.held(assignment, app.inputs)  # type: ignore[union-attr]
        return Fetched(self.seek_epoch, records, marks, held)

    async def seek_all(self, positions: dict[Any, int], epoch: int) -> None:
        """Move to `positions` (Faust TP -> offset); what was fetched before belongs to an older epoch."""
        await self.call_thread(self._seek_all, positions, epoch)

    async def _seek_all(self, positions: dict[Any, int], epoch: int) -> None:
        consumer = self._ensure_consumer()
        for tp, offset in positions.items():
            consumer.seek(stock.ensure_aiokafka_TP(tp), offset)
        self.seek_epoch = epoch
        if self.evidence is not None:
            self.evidence.reset()
