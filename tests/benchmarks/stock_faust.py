"""Competitor: stock Faust, at_least_once, a memory table with its changelog, one send per decision.

`python -m tests.benchmarks.stock_faust`, with the worker's environment. It must not use our engine.
"""

from __future__ import annotations

import logging
from typing import Any

import faust
import mode
import uvloop

from compose import settings as configuration
from schemas.record import TopicKind
from schemas.topics import TopicNames
from tests.benchmarks.machine import LOADED, Machine

TABLE = "states"
COMMIT_INTERVAL_S = 1.0
BUFFERED_MAX = 5_000  # records waiting in the producer; the stock 100 stalls the agent
RECOVERED = "stock recovered"  # followed by the number of states
log = logging.getLogger("benchmark")


def group_of(prefix: str) -> str:
    return f"{prefix}stock"


def changelog_of(prefix: str) -> str:
    return f"{group_of(prefix)}-{TABLE}-changelog"


def build(settings: configuration.Settings) -> Any:
    """A `faust.App` over the input topics of the deployment."""
    names, machine = TopicNames(settings.prefix), Machine(settings)
    app = faust.App(
        group_of(settings.prefix), env={}, broker=f"aiokafka://{settings.kafka}", autodiscover=False,
        store="memory://", web_enabled=False, table_standby_replicas=0, topic_disable_leader=True,
        topic_allow_declare=False, topic_partitions=settings.partitions,
        agent_supervisor=mode.CrashingSupervisor, key_serializer="raw", value_serializer="raw",
        consumer_auto_offset_reset="earliest", broker_session_timeout=30,
        broker_commit_interval=COMMIT_INTERVAL_S,
        producer_linger=0.02, producer_max_batch_size=131_072, stream_recovery_delay=0.0,
        datadir="stock-faust", debug=False,
    )  # fmt: skip
    raw = {"key_type": bytes, "value_type": bytes, "value_serializer": "raw"}
    state = app.Table(TABLE, key_type=bytes, value_type=bytes, partitions=settings.partitions)
    decisions = app.topic(names[TopicKind.DECISIONS], **raw)

    async def decide(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            new, made = machine.advance(
                state.get(event.key),
                (message.topic, message.partition, message.offset),
                round(message.timestamp * 1000),
                (event.key, event.value),
            )
            for decision in made:
                await decisions.send(key=event.key, value=decision)
            if new is None:
                state.pop(event.key, None)
            else:
                state[event.key] = new

    async def widen_buffers() -> None:
        app.producer.buffer.max_messages = BUFFERED_MAX

    async def say_recovered() -> None:
        log.info("%s %d", RECOVERED, len(state))

    app.agent(app.topic(*names.of(LOADED), **raw))(decide)
    app.task(widen_buffers)
    state.on_recover(say_recovered)
    return app


if __name__ == "__main__":
    uvloop.install()
    mode.Worker(
        build(configuration.load()), loglevel=logging.INFO, redirect_stdouts=False
    ).execute_from_commandline()
