"""The processes: `worker`, `dispatcher`, `poller`, `auditor`, `simulator`, each in the foreground."""

from __future__ import annotations

import typer

from compose import logs, wiring
from compose import settings as configuration
from compose.settings import Settings


def prepared() -> Settings:
    """Settings read and logging set up: the first thing of every process."""
    settings = configuration.load()
    logs.configure(level=settings.log_level, as_json=settings.log_json)
    return settings


def worker() -> None:
    """Decide: keep each intent's state, order submissions and look-ups, exactly once.

    Stops on SIGTERM or Ctrl-C after committing what it decided. Exit codes: 0 stopped, 1 failed (restart),
    3 hung while stopping, 4 another process has this slot, 5 paused too long (restart), 6 refused to start.

    Example: BACKSTOP_WORKER_SLOT=worker-0 backstop worker
    """
    raise typer.Exit(wiring.run_worker(prepared()))


def register(app: typer.Typer) -> None:
    """Add the processes to the command line."""
    for command in (worker,):
        app.command()(command)
