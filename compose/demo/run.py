"""One run of the demo: publish, watch, count, prove. All parts are the real ones, each its own process.

It must not look inside a process: it reads topics, the provider's ledger and Postgres, as anyone could.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random  # noqa: TID251  seeded: which process dies when
from typing import Any
from urllib.request import urlopen

import orjson

from compose.demo.fleet import Fleet
from compose.demo.plan import KINDS, Twist
from compose.demo.proofs import (
    Fence,
    Proof,
    Submitted,
    all_accounted,
    all_audited,
    no_duplicates,
    nothing_too_late,
)
from compose.demo.service import EXPIRY_S, Intent, Service, publish_garbage
from schemas.codec import decode
from schemas.decision import Decision
from schemas.record import TopicKind
from schemas.topics import WORKER_INPUTS, TopicNames
from sinks.audit.writer import counts as audit_counts
from sinks.kafka.consumer import read_all
from sinks.kafka.producer import Publisher
from sinks.operator import books
from sinks.postgres.pool import Database
from sinks.publisher import IntentPublisher

SECOND_WAVE_S = 9.0  # the first bounces are known by then
SETTLE_S = 90.0  # everything is over by then, or the run says what is not

Say = Callable[[str], None]


@dataclass(slots=True)
class Row:
    """One line of the table."""

    outcome: str
    intents: int = 0
    as_expected: int = 0
    emails: int = 0
    texts: int = 0
    decisions: int = 0


@dataclass(slots=True)
class Report:
    rows: list[Row]
    proofs: list[Proof]
    unexpected: list[str]
    kills: int
    seconds: float
    strict: bool

    @property
    def holds(self) -> bool:
        return all(p.holds for p in self.proofs) and not (self.strict and self.unexpected)


@dataclass(slots=True)
class World:
    """Where the run reads and writes."""

    bootstrap: str
    names: TopicNames
    database: Database
    publisher: IntentPublisher
    raw: Publisher
    simulator_url: str
    fleet: Fleet
    say: Say


class Run:
    """`run_id` keeps this run's people apart from any other's; `seed` decides which process dies when."""

    def __init__(self, world: World, *, run_id: str, kills: int, seed: int) -> None:
        self._world, self._kills_wanted = world, kills
        self._service = Service(world.publisher, run_id=run_id)
        self._random = Random(seed)  # noqa: S311
        self._intents = self._service.intents
        self._kills = 0
        self._pause = threading.Event()

    def play(self) -> Report:
        """The whole run. Raises when a process refuses or a system is away for good."""
        started = time.monotonic()
        self._publish_first_wave()
        second_wave: float | None = time.monotonic() + SECOND_WAVE_S
        said = 0.0
        while time.monotonic() - started < SETTLE_S + EXPIRY_S:
            self._service.complete_due()
            if second_wave is not None and time.monotonic() >= second_wave:
                self._publish_second_wave()
                second_wave = None
            self._disturb(started)
            self._world.fleet.tend()
            if time.monotonic() - said >= 2.0:
                said = time.monotonic()
                look(self._world, self._intents)
                self._tell(started)
                waits = (
                    self._service.is_waiting or second_wave is not None or self._kills < self._kills_wanted
                )
                if not waits and self._is_quiet():
                    break
            self._pause.wait(0.1)
        look(self._world, self._intents)
        return self._report(time.monotonic() - started)

    # publishing

    def _publish_first_wave(self) -> None:
        waves = [k for k in KINDS if k.twist is not Twist.SAME_PERSON_LATER]
        total = sum(k.count for k in waves)
        done = 0
        for number in range(max(k.count for k in waves)):
            for kind in waves:
                if number < kind.count:
                    self._service.publish(kind, number)
                    self._service.complete_due()
                    done += 1
        invalid = publish_garbage(self._world.raw, self._world.names)
        later = sum(k.count for k in KINDS) - total
        self._world.say(
            f"published {done} intents and {invalid} records that are not valid ones; "
            f"{later} more follow to addresses that bounced"
        )

    def _publish_second_wave(self) -> None:
        for kind in KINDS:
            if kind.twist is Twist.SAME_PERSON_LATER:
                for number in range(kind.count):
                    self._service.publish(kind, number)

    # watching

    def _tell(self, started: float) -> None:
        phases = Counter(
            i.last.next_phase.value if i.last is not None and i.last.next_phase is not None else "new"
            for i in self._intents.values()
        )
        shown = "  ".join(f"{phase} {n}" for phase, n in sorted(phases.items()))
        kills = f"  killed {self._kills}" if self._kills_wanted else ""
        self._world.say(f"{time.monotonic() - started:5.0f} s  {shown}{kills}")

    def _is_quiet(self) -> bool:
        """Every intent is closed, every input counted, every record audited."""
        if not all(i.is_closed for i in self._intents.values()):
            return False
        return all(proof.holds for proof in books_of(self._world))

    def _disturb(self, started: float) -> None:
        """Chaos: SIGKILL a process at a random moment; `tend` starts it again."""
        if self._kills >= self._kills_wanted:
            return
        due = started + (self._kills + 1) * (EXPIRY_S / max(1, self._kills_wanted)) * self._random.uniform(
            0.9, 1.1
        )
        if time.monotonic() >= due:
            victims = sorted(n for n in self._world.fleet.members if n != "simulator")
            victim = self._random.choice(victims)
            self._world.say(f"        SIGKILL {victim}")
            self._world.fleet.kill(victim)
            self._kills += 1

    # counting and proving

    def _report(self, seconds: float) -> Report:
        submitted = submitted_to(self._world)
        proofs = proofs_of(self._world, self._intents, submitted)
        rows, unexpected = self._rows(submitted)
        return Report(rows, proofs, unexpected, self._kills, seconds, strict=self._kills_wanted == 0)

    def _rows(self, submitted: list[Submitted]) -> tuple[list[Row], list[str]]:
        taken = Counter(s.reference for s in submitted if not s.replayed)
        rows = {kind.name: Row(kind.name) for kind in KINDS}
        unexpected: list[str] = []
        for intent in self._intents.values():
            kind, row = intent.kind, rows[intent.kind.name]
            emails, texts = taken[f"{intent.intent_id}.email"], taken[f"{intent.intent_id}.sms"]
            row.intents += 1
            row.emails += emails
            row.texts += texts
            row.decisions += 0 if intent.last is None else intent.last.seq
            wrong = _differs(intent, emails, texts)
            row.as_expected += not wrong
            if wrong:
                unexpected.append(f"{intent.intent_id} ({kind.name}): {wrong}")
        return list(rows.values()), unexpected


def look(world: World, intents: Mapping[str, Intent]) -> None:
    """Bring the intents up to what the decisions say."""
    for intent in intents.values():
        intent.last, intent.reasons = None, set()
    for message in read_all(world.bootstrap, world.names[TopicKind.DECISIONS]):
        decision = decode(TopicKind.DECISIONS, message.key, message.value)
        if not isinstance(decision, Decision) or decision.intent_id not in intents:
            continue
        seen = intents[decision.intent_id]
        seen.reasons |= {decision.reason.value, *(n.value for n in decision.notes)}
        if decision.evidence is not None and decision.evidence.reason is not None:
            seen.reasons.add(decision.evidence.reason.value)
        if seen.last is None or decision.seq > seen.last.seq:
            seen.last = decision


def books_of(world: World) -> tuple[Proof, Proof]:
    """Accounting and audit, from one reading of all topics."""
    found = books.on_topics(world.bootstrap, world.names)
    inputs = {world.names[k]: found[world.names[k]] for k in WORKER_INPUTS}
    return (
        all_accounted(books.progress(world.bootstrap, world.names), inputs),
        all_audited(found, audit_counts(world.database, world.names.prefix)),
    )


def submitted_to(world: World) -> list[Submitted]:
    """The provider's ledger: what it took."""
    with urlopen(f"{world.simulator_url}/ledger", timeout=10) as answer:  # noqa: S310  loopback
        entries: list[dict[str, Any]] = orjson.loads(answer.read())["entries"]
    return [Submitted(e["reference"], e["at_ms"], e["replayed"]) for e in entries if e["took"] is not None]


def proofs_of(world: World, intents: Iterable[str], submitted: list[Submitted]) -> list[Proof]:
    """The four, over everything these intents led to."""
    fences = {
        g.reference: Fence(g.reference, g.expiry_ms, g.claimed_ms, g.closed_ms, g.suppressed_ms)
        for g in books.guard_rows(world.database, intents)
    }
    return [no_duplicates(submitted), nothing_too_late(submitted, fences), *books_of(world)]


def _differs(intent: Intent, emails: int, texts: int) -> str:
    """What is not as the table of outcomes says; empty when all is."""
    kind, last = intent.kind, intent.last
    if last is None or last.closed is None:
        return "not closed"
    found = {
        "ended": (last.closed.value, kind.ended.value),
        "e-mails": (emails, kind.emails),
        "texts": (texts, kind.texts),
    }
    wrong = [
        f"{name} {is_}, {expected} expected" for name, (is_, expected) in found.items() if is_ != expected
    ]
    if kind.because.value not in intent.reasons:
        wrong.append(f"no decision because of {kind.because.value}")
    if last.outcome is not None and last.outcome.fallback != kind.fallback:
        wrong.append(f"fallback {last.outcome.fallback}")
    return "; ".join(wrong)
