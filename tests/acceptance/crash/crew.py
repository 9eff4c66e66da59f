"""The processes that die on purpose: who dies where and in which order, thawed or started again by us.

It must not judge what came of it; `stage` reads that from the outside.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compose.clock import SystemClock
from compose.demo.fleet import STOP_S, Fleet, Member
from tests.acceptance.crash.points import Boundary, Signal

MODULE = "tests.acceptance.crash.process"


@dataclass(slots=True)
class Strike:
    """One boundary and one signal; `at_ms` once it has happened, `back_ms` once it ran again."""

    boundary: Boundary
    signal: Signal
    member: str = ""
    at_ms: int | None = None
    thaw_due_s: float | None = None  # monotonic
    frozen_ms: int | None = None

    @property
    def name(self) -> str:
        return f"{self.boundary.process} {self.boundary.point} {self.signal.value}"

    @property
    def is_over(self) -> bool:
        """Whether it happened and, where it froze, was ended by us."""
        return self.at_ms is not None and (self.signal is Signal.KILL or self.frozen_ms is not None)


@dataclass(slots=True)
class Actor:
    """One member of the fleet with what is still to happen to it."""

    member: Member
    mark: Path
    process: str
    plan: list[Strike] = field(default_factory=list)
    lines_read: int = 0


class Crew:
    """`step` often: it reads the marks, thaws who has been frozen long enough, starts again who died."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._fleet, self._folder, self._clock = fleet, folder, SystemClock()
        self._actors: dict[str, Actor] = {}
        self.struck: list[Strike] = []

    def enlist(self, name: str, process: str, **extra: str) -> None:
        """A member that is not started yet: `condemn` says where it will die, `start` starts it."""
        mark = self._folder / f"{name}.marks"
        mark.touch()
        member = Member(name, self._arguments(process, mark, []), extra, MODULE)
        self._fleet.members[name] = member
        self._actors[name] = Actor(member, mark, process)

    def start(self) -> None:
        """Start whoever was never started."""
        for name, actor in self._actors.items():
            if actor.member.process is None:
                self._fleet.start(name)

    def condemn(self, name: str, plan: Sequence[Strike]) -> None:
        """Give the member a plan of where to die; one that runs is ended in order and started anew."""
        actor = self._actors[name]
        for strike in plan:
            strike.member = name
        actor.plan = list(plan)
        self._plan(actor)
        if actor.member.process is not None:
            actor.member.process.send_signal(signal.SIGTERM)  # `step` starts it again

    def dismiss(self, name: str) -> None:
        """End the member in order, for good."""
        del self._actors[name]
        running = self._fleet.members.pop(name).process
        if running is not None:
            running.send_signal(signal.SIGTERM)
            try:
                running.wait(STOP_S)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()

    @property
    def waiting(self) -> list[Strike]:
        """What has not happened yet."""
        return [strike for actor in self._actors.values() for strike in actor.plan]

    def forgive(self) -> None:
        """Drop what is still to happen; who lies frozen is thawed."""
        for actor in self._actors.values():
            for strike in actor.plan:
                if strike.thaw_due_s is not None:
                    self._thaw(actor, strike)
            actor.plan.clear()
            self._plan(actor)

    def step(self) -> None:
        """Raises `ProcessEnded` when a process refuses its settings or topics."""
        for actor in self._actors.values():
            self._read(actor)
            now_s = time.monotonic()
            while actor.plan and actor.plan[0].thaw_due_s is not None and now_s >= actor.plan[0].thaw_due_s:
                self._thaw(actor, actor.plan[0])
                self._settle(actor)
        self._fleet.tend()

    def _read(self, actor: Actor) -> None:
        lines = actor.mark.read_text("utf-8").splitlines()
        for line in lines[actor.lines_read :]:
            said = json.loads(line)
            if said["what"] != "at":
                continue
            if not actor.plan:  # forgiven, and it happened all the same
                self._continue(actor)
                continue
            strike = actor.plan[0]
            if (strike.boundary.point, strike.signal.value) != (said["point"], said["signal"]):
                raise AssertionError(f"{strike.name} was planned, {said['point']} {said['signal']} happened")
            strike.at_ms = said["at_ms"]
            if strike.signal is Signal.STOP:
                strike.thaw_due_s = time.monotonic() + strike.boundary.freeze_s
            else:
                self._settle(actor)
        actor.lines_read = len(lines)

    def _thaw(self, actor: Actor, strike: Strike) -> None:
        self._continue(actor)
        if strike.at_ms is not None:
            strike.frozen_ms = self._clock.now_ms() - strike.at_ms
        strike.thaw_due_s = None

    @staticmethod
    def _continue(actor: Actor) -> None:
        if actor.member.process is not None:
            actor.member.process.send_signal(signal.SIGCONT)

    def _settle(self, actor: Actor) -> None:
        """The first of the plan is over; what the next start is told is what is left."""
        self.struck.append(actor.plan.pop(0))
        self._plan(actor)

    def _plan(self, actor: Actor) -> None:
        actor.member.arguments = self._arguments(actor.process, actor.mark, actor.plan)

    @staticmethod
    def _arguments(process: str, mark: Path, plan: Sequence[Strike]) -> tuple[str, ...]:
        at = [f"{s.boundary.point}:{s.boundary.nth}:{s.signal.value}" for s in plan]
        return (process, "--mark", str(mark), *(part for one in at for part in ("--at", one)))
