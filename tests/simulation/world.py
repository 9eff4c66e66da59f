"""The world: everything that is real, wired to everything that is not, and a script of what goes wrong.

Two halves. In the first anything may fail and nothing wrong may happen. Then faults stop, and within
`SETTLE_MS` every live intent must be settled, every record audited and every lag zero. It must not judge:
`tests.simulation.checkers` does.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from decimal import Decimal
from typing import Any

from compose.scenario.log import Agenda
from compose.simulator.behaviour import Model
from compose.simulator.parts import Outage
from schemas.accounts import Account, Capabilities
from schemas.budget import UNLIMITED, Budgets
from schemas.control import ControlAction, Controls
from schemas.fingerprints import FingerprintKeys
from schemas.ids import Channel
from schemas.policy import Policy
from schemas.price import Prices
from schemas.price import released as released_prices
from schemas.record import TopicKind
from schemas.sealed import SealingKey, UnsealingKeys, generate_key
from schemas.templates.registry import shipped
from schemas.topics import TOPICS, WORKER_INPUTS, WORKER_TABLES, TopicNames
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.ports import Limits
from sinks.dispatcher.prepare import Preparer
from sinks.kafka.consumer import Message, Place
from streams.worker.app import template_problems
from streams.worker.processor import IntentProcessor
from tests.simulation.auditor import SimAuditor
from tests.simulation.dispatcher import DONE_TOPICS, SimDispatcher
from tests.simulation.faults import Dice, Options
from tests.simulation.fibers import Fibers
from tests.simulation.groups import Group
from tests.simulation.guard import AuditDatabase, AuditTables, Database, Granted, SimClaims
from tests.simulation.kafka import Log
from tests.simulation.network import Wire, provider
from tests.simulation.poller import SimPoller
from tests.simulation.process import Process
from tests.simulation.services import TWINS, Asked, Services, slow_plot, twin_of
from tests.simulation.worker import SimWorker

ZERO_MS = 1_790_000_000_000
PARTITIONS = 2
LIMITS = Limits(lease_ms=12_000, call_timeout_ms=4_000, clock_skew_ms_max=2_000)
LATE_EVIDENCE_MS = 60_000
# After the faults: the longest expiry, the time late evidence is waited for, and two minutes of catching up.
SETTLE_MS = 200_000 + 90_000 + LATE_EVIDENCE_MS + 120_000
# What is written in the last moment is read too, such as the tick that gives up a fact parked for long.
READING_MS, READING_MS_MAX = 5_000, 60_000
COMPACT_MS, JOLT_MS = 20_000, 15_000
_KEY = b"simulation key, protects nobody."

FULL = {
    "idempotent_submit": True, "idempotency_window_ms": 60_000, "lookup_by_message_id": True,
    "lookup_by_reference": True, "visibility_delay_ms": 1_500, "lookup_batch_max": 5,
    "lookups_per_s": 20.0, "submits_per_s": 20.0,
}  # fmt: skip
BARE = FULL | {"idempotent_submit": False, "lookup_by_reference": False, "lookup_batch_max": 1}
SEARCH = FULL | {"idempotent_submit": False}
ACCOUNTS = {
    "sim-email": (Channel.EMAIL, FULL),
    "bare-email": (Channel.EMAIL, BARE),
    "search-email": (Channel.EMAIL, SEARCH),
    "sim-sms": (Channel.SMS, FULL),
    "bare-sms": (Channel.SMS, BARE),
}


def _policies() -> dict[str, Policy]:
    found = {}
    poll = {"initial_ms": 1_500, "interval_ms_max": 15_000, "answers_max": 12, "answer_within_ms": 9_000}
    for name, email, sms, changes in (
        ("plain", "sim-email", "sim-sms", {}),
        ("bare", "bare-email", "bare-sms", {}),
        ("risky", "bare-email", "bare-sms", {"when_unsure": "risk_duplicate"}),
        ("search", "search-email", "sim-sms", {"bounce_after_delivered": "fallback"}),
        ("extend", "sim-email", "bare-sms", {"undispatched_email": "extend", "extend_ms_max": 20_000}),
    ):
        fields: dict[str, Any] = {
            "policy": f"password_reset__{name}:v1", "purpose": "password_reset",
            "urgency": "bulk" if name == "bare" else "urgent", "template": "password_reset:v1",
            "fresh_ms": 5_000, "look_wait_ms": 6_000, "claim_hold_ms_max": 5_000,
            "late_evidence_ms": LATE_EVIDENCE_MS,
            "bounds": {"deadline_ms_min": 1_000, "deadline_ms_max": 90_000, "expiry_ms_max": 600_000,
                       "min_useful_window_ms": 20_000},
            "email": {"account": email, "poll": poll},
            "sms": {"account": sms, "poll": poll, "allowed": True, "countries": ["GB", "US"]},
        } | changes  # fmt: skip
        found[fields["policy"]] = Policy.model_validate(fields, strict=False)
        for twin, more in TWINS.items():
            fields["policy"] = twin_of(f"password_reset__{name}:v1", twin)
            sms_rules = fields["sms"] | more
            found[fields["policy"]] = Policy.model_validate(fields | {"sms": sms_rules}, strict=False)
    return found


def _tight(dice: Dice) -> Budgets:
    """Money for a few SMS of all, and a few messages a tenant; per day, because no world lasts longer."""
    draw = dice.of("budget")
    limits: dict[str, Any] = {
        "currency": "EUR",
        "spend": [{"name": "all_day", "per": [], "window": "day", "action": "hold",
                   "amount_max": str(Decimal("0.05") * draw.randint(2, 6))}],
        "velocity": [{"name": "tenant_day", "per": ["tenant"], "window": "day",
                      "action": draw.choice(["hold", "refuse"]), "count_max": draw.randint(1, 3)}],
    }  # fmt: skip
    return Budgets.model_validate(limits, strict=False)


class World:
    """One world of one seed. `run` once, then look at it."""

    def __init__(self, options: Options, *, trace: bool = False) -> None:
        self.options, self._trace = options, trace
        self.notes: list[tuple[int, str]] = []
        self.agenda, self.dice = Agenda(ZERO_MS), Dice(options)
        self.fibers = Fibers(self.agenda)
        self._appended_ms = ZERO_MS
        self.names, self.partitions, self.key, self.limits = TopicNames("sim."), PARTITIONS, _KEY, LIMITS
        self.policies = _policies()
        self.prints = FingerprintKeys("k1", {"k1": _KEY})
        public, private = generate_key("s1")
        self.sealing = SealingKey(public)
        self.preparer = Preparer(
            unsealing=UnsealingKeys([private]),
            fingerprints=self.prints,
            digest_key=_KEY,
            templates=shipped(),
        )
        self.accounts = {
            name: Account(name=name, provider="simulated", channel=channel,
                          capabilities=Capabilities.model_validate(caps, strict=False))
            for name, (channel, caps) in ACCOUNTS.items()
        }  # fmt: skip
        self.model = Model(
            self.accounts,
            seed=options.seed,
            plots=slow_plot,
            enforce_rates=self.dice.falls("provider.rates"),
        )
        self.providers = {
            name: provider(account, Wire(self.model, self.agenda, self.fibers, self.dice, name))
            for name, account in self.accounts.items()
        }
        self._build_log()
        self.database = Database(self.dice, self.fibers)
        self.prices = Prices(released_prices())
        self.budgets = _tight(self.dice) if self.dice.falls("budget.tight") else UNLIMITED
        self.claims = MemoryClaims(lambda: self.agenda.now_ms, self.budgets)
        self.granted: list[Granted] = []
        self.handling: dict[str, int] = {}  # claim id -> since when everything in the logs counted for it
        self.processed: list[tuple[Message, Controls]] = []  # committed inputs, in the worker's order
        self.audit = AuditTables()
        self.audit_database = AuditDatabase(self.audit, self.database, self.dice)
        self.points: Counter[str] = Counter()
        self.paused: dict[str, bool] = {}
        self.services = Services(self)
        self._claim_count = 0
        self._build_processes()

    @property
    def asked(self) -> dict[str, Asked]:
        return self.services.asked

    def _build_log(self) -> None:
        counts = {
            self.names[kind]: PARTITIONS if topic.copartitioned else topic.partitions or 1
            for kind, topic in TOPICS.items()
        }
        counts |= {self.names.changelog(table): PARTITIONS for table in WORKER_TABLES}
        self.log = Log(lambda: self.agenda.now_ms, counts)
        self.log.appended.append(self._appended)
        self.counts = counts

    def _build_processes(self) -> None:
        def group(name: str, kinds: tuple[TopicKind, ...]) -> Group:
            return Group(
                self.agenda, f"sim.{name}", {self.names[k]: self.counts[self.names[k]] for k in kinds}
            )

        self.workers = group("worker", WORKER_INPUTS)
        self.dispatchers = group("dispatcher", (TopicKind.DISPATCHES_URGENT, TopicKind.DISPATCHES_BULK))
        self.facts_readers = group("dispatcher-facts", DONE_TOPICS)
        self.pollers = group("poller", (TopicKind.LOOKUPS,))
        self.auditors = group("auditor", tuple(TOPICS))
        self.processes: list[Process] = [
            SimWorker(self, "worker-1"), SimWorker(self, "worker-2"), SimWorker(self, "worker-3"),
            SimDispatcher(self, "dispatcher-1"), SimDispatcher(self, "dispatcher-2"),
            SimPoller(self, "poller-1"), SimPoller(self, "poller-2"),
            SimAuditor(self, "auditor-1"),
        ]  # fmt: skip
        self._spare = {"worker-2", "worker-3", "dispatcher-2", "poller-2"}

    # for the parts

    def note(self, text: str) -> None:
        if self._trace:
            self.notes.append((self.agenda.now_ms, text))

    def make_processor(self) -> IntentProcessor:
        return IntentProcessor(
            self.names,
            partitions=self.counts,
            policies=self.policies,
            accounts=self.accounts,
            template_problem=template_problems(shipped()),
            letter_key=self.key,
        )

    def make_claims(self) -> SimClaims:
        return SimClaims(self.claims, self.database, self.granted)

    def new_claim_id(self) -> str:
        self._claim_count += 1
        found = f"claim-{self._claim_count:06}"
        if self.fibers.current is not None:
            self.handling[found] = self.fibers.current.taken_up_ms
        return found

    def readable(self, process: Process) -> None:
        process.wake()  # type: ignore[attr-defined]

    def _appended(self, place: Place) -> None:
        self._appended_ms = self.agenda.now_ms
        if place[0] == self.names[TopicKind.CONTROLS]:
            for process in self.processes:
                process.controls_changed()  # type: ignore[attr-defined]
        for process in self.processes:
            if process.is_up:
                process.wake()  # type: ignore[attr-defined]

    # the script

    def run(self) -> None:
        """Both halves."""
        try:
            end_ms = ZERO_MS + self.options.minutes * 60_000
            self._begin(end_ms)
            self.agenda.run(end_ms)
            self._calm()
            self._settle(end_ms + SETTLE_MS)
        finally:
            self.fibers.close()

    def _settle(self, until_ms: int) -> None:
        last_ms = until_ms + READING_MS_MAX
        self.agenda.run(until_ms)
        while until_ms < last_ms and until_ms - self._appended_ms < READING_MS:
            until_ms += READING_MS
            self.agenda.run(until_ms)

    def _begin(self, end_ms: int) -> None:
        dice = self.dice
        wanted = {p.name for p in self.processes} - (self._spare if dice.of("few").random() < 0.3 else set())
        for process in self.processes:
            process.is_wanted = process.name in wanted
            process.start()
        self.services.plan()
        self._plan_outages(end_ms)
        if dice.falls("log.compact"):
            self._every(COMPACT_MS, end_ms, self._compact)
        if dice.has("group.moves") or dice.has("clock.jump"):
            self._every(JOLT_MS, end_ms, self._jolt)

    def _plan_outages(self, end_ms: int) -> None:
        dice, span = self.dice, end_ms - ZERO_MS - 60_000

        def outage(fault: str, longest_ms: int, begin: Any, end: Any, times: int = 2) -> None:
            for turn in range(times):
                if dice.falls(fault):
                    since = ZERO_MS + dice.ms(f"{fault}/{turn}", 0, span)
                    until = since + dice.ms(f"{fault}/{turn}", 300, longest_ms)
                    self.agenda.at(since, begin)
                    self.agenda.at(min(until, end_ms), end)

        outage("log.away", 60_000, lambda: self._log_is(False), lambda: self._log_is(True))
        outage("guard.away", 60_000, lambda: self._database_is(False), lambda: self._database_is(True))
        outage("site.outage", 60_000, self._all_die, lambda: None, times=1)
        for name in self.accounts:
            outage("provider.credentials", 60_000, lambda n=name: self.model.broken_credentials.add(n),
                   lambda n=name: self.model.broken_credentials.discard(n), times=1)  # fmt: skip
            if dice.falls("provider.outage"):
                since = ZERO_MS + dice.ms("provider.outage.ms", 0, span)
                self.model.outages[name] = Outage(
                    since, since + dice.ms("provider.outage.ms", 1_000, 60_000), 5
                )

    def _log_is(self, up: bool) -> None:
        self.note(f"the broker is {'back' if up else 'away'}")
        self.log.is_up = up
        if up:
            for process in self.processes:
                if process.is_up:
                    process.wake()  # type: ignore[attr-defined]

    def _database_is(self, up: bool) -> None:
        self.note(f"the database is {'back' if up else 'away'}")
        self.database.is_up = up

    def _all_die(self) -> None:
        for process in self.processes:
            process.crash("the site is dark")

    def _compact(self) -> None:
        for table in WORKER_TABLES:
            self.log.compact(self.names.changelog(table))

    def _jolt(self) -> None:
        """Somebody joins, somebody leaves, somebody's clock is set."""
        dice = self.dice
        process = dice.of("jolt").choice(self.processes)
        if process.name in self._spare and dice.falls("group.moves"):
            if process.is_wanted:
                process.stop()
            else:
                process.is_wanted = True
                process.start()
        if dice.falls("clock.jump"):
            dice.of("jumps").choice(self.processes).jump()

    def _every(self, ms: int, end_ms: int, act: Any) -> None:
        for at_ms in range(ZERO_MS + ms, end_ms, ms):
            self.agenda.at(at_ms, act)

    def _calm(self) -> None:
        """Faults stop: everything is up, clocks are right, controls are open."""
        self.note("faults stop")
        self.dice.is_calm = True
        self._log_is(True)
        self._database_is(True)
        self.model.broken_credentials.clear()
        for name, is_paused in list(self.paused.items()):
            if is_paused:
                self.services.control(name, ControlAction.RESUME)
        for process in self.processes:
            process.clock.off_ms = 0
            if not process.is_wanted:
                process.is_wanted = True
            process.start()

    # what came of it

    def trace_digest(self) -> str:
        """Of all decisions and the provider's ledger: the same seed gives the same one."""
        found = hashlib.sha256()
        for message in self.log.all_of(self.names[TopicKind.DECISIONS]):
            found.update(message.value or b"")
        for line in self.model.lines():
            found.update(f"{line['at_ms']} {line['route']} {line['reference']} {line['answered']}".encode())
        return found.hexdigest()

    def summary(self) -> dict[str, Any]:
        return {
            "seed": self.options.seed,
            "intents": len(self.asked),
            "decisions": len(self.log.all_of(self.names[TopicKind.DECISIONS])),
            "faults": json.loads(json.dumps(self.dice.happened)),
        }
