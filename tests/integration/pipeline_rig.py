"""The whole pipeline as processes: worker, dispatcher, poller and simulator, and a service that publishes.

Besides the demo's accounts and policies there is one account that a test may spoil for good (refused
look-ups pause polling for a minute) and policies whose intents are forgotten soon, or late. It must not
hold an expectation.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NotRequired, TypedDict
from urllib.error import URLError
from urllib.request import urlopen

import psycopg

from compose import keys
from compose import settings as configuration
from compose.clock import SystemClock, random_id
from compose.releases import put_policies
from compose.settings import Settings
from schemas.codec import decode
from schemas.control import Control, ControlAction
from schemas.decision import Decision, Phase
from schemas.intent import IntentRequested
from schemas.partitions import partition_for
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.topics import TOPICS, TopicNames
from sinks.kafka import admin
from sinks.kafka.consumer import read_all
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.publisher import IntentPublisher, NewIntent
from tests.integration.guard_rig import EMAIL, POLICY, VARIABLES, WAIT_S, Rig, eventually, rig

GROUPS = ("worker", "dispatcher", "dispatcher-facts", "poller")
SETTLE_S = 40.0
TICKS_MS = 1_500  # an SMS that is due is ordered within some ticks of 100 ms and sent at once
KEYED_POLICY = "password_reset__keyed:v1"
SPARE, SPARE_POLICY = "simulated-email-spare", "password_reset__spare:v1"
BRIEF_POLICY = "password_reset__brief:v1"
PATIENT_POLICY = "password_reset__patient:v1"
# How long after their expiry intents of these are remembered.
LATE_EVIDENCE_MS = {BRIEF_POLICY: 500, PATIENT_POLICY: 60_000}
USEFUL_WINDOW_MS = 1_000  # of both

Story = Sequence[Decision]


class Life(TypedDict):
    """The part of an intent that decides how it ends."""

    deadline_s: float
    expiry_s: float
    policy: str
    consents: NotRequired[bool]


@dataclass
class Pipeline:
    """What a service, an operator and a provider can do to the processes, and what came of it."""

    rig: Rig
    names: TopicNames
    service: IntentPublisher
    raw: Publisher
    settings: Settings
    given: dict[str, NewIntent] = field(default_factory=dict)
    asked: dict[str, IntentRequested] = field(default_factory=dict)

    def publish(
        self,
        deadline_s: float,
        *,
        expiry_s: float = 60.0,
        to: str = "delivered",
        policy: str = POLICY,
        consents: bool = True,
        beside: str = "",
        subject: str | None = None,
        asked_ago_s: float = 0.0,
        variables: Mapping[str, str] = VARIABLES,
        tenant: str = "tenant-0001",
        phone: str = "",
    ) -> str:
        """The id of a new intent; `beside`: in the partition of that one; `asked_ago_s`: how late it is."""
        intent_id = f"int-{random_id()[:12]}"
        while beside and self._partition(intent_id) != self._partition(beside):
            intent_id = f"int-{random_id()[:12]}"
        at = now() - timedelta(seconds=asked_ago_s)
        new = NewIntent(
            intent_id=intent_id,
            tenant=tenant,
            policy=policy,
            locale="en",
            email=f"{to}-{intent_id}@example.com" if "+" in to else f"{to}+{intent_id}@example.com",
            phone=phone or f"+4477009000{len(self.given):02d}",
            variables=dict(variables),
            challenge_ref=intent_id,
            requested_at=at,
            deadline=at + timedelta(seconds=deadline_s),
            expiry=at + timedelta(seconds=expiry_s),
            sms_consent_at=at if consents else None,
            subject=subject,
        )
        self.given[intent_id] = new
        self.asked[intent_id] = self.service.publish(new)
        return intent_id

    def publish_again(self, intent_id: str) -> None:
        """The same bytes once more."""
        topic = self.names[TopicKind.INTENTS]
        self.raw.publish([OutgoingRecord(topic, intent_id.encode(), self.asked[intent_id].to_bytes())])

    def seal_again(self, intent_id: str) -> None:
        """The same request from a service that kept only what it knows: other bytes in `sealed`."""
        self.service.publish(self.given[intent_id])

    def use_id_again(self, intent_id: str, *, deadline_s: float, expiry_s: float = 60.0) -> None:
        """Another request under an id that was used: new payload, new instants, which count from now on."""
        at = now()
        new = replace(
            self.given[intent_id],
            requested_at=at,
            deadline=at + timedelta(seconds=deadline_s),
            expiry=at + timedelta(seconds=expiry_s),
            sms_consent_at=at,
        )
        self.asked[intent_id] = self.service.publish(new)

    def complete(self, *intent_ids: str) -> None:
        for intent_id in intent_ids:
            self.service.complete(intent_id, at=now(), source="test")

    def control(self, account: str, action: ControlAction) -> None:
        name = f"provider:{account}"
        record = Control(
            name=name, action=action, operator="tester", why="a test", at_ms=SystemClock().now_ms()
        )
        self.raw.publish([OutgoingRecord(self.names[TopicKind.CONTROLS], name.encode(), record.to_bytes())])

    def backstop(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command with the processes' own settings, to its end; nobody is there to answer a question."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("BACKSTOP_")}
        return subprocess.run(
            [sys.executable, "-m", "compose.cli", *arguments],
            env={**inherited, **self.rig.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=check,
            stdin=subprocess.DEVNULL,
        )

    def metrics(self, process: str) -> dict[str, float]:
        """What a scraper would get of a process of the fleet: `name{label="value"}` as in the text."""
        with urlopen(f"{self._probes(process)}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {series: float(value) for series, _, value in pairs}

    def is_ready(self, process: str) -> bool:
        try:
            with urlopen(f"{self._probes(process)}/readyz", timeout=10) as answer:
                return bool(answer.status == 200)
        except URLError:  # 503, or it does not listen
            return False

    def _probes(self, process: str) -> str:
        """Where a process of the fleet answers, from its log."""
        log = (self.rig.folder / f"{process}.log").read_text()
        return str(re.findall(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", log)[-1])

    # what came of it

    def stories(self) -> Mapping[str, Story]:
        """The decisions so far, per intent, in order."""
        found: dict[str, list[Decision]] = defaultdict(list)
        for m in read_all(self.settings.kafka, self.names[TopicKind.DECISIONS]):
            decision = decode(TopicKind.DECISIONS, m.key, m.value)
            assert isinstance(decision, Decision)
            found[decision.intent_id].append(decision)
        return found

    def eventually(self, what: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
        """As `guard_rig.eventually`, and a process that ends meanwhile is started again, as in production: a
        worker that gets no time on a busy machine gives up."""

        def tended() -> bool:
            self.rig.fleet.tend()
            return what()

        tended.__qualname__ = what.__qualname__
        eventually(tended, within_s=within_s)

    def until_said(self, word: Reason | Phase, *intent_ids: str, within_s: float = WAIT_S) -> None:
        """Until each has a decision with this reason, or into this phase."""

        def it_is_said() -> bool:
            found = self.stories()
            return all(word in said(found[i]) for i in intent_ids)

        try:
            self.eventually(it_is_said, within_s=within_s)
        except AssertionError:
            stories = {i: sorted(said(self.stories()[i])) for i in intent_ids}
            raise AssertionError(f"not said within {within_s:.0f} s: {word} by {stories}") from None

    def until_past_deadline(self, *intent_ids: str) -> None:
        """Long enough for an SMS that was due then."""
        last_ms = max(self.asked[i].deadline_ms for i in intent_ids) + TICKS_MS
        eventually(lambda: SystemClock().now_ms() > last_ms, within_s=WAIT_S + 20.0)

    def until_forgotten(self, *intent_ids: str) -> None:
        """Until the worker's table has a tombstone for each."""

        def rows_are_tombstones() -> bool:
            last = {m.key: m.value for m in read_all(self.settings.kafka, self.names.changelog("intents"))}
            return all(i.encode() in last and not last[i.encode()] for i in intent_ids)

        eventually(rows_are_tombstones)

    def until_read(self, *intent_ids: str) -> None:
        """Until whatever the last records of these caused was ordered and had time to be sent: requests that
        came after them in their partitions have their e-mails delivered, a second after these were sent."""
        each = {self._partition(i): i for i in intent_ids}
        self.until_said(Phase.EMAIL_DELIVERED, *[self.publish(20.0, beside=i) for i in each.values()])

    def sent(self, intent_id: str) -> tuple[int, int]:
        """How often the provider was asked to send: e-mails, texts, whatever it answered."""
        return len(self.emails(intent_id)), len(self.texts(intent_id))

    def emails(self, intent_id: str) -> list[dict[str, Any]]:
        return self.rig.ledger(f"{intent_id}.email")

    def texts(self, intent_id: str) -> list[dict[str, Any]]:
        return self.rig.ledger(f"{intent_id}.sms")

    def kept(self) -> dict[str, bytes]:
        """Everything that topics, the table of states, the database and the logs hold, by place."""
        names = [*self.names.of(TOPICS), self.names.changelog("intents"), self.names.changelog("sealed")]
        places = {
            name: b"".join((m.key or b"") + (m.value or b"") for m in read_all(self.settings.kafka, name))
            for name in names
        }
        with psycopg.connect(self.rig.dsn) as connection:
            tables = connection.execute(b"SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            for (table,) in tables.fetchall():
                rows = connection.execute(f'SELECT t::text FROM "{table}" AS t'.encode()).fetchall()
                places[table] = "\n".join(row for (row,) in rows).encode()
        return places | {log.name: log.read_bytes() for log in self.rig.folder.glob("*.log")}

    def _partition(self, intent_id: str) -> int:
        return partition_for(intent_id.encode(), self.settings.partitions)


def said(story: Story) -> set[str]:
    """Reasons, those of the evidence too, and phases."""
    words: set[str | None] = set()
    for d in story:
        words |= {d.reason, *d.notes, d.next_phase, d.evidence.reason if d.evidence is not None else None}
    return {word for word in words if word is not None}


def now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


@contextmanager
def pipeline(
    bootstrap: str,
    dsn: str,
    folder: Path,
    changes: Mapping[str, str] | None = None,
    *,
    dispatchers: Sequence[str] = ("dispatcher",),
) -> Iterator[Pipeline]:
    """Every process of it, settled; ended afterwards. `dsn` is a database of its own."""
    with rig(bootstrap, dsn, folder, changes=changes, more=_more) as one:
        settings = Settings.model_validate(
            {k.removeprefix("BACKSTOP_").lower(): v for k, v in one.environment.items()}
        )
        names = TopicNames(settings.prefix)
        admin.create(settings.kafka, admin.Layout(names, settings.partitions, 1, 1))
        for name in ("worker", *dispatchers, "poller"):
            one.fleet.add(name, name.partition("-")[0])
        groups = [f"{settings.prefix}{g}" for g in GROUPS]
        asking = admin.Groups(settings.kafka)
        eventually(lambda: asking.settled(groups), within_s=SETTLE_S)
        held, raw = keys.publisher_keys(settings.keys), Publisher(settings.kafka, client_id="test")
        service = IntentPublisher(
            names,
            publisher=raw,
            sealing=held.sealing,
            fingerprints=held.fingerprints,
            policies=configuration.policies(settings),
        )
        yield Pipeline(one, names, service, raw, settings)


def _more(folder: Path) -> None:
    """Another account with its policy, and two policies of other memories, beside what the demo has."""
    accounts, policies = folder / "accounts.toml", folder / "policies"
    text = accounts.read_text()
    _, first, _ = text.split("[[accounts]]", 2)
    accounts.write_text(f"{text}\n[[accounts]]{first.replace(EMAIL, SPARE)}")
    demo = (policies / "password_reset__demo" / "v1.toml").read_text()
    spare = demo.replace(POLICY, SPARE_POLICY).replace(f'"{EMAIL}"', f'"{SPARE}"')
    texts = {SPARE_POLICY: spare}
    for policy, late_ms in LATE_EVIDENCE_MS.items():
        made = re.sub(r"(?m)^late_evidence_ms = .*$", f"late_evidence_ms = {late_ms}", demo)
        made = re.sub(r"(?m)^min_useful_window_ms = .*$", f"min_useful_window_ms = {USEFUL_WINDOW_MS}", made)
        texts[policy] = made.replace(POLICY, policy)
    put_policies(policies, texts)
