"""What every process of the world has: a life, a clock of its own, a supervisor, and the ways to lose them.

A process is killed between two acts or at a fault point in the middle of one; nothing it held in memory
survives. Frozen, it stands still and goes on later as if nothing had happened. It must not know what its
process does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tests.simulation.fibers import Fiber, Killed
from tests.simulation.groups import HEARTBEAT_MS, Answer, Group, Member

if TYPE_CHECKING:
    from tests.simulation.world import World

RESTART_MS = (300, 8_000)
FREEZE_MS = (200, 40_000)
FINE_MS, SKEW_FINE_MS, SKEW_WRONG_MS, JUMP_MS = 50, 900, 60_000, 20_000


class Membership(Member, Protocol):
    """A member that answers for itself."""

    group: Group

    def revoked(self) -> None:
        """A rebalance has begun: give everything back and join again."""
        ...

    def put_out(self) -> None:
        """The group went on without it."""
        ...


class ProcessClock:
    """`now_ms` is skewed and may jump; `monotonic` (seconds) may not."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.off_ms = 0

    def now_ms(self) -> int:
        return self._world.agenda.now_ms + self.off_ms

    def monotonic(self) -> float:
        return self._world.agenda.now_ms / 1000


class Process:
    """One process with its supervisor. Subclasses start in `begin`, with nothing from the life before."""

    kind = "process"

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.clock = ProcessClock(world)
        self.life = 0
        self.is_up = False
        self.is_wanted = False
        self.frozen_until_ms = 0
        self._fibers: list[Fiber] = []

    def start(self) -> None:
        """By its supervisor."""
        if self.is_up or not self.is_wanted:
            return
        self.is_up, self.life, self.frozen_until_ms = True, self.life + 1, 0
        self.clock.off_ms = self._skew()
        self.world.note(f"{self.name} starts")
        self.begin()

    def stop(self) -> None:
        """For good, or until it is wanted again; at once, as a kill is."""
        self.is_wanted = False
        self.crash("stopped")

    def crash(self, why: str) -> None:
        """Nothing of this life happens any more; the supervisor starts another one."""
        if not self.is_up:
            return
        self.world.note(f"{self.name} dies: {why}")
        self.is_up = False
        self.life += 1
        for fiber in self._fibers:
            if not fiber.is_done and fiber is not self.world.fibers.current:
                fiber.kill()
        self._fibers = []
        if self.is_wanted:
            agenda = self.world.agenda
            agenda.at(agenda.now_ms + self.world.dice.ms("restart", *RESTART_MS), self.start)

    def freeze(self, ms: int) -> None:
        """Stand still (SIGSTOP), then go on (SIGCONT)."""
        agenda = self.world.agenda
        self.frozen_until_ms = max(self.frozen_until_ms, agenda.now_ms + ms)
        self.world.note(f"{self.name} stands still for {ms} ms")

    # what subclasses do

    def begin(self) -> None:
        raise NotImplementedError

    # for subclasses

    def later(self, ms: int, act: Callable[[], None]) -> None:
        """In this life; a frozen process acts when it goes on."""
        life, agenda = self.life, self.world.agenda

        def happen() -> None:
            if life != self.life or not self.is_up:
                return
            if self.frozen_until_ms > agenda.now_ms:
                agenda.at(self.frozen_until_ms, happen)
                return
            try:
                act()
            except Killed:
                return

        agenda.at(agenda.now_ms + ms, happen)

    def spawn(self, work: Callable[[], None]) -> None:
        """A call that blocks, in this life. It may end the process at once: then this raises `Killed`."""
        life = self.life
        fiber = self.world.fibers.spawn(work, frozen_until=lambda: self.frozen_until_ms if self.is_up else 0)
        if life != self.life:
            fiber.kill()
            raise Killed
        self._fibers = [f for f in self._fibers if not f.is_done]
        self._fibers.append(fiber)

    def beat(self, member: Membership) -> None:
        """Heartbeats of one membership, for as long as this life lasts and is not frozen."""

        def happen() -> None:
            match member.group.heartbeat(member):
                case Answer.GIVE_BACK:
                    member.revoked()
                case Answer.UNKNOWN:
                    member.put_out()
            self.later(HEARTBEAT_MS, happen)

        self.later(HEARTBEAT_MS, happen)

    def fault(self, point: str) -> None:
        """A named point between two durable steps: here it may die, or stand still."""
        dice = self.world.dice
        if dice.falls(f"crash.{self.kind}"):
            self.world.points[f"{self.kind} dies at {point}"] += 1
            self.crash(f"at {point}")
            raise Killed
        if dice.falls(f"freeze.{self.kind}"):
            self.world.points[f"{self.kind} stands still at {point}"] += 1
            self.freeze(dice.ms("freeze", *FREEZE_MS))
            self.world.fibers.pause(0)

    def read_lag_ms(self) -> int:
        dice = self.world.dice
        return dice.ms("lag.ms", 500, 8_000) if dice.falls("lag.read") else dice.ms("read.ms", 1, 60)

    def _skew(self) -> int:
        dice = self.world.dice
        if not dice.falls("clock.skew"):
            return dice.ms("clock.fine", -FINE_MS, FINE_MS)
        limit = SKEW_WRONG_MS if dice.of("clock.wrong").random() < 0.2 else SKEW_FINE_MS
        return dice.ms("clock.off", -limit, limit)

    def jump(self) -> None:
        """Its clock is set, forwards or back."""
        if self.is_up:
            ms = self.world.dice.ms("clock.by", -JUMP_MS, JUMP_MS)
            self.clock.off_ms += ms
            self.world.note(f"{self.name}'s clock jumps by {ms} ms")
