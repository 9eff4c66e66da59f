"""Does a worker come back with exactly the committed state, or say why not? On the real broker."""

from __future__ import annotations

import json
import struct
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from compose.local.broker import Broker
from streams.engine import blockers
from streams.engine.errors import ExitCode
from streams.engine.group_metadata import MAGIC
from tests.integration import engine_rig
from tests.integration.engine_rig import Rig, load, until

pytestmark = pytest.mark.proof

rig = engine_rig.rig  # the fixture


HUNG_MS = 15_000
REPORT = {"restore_report_s": 1.0}


def transactional(rig: Rig, name: str, timeout_ms: int = HUNG_MS) -> Any:
    producer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": f"{rig.app_id}-{name}",
                         "transaction.timeout.ms": timeout_ms, "log_level": 0})  # fmt: skip
    producer.init_transactions(20)
    producer.begin_transaction()
    return producer


def outsider(group: str) -> bytes:
    """Metadata of nobody, which the broker accepts for a group without members. For tests only."""
    return MAGIC + struct.pack("=i", -1) + group.encode() + b"\0" + b"\0" + b"\1"


def test_a_restore_waits_for_a_hung_transaction_names_it_and_sees_what_lies_behind(rig: Rig) -> None:
    changelog = rig.topic("counts-changelog")
    hung, later = transactional(rig, "hung"), transactional(rig, "later")
    state = json.dumps({"n": 7, "facts": 0, "due": None}).encode()
    hung.produce(changelog, state, b"open", partition=0)
    assert hung.flush(5) == 0
    later.produce(changelog, state, b"kept", partition=0)
    later.commit_transaction(10)
    places = [(changelog, 0), (changelog, 1)]

    def open_ones() -> list[tuple[str, str]]:
        return [(o.transactional_id, o.state) for o in blockers.find(rig.bootstrap, places)[changelog, 0]]

    # A commit is answered before its markers are written; until then the other one is open as well.
    until(lambda: open_ones() == [(f"{rig.app_id}-hung", "Ongoing")], 10, "only the hung one open")
    assert blockers.find(rig.bootstrap, places)[changelog, 1] == []
    log = rig.start("a", settings=REPORT)
    until(lambda: f"{changelog}/0 waits for transaction {rig.app_id}-hung" in log.read_text(), 40, "a report")
    assert "worker ready" not in log.read_text()
    until(lambda: "worker ready" in log.read_text(), HUNG_MS / 1000 + 15, "ready after the broker's abort")
    rig.send("in", [(b"kept", b""), (b"open", b"")], partition=0)
    rig.drain(10)
    assert {r.key(): json.loads(r.value())["n"] for r in rig.read("out")} == {b"kept": 8, b"open": 1}


def test_a_new_owner_waits_for_offsets_that_are_accepted_but_undecided(rig: Rig) -> None:
    rig.send("in", load(20, 20), partition=0)
    old = transactional(rig, "old", 30_000)
    old.produce(rig.topic("counts-changelog"), b'{"n": 1, "facts": 0, "due": null}', b"k", partition=0)
    old.send_offsets_to_transaction([TopicPartition(rig.topic("in"), 0, 12)], outsider(rig.app_id), 10)
    log = rig.start("a", settings=REPORT)
    until(
        lambda: f"committed offsets of {rig.app_id}: __consumer_offsets/" in log.read_text(), 40, "a report"
    )
    assert f"{rig.app_id}-old" in log.read_text()
    old.commit_transaction(10)
    until(lambda: "worker ready" in log.read_text(), 15, "ready after the commit")
    rig.drain(10)
    assert [json.loads(r.value())["src"][2] for r in rig.read("out")] == list(range(12, 20))


def test_offsets_without_any_changelog_stop_the_worker(rig: Rig) -> None:
    rig.send("in", load(20, 20), partition=0)
    consumer = Consumer({"bootstrap.servers": rig.bootstrap, "group.id": rig.app_id})
    consumer.commit(offsets=[TopicPartition(rig.topic("in"), 0, 5)], asynchronous=False)
    consumer.close()
    log = rig.start("a")
    assert rig.wait_exit("a", 20) == ExitCode.FAILED
    assert "partition 0: offsets are committed but all changelogs are empty" in log.read_text()


def test_variables_that_would_weaken_the_engine_change_nothing_or_refuse_the_start(rig: Rig) -> None:
    hostile = {"PROCESSING_GUARANTEE": "exactly_once", "TABLE_STANDBY_REPLICAS": "2", "BROKER_URL": "kafka://x",
               "CONSUMER_AUTO_OFFSET_RESET": "latest", "APP_ENV_PREFIX": "F_", "WEB_ENABLED": "1",
               "CONSUMER_GROUP_INSTANCE_ID": "one"}  # fmt: skip
    log = rig.start("a", env={**hostile, **{f"F_{name}": value for name, value in hostile.items()}})
    until(lambda: "worker ready" in log.read_text(), 20, "ready")
    rig.send("in", load(200, 20))
    rig.drain(10)
    rig.assert_exact(200)
    log = rig.start("b", env={"NO_CYTHON": "1"})
    assert rig.wait_exit("b", 15) == ExitCode.REFUSED
    assert "faust.transport.conductor:ConductorHandler is not compiled" in log.read_text()


def test_a_broker_that_is_killed_and_returns_costs_no_record(rig: Rig, broker: Broker) -> None:
    log = rig.start_ready("a")
    rig.send("in", load(2_000, 200))
    rig.drain(10)
    rig.send("in", load(2_000, 200))
    broker.kill()
    try:
        time.sleep(1.0)
    finally:
        broker.start()
    rig.send("in", load(1_000, 200))
    rig.drain(40)
    rig.assert_exact(5_000)
    assert log.read_text().count("connection to node") < 100
