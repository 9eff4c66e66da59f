"""Kafka and Postgres away, workers joining and leaving, everything restarted one by one: under load.

It must not hold an expectation beyond the four proofs.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from compose.commands.demo import READY_GROUPS
from compose.demo.proofs import Proof
from compose.local.broker import Broker
from compose.local.child import LocalStackError
from compose.local.database import Database
from sinks.kafka import admin
from tests.acceptance.crash.stage import MEMBERS, Stage, enlist

BEFORE_S = 8.0  # of load before it happens, so that all of it is in flight
# Away: within the session and the lease, longer than all of them, longer than any life of an intent here.
SHORT_S, LONG_S, MINUTE_S = 3.0, 20.0, 60.0
LAG_S = 120.0
GROUPS_S = 60.0
JOINING = 3


@dataclass(frozen=True, slots=True)
class Outage:
    """`away_s` 0: nothing is away, processes come and go."""

    name: str
    process: str
    signal: str
    away_s: float = 0.0
    worker_dies: bool = False
    is_kill: bool = False


@dataclass(slots=True)
class Ended:
    """What one outage left."""

    proofs: list[Proof]
    holds: bool
    next_decision_s: list[float] = field(default_factory=list)
    lag_zero_s: list[float] = field(default_factory=list)


OUTAGES: tuple[Outage, ...] = (
    Outage("broker stopped, back after 3 s", "broker", "SIGTERM", SHORT_S),
    Outage("broker killed, back after 3 s", "broker", "SIGKILL", SHORT_S, is_kill=True),
    Outage("broker killed, a worker dies meanwhile", "broker", "SIGKILL", SHORT_S, True, True),
    Outage("broker stopped for 20 s, a worker dies meanwhile", "broker", "SIGTERM", LONG_S, True),
    Outage("broker killed for 20 s", "broker", "SIGKILL", LONG_S, is_kill=True),
    Outage("broker stopped for a minute", "broker", "SIGTERM", MINUTE_S),
    Outage("broker killed for a minute, a worker dies meanwhile", "broker", "SIGKILL", MINUTE_S, True, True),
    Outage("Postgres stopped, back after 3 s", "postgres", "SIGINT", SHORT_S),
    Outage("Postgres killed, back after 3 s", "postgres", "SIGKILL", SHORT_S, is_kill=True),
    Outage("Postgres killed, a worker dies meanwhile", "postgres", "SIGKILL", SHORT_S, True, True),
    Outage("Postgres stopped for 20 s, a worker dies meanwhile", "postgres", "SIGINT", LONG_S, True),
    Outage("Postgres killed for 20 s", "postgres", "SIGKILL", LONG_S, is_kill=True),
    Outage("rolling restart of every process under load", "all", "SIGTERM"),
    Outage("three workers join and leave under load", "worker", "SIGTERM"),
)


def play(stage: Stage, outage: Outage) -> Ended:
    """One outage under load, then the end of all intents and the four proofs."""
    stage.start()
    started = time.monotonic()
    stage.load.resume()
    _step(stage, BEFORE_S)
    if outage.away_s:
        back_ms, lag_s = _away(stage, outage)
    else:
        {"all": _rolling_restart, "worker": _join_and_leave}[outage.process](stage)
        back_ms, lag_s = stage.watch.now_ms(), _to_zero(stage)
    outcome = stage.settle([], [], started)
    found = stage.watch.next_everywhere(back_ms, stage.settings.partitions) if outage.away_s else None
    return Ended(
        outcome.proofs,
        outcome.holds and lag_s is not None,
        [] if found is None else [found / 1000],
        [] if lag_s is None else [lag_s],
    )


def _away(stage: Stage, outage: Outage) -> tuple[int, float | None]:
    """When it was back (ms) and how long everybody then took to catch up (s)."""
    server = stage.stack.broker if outage.process == "broker" else stage.stack.database
    stage.meanwhile(server.kill if outage.is_kill else server.stop, waits_for="its end")
    away_until = time.monotonic() + outage.away_s
    if outage.worker_dies:
        _step(stage, min(1.0, outage.away_s / 2))
        stage.world.fleet.kill("worker-1")
    _step(stage, away_until - time.monotonic())
    stage.meanwhile(partial(_start, server), waits_for="its return")
    return stage.watch.now_ms(), _to_zero(stage)


def _start(server: Broker | Database) -> None:
    """A machine that is far too busy may not see it answer in time: once more, then it is a failure."""
    try:
        server.start()
    except LocalStackError:
        server.start()


def _to_zero(stage: Stage) -> float | None:
    """Load stops; seconds until nobody lags, None when that takes too long."""
    since = time.monotonic()
    stage.meanwhile(stage.load.pause, waits_for="the load to pause")
    reached = stage.step_until(stage.lag.is_zero, within_s=LAG_S, waits_for="zero lag", every_s=0.2)
    return time.monotonic() - since if reached else None


def _rolling_restart(stage: Stage) -> None:
    """Each in turn: asked to end, waited for, started, joined."""
    for name in [n for n in stage.world.fleet.members if n != "simulator"]:
        running = stage.world.fleet.members[name].process
        if running is not None:
            running.send_signal(signal.SIGTERM)
            _until(stage, lambda p=running: p.poll() is not None)  # type: ignore[misc]
        _step(stage, 0.1)  # starts it again
        _until_settled(stage)


def _join_and_leave(stage: Stage) -> None:
    first = sum(MEMBERS["worker"])
    joined = []
    for number in range(first, first + JOINING):
        joined.append(enlist(stage.crew, "worker", number))
        stage.crew.start()
        _step(stage, 1.0)
    _until_settled(stage)
    for name in joined:
        stage.crew.dismiss(name)
        _step(stage, 1.0)
    _until_settled(stage)


def _until_settled(stage: Stage) -> None:
    seen = admin.Groups(stage.world.bootstrap)
    groups = [f"{stage.settings.prefix}{name}" for name in READY_GROUPS]
    _until(stage, lambda: seen.settled(groups))


def _until(stage: Stage, is_done: Callable[[], bool]) -> None:
    stage.step_until(is_done, within_s=GROUPS_S, waits_for="its group", every_s=0.1)


def _step(stage: Stage, seconds: float) -> None:
    until = time.monotonic() + seconds
    stage.step_until(lambda: time.monotonic() >= until, within_s=seconds + 1.0, waits_for="its time")
