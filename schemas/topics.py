"""The typed registry of topics: name, key, records, partitions, times, retention, who writes, who reads.

Everything that touches a topic takes it from here; it must not talk to a cluster (`sinks.kafka.admin`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.attempt import Attempt
from schemas.control import Control
from schemas.dead_letter import DeadLetter
from schemas.decision import Decision
from schemas.dispatch import Dispatch
from schemas.instruction import Instruction
from schemas.intent import IntentCancelled, IntentCompleted, IntentRequested, IntentSuperseded
from schemas.lookup import Lookup
from schemas.observation import Observation
from schemas.record import Record, TopicKind
from schemas.subject import SubjectSeen
from schemas.suppression import Suppression
from schemas.tick import Tick

PREFIX = "backstop."
PARTITIONS = 12
PARTITIONS_LOCAL = 4
DAY_MS = 86_400_000
FOREVER_MS = -1
LONGEST_EXPIRY_MS = DAY_MS  # of any policy
INTENT_RETENTION_MS = LONGEST_EXPIRY_MS + 4 * DAY_MS
WORKER_TABLES = ("intents", "sealed", "progress", "subjects")


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `copartitioned` topics share the partition count and murmur2."""

    kind: TopicKind
    key: str
    records: tuple[type[Record], ...]
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    retention_ms: int
    copartitioned: bool = False
    log_append_time: bool = False
    compacted: bool = False
    partitions: int | None = None  # None: the fixed count of the deployment

    def name(self, prefix: str = PREFIX) -> str:
        return prefix + self.kind.value

    def config(self, *, min_insync: int) -> dict[str, str]:
        """Topic settings as the broker names them; `topics verify` compares exactly these."""
        settings = {
            "cleanup.policy": "compact" if self.compacted else "delete",
            "message.timestamp.type": "LogAppendTime" if self.log_append_time else "CreateTime",
            "min.insync.replicas": str(min_insync),
            "unclean.leader.election.enable": "false",
            "max.message.bytes": "1048588",
        }
        if not self.compacted:
            settings["retention.ms"] = str(self.retention_ms)
        return settings


_K = TopicKind
_ALL = ("auditor",)
TOPICS: dict[TopicKind, Topic] = {
    t.kind: t
    for t in (
        Topic(
            _K.INTENTS,
            "intent_id",
            (IntentRequested, IntentCompleted, IntentCancelled, IntentSuperseded),
            ("publisher", "worker"),
            ("worker", "dispatcher", *_ALL),
            INTENT_RETENTION_MS,
            copartitioned=True,
            log_append_time=True,
        ),
        Topic(
            _K.ATTEMPTS,
            "intent_id",
            (Attempt,),
            ("dispatcher", "worker"),
            ("worker", *_ALL),
            14 * DAY_MS,
            copartitioned=True,
            log_append_time=True,
        ),
        Topic(
            _K.OBSERVATIONS,
            "intent_id",
            (Observation,),
            ("poller", "worker"),
            ("worker", *_ALL),
            14 * DAY_MS,
            copartitioned=True,
            log_append_time=True,
        ),
        Topic(
            _K.TICKS,
            "intent_id",
            (Tick,),
            ("worker",),
            ("worker", *_ALL),
            14 * DAY_MS,
            copartitioned=True,
            log_append_time=True,
        ),
        Topic(
            _K.INSTRUCTIONS,
            "intent_id",
            (Instruction,),
            ("operator", "worker"),
            ("worker", "dispatcher", *_ALL),
            14 * DAY_MS,
            copartitioned=True,
            log_append_time=True,
        ),
        Topic(
            _K.DECISIONS,
            "intent_id",
            (Decision,),
            ("worker",),
            ("analytics", *_ALL),
            30 * DAY_MS,
            copartitioned=True,
        ),
        Topic(
            _K.DISPATCHES_URGENT,
            "intent_id",
            (Dispatch,),
            ("worker",),
            ("dispatcher", *_ALL),
            INTENT_RETENTION_MS,
            copartitioned=True,
        ),
        Topic(
            _K.DISPATCHES_BULK,
            "intent_id",
            (Dispatch,),
            ("worker",),
            ("dispatcher", *_ALL),
            INTENT_RETENTION_MS,
            copartitioned=True,
        ),
        Topic(_K.LOOKUPS, "provider_account", (Lookup,), ("worker",), ("poller", *_ALL), DAY_MS),
        Topic(
            _K.SUPPRESSIONS,
            "fingerprint/channel",
            (Suppression,),
            ("worker", "dispatcher", "poller", "operator"),
            ("dispatcher", *_ALL),
            FOREVER_MS,
            compacted=True,
        ),
        Topic(
            _K.SUBJECTS,
            "subject",
            (SubjectSeen,),
            ("worker",),
            ("worker", *_ALL),
            LONGEST_EXPIRY_MS,
            copartitioned=True,
            log_append_time=True,
        ),
        Topic(
            _K.CONTROLS,
            "name",
            (Control,),
            ("operator",),
            ("worker", "dispatcher", "poller", *_ALL),
            FOREVER_MS,
            partitions=1,
        ),
        Topic(
            _K.DEAD_LETTERS,
            "original key",
            (DeadLetter,),
            ("worker", "dispatcher", "poller"),
            ("operator", *_ALL),
            30 * DAY_MS,
        ),
    )
}

WORKER_INPUTS = (_K.INTENTS, _K.ATTEMPTS, _K.OBSERVATIONS, _K.TICKS, _K.INSTRUCTIONS, _K.SUBJECTS)


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Full names under one prefix; tests use others, and nothing is dispatched from `replay.`."""

    prefix: str = PREFIX
    _names: dict[TopicKind, str] = field(init=False, repr=False)
    _kinds: dict[str, TopicKind] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = {kind: topic.name(self.prefix) for kind, topic in TOPICS.items()}
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_kinds", {name: kind for kind, name in names.items()})

    def __getitem__(self, kind: TopicKind) -> str:
        return self._names[kind]

    def kind_of(self, name: str) -> TopicKind:
        """`KeyError` when the name is not one of ours."""
        return self._kinds[name]

    def of(self, kinds: Iterable[TopicKind]) -> tuple[str, ...]:
        return tuple(self._names[k] for k in kinds)

    @property
    def worker_app_id(self) -> str:
        """Consumer group of the worker and the prefix of its changelogs."""
        return f"{self.prefix}worker"

    def changelog(self, table: str) -> str:
        return f"{self.worker_app_id}-{table}-changelog"

    @property
    def changelogs(self) -> tuple[str, ...]:
        return tuple(self.changelog(t) for t in WORKER_TABLES)
