"""A process of its own that publishes one record whose header has a name that is no text.

`python -m tests.fuzz.header_names <bootstrap> <topic> <partition> <key>` with AIOKAFKA_NO_EXTENSIONS=1: the
library's Python half lets a text choose its own bytes. It must not be imported by a test.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaProducer


class AnyBytes(str):
    """A text that goes onto the wire as bytes no text has."""

    def encode(self, *_how: str) -> bytes:
        return b"\xff\xfe"


async def _send(bootstrap: str, topic: str, partition: str, key: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        headers = [(AnyBytes("x"), b"1")]
        await producer.send_and_wait(topic, b"{", key=key.encode(), partition=int(partition), headers=headers)
    finally:
        await producer.stop()


if __name__ == "__main__":
    asyncio.run(_send(*sys.argv[1:5]))
