"""The engine with a step of the prototype's size (ENGINE.md): parse a record, advance 300 bytes of state, one
decision of 300 bytes. What it costs is the engine; what the worker costs more is the machine.

`python -m tests.benchmarks.bare_engine`, with the worker's environment. It must not mean anything.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import orjson

from compose import probes
from compose import settings as configuration
from schemas.record import TopicKind
from schemas.topics import TopicNames
from streams.engine.app import build_app
from streams.engine.processor import Due, InputRecord, Output, View
from streams.engine.run import run
from streams.engine.settings import EngineSettings
from tests.benchmarks.machine import LOADED

PAD = "x" * 220  # a state and a decision of about 300 bytes
TABLE = "bare"


def app_id_of(prefix: str) -> str:
    return f"{prefix}bare"


class Bare:
    """`streams.engine.processor.Processor` without a meaning."""

    tables: tuple[str, ...] = (TABLE,)
    timer_table = TABLE

    def __init__(self, names: TopicNames) -> None:
        self.inputs: tuple[str, ...] = names.of(LOADED)
        self._decisions = names[TopicKind.DECISIONS]

    def process(self, record: InputRecord, view: View) -> None:
        key, read = record.key or b"-", orjson.loads(record.value or b"{}")
        stored = view.get(TABLE, key)
        state: dict[str, Any] = orjson.loads(stored) if stored is not None else {"n": 0, "pad": PAD}
        state["n"] += 1
        state["last"] = [record.topic, record.partition, record.offset, record.timestamp]
        view.put(TABLE, key, orjson.dumps(state))
        made = {"record": read.get("record"), "n": state["n"], "of": state["last"], "pad": PAD}
        view.emit(Output(self._decisions, view.partition, key, orjson.dumps(made), None))

    def end_of_chunk(self, topic: str, view: View) -> None: ...

    def due_of(self, key: bytes, value: bytes) -> Due | None:
        return None

    def tick(self, partition: int, key: bytes, due: Due, **about: int) -> Output:
        raise AssertionError("nothing is ever due")

    def restored(self, view: View) -> None: ...


def main() -> int:
    """Until SIGTERM."""
    settings = configuration.load()
    names = TopicNames(settings.prefix)
    engine = EngineSettings(
        app_id=app_id_of(settings.prefix),
        bootstrap=settings.kafka,
        slot="bare",
        now_ms=lambda: time.time_ns() // 1_000_000,
    )
    app = build_app(Bare(names), engine)
    with probes.serving(app.health.snapshot, bytes):
        return int(run(app))


if __name__ == "__main__":
    sys.exit(main())
