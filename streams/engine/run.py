"""Run an engine app as this process: uvloop, mode's Worker, no command line, no environment.

Logging belongs to the caller. It must not be used twice in one process: it ends with an exit code.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import faust
import uvloop

from streams.engine.app import EngineApp
from streams.engine.errors import ExitCode, exit_code


class EngineWorker(faust.Worker):
    """mode's Worker without its own logging set-up and without signals that print records."""

    def _install_signal_handlers_unix(self) -> None:
        self.loop.add_signal_handler(signal.SIGINT, self._on_sigint)
        self.loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)
        # mode dumps every task's locals (payloads) on USR1 and opens a debugger on USR2.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    def _setup_logging(self) -> None: ...


def run(app: EngineApp, *services: Any) -> ExitCode:
    """Run until SIGTERM, SIGINT or a failure. `services` (mode.Service) start before the app."""
    uvloop.install()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = EngineWorker(
        app, *services, loop=loop, quiet=True, debug=False, redirect_stdouts=False, blocking_timeout=0.0
    )
    worker.spinner = None
    ended = ExitCode.STOPPED
    try:
        worker.execute_from_commandline()
    except SystemExit as exc:
        if exc.code not in (0, None):
            ended = ExitCode.FAILED
    return exit_code(app.failure) if app.failure is not None else ended
