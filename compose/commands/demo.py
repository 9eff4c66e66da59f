"""`backstop demo`: the whole product on one machine, with a table by outcome and four proofs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from compose import keys
from compose import settings as configuration
from compose.clock import SystemClock
from compose.demo import files
from compose.demo.fleet import Fleet, ProcessEnded
from compose.demo.plan import KINDS
from compose.demo.run import Report, Run, World
from compose.local.stack import Stack
from compose.output import DOES_NOT_HOLD, say, show, show_json
from compose.settings import Settings
from schemas.topics import TopicNames
from sinks.kafka import admin
from sinks.kafka.producer import Publisher
from sinks.postgres.migrate import migrate
from sinks.postgres.pool import Database
from sinks.publisher import IntentPublisher

CHAOS_KILLS = 12
STORY = [kind.name for kind in KINDS].index("bounced, SMS at once")  # whose story is shown as an example
READY_S = 60.0
READY_GROUPS = ("worker", "dispatcher", "dispatcher-facts", "poller", "auditor")


def demo(
    folder: Annotated[Path, typer.Option(help="Where the local stack keeps its data.")] = Path(".backstop"),
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Kill processes at random moments while it runs.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides which process dies when.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document for machines.")] = False,
) -> None:
    """Start real Kafka and Postgres, run every process, publish over 200 intents, prove what came of them.

    Exit 0 only when every outcome is as expected and all four proofs hold.

    Example: backstop demo --chaos
    """
    run_id = f"demo{SystemClock().now_ms() % 10**8:08d}"
    stack = Stack(folder)
    stack.start(say)
    try:
        report = _on(
            stack, (folder / run_id).resolve(), run_id=run_id, kills=CHAOS_KILLS if chaos else 0, seed=seed
        )
    finally:
        stack.stop(say)
    if as_json:
        show_json(_as_dict(report))
    else:
        _print(report)
        say(f"next: backstop explain {run_id}-{STORY:02d}-000; or backstop demo --chaos")
    if not report.holds:
        raise typer.Exit(DOES_NOT_HOLD)


def _on(stack: Stack, here: Path, *, run_id: str, kills: int, seed: int) -> Report:
    port = free_port()
    settings, environment = prepare(stack, here, run_id=run_id, port=port)
    say(f"logs, keys and policies of this run: {here}")
    fleet = Fleet(here, environment)
    database = Database(stack.dsn)
    try:
        add_processes(fleet, here, port=port)
        say("waiting for the processes")
        wait_until_ready(settings, port, fleet)
        return Run(
            world_of(settings, database, fleet, port=port), run_id=run_id, kills=kills, seed=seed
        ).play()
    finally:
        fleet.stop()
        database.close()


def prepare(
    stack: Stack,
    here: Path,
    *,
    run_id: str,
    port: int,
    extra: Mapping[str, str] | None = None,
    late_evidence_ms: int = 4_000,
) -> tuple[Settings, Mapping[str, str]]:
    """Files, tables and topics of one run: its settings, and the same as an environment with `extra`."""
    here.mkdir(parents=True)
    files.write(here, simulator_url=_url(port), late_evidence_ms=late_evidence_ms)
    environment = {
        **files.environment(here, kafka=stack.bootstrap, postgres=stack.dsn, prefix=f"{run_id}."),
        **(extra or {}),
    }
    settings = Settings.model_validate(
        {k.removeprefix("BACKSTOP_").lower(): v for k, v in environment.items()}
    )
    migrate(stack.dsn)
    admin.create(settings.kafka, admin.Layout(TopicNames(settings.prefix), settings.partitions, 1, 1))
    return settings, environment


def world_of(settings: Settings, database: Database, fleet: Fleet, *, port: int) -> World:
    """Where a run reads and writes, with a publisher as a service has it."""
    names, held = TopicNames(settings.prefix), keys.publisher_keys(settings.keys)
    raw = Publisher(settings.kafka, client_id="backstop-demo")
    publisher = IntentPublisher(
        names,
        publisher=raw,
        sealing=held.sealing,
        fingerprints=held.fingerprints,
        policies=configuration.policies(settings),
    )
    return World(settings.kafka, names, database, publisher, raw, _url(port), fleet, say)


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def add_processes(fleet: Fleet, here: Path, *, port: int) -> None:
    """The simulator and every process of ours; two workers, so that there is something to hand over."""
    token = str(here / "keys" / "simulator.token")
    fleet.add("simulator", "simulator", "--port", str(port), "--token-file", token)
    for slot in ("worker-0", "worker-1"):
        fleet.add(slot, "worker", BACKSTOP_WORKER_SLOT=slot)
    for name in ("dispatcher", "poller", "auditor"):
        fleet.add(name, name)


def wait_until_ready(settings: Settings, port: int, fleet: Fleet) -> None:
    """Until the simulator listens and every group has its members."""
    pause, seen = threading.Event(), admin.Groups(settings.kafka)
    groups = [f"{settings.prefix}{name}" for name in READY_GROUPS]
    for _ in range(int(READY_S / 0.2)):
        fleet.tend()
        with socket.socket() as probe:
            listens = probe.connect_ex(("127.0.0.1", port)) == 0
        if listens and seen.settled(groups):
            return
        pause.wait(0.2)
    raise ProcessEnded(f"not every process was ready within {READY_S:.0f} s", code="not_ready")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _as_dict(report: Report) -> dict[str, Any]:
    return {
        "holds": report.holds,
        "seconds": round(report.seconds, 1),
        "kills": report.kills,
        "outcomes": [asdict(row) for row in report.rows],
        "proofs": [asdict(proof) for proof in report.proofs],
        "unexpected": report.unexpected,
    }


def _print(report: Report) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("outcome")
    for name in ("intents", "expected", "e-mails", "SMS", "decisions"):
        table.add_column(name, justify="right")
    for row in report.rows:
        numbers = (row.intents, row.as_expected, row.emails, row.texts, row.decisions)
        table.add_row(row.outcome, *map(str, numbers))
    Console(highlight=False).print(table)
    for number, proof in enumerate(report.proofs, 1):
        counted = ", ".join(f"{n} {name}" for name, n in proof.counted.items())
        show(f"proof {number} {'holds' if proof.holds else 'FAILS'}: {proof.sentence} ({counted})")
        for line in proof.against:
            show(f"    {line}")
    if report.strict:
        for line in report.unexpected[:20]:
            show(f"unexpected: {line}")
        if report.unexpected and all(proof.holds for proof in report.proofs):
            say("  what to do: the proofs hold; run it again on a quiet machine, its clocks are of seconds")
    elif report.unexpected:
        show(
            f"{len(report.unexpected)} intents took another way than on a quiet day; every proof covers them"
        )
    show(f"{report.seconds:.0f} s, {report.kills} processes killed")


def register(app: typer.Typer) -> None:
    """Add the demo to the command line."""
    app.command()(demo)
