"""The processes: `worker`, `dispatcher`, `poller`, `auditor`, `simulator`, each in the foreground."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from compose import logs, wiring
from compose import settings as configuration
from compose.serving import listening
from compose.settings import Settings
from compose.simulator.server import configuration as http_configuration
from schemas.errors import SettingsRefused


def prepared() -> Settings:
    """Settings read and logging set up: the first thing of every process."""
    settings = configuration.load()
    logs.configure(level=settings.log_level, as_json=settings.log_json)
    return settings


def until_told(run: Callable[[Settings, threading.Event], None]) -> None:
    """Run a loop until SIGTERM or Ctrl-C, then let it finish what it holds."""
    settings, stop = prepared(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run(settings, stop)


def worker() -> None:
    """Decide: keep each intent's state, order submissions and look-ups, exactly once.

    Stops on SIGTERM or Ctrl-C after committing what it decided. Once it runs, its exit codes are its own:
    0 stopped, 1 failed (restart), 3 hung while stopping, 4 another process has this slot, 5 paused too long
    (restart), 6 refused by its engine. Before that: 2 settings or topics refused, 3 Kafka is away.

    Example: BACKSTOP_WORKER_SLOT=worker-0 backstop worker
    """
    raise typer.Exit(wiring.run_worker(prepared()))


def dispatcher() -> None:
    """Submit what was ordered, at most once per intent and channel; sole holder of the unsealing keys.

    Example: BACKSTOP_POSTGRES=postgresql:///backstop backstop dispatcher
    """
    until_told(wiring.run_dispatcher)


def poller() -> None:
    """Ask providers what became of messages, earliest deadline first, inside their rate limits.

    Example: backstop poller
    """
    until_told(wiring.run_poller)


def auditor() -> None:
    """Write every record of every topic to Postgres, once.

    Example: BACKSTOP_POSTGRES=postgresql:///backstop backstop auditor
    """
    until_told(wiring.run_auditor)


def simulator(
    port: Annotated[int, typer.Option(help="Loopback port to listen on.", min=1, max=65_535)] = 8025,
    seed: Annotated[int, typer.Option(help="Decides the fate of ordinary recipients.")] = 1,
    token_file: Annotated[Path, typer.Option(help="File with the bearer token it accepts.")] = Path(
        "simulator.token"
    ),
    ledger: Annotated[Path | None, typer.Option(help="Also append the ledger to this file.")] = None,
) -> None:
    """Play the providers on loopback, going wrong on purpose by magic recipients.

    Example: backstop simulator --port 8025 --token-file keys/simulator.token
    """
    settings = prepared()
    app = wiring.simulator(settings, seed=seed, token=_token(token_file), ledger_file=ledger)
    with listening(port) as listener:
        uvicorn.Server(http_configuration(app, port)).run([listener])


def _token(file: Path) -> str:
    """What the file holds. Raises `SettingsRefused`."""
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if not token:
        refused = SettingsRefused([f"token-file: {file} cannot be read or holds no token"])
        refused.remedy = (
            "Write any word into a file and name it with --token-file; accounts use the same file."
        )
        raise refused
    return token


def register(app: typer.Typer) -> None:
    """Add the processes to the command line."""
    for command in (worker, dispatcher, poller, auditor, simulator):
        app.command()(command)
