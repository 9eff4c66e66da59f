"""Topics as the registry wants them: create, verify, who may touch what.

It must not change a topic that exists: a difference is named and the process refuses to run (case F48).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from schemas.errors import PreflightFailed
from schemas.topics import TOPICS, TopicNames
from sinks.kafka.consumer import CALL_S, Ends, KafkaAway
from sinks.kafka.features import SKIPS_MARKERS, metadata_level

CREATE_S = 30.0
BROKERS_WANTED = 3
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
    """Create what is missing; the names created. Safe to run twice at once.

    Raises `KafkaAway`, or `PreflightFailed` with every topic the cluster refused and why.
    """
    admin = _admin(bootstrap)
    try:
        there = set(admin.list_topics(timeout=CALL_S).topics)
    except KafkaException as exc:
        raise KafkaAway(f"Kafka: {exc.args[0].str()}", code="create") from None
    missing = [
        NewTopic(name, partitions, layout.replication, config=settings)
        for name, (partitions, settings) in layout.wanted().items()
        if name not in there
    ]
    if not missing:
        return []
    made: list[str] = []
    refused: list[str] = []
    for name, future in admin.create_topics(missing, operation_timeout=CREATE_S).items():
        try:
            future.result(CREATE_S)
            made.append(name)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                refused.append(f"{name}: not created: {exc.args[0].str()}")
        except TimeoutError:
            refused.append(f"{name}: not created within {CREATE_S:.0f} s")
    if refused:
        raise PreflightFailed(refused)
    return sorted(made)


def verify(bootstrap: str, layout: Layout) -> list[str]:
    """Every difference between the cluster and the registry, one line each; empty when there is none."""
    admin = _admin(bootstrap)
    try:
        there = admin.list_topics(timeout=CALL_S)
        names = [n for n in layout.wanted() if n in there.topics]
        settings = _settings(admin, ResourceType.TOPIC, names)
        brokers = _settings(admin, ResourceType.BROKER, [str(b) for b in there.brokers])
    except KafkaException as exc:
        raise KafkaAway(f"Kafka: {exc.args[0].str()}", code="verify") from None
    except TimeoutError:
        raise KafkaAway("Kafka: no answer about its configuration", code="verify") from None
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
    return differences + list(_broker_differences(brokers))


def _broker_differences(brokers: dict[str, dict[str, str]]) -> Iterator[str]:
    longest = max(t.retention_ms for t in TOPICS.values() if t.copartitioned) // 60_000
    for name, settings in sorted(brokers.items()):
        kept = int(settings.get("offsets.retention.minutes") or 0)
        if kept < longest:
            why = f"{longest} wanted (longer than the inputs)"
            yield f"broker {name}: offsets.retention.minutes is {kept}, {why}"


def _settings(admin: AdminClient, kind: ResourceType, names: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    if not names:
        return found
    asked = admin.describe_configs([ConfigResource(kind, name) for name in names], request_timeout=CALL_S)
    for resource, future in asked.items():
        found[resource.name] = {k: v.value for k, v in future.result(CALL_S).items()}
    return found


def warnings(bootstrap: str) -> list[str]:
    """What is dangerous about the cluster itself: too few brokers, or KAFKA-20734. Raises `KafkaAway`."""
    admin = _admin(bootstrap)  # held until the answer is there: without it the request is given up
    try:
        cluster = admin.describe_cluster(request_timeout=CALL_S).result(CALL_S)
    except KafkaException as exc:
        raise KafkaAway(f"Kafka: {exc.args[0].str()}", code="warnings") from None
    except TimeoutError:
        raise KafkaAway("Kafka: no answer about the cluster", code="warnings") from None
    return list(dangers(len(cluster.nodes), metadata_level(bootstrap, timeout_s=CALL_S)))


def dangers(brokers: int, level: int | None) -> Iterator[str]:
    """`level`: the finalized metadata.version, None when the cluster does not tell."""
    if brokers < BROKERS_WANTED:
        are = f"{brokers} broker{'s' if brokers > 1 else ''}"
        yield f"{are}: fine for a trial, not for production (replication {BROKERS_WANTED} wanted)"
    if level is None:
        yield "the cluster does not tell its metadata.version; make sure that it is not of Kafka 4.3 or 4.4"
    elif level in SKIPS_MARKERS:
        yield (
            f"metadata.version {level} is of Kafka 4.3 or 4.4, which may skip a transaction marker "
            "(KAFKA-20734); use 4.2"
        )


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
        self._admin, self._ends = _admin(bootstrap), Ends(bootstrap)

    def settled(self, groups: list[str]) -> bool:
        """Whether each of these groups has members and no rebalance under way; False while unknown."""
        asked = self._admin.describe_consumer_groups(groups, request_timeout=GROUP_S)
        try:
            found = [future.result(GROUP_S) for future in asked.values()]
        except (KafkaException, TimeoutError):
            return False  # a group nobody has joined yet
        return all(g.state is ConsumerGroupState.STABLE and g.members for g in found)

    def lag(self, group: str, topics: list[str]) -> dict[str, int]:
        """Records each topic holds beyond what the group has committed, transaction markers included.

        Raises `KafkaAway`.
        """
        asked = [ConsumerGroupTopicPartitions(group)]
        try:
            found = self._admin.list_consumer_group_offsets(asked, request_timeout=CALL_S)[group].result(
                CALL_S
            )
        except KafkaException as exc:
            raise KafkaAway(f"Kafka: {exc.args[0].str()}", code="lag") from None
        except TimeoutError:
            raise KafkaAway(f"Kafka: no answer about the group {group}", code="lag") from None
        committed = {(tp.topic, tp.partition): max(tp.offset, 0) for tp in found.topic_partitions}
        lag = dict.fromkeys(topics, 0)
        for place, end in self._ends.of(topics).items():
            lag[place[0]] += max(end - committed.get(place, 0), 0)
        return lag
