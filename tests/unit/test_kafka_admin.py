"""Does the registry become the right topics, rights and warnings, without a cluster."""

from __future__ import annotations

import pytest

from schemas.topics import TOPICS, WORKER_INPUTS, TopicNames
from sinks.kafka.admin import Layout, acl_lines, dangers
from sinks.kafka.features import finalized

LAYOUT = Layout(TopicNames("t."), 12, 3, 2)


def test_every_topic_of_the_registry_and_every_changelog_is_wanted() -> None:
    wanted = set(LAYOUT.wanted())
    assert wanted == set(LAYOUT.names.of(TOPICS)) | set(LAYOUT.names.changelogs)


def test_what_the_worker_joins_has_one_partition_count() -> None:
    counts = LAYOUT.counts()
    joined = [*LAYOUT.names.of(WORKER_INPUTS), *LAYOUT.names.changelogs]
    assert {counts[name] for name in joined} == {12}


def test_no_topic_elects_a_leader_that_lost_records_or_takes_fewer_replicas() -> None:
    for name, (_, settings) in LAYOUT.wanted().items():
        assert settings["unclean.leader.election.enable"] == "false", name
        assert settings["min.insync.replicas"] == "2", name


def test_a_changelog_remembers_a_deletion_for_a_week() -> None:
    _, settings = LAYOUT.wanted()[LAYOUT.names.changelogs[0]]
    assert settings["cleanup.policy"] == "compact"
    assert int(settings["delete.retention.ms"]) >= 7 * 86_400_000


def test_only_who_writes_a_topic_may_write_it() -> None:
    lines = acl_lines(LAYOUT)
    for kind, topic in TOPICS.items():
        place = f"--topic {LAYOUT.names[kind]}"
        writers = [ln for ln in lines if ln.endswith(place) and "--operation Write" in ln]
        assert sorted(ln.split("User:")[1].split()[0] for ln in writers) == sorted(topic.writers)


def test_only_the_worker_has_transactions_and_changelogs() -> None:
    private = [ln for ln in acl_lines(LAYOUT) if "--transactional-id" in ln or "-changelog" in ln]
    assert private
    assert all("User:worker " in ln for ln in private)


@pytest.mark.parametrize(
    ("brokers", "level", "words"),
    [
        (3, 29, []),
        (1, 29, ["1 broker:"]),
        (2, 29, ["2 brokers:"]),
        (3, 30, ["KAFKA-20734"]),
        (3, 33, ["KAFKA-20734"]),
        (3, 34, []),
        (3, None, ["does not tell"]),
        (1, 31, ["1 broker:", "KAFKA-20734"]),
    ],
)
def test_a_cluster_is_warned_about(brokers: int, level: int | None, words: list[str]) -> None:
    found = list(dangers(brokers, level))
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0\0\1", b"\0\0\0\2\0\0", b"\0\0\0\1\0\x23", b"HTTP/1.1 400", b"\xff" * 64]
)
def test_an_answer_that_is_none_is_said_to_be_none(answer: bytes) -> None:
    with pytest.raises(ValueError):
        finalized(answer)
