"""A small worker on the engine for the integration tests: counts per key, decides when due.

One output per input record; a `counts` table (state per key) and a `progress` table (inputs per topic).
It must not hold anything a test asserts by itself: the rig reads the topics.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from compose import probes
from streams.engine.app import build_app
from streams.engine.errors import EngineError
from streams.engine.processor import Due, InputRecord, Output, View
from streams.engine.run import run
from streams.engine.settings import EngineSettings

NO_KEY = b"(none)"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """What a test may vary; passed as JSON."""

    app_id: str
    bootstrap: str
    slot: str
    fail_at: int = -1  # offset of partition 0 of the first input at which `process` raises
    slow_fact_s: float = 0.0
    settings: dict[str, Any] | None = None

    def dumps(self) -> str:
        return json.dumps(asdict(self))


class Counting:
    """Inputs: `<id>-in`, `<id>-facts`, `<id>-ticks`; outputs: `<id>-out`, `<id>-decided`."""

    tables: tuple[str, ...] = ("counts", "progress")
    timer_table = "counts"

    def __init__(self, options: Options) -> None:
        app_id = options.app_id
        self.options = options
        self.inputs: tuple[str, ...] = (f"{app_id}-in", f"{app_id}-facts", f"{app_id}-ticks")
        self._out, self._decided = f"{app_id}-out", f"{app_id}-decided"
        self._seen = 0

    def process(self, record: InputRecord, view: View) -> None:
        if record.offset == self.options.fail_at and record.topic == self.inputs[0] and not record.partition:
            raise RuntimeError("failed on purpose")
        key = record.key if record.key is not None else NO_KEY
        stored = view.get("counts", key)
        state: dict[str, Any] = json.loads(stored) if stored else {"n": 0, "facts": 0, "due": None}
        if record.topic == self.inputs[2]:
            self._decide(record, state, view, key)
        else:
            self._count(record, state, view, key)
        self._seen += 1
        view.put("counts", key, json.dumps(state).encode())
        due = Due(state["due"][0], state["due"][1]) if state["due"] else None
        view.arm(key, due, again=record.topic == self.inputs[2])

    def _count(self, record: InputRecord, state: dict[str, Any], view: View, key: bytes) -> None:
        state["n"] += 1
        if record.topic == self.inputs[1]:
            time.sleep(self.options.slow_fact_s)
            state["facts"] += 1
        elif record.value and record.value.startswith(b"{"):
            state["due"] = json.loads(record.value)["due"]
        size = None if record.value is None else len(record.value)
        made = {"src": [record.topic, record.partition, record.offset], "n": state["n"], "size": size}
        headers = list(record.headers)
        view.emit(Output(self._out, view.partition, record.key, json.dumps(made).encode(), headers))

    def _decide(self, record: InputRecord, state: dict[str, Any], view: View, key: bytes) -> None:
        if state["due"] is None or record.timestamp < state["due"][0]:
            return
        made = {**json.loads(record.value or b"{}"), "due": state["due"], "facts": state["facts"],
                "decided": record.timestamp}  # fmt: skip
        state["due"] = None
        view.emit(Output(self._decided, view.partition, key, json.dumps(made).encode(), None))

    def end_of_chunk(self, topic: str, view: View) -> None:
        known = int(view.get("progress", topic.encode()) or 0)
        view.put("progress", topic.encode(), str(known + self._seen).encode())
        self._seen = 0

    def due_of(self, key: bytes, value: bytes) -> Due | None:
        due = json.loads(value)["due"]
        return Due(*due) if due else None

    def tick(self, partition: int, key: bytes, due: Due, **about: int) -> Output:
        value = json.dumps({"asked": [due.at_ms, due.latest_ms], **about}).encode()
        return Output(self.inputs[2], partition, key, value, None)

    def restored(self, view: View) -> None:
        log.info("restored %s: %s keys", view.partition, sum(1 for _ in view.items("counts")))


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    options = Options(**json.loads(sys.argv[1]))
    settings = EngineSettings(
        app_id=options.app_id,
        bootstrap=options.bootstrap,
        slot=options.slot,
        now_ms=lambda: time.time_ns() // 1_000_000,
        **{
            "session_timeout_s": 3.0, "heartbeat_interval_s": 0.5, "rebalance_timeout_s": 10.0,
            "transaction_timeout_ms": 5_000, "tick_interval_ms": 50, **(options.settings or {}),
        },
    )  # fmt: skip
    try:
        app = build_app(Counting(options), settings)
    except EngineError as exc:
        log.critical("%s", exc)
        return int(exc.exit_code)
    with probes.serving(app.health.snapshot, bytes):
        return int(run(app))


if __name__ == "__main__":
    sys.exit(main())
