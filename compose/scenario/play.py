"""Plays a scenario: the real publisher, worker, dispatcher and poller handlers on one virtual clock.

Everything runs in one thread; only arrival, time and the provider's wire are replaced, so the same file
always gives the same story. It must not know what is expected (`compose.scenario.verdict`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import cast

from compose.scenario.format import ControlScript, Other, Process, ProviderScript, Scenario
from compose.scenario.log import Agenda, MemoryLog, MemoryWorker
from compose.scenario.processes import CallClock, GuardedClaims, MemoryDispatcher, MemoryPoller, Outages
from compose.scenario.provider import LedgerLine, ScriptedSide
from schemas.accounts import Account, Capabilities
from schemas.control import Control, ControlAction
from schemas.control_board import ControlBoard
from schemas.decision import Decision
from schemas.errors import RecordRefused
from schemas.fingerprints import FingerprintKeys
from schemas.ids import Channel
from schemas.policy import Policy
from schemas.price import Prices
from schemas.price import released as released_prices
from schemas.record import TopicKind
from schemas.sealed import SealingKey, UnsealingKeys, generate_key
from schemas.templates.registry import shipped
from schemas.topics import TopicNames
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.ports import Limits, Ports
from sinks.dispatcher.prepare import Preparer
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.poller.handle import Poller
from sinks.publisher import IntentPublisher, NewIntent
from streams.worker.app import template_problems
from streams.worker.processor import IntentProcessor

ZERO_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z: the instant of the request in every story
LEAD_MS = 60_000  # the processes have been up for a minute: no budget is still empty
INTENT_ID = "scenario-0001"
OLDER_MS = 60_000  # how long before this one an older intent was asked for
# As the settings of a deployment have them by default.
LEASE_MS, CALL_TIMEOUT_MS, CLOCK_SKEW_MS_MAX = 30_000, 10_000, 2_000
POLLER_CONCURRENCY = 8

# What the simulated provider promises; a script changes it with `capabilities`.
CAPABILITIES = {
    "idempotent_submit": True,
    "idempotency_window_ms": 82_800_000,
    "lookup_by_message_id": True,
    "lookup_by_reference": True,
    "visibility_delay_ms": 2_000,
}
# In memory and for one story only: they protect nobody.
_KEY = b"scenario key, protects nobody..."
_SAMPLES = {"name": "Ada", "project": "demo", "branch": "main"}
_LINK = "https://app.example/r?t=scenario"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened around the machine."""

    at_ms: int
    text: str


@dataclass(slots=True)
class Played:
    """What came of a story. Instants are milliseconds since the epoch; the request is at `ZERO_MS`."""

    scenario: Scenario
    decisions: list[Decision] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ledger: list[LedgerLine] = field(default_factory=list)
    others: list[LedgerLine] = field(default_factory=list)  # of other intents of its subject
    dead_letters: int = 0
    refused: str | None = None
    refused_why: str = ""


class LogPublisher:
    """The part of `sinks.kafka.producer.Publisher` that is used, into the log in memory."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def publish(self, records: list[OutgoingRecord]) -> None:
        for record in records:
            self._log.append(record.topic, record.key, record.value, tuple(record.headers or ()))


def play(scenario: Scenario) -> Played:
    """From a minute before the request until `scenario.until` after it."""
    return _Stage(scenario).run()


class _Stage:
    """The parts, built and wired for one story."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._policy = scenario, scenario.played_policy
        self._names = TopicNames()
        self._agenda = Agenda(ZERO_MS - LEAD_MS)
        self._log = MemoryLog(self._agenda)
        self._played = Played(scenario)
        self._outages = Outages(scenario.faults, ZERO_MS)
        self._board = ControlBoard()
        self._prints = FingerprintKeys("k1", {"k1": _KEY})
        public, private = generate_key("s1")
        self._sides = _sides(self._policy, scenario)
        self._accounts = {name: side.account for name, side in self._sides.items()}
        self._publisher = IntentPublisher(
            self._names,
            publisher=cast("Publisher", LogPublisher(self._log)),
            sealing=SealingKey(public),
            fingerprints=self._prints,
            policies={self._policy.policy: self._policy},
        )
        self._worker = self._make_worker()
        self._dispatcher = self._make_dispatcher(UnsealingKeys([private]))
        self._poller = self._make_poller()

    def run(self) -> Played:
        self._plan()
        self._agenda.run(ZERO_MS + self._scenario.until)
        log, played = self._log.records, self._played
        made = [Decision.model_validate_json(r.value or b"") for r in log[self._names[TopicKind.DECISIONS]]]
        played.decisions = [d for d in made if d.intent_id == INTENT_ID]
        played.dead_letters = len(log[self._names[TopicKind.DEAD_LETTERS]])
        lines = [line for side in self._sides.values() for line in side.ledger]
        played.ledger = sorted(lines, key=lambda line: line.at_ms)
        played.others = [line for side in self._sides.values() for line in side.others]
        return played

    # the processes

    def _make_worker(self) -> MemoryWorker:
        return MemoryWorker(
            self._log,
            IntentProcessor(
                self._names,
                partitions={self._names[kind]: 1 for kind in TopicKind},
                policies={self._policy.policy: self._policy},
                accounts=self._accounts,
                template_problem=template_problems(shipped()),
                letter_key=_KEY,
            ),
        )

    def _make_dispatcher(self, unsealing: UnsealingKeys) -> MemoryDispatcher:
        clock = CallClock(self._agenda)
        claims = GuardedClaims(clock.now_ms, self._outages)
        made = MemoryDispatcher(self._log, self._names, claims=claims, clock=clock, outages=self._outages)
        numbers = itertools.count(1)
        ports = Ports(
            claims=claims,
            providers={name: side.adapter(clock) for name, side in self._sides.items()},
            preparer=Preparer(
                unsealing=unsealing, fingerprints=self._prints, digest_key=_KEY, templates=shipped()
            ),
            prices=Prices(released_prices()),
            clock=clock,
            new_id=lambda: f"claim-{next(numbers):04}",
            controls=lambda: self._board.controls,
            completions_read=made.completions_read,
            clock_trusted=lambda: True,
            fault=made.fault,
        )
        made.dispatcher = Dispatcher(ports, Limits(LEASE_MS, CALL_TIMEOUT_MS, CLOCK_SKEW_MS_MAX))
        return made

    def _make_poller(self) -> MemoryPoller:
        clock = CallClock(self._agenda)
        providers = {name: side.adapter(clock) for name, side in self._sides.items()}

        def make() -> Poller:
            return Poller(providers, clock, call_timeout_ms=CALL_TIMEOUT_MS, concurrency=POLLER_CONCURRENCY)

        return MemoryPoller(self._log, self._names, make=make, clock=clock, outages=self._outages)

    # the script

    def _plan(self) -> None:
        story, intent = self._scenario, self._scenario.intent
        for fault in story.faults:  # before everything else that happens at the same instant
            name = fault.process.value
            self._at(fault.since, f"{name} goes down", lambda f=fault: self._down(f.process))  # type: ignore[misc]
            self._at(fault.until, f"{name} is up again", lambda f=fault: self._up(f.process))  # type: ignore[misc]
        for control in story.controls:
            text = f"pause {control.pause}" if control.pause else f"resume {control.resume}"
            self._at(control.at, f"control: {text}", lambda c=control: self._control(c))  # type: ignore[misc]
        self._at(intent.requested, "request published", self._request)
        for again in intent.again_at:
            self._at(again, "the same request published again", self._request)
        for number, other in enumerate(story.others, 2):
            text = f"an{' older' if other.older else 'other'} intent of the same subject published"
            self._at(other.at, text, lambda o=other, n=number: self._other(o, n))  # type: ignore[misc]
        for moment in story.completions:
            self._at(moment.at, "completion published", self._complete)
        for moment in story.cancellations:
            self._at(moment.at, "cancellation published", self._cancel)

    def _at(self, after_ms: int, text: str, act: Callable[[], None]) -> None:
        def happen() -> None:
            self._played.notes.append(Note(self._agenda.now_ms, text))
            act()

        self._agenda.at(ZERO_MS + after_ms, happen)

    def _request(self) -> None:
        try:
            self._publisher.publish(_new_intent(self._scenario, self._policy))
        except RecordRefused as exc:
            self._played.refused, self._played.refused_why = exc.code, str(exc)

    def _other(self, other: Other, number: int) -> None:
        asked_ms = ZERO_MS - OLDER_MS if other.older else ZERO_MS + other.at
        new = _new_intent(self._scenario, self._policy, asked_ms=asked_ms)
        self._publisher.publish(replace(new, intent_id=f"scenario-{number:04}"))

    def _complete(self) -> None:
        self._publisher.complete(INTENT_ID, at=_instant(self._agenda.now_ms), source="scenario")

    def _cancel(self) -> None:
        self._publisher.cancel(INTENT_ID, at=_instant(self._agenda.now_ms), source="scenario")

    def _control(self, script: ControlScript) -> None:
        record = Control(
            name=script.name,
            action=ControlAction.PAUSE if script.pause else ControlAction.RESUME,
            operator="scenario",
            why="as the scenario says",
            at_ms=self._agenda.now_ms,
        )
        stored = self._log.append(self._names[TopicKind.CONTROLS], record.name.encode(), record.to_bytes())
        self._board.take(stored.key, stored.value, stored.offset)
        self._worker.use_controls(self._board.controls)

    def _down(self, process: Process) -> None:
        if process is Process.WORKER:
            self._worker.down()

    def _up(self, process: Process) -> None:
        match process:
            case Process.WORKER:
                self._worker.up()
            case Process.DISPATCHER:
                self._dispatcher.up()
            case Process.POLLER:
                self._poller.up()
            case Process.DATABASE:
                self._dispatcher.work()


def _sides(policy: Policy, scenario: Scenario) -> dict[str, ScriptedSide]:
    def side(name: str, channel: Channel, script: ProviderScript) -> ScriptedSide:
        capabilities = Capabilities.model_validate(CAPABILITIES | script.capabilities, strict=False)
        account = Account(name=name, provider="simulated", channel=channel, capabilities=capabilities)
        return ScriptedSide(account, script, about=INTENT_ID)

    return {
        policy.email.account: side(policy.email.account, Channel.EMAIL, scenario.email),
        policy.sms.account: side(policy.sms.account, Channel.SMS, scenario.sms),
    }


def variables_of(scenario: Scenario) -> dict[str, str]:
    """Those of the file, or a sample for each variable of the template."""
    if scenario.intent.variables is not None:
        return scenario.intent.variables
    known = shipped()[scenario.played_policy.template].variables
    return {name: _SAMPLES.get(name, _LINK) for name in known}


def _new_intent(scenario: Scenario, policy: Policy, *, asked_ms: int = ZERO_MS) -> NewIntent:
    intent = scenario.intent
    return NewIntent(
        intent_id=INTENT_ID,
        tenant=intent.tenant,
        policy=policy.policy,
        locale=intent.locale,
        email=intent.email,
        phone=intent.phone or None,
        variables=variables_of(scenario),
        challenge_ref="scenario-challenge",
        requested_at=_instant(asked_ms),
        deadline=_instant(asked_ms + intent.deadline),
        expiry=_instant(asked_ms + intent.expiry),
        sms_consent_at=_instant(ZERO_MS) if intent.consent else None,
        subject="scenario" if scenario.others else None,
    )


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
