"""Competitor: a plain confluent-kafka loop. State in a dict, offsets committed now and then.

It promises nothing: no transaction, no changelog, no rebalance. `python -m tests.benchmarks.plain_loop`,
with the worker's environment.
"""

from __future__ import annotations

import signal
import time

from confluent_kafka import Consumer, Producer

from compose import settings as configuration
from schemas.record import TopicKind
from schemas.topics import TopicNames
from tests.benchmarks.machine import LOADED, Machine

COMMIT_EVERY_S = 0.1
BATCH = 500  # as the worker's chunk


def group_of(prefix: str) -> str:
    return f"{prefix}plain"


def main() -> None:
    """Until SIGTERM."""
    settings = configuration.load()
    names, machine, state = TopicNames(settings.prefix), Machine(settings), dict[bytes, bytes | None]()
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": group_of(settings.prefix),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    producer = Producer(
        {"bootstrap.servers": settings.kafka, "partitioner": "murmur2_random", "linger.ms": 20,
         "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    consumer.subscribe(list(names.of(LOADED)))
    decisions, told = names[TopicKind.DECISIONS], [False]
    signal.signal(signal.SIGTERM, lambda *_: told.__setitem__(0, True))
    committed_at = time.monotonic()
    while not told[0]:
        found = consumer.consume(BATCH, 0.1)
        for message in found:
            if message.error() is not None:
                continue
            key = message.key()
            where = (message.topic(), message.partition(), message.offset())
            state[key], made = machine.advance(
                state.get(key), where, message.timestamp()[1], (key, message.value())
            )
            for decision in made:
                producer.produce(decisions, decision, key)
        producer.poll(0)
        if time.monotonic() - committed_at >= COMMIT_EVERY_S:
            committed_at = time.monotonic()
            if consumer.assignment() and state:
                consumer.commit(asynchronous=True)
    producer.flush()
    consumer.close()


if __name__ == "__main__":
    main()
