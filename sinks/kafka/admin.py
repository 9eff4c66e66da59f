"""Topics as the registry wants them: create, verify, who may touch what.

It must not change a topic that exists: a difference is named and the process refuses to run (case F48).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from schemas.topics import TOPICS, TopicNames
from sinks.kafka.consumer import CALL_S, KafkaAway

CREATE_S = 30.0
GROUP_S = 3.0  # the first member of a new deployment makes the offsets topic
_CHANGELOG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "3600000",
    # A worker that was away for a week must still see what was deleted meanwhile.
    "delete.retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """What a deployment fixes once: prefix, partition count, replication."""

    names: TopicNames
    partitions: int
    replication: int
    min_insync: int

    def wanted(self) -> dict[str, tuple[int, dict[str, str]]]:
        """Name → partitions and settings of every topic, changelogs included."""
        found = {
            self.names[kind]: (topic.partitions or self.partitions, topic.config(min_insync=self.min_insync))
            for kind, topic in TOPICS.items()
        }
        changelog = _CHANGELOG | {"min.insync.replicas": str(self.min_insync)}
        found |= dict.fromkeys(self.names.changelogs, (self.partitions, changelog))
        return found

    def counts(self) -> dict[str, int]:
        return {name: partitions for name, (partitions, _) in self.wanted().items()}


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


def create(bootstrap: str, layout: Layout) -> list[str]:
    """Create what is missing; the names created. Raises `KafkaAway`."""
    admin = _admin(bootstrap)
    try:
        there = set(admin.list_topics(timeout=CALL_S).topics)
        missing = [
            NewTopic(name, partitions, layout.replication, config=settings)
            for name, (partitions, settings) in layout.wanted().items()
            if name not in there
        ]
        if missing:
            for future in admin.create_topics(missing, operation_timeout=CREATE_S).values():
                future.result(CREATE_S)
    except KafkaException as exc:
        raise KafkaAway(f"Kafka: {exc.args[0].str()}", code="create") from None
    return sorted(t.topic for t in missing)


def verify(bootstrap: str, layout: Layout) -> list[str]:
    """Every difference between the cluster and the registry, one line each; empty when there is none."""
    admin = _admin(bootstrap)
    try:
        there = admin.list_topics(timeout=CALL_S)
        names = [n for n in layout.wanted() if n in there.topics]
        settings = _settings(admin, ResourceType.TOPIC, names)
        broker = str(next(iter(there.brokers)))
        cluster = _settings(admin, ResourceType.BROKER, [broker])[broker]
    except KafkaException as exc:
        raise KafkaAway(f"Kafka: {exc.args[0].str()}", code="verify") from None
    differences: list[str] = []
    for name, (partitions, wanted) in layout.wanted().items():
        if name not in there.topics:
            differences.append(f"{name}: does not exist")
            continue
        found = there.topics[name].partitions
        if len(found) != partitions:
            differences.append(f"{name}: {len(found)} partitions, {partitions} wanted (they never change)")
        if any(len(p.replicas) < layout.replication for p in found.values()):
            differences.append(f"{name}: fewer than {layout.replication} replicas")
        differences += [
            f"{name}: {key} is {settings[name].get(key)}, {value} wanted"
            for key, value in wanted.items()
            if settings[name].get(key) != value
        ]
    return differences + list(_cluster_differences(cluster))


def _cluster_differences(cluster: dict[str, str]) -> Iterator[str]:
    longest = max(t.retention_ms for t in TOPICS.values() if t.copartitioned) // 60_000
    kept = int(cluster.get("offsets.retention.minutes") or 0)
    if kept < longest:
        yield f"broker: offsets.retention.minutes is {kept}, {longest} wanted (longer than the inputs)"


def _settings(admin: AdminClient, kind: ResourceType, names: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    asked = admin.describe_configs([ConfigResource(kind, name) for name in names], request_timeout=CALL_S)
    for resource, future in asked.items():
        found[resource.name] = {k: v.value for k, v in future.result(CALL_S).items()}
    return found


def warnings(bootstrap: str) -> list[str]:
    """What is dangerous about the cluster itself: brokers with KAFKA-20734 (4.3 and 4.4)."""
    cluster = _admin(bootstrap).describe_cluster(request_timeout=CALL_S).result(CALL_S)
    if len(cluster.nodes) < 3:
        return [f"{len(cluster.nodes)} broker: fine for a trial, not for production (replication 3 wanted)"]
    return []


def acl_lines(layout: Layout) -> list[str]:
    """`kafka-acls` arguments, one line per principal and resource, from the registry."""
    grants = [
        (who, operation, f"--topic {layout.names[kind]}")
        for kind, topic in TOPICS.items()
        for operation, principals in (("Write", topic.writers), ("Read", topic.readers))
        for who in principals
    ]
    grants += [
        ("worker", op, f"--topic {name}") for name in layout.names.changelogs for op in ("Read", "Write")
    ]
    prefixed = "--resource-pattern-type prefixed"
    grants.append(("worker", "Write", f"--transactional-id {layout.names.worker_app_id}- {prefixed}"))
    grants += [
        (who, "Read", f"--group {layout.names.prefix}{who} {prefixed}")
        for who in ("worker", "dispatcher", "poller", "auditor")
    ]
    return [f"--add --allow-principal User:{who} --operation {op} {what}" for who, op, what in grants]


class Groups:
    """Consumer groups as the cluster sees them; one client, safe to keep."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = _admin(bootstrap)

    def settled(self, groups: list[str]) -> bool:
        """Whether each of these groups has members and no rebalance under way; False while unknown."""
        asked = self._admin.describe_consumer_groups(groups, request_timeout=GROUP_S)
        try:
            found = [future.result(GROUP_S) for future in asked.values()]
        except (KafkaException, TimeoutError):
            return False  # a group nobody has joined yet
        return all(g.state is ConsumerGroupState.STABLE and g.members for g in found)
