"""The Faust transport `engine://` and the store `partitioned://`, registered by name.

It must stay this small: what they do is in `consumer.py`, `thread.py`, `store.py` and `wire_records.py`.
"""

from __future__ import annotations

from faust import stores
from faust.transport import drivers
from faust.transport.drivers import aiokafka as stock

from streams.engine import wire_records
from streams.engine.consumer import Consumer


class Transport(stock.Transport):
    """`engine://host:port`: aiokafka underneath, chunks instead of records on top."""

    Consumer = Consumer


def register() -> None:
    """Let Faust find both by URL; safe to call again."""
    drivers.TRANSPORTS.aliases["engine"] = "streams.engine.transport:Transport"
    stores.STORES.aliases["partitioned"] = "streams.engine.store:PartitionStore"
    wire_records.use()
