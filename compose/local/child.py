"""One server started by us: its own session, a pid file, a leash, an orderly end.

It must not know what the server is, and must not signal anything whose pid and command line are not those it
wrote down itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from compose.local import leash
from schemas.errors import BackstopError

Progress = Callable[[str], None]

ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # all a server sees of ours: nothing
LOOPBACK = "127.0.0.1"
ORPHAN_GRACE_S = 5.0  # an orphan is asked once, then killed
REAP_S = 5.0  # a killed server is gone at once; this only bounds the wait for the kernel
LOG_TAIL_LINES = 12


class LocalStackError(BackstopError):
    """The local Kafka or Postgres cannot be started, reached or ended."""

    remedy = "Read the log named above; deleting the data folder starts afresh."


def silent(_sentence: str) -> None:
    """The progress callback of those who do not want to know."""


class Child:
    """A server in its own session, so that a terminal's Ctrl-C reaches us first and we end it in order.

    `mark` is an argument its command line has and no other's does (a path inside its data folder).
    """

    def __init__(self, name: str, pid_file: Path, *, mark: str, stop_signal: signal.Signals) -> None:
        self.name = name
        self._pid_file = pid_file
        self._mark = mark
        self._stop_signal = stop_signal
        self._server: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid while it runs, else None."""
        return self._server.pid if self._server is not None and self._server.poll() is None else None

    def launch(self, command: Sequence[str], log: Path, **options: Any) -> None:
        """Start `command`, its output appended to `log`; `options` go to Popen.

        The environment is not inherited: nothing in ours may change what the server does.
        """
        if self.pid is not None:
            raise LocalStackError(f"{self.name} already runs as pid {self.pid}", code="already_running")
        with log.open("ab") as output:
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=ENVIRONMENT,
                start_new_session=True, **options,
            )  # fmt: skip
        record = {"pid": self._server.pid, "program": command[0]}
        self._pid_file.write_text(json.dumps(record), encoding="utf-8")
        self._leash = subprocess.Popen(
            [sys.executable, "-I", leash.__file__, str(self._server.pid), str(int(self._stop_signal))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self, grace_s: float) -> bool:
        """Ask it to end, wait `grace_s` seconds, then kill. True when it ended by itself."""
        if self._server is None:
            return True
        orderly = True
        if self._server.poll() is None:
            self._server.send_signal(self._stop_signal)
            try:
                self._server.wait(grace_s)
            except subprocess.TimeoutExpired:
                orderly = False
                self._server.kill()
        self._forget()
        return orderly

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        if self._server is not None and self._server.poll() is None:
            self._server.kill()
        self._forget()

    def require_alive(self, log: Path) -> None:
        """Raise LocalStackError with the end of its log when it has died."""
        if self.pid is None:
            raise LocalStackError(
                f"{self.name} ended while starting; the end of {log}:\n{tail(log)}", code="died"
            )

    def clear_orphan(self, on_progress: Progress) -> None:
        """End what an earlier owner of this folder left running, if it is what the pid file says it is."""
        if self.pid is not None or not self._pid_file.exists():
            return
        orphan = self._recorded()
        if orphan is not None:
            on_progress(f"ending {self.name} pid {orphan.pid}, left running by an owner that died")
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.send_signal(self._stop_signal)
                try:
                    orphan.wait(ORPHAN_GRACE_S)
                except psutil.TimeoutExpired:
                    orphan.kill()
                    orphan.wait(REAP_S)
        self._pid_file.unlink(missing_ok=True)

    def _recorded(self) -> psutil.Process | None:
        """The server the pid file names, or None when that pid is gone or is something else by now."""
        try:
            record = json.loads(self._pid_file.read_text(encoding="utf-8"))
            server = psutil.Process(int(record["pid"]))
            arguments = server.cmdline()
            is_ours = arguments[:1] == [record["program"]] and self._mark in arguments
        except (psutil.Error, ValueError, KeyError, TypeError):
            return None
        return server if is_ours else None

    def _forget(self) -> None:
        if self._server is not None:
            self._server.wait(REAP_S)
        if self._leash is not None and self._leash.stdin is not None:
            self._leash.stdin.close()
            self._leash.wait(REAP_S)
        self._server = self._leash = None
        self._pid_file.unlink(missing_ok=True)


def tail(log: Path) -> str:
    """The last lines of a server's log, indented; no server of ours logs a secret."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return "\n".join(f"  {line}" for line in text.splitlines()[-LOG_TAIL_LINES:])


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
