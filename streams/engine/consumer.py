"""Chunks under a lease: what may be processed, by whom, until when.

A chunk is delivered with the lease of the generation it was fetched in. Faust's acks and commits must not
be used: offsets are committed by the transaction writer and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka.errors import ConsumerStoppedError
from faust.transport.drivers import aiokafka as stock
from faust.types import TP, ConsumerMessage

from streams.engine.chunk import Chunk, Lease
from streams.engine.thread import ConsumerThread, RebalanceListener

MARKS_EVERY_S = 0.02  # bounds the lateness the evidence rule adds
FETCH_WAIT_S = 0.1  # how long an empty fetch holds the loop's slot; marks are refreshed at least this often


class Consumer(stock.Consumer):
    """The consumer as the event loop sees it."""

    RebalanceListener = RebalanceListener
    next_lease: Lease | None = None  # set by the consumer thread at assignment
    lease: Lease | None = None  # set while this worker may process
    _epoch = 0

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    # rebalance

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """End the lease, finish its work; the old generation is valid until we rejoin."""
        self.stop_flow()
        self.lease = None
        if self.next_lease is not None:
            self.next_lease.revoked = True
        await self.app.end_lease()
        await super().on_partitions_revoked(revoked)

    async def start_generation(self, lease: Lease, offsets: dict[Any, int]) -> None:
        """Install the lease, then move every partition to its stable offset."""
        self._epoch += 1
        lease.epoch = self._epoch
        self.lease = lease
        await self._thread.seek_all(offsets, self._epoch)

    async def perform_seek(self) -> None:
        """Only `start_generation` seeks."""

    # commits belong to the transaction writer

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        return False

    async def wait_empty(self) -> None:
        await self.app.flush_quietly()

    async def verify_all_partitions_active(self) -> None:
        """Faust's detector reads ack state that is not used here; see health.py."""

    # fetching

    async def _drain_messages(self, fetcher: Any) -> None:
        next_marks = 0.0
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                fetched, _active = await self._wait_next_records(FETCH_WAIT_S)
                lease = self.lease
                if self.should_stop or not fetched:
                    continue
                if lease is None or fetched.epoch != lease.epoch:
                    continue  # a seek follows, these records will be read again
                if fetched.held:
                    self.app.note_held(fetched.held)
                if fetched.records and not await self._deliver(fetched.records, lease):
                    continue
                now = time.monotonic()
                if fetched.marks and now >= next_marks:
                    next_marks = now + MARKS_EVERY_S
                    await self._deliver_marks(fetched.marks, lease)
        except ConsumerStoppedError:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise

    async def _deliver(self, records: dict[Any, list[Any]], lease: Lease) -> bool:
        """Cut into chunks, one of each partition in turn; False when the lease ended meanwhile."""
        size, start = self.app.settings.chunk_records_max, 0
        waiting = dict(records)
        while waiting:
            for tp in list(waiting):
                part = waiting[tp][start : start + size]
                if not part:
                    del waiting[tp]
                    continue
                if self.lease is not lease or not self.flow_active:
                    return False
                await self.callback(_envelope(Chunk(tp.topic, tp.partition, part, lease)))
            start += size
        return True

    async def _deliver_marks(self, marks: dict[int, int], lease: Lease) -> None:
        """In the same queue as the records, hence behind all they speak of."""
        topic = self.app.processor.inputs[0]
        await self.callback(_envelope(Chunk(topic, min(marks), (), lease, marks)))


def _envelope(chunk: Chunk) -> Any:
    """A Faust message whose value is the chunk."""
    tp = TP(chunk.topic, chunk.partition)
    last = chunk.records[-1] if chunk.records else None
    return ConsumerMessage(
        chunk.topic, chunk.partition, last.offset if last is not None else 0, 0.0, 0, (), None, chunk,
        None, 0, 0, tp, generation_id=chunk.lease.generation,
    )  # fmt: skip
