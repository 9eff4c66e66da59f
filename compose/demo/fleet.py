"""The processes of a run: started, watched, restarted after a crash, ended in order.

It must not know what they do; a process that ends by itself with a refusal ends the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import BackstopError

STOP_S = 8.0
REFUSED = 2


class ProcessEnded(BackstopError):
    """A process refused to run."""

    remedy = "Read its log, named above."


@dataclass(slots=True)
class Member:
    """One process: how to start it, the one that runs now, how often it was started."""

    name: str
    arguments: tuple[str, ...]
    extra: Mapping[str, str] = field(default_factory=dict)
    module: str = "compose.cli"
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0


class Fleet:
    """Members by name. Children ignore the terminal's Ctrl-C; they are ended here, in order."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self.members: dict[str, Member] = {}

    def add(self, name: str, *arguments: str, module: str = "compose.cli", **extra: str) -> None:
        self.members[name] = Member(name, arguments, extra, module)
        self.start(name)

    def start(self, name: str) -> None:
        """`backstop <arguments>`, or a test build's module; its output goes to `<name>.log`."""
        member = self.members[name]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("BACKSTOP_")}  # noqa: TID251
        with self.log_file(name).open("ab") as log:
            member.process = subprocess.Popen(
                [sys.executable, "-m", member.module, *member.arguments],
                env={**inherited, **self._environment, **member.extra},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        member.starts += 1

    def log_file(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def tend(self) -> None:
        """Start again what died. Raises `ProcessEnded` for one that refused its settings or topics."""
        for name, member in self.members.items():
            code = member.process.poll() if member.process is not None else None
            if code == REFUSED:
                raise ProcessEnded(f"{name} refused to run; see {self.log_file(name)}", code="refused")
            if code is not None:
                self.start(name)

    def kill(self, name: str) -> None:
        """SIGKILL, as a crash would."""
        process = self.members[name].process
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """SIGTERM for all, then SIGKILL for what hangs; nothing is left behind."""
        alive = [
            m.process for m in self.members.values() if m.process is not None and m.process.poll() is None
        ]
        for process in alive:
            process.send_signal(signal.SIGTERM)
        for process in alive:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
