"""`backstop up`: every process on the local stack, until Ctrl-C."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from compose.commands.demo import add_processes, free_port, wait_until_ready
from compose.demo import files
from compose.demo.fleet import Fleet
from compose.local.stack import Stack
from compose.output import say, show
from compose.settings import Settings
from schemas.topics import PREFIX, TopicNames
from sinks.kafka import admin
from sinks.postgres.migrate import migrate


def up(
    folder: Annotated[Path, typer.Option(help="Where the local stack keeps its data.")] = Path(".backstop"),
) -> None:
    """Start real Kafka and Postgres, the provider simulator and every process; print how to talk to them.

    Example: backstop up, and in another shell: . .backstop/up/environment; backstop doctor
    """
    stack = Stack(folder)
    stack.start(say)
    fleet: Fleet | None = None
    try:
        here = (folder / "up").resolve()
        port = free_port()
        here.mkdir(exist_ok=True)
        files.write(here, simulator_url=f"http://127.0.0.1:{port}")
        environment = files.environment(here, kafka=stack.bootstrap, postgres=stack.dsn, prefix=PREFIX)
        lines = "".join(f"export {name}='{value}'\n" for name, value in environment.items())
        (here / "environment").write_text(lines)
        settings = Settings.model_validate(
            {k.removeprefix("BACKSTOP_").lower(): v for k, v in environment.items()}
        )
        migrate(stack.dsn)
        layout = admin.Layout(
            TopicNames(PREFIX), settings.partitions, settings.replication, settings.min_insync
        )
        admin.create(settings.kafka, layout)
        fleet = Fleet(here, environment)
        add_processes(fleet, here, port=port)
        say("waiting for the processes")
        wait_until_ready(settings, port, fleet)
        show(f"ready: {', '.join(fleet.members)}")
        show(f"in another shell: . {here / 'environment'}")
        say("Ctrl-C stops everything")
        pause = threading.Event()
        while not pause.wait(0.5):
            fleet.tend()
    finally:
        if fleet is not None:
            fleet.stop()
        stack.stop(say)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(up)
