"""One kept stack with every process, under load, on which things die: rounds, outages, proofs.

It must not hold an expectation beyond the four proofs and that all was reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from compose.commands import demo
from compose.demo.fleet import Fleet
from compose.demo.proofs import Proof
from compose.demo.run import World, proofs_of, submitted_to
from compose.local.child import is_free
from compose.local.stack import Stack
from compose.settings import Settings
from sinks.postgres.pool import Database
from tests.acceptance.crash.crew import Crew, Strike
from tests.acceptance.crash.load import Load
from tests.acceptance.crash.points import BOUNDARIES, Boundary, Signal
from tests.acceptance.crash.watch import Lag, Watch

STEP_S = 0.05
TELL_S = 5.0
STRIKE_S = 60.0  # per strike of the longest plan: start, rebalance, the pass itself, the freeze
SETTLE_S = 150.0  # last expiry 18 s, late evidence 4 s, and a machine ten times slower than an idle one
EXTRA = {"BACKSTOP_LEASE_MS": "4000", "BACKSTOP_WORKER_SLOT": "unused"}
# SIGSTOP freezes every thread: with one order at a time the frozen one is the one at the point, and no
# other stands between its last check and its first byte (the residue, see `points`).
FROZEN_ONE_AT_A_TIME = "1"
# How many of each are frozen, killed, and left alone to take over.
MEMBERS = {"worker": (1, 1, 1), "dispatcher": (1, 2, 1), "poller": (1, 1, 0), "auditor": (1, 1, 0)}
# Longer than any redelivery: an attempt published again for a forgotten intent would be parked as an early
# fact, and proof 3 wants nothing parked at the end.
LATE_EVIDENCE_MS = 900_000

Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What one round left: its strikes and the four proofs over all that was ever published here."""

    strikes: list[Strike]
    unreached: list[str]
    open_intents: list[str]  # each with what was last decided about it
    proofs: list[Proof]
    intents: int
    seconds: float
    next_ms: dict[str, int] = field(default_factory=dict)  # per strike of a worker

    @property
    def books_hold(self) -> bool:
        """The four proofs, and nothing left open."""
        return not self.open_intents and all(p.holds for p in self.proofs)

    @property
    def holds(self) -> bool:
        return not self.unreached and self.books_hold


@dataclass(slots=True)
class Stage:
    """A running stack; made by `staged`."""

    stack: Stack
    settings: Settings
    world: World
    crew: Crew
    load: Load
    watch: Watch
    lag: Lag
    port: int
    say: Say

    def play(self, wanted: Sequence[tuple[Boundary, Signal]]) -> Outcome:
        """Let each of these happen once, under load; then stop the load, wait for the end, and prove."""
        started, first = time.monotonic(), len(self.crew.struck)
        plans = plans_of(wanted)
        longest = max(map(len, plans.values()), default=0)
        for name, plan in plans.items():
            self.crew.condemn(name, plan)
        self.crew.start()
        self.load.resume()
        self.step_until(lambda: not self.crew.waiting, within_s=STRIKE_S * longest, waits_for="strikes")
        unreached = [strike.name for strike in self.crew.waiting]
        self.crew.forgive()
        return self.settle(self.crew.struck[first:], unreached, started)

    def start(self) -> None:
        """Every process runs and its group has settled."""
        self.crew.start()
        demo.wait_until_ready(self.settings, self.port, self.world.fleet)

    def settle(self, strikes: list[Strike], unreached: list[str], started: float) -> Outcome:
        """Stop the load, wait until every intent is closed and nobody lags, then prove."""
        self.meanwhile(self.load.pause, waits_for="the load to pause")
        self.step_until(
            lambda: not self.open_intents() and not self.load.is_owing, within_s=SETTLE_S, waits_for="the end"
        )
        self.step_until(self.lag.is_zero, within_s=SETTLE_S, waits_for="zero lag", every_s=1.0)
        known = self.load.intents
        proofs = proofs_of(self.world, known, submitted_to(self.world))
        open_intents = [self.story_of(one) for one in self.open_intents()]
        outcome = Outcome(strikes, unreached, open_intents, proofs, len(known), time.monotonic() - started)
        for story in open_intents:
            self.say(f"  still open: {story}")
        for strike in strikes:
            if strike.boundary.process == "worker" and strike.at_ms is not None:
                found = self.watch.next_everywhere(strike.at_ms, self.settings.partitions)
                if found is not None:
                    outcome.next_ms[strike.name] = found
        return outcome

    def open_intents(self) -> list[str]:
        return [intent_id for intent_id in self.load.intents if intent_id not in self.watch.closed]

    def story_of(self, intent_id: str) -> str:
        """Its kind and the last decision seen of it, for a failure to say what stayed open."""
        kind, last = self.load.intents[intent_id].kind, self.watch.last.get(intent_id)
        if last is None:
            return f"{intent_id} ({kind.name}): no decision seen"
        return (
            f"{intent_id} ({kind.name}): decision {last.seq}, {last.reason.value}, at {last.now_ms}; "
            f"phase {last.next_phase}, next due {last.next_due_ms}; now {self.watch.now_ms()}"
        )

    def meanwhile(self, call: Callable[[], object], *, waits_for: str) -> None:
        """Make a slow call in another thread and keep the crew going. Raises what the call raises."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(call)
            self.step_until(future.done, within_s=SETTLE_S, waits_for=waits_for)
            future.result()

    def step_until(
        self, is_done: Callable[[], bool], *, within_s: float, waits_for: str, every_s: float = 0.0
    ) -> bool:
        """Keep the crew going until `is_done`, asked every `every_s`; False when time is up."""
        started = said = time.monotonic()
        asked = 0.0
        while time.monotonic() - started < within_s:
            self.crew.step()
            if time.monotonic() - asked >= every_s:
                if is_done():
                    return True
                asked = time.monotonic()
            if time.monotonic() - said >= TELL_S:
                said = time.monotonic()
                self.say(
                    f"  {said - started:4.0f} s  waiting for {waits_for}: {len(self.crew.struck)} struck, "
                    f"{len(self.crew.waiting)} to come, {len(self.load.intents)} intents, "
                    f"{len(self.open_intents())} open"
                )
            time.sleep(STEP_S)
        return False


def plans_of(wanted: Sequence[tuple[Boundary, Signal]]) -> dict[str, list[Strike]]:
    """Who dies where: freezes and kills go to different members, see MEMBERS."""
    plans: dict[str, list[Strike]] = {}
    turn: dict[tuple[str, Signal], int] = {}
    for boundary, how in wanted:
        frozen, killed, _ = MEMBERS[boundary.process]
        able = range(frozen) if how is Signal.STOP else range(frozen, frozen + killed)
        count = turn.get((boundary.process, how), 0)
        turn[boundary.process, how] = count + 1
        plans.setdefault(f"{boundary.process}-{able[count % len(able)]}", []).append(Strike(boundary, how))
    return plans


def everything(signals: Sequence[Signal] = tuple(Signal)) -> list[tuple[Boundary, Signal]]:
    return [(boundary, how) for boundary in BOUNDARIES for how in signals]


@contextmanager
def staged(stack: Stack, here: Path, *, run_id: str, per_s: float, say: Say) -> Iterator[Stage]:
    """Every process on a running stack, none of them started, load paused; all ended on the way out."""
    port = demo.free_port()
    settings, environment = demo.prepare(
        stack, here, run_id=run_id, port=port, extra=EXTRA, late_evidence_ms=LATE_EVIDENCE_MS
    )
    fleet, database = Fleet(here, environment), Database(stack.dsn)
    world = demo.world_of(settings, database, fleet, port=port)
    watch = Watch(world)
    load = Load(
        lambda: demo.world_of(settings, database, fleet, port=port).publisher, run_id=run_id, per_s=per_s
    )
    crew = Crew(fleet, here)
    stage = Stage(stack, settings, world, crew, load, watch, Lag(world), port, say)
    with ExitStack() as ending:  # each of these, whatever the one before it raises
        ending.callback(database.close)
        ending.callback(fleet.stop)
        token = str(here / "keys" / "simulator.token")
        fleet.add("simulator", "simulator", "--port", str(port), "--token-file", token)
        for process, (frozen, killed, steady) in MEMBERS.items():
            for number in range(frozen + killed + steady):
                enlist(crew, process, number, frozen=number < frozen)
        watch.start()
        ending.callback(watch.stop)
        load.start()
        ending.callback(load.stop)
        stage.step_until(lambda: not is_free(port), within_s=SETTLE_S, waits_for="the simulator")
        yield stage


def enlist(crew: Crew, process: str, number: int, *, frozen: bool = False) -> str:
    """One more member; `frozen`: it may be stopped between any two instructions."""
    name = f"{process}-{number}"
    extra = {}
    if process == "worker":
        extra["BACKSTOP_WORKER_SLOT"] = name
    if process == "dispatcher" and frozen:
        extra["BACKSTOP_DISPATCHER_CONCURRENCY"] = FROZEN_ONE_AT_A_TIME
    crew.enlist(name, process, **extra)
    return name
