"""Real dispatcher processes around a real guard and a simulated provider, and orders to feed them.

Run as a module this file is one such process: orders on stdin, Attempts on stdout, one JSON a line; with
`<point> <signal> <number>` it signals itself at that fault point of that submission. It must not hold an
expectation.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import psycopg
from psycopg.rows import dict_row

from compose import keys, wiring
from compose import settings as configuration
from compose.clock import SystemClock, random_id
from compose.commands.demo import free_port
from compose.demo import files
from compose.demo.fleet import Fleet
from schemas.attempt import Attempt
from schemas.control import Controls
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.dispatch import Dispatch
from schemas.ids import Channel, dispatch_key
from schemas.sealed import Binding, Payload, seal
from sinks.dispatcher.claims import PostgresClaims
from sinks.dispatcher.facts import ClockGuard
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.ports import Limits, Ports
from sinks.dispatcher.prepare import Preparer
from sinks.postgres.migrate import migrate

WAIT_S = 25.0
START_S = 90.0  # eight interpreters start at once: 8 x 3 s of CPU, on two cores that others use as well
EMAIL, EMAIL_KEYED, SMS = "simulated-email", "simulated-email-keyed", "simulated-sms"
VARIABLES = {"link": "https://app.example/r?t=guard", "name": "Ada"}
POLICY = "password_reset__demo:v1"


@dataclass(slots=True)
class Child:
    """One dispatcher process. Its answers are read by a thread, so that none of its writes can block."""

    process: subprocess.Popen[str]
    answers: queue.Queue[str] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.answers.put(line)

    def give(self, order: Dispatch) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(order.to_bytes().decode() + "\n")
        self.process.stdin.flush()

    def says(self, *, within_s: float = WAIT_S) -> str:
        try:
            return self.answers.get(timeout=within_s)
        except queue.Empty:
            ended = self.process.poll()
            raise AssertionError(f"nothing said within {within_s:.0f} s; exit code {ended}") from None

    def answer(self) -> Attempt:
        return Attempt.model_validate_json(self.says())

    def ask(self, order: Dispatch) -> Attempt:
        self.give(order)
        return self.answer()

    def is_stopped(self) -> bool:
        """Whether the kernel says that it was stopped by a signal."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@dataclass(slots=True)
class Rig:
    """A simulator, a migrated database, key files, and the dispatchers started on them."""

    folder: Path
    environment: Mapping[str, str]
    url: str
    dsn: str
    fleet: Fleet
    children: list[Child] = field(default_factory=list)
    born: dict[str, int] = field(default_factory=dict)

    def dispatcher(self, *fault: str) -> Child:
        """Started; `fault` is `<point>, <signal name>, <submission number>`."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("BACKSTOP_")}
        with (self.folder / "children.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.guard_rig", *fault],
                env={**inherited, **self.environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.children.append(Child(process))
        return self.children[-1]

    def ready(self, *children: Child) -> None:
        for child in children:
            assert child.says(within_s=START_S) == "ready\n"

    def order(
        self, intent_id: str, number: int = 1, *, account: str = EMAIL, to: str = "delivered@example.com"
    ) -> Dispatch:
        """What the worker would order; every number of an intent has its instants, hence the same message."""
        held = keys.publisher_keys(self.folder / "keys")
        now_ms = self.born.setdefault(intent_id, SystemClock().now_ms())
        channel = Channel.SMS if account == SMS else Channel.EMAIL
        phone = "+447700900001"
        prints = (
            held.fingerprints.of(EmailAddress.parse(to)),
            held.fingerprints.of(PhoneNumber.parse(phone)),
        )
        times = (now_ms + 60_000, now_ms + 110_000)
        binding = Binding(intent_id, "tenant-0001", "password_reset", POLICY, *times, *prints)
        fields: dict[str, Any] = {
            "decision_id": f"{intent_id}:{number}",
            "intent_id": intent_id,
            "tenant": "tenant-0001",
            "purpose": "password_reset",
            "policy": POLICY,
            "template": "password_reset:v1",
            "channel": channel,
            "dispatch_key": dispatch_key(intent_id, channel),
            "submission_no": number,
            "provider_account": account,
            "locale": "en",
            "country": "GB",
            "email_fingerprint": prints[0],
            "sms_fingerprint": prints[1],
            "deadline_ms": times[0],
            "expiry_ms": times[1],
            "not_after_ms": times[1],
            "ordered_at_ms": now_ms,
            "unless_sms_claimed": channel is Channel.EMAIL,
            "after_unknown": number > 1,  # here every later number follows an unknown one
            "sealed": seal(Payload(to, phone, VARIABLES), binding, held.sealing),
        }
        return Dispatch.model_validate(fields)

    def ledger(self, reference: str = "") -> list[dict[str, Any]]:
        """Every submission the provider was sent, in order; of one dispatch key when given."""
        asked = f"{self.url}/ledger?route=submit" + (f"&reference={reference}" if reference else "")
        with urlopen(asked, timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["entries"]
        return found

    def tell(self, path: str) -> None:
        """POST to the simulator's administration."""
        with urlopen(Request(f"{self.url}/admin/{path}", data=b"{}", method="POST"), timeout=10) as answer:
            assert answer.status == 200

    def rows(self, query: str, *given: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), given).fetchall()


def messages(entries: list[dict[str, Any]]) -> int:
    """Messages that exist because of these submissions."""
    return len({e["took"] for e in entries if e["took"] is not None})


def eventually(what: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
    """Until `what()` holds; fails by name when it does not in time."""
    until = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < until, f"not within {within_s:.0f} s: {what.__qualname__}"
        time.sleep(0.05)


@contextmanager
def rig(
    bootstrap: str,
    dsn: str,
    folder: Path,
    *,
    changes: Mapping[str, str] | None = None,
    more: Callable[[Path], None] = lambda _folder: None,
) -> Iterator[Rig]:
    """A rig whose processes end with it. `dsn` is a database of its own; `changes` are settings, `more` may
    add to the files of the run."""
    port, prefix = free_port(), f"g{random_id()[:10]}."
    url = f"http://127.0.0.1:{port}"
    files.write(folder, simulator_url=url)
    more(folder)
    found = {**files.environment(folder, kafka=bootstrap, postgres=dsn, prefix=prefix), **(changes or {})}
    migrate(dsn)
    fleet = Fleet(folder, found)
    one = Rig(folder, found, url, dsn, fleet)
    token = str(folder / "keys" / "simulator.token")
    try:
        fleet.add("simulator", "simulator", "--port", str(port), "--token-file", token)
        eventually(lambda: _listens(port))
        yield one
    except BaseException:
        for log in sorted(folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        for child in one.children:
            child.end()
        fleet.stop()


def _listens(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (TimeoutError, URLError, ConnectionError):
        return False


def _serve(point: str = "", name: str = "SIGKILL", number: str = "0") -> None:
    """One dispatcher with the parts of `compose.wiring`; no completions or controls reach it."""
    settings, clock = configuration.load(), SystemClock()
    held = keys.dispatcher_keys(settings.keys)
    claims = PostgresClaims(wiring.guard(settings, size_max=2), configuration.budgets(settings))
    current: list[Dispatch] = []

    def fault(at: str) -> None:
        if at == point and current[0].submission_no == int(number):
            os.kill(os.getpid(), signal.Signals[name])

    ports = Ports(
        claims=claims,
        providers=wiring.providers(settings, connections_max=2),
        preparer=Preparer(
            unsealing=held.unsealing,
            fingerprints=held.fingerprints,
            digest_key=held.digest_key,
            templates=configuration.templates(settings),
        ),
        prices=configuration.prices(settings),
        clock=clock,
        new_id=random_id,
        controls=Controls,
        completions_read=lambda: True,
        clock_trusted=ClockGuard(claims, clock, skew_ms_max=settings.clock_skew_ms_max),
        fault=fault,
    )
    limits = Limits(settings.lease_ms, settings.call_timeout_ms, settings.clock_skew_ms_max)
    dispatcher = Dispatcher(ports, limits)
    print("ready", flush=True)
    for line in sys.stdin:
        current[:] = [Dispatch.model_validate_json(line)]
        handled = dispatcher.handle(current[0])
        while handled.wait_until_ms is not None:
            time.sleep(0.05)
            handled = dispatcher.handle(current[0])
        (attempt,) = handled.attempts
        print(attempt.to_bytes().decode(), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
