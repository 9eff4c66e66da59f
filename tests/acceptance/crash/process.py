"""The test build: a process of ours with a hook at its durable boundaries that stops or kills it there.

    python -m tests.acceptance.crash.process worker --mark FILE --at after_commit:3:SIGKILL

With `RAISE` instead of a signal the boundary raises, once in all the lives that share a mark.

It must not differ from the product in anything else: the same settings, the same wiring.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from compose import wiring
from compose.clock import SystemClock
from compose.commands.processes import prepared, until_told
from compose.output import AWAY, fail
from schemas.errors import BackstopError, GuardUnavailable
from sinks.kafka.consumer import KafkaAway
from sinks.kafka.producer import PublishFailed
from tests.acceptance.crash.points import POINTS

RAISE = "RAISE"


class RaisedOnPurpose(Exception):
    """An error of ours that nobody foresaw."""


class Fate:
    """`point:nth:signal` in order: the next one counts once the one before it has happened."""

    def __init__(self, plan: list[str], mark: Path) -> None:
        self._plan = [(point, int(nth), name) for point, nth, name in (one.split(":") for one in plan)]
        raised = [one["point"] for one in struck(mark) if one["signal"] == RAISE]
        self._plan = [one for one in self._plan if one[2] != RAISE or one[0] not in raised]
        self._mark, self._clock = mark, SystemClock()
        self._passed: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, point: str) -> None:
        """Called by the product at each boundary, from any thread."""
        with self._lock:
            self._passed[point] += 1
            if not self._plan or self._plan[0][0] != point or self._passed[point] < self._plan[0][1]:
                return
            _, _, name = self._plan.pop(0)
            self._passed.clear()
            self._say(point, name, "at")
            if name == RAISE:
                raise RaisedOnPurpose(point)
            # To this very thread: a signal to the process may be taken by another while this one goes on.
            signal.pthread_kill(threading.get_ident(), getattr(signal, name))
            self._say(point, name, "back")

    def _say(self, point: str, name: str, what: str) -> None:
        """One line and one write: a kill right after it tears nothing."""
        line = json.dumps({"point": point, "signal": name, "what": what, "at_ms": self._clock.now_ms()})
        with self._mark.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def struck(mark: Path) -> list[dict[str, Any]]:
    """What has happened so far, by the file."""
    return [json.loads(line) for line in mark.read_text().splitlines()] if mark.exists() else []


def main() -> int:
    """The process until it is told to stop; exit codes as `backstop`'s."""
    parser = argparse.ArgumentParser()
    parser.add_argument("process", choices=sorted(POINTS))
    parser.add_argument("--mark", type=Path, required=True)
    parser.add_argument("--at", action="append", default=[])
    given = parser.parse_args()
    fate = Fate(given.at, given.mark)
    try:
        if given.process == "worker":
            return wiring.run_worker(prepared(), fate)
        run = {
            "dispatcher": wiring.run_dispatcher,
            "poller": wiring.run_poller,
            "auditor": wiring.run_auditor,
        }[given.process]
        until_told(lambda settings, stop: run(settings, stop, fate))
    except (KafkaAway, PublishFailed, GuardUnavailable) as exc:
        fail(exc, code=AWAY)
    except BackstopError as exc:
        fail(exc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
