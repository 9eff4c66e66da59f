"""Does the local stack start, keep its data, refuse company and leave nothing behind?

It must not use the servers other tests share: it starts and kills its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compose.local.broker import Broker
from compose.local.child import LOOPBACK, LocalStackError
from compose.local.stack import Stack, running

STOP_S_MAX = 10.0  # what the README promises for Ctrl-C
LEASH_S_MAX = 15.0  # a leash waits 8 s for a server, then kills it
ANSWER_S = 20.0

# An owner that starts the stack of argv[1], says so, and then only waits to be killed.
OWNER = """
import signal, sys
from pathlib import Path
from compose.local.stack import Stack
stack = Stack(Path(sys.argv[1]))
stack.start()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is born ignoring it
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@pytest.fixture
def own(folder: Path) -> Iterator[Stack]:
    """A started stack of this module's folder: the same data in every test."""
    stack = Stack(folder)
    stack.start()
    yield stack
    stack.stop()


@pytest.fixture
def owner(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another Python that owns the started stack of this module's folder."""
    one = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
        yield one
    finally:
        one.kill()
        one.wait()


def _create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(ANSWER_S)


def _produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(ANSWER_S) == 0


def _read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        records = consumer.consume(count, ANSWER_S)
    finally:
        consumer.close()
    assert all(record.error() is None for record in records)
    return [bytes(record.value() or b"") for record in records]


def _listeners(pid: int) -> list[str]:
    tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return [
        one.laddr.ip for server in tree for one in server.net_connections("inet") if one.status == "LISTEN"
    ]


def _wait_gone(pids: list[int], within_s: float) -> list[int]:
    until = time.monotonic() + within_s
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    return [pid for pid in pids if psutil.pid_exists(pid)]


def test_a_second_start_finds_the_records_and_rows_of_the_first(folder: Path) -> None:
    with Stack(folder) as first:
        _create_topic(first.bootstrap, "kept")
        _produce(first.bootstrap, "kept", [b"one", b"two"])
        with psycopg.connect(first.dsn) as connection:
            connection.execute("CREATE TABLE kept (value text)")
            connection.execute("INSERT INTO kept VALUES ('row')")
        earlier_bootstrap = first.bootstrap
    assert running(folder) is None

    with Stack(folder) as second:
        found = running(folder)
        assert found is not None
        assert (found.bootstrap, found.dsn, found.owner_pid) == (second.bootstrap, second.dsn, os.getpid())
        assert second.bootstrap == earlier_bootstrap
        assert _read(found.bootstrap, "kept", 2) == [b"one", b"two"]
        with psycopg.connect(found.dsn) as connection:
            assert connection.execute("SELECT value FROM kept").fetchall() == [("row",)]


def test_nothing_listens_beyond_loopback_and_a_stop_ends_all_within_its_time(own: Stack) -> None:
    assert own.broker.pid is not None
    assert own.database.pid is not None
    pids = [own.broker.pid, own.database.pid]
    assert set(_listeners(own.broker.pid)) == {LOOPBACK}
    assert _listeners(own.database.pid) == []

    began = time.monotonic()
    orderly = own.stop()
    assert time.monotonic() - began < STOP_S_MAX
    assert orderly
    assert _wait_gone(pids, 0) == []


def test_a_live_owner_is_named_and_left_alone(own: Stack, folder: Path) -> None:
    pids = (own.broker.pid, own.database.pid)
    with pytest.raises(LocalStackError) as refused:
        Stack(folder).start()
    assert refused.value.code == "in_use"
    assert str(os.getpid()) in str(refused.value)
    assert f"kill {os.getpid()}" in refused.value.remedy
    assert (own.broker.pid, own.database.pid) == pids
    assert running(folder) is not None


def test_servers_do_not_outlive_a_killed_owner_and_the_next_start_says_so(
    owner: subprocess.Popen[str], folder: Path
) -> None:
    found = running(folder)
    assert found is not None
    owner.kill()
    owner.wait()
    assert _wait_gone([found.kafka_pid, found.postgres_pid], LEASH_S_MAX) == []
    assert running(folder) is None

    said: list[str] = []
    stack = Stack(folder)
    stack.start(said.append)
    stack.stop()
    assert any(f"pid {found.owner_pid}, did not end in order" in sentence for sentence in said)


def test_an_interrupted_terminal_leaves_the_servers_to_their_owner(
    owner: subprocess.Popen[str], folder: Path
) -> None:
    found = running(folder)
    assert found is not None
    groups = {os.getpgid(pid) for pid in (owner.pid, found.kafka_pid, found.postgres_pid)}
    assert len(groups) == 3  # a Ctrl-C goes to one group: the owner's
    owner.send_signal(signal.SIGINT)
    owner.wait(ANSWER_S)
    assert _wait_gone([found.kafka_pid, found.postgres_pid], LEASH_S_MAX) == []


def test_an_orphan_is_ended_by_the_next_start_and_a_stranger_with_its_pid_is_not(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    broker = Broker(tmp_path / "kafka")
    try:
        broker.folder.mkdir()
        record = {"pid": stranger.pid, "program": sys.executable}
        (broker.folder / "broker.pid").write_text(json.dumps(record), encoding="utf-8")
        said: list[str] = []
        broker.start(said.append)
        assert stranger.poll() is None
        assert not any("ending" in sentence for sentence in said)

        second = Broker(tmp_path / "kafka")
        orphan = broker.pid
        assert orphan is not None
        second.start(said.append)
        assert any(f"ending Kafka pid {orphan}" in sentence for sentence in said)
        assert broker.pid is None
        assert second.bootstrap == broker.bootstrap
        second.stop()
    finally:
        stranger.kill()
        stranger.wait()
        broker.stop()


def test_ports_taken_between_two_runs_are_replaced_and_the_data_is_still_found(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "kafka")
    broker.start()
    _create_topic(broker.bootstrap, "kept")
    _produce(broker.bootstrap, "kept", [b"one"])
    broker.stop()
    ports = json.loads((broker.folder / "ports.json").read_text(encoding="utf-8"))
    with (
        socket.create_server((LOOPBACK, ports["client"])),
        socket.create_server((LOOPBACK, ports["controller"])),
    ):
        moved = Broker(tmp_path / "kafka")
        moved.start()
        try:
            assert moved.bootstrap != broker.bootstrap
            assert _read(moved.bootstrap, "kept", 1) == [b"one"]
        finally:
            moved.stop()


def test_a_cluster_id_that_begins_with_a_dash_is_formatted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compose.local.broker.entropy", lambda count: b"\xf8" + bytes(count - 1))
    broker = Broker(tmp_path / "kafka")
    broker.start()
    broker.stop()
    assert "cluster.id=-" in (broker.folder / "data" / "meta.properties").read_text(encoding="utf-8")


def test_a_port_asked_for_and_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalStackError, match=f"port {port} is taken") as refused:
            Broker(tmp_path / "kafka", port=port).start()
    assert refused.value.code == "port_taken"


def test_acknowledged_records_and_rows_survive_a_kill_of_both_servers(own: Stack) -> None:
    values = [f"value-{n}".encode() for n in range(500)]
    _create_topic(own.bootstrap, "survives")
    _produce(own.bootstrap, "survives", values)
    with psycopg.connect(own.dsn) as connection:
        connection.execute("CREATE TABLE survives AS SELECT generate_series(1, 500) AS n")
    bootstrap = own.bootstrap

    own.broker.kill()
    own.database.kill()
    assert (own.broker.pid, own.database.pid) == (None, None)
    own.database.start()
    own.broker.start()

    assert own.bootstrap == bootstrap
    assert _read(bootstrap, "survives", len(values)) == values
    with psycopg.connect(own.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM survives").fetchone() == (500,)
