"""Faust's rebalance sequence, with our reading and our seeking.

Faust must find nothing to recover; `EngineApp.restore` reads state back. Seek comes before resume:
stock Faust does it the other way, and records fetched in between are lost to it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from faust.tables import TableManager as FaustTableManager
from faust.tables.recovery import Recovery as FaustRecovery

_NOTHING_TO_READ = -1


class Recovery(FaustRecovery):
    """Runs inside Faust's `_wait`: a new rebalance cancels it at any await."""

    async def _build_highwaters(self, consumer: Any, tps: Any, destination: Any, title: str) -> None:
        destination.clear()
        for tp in tps:
            destination[tp] = _NOTHING_TO_READ

    async def _build_offsets(self, consumer: Any, tps: Any, destination: Any, title: str) -> None:
        for tp in tps:
            destination[tp] = _NOTHING_TO_READ

    async def _seek_offsets(self, consumer: Any, tps: Any, offsets: Any, title: str) -> None: ...

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        """Restore, then seek, then open the flow; each only while the lease holds."""
        app, consumer = self.app, self.app.consumer
        self._set_recovery_started()
        lease = consumer.next_lease
        if lease is None or lease.generation != generation_id:
            return  # the next rebalance has begun
        try:
            offsets = await app.restore(lease)
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            await app.crash(exc)
            raise
        if lease.revoked:
            return
        self._set_recovery_ended()
        await consumer.start_generation(lease, offsets)
        if lease.revoked:
            return
        consumer.resume_partitions(set(offsets))
        self.completed.set()
        app.flow_control.resume()
        consumer.resume_flow()
        await app._fetcher.maybe_start()
        self.tables.on_actives_ready()
        self.tables.on_standbys_ready()
        await app.on_rebalance_complete.send()
        app.on_rebalance_end()
        app.begin_lease(lease)


class TableManager(FaustTableManager):
    """Faust's, with our Recovery."""

    _recovery: Recovery | None

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
