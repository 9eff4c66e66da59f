"""Kafka and Postgres together, in one folder with one owner.

It must not start anything of ours (see `backstop up`), nor end a server that this folder did not start.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from compose.local.broker import Broker
from compose.local.child import LocalStackError, Progress, silent
from compose.local.database import Database

FOLDER = Path(".backstop")  # in the working folder; deleting it is a fresh start


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a running stack is, as `stack.json` says it: Kafka's `host:port`, Postgres's URI, three pids."""

    bootstrap: str
    dsn: str
    owner_pid: int
    kafka_pid: int
    postgres_pid: int


class Stack:
    """The local stack of one data folder. `broker` and `database` may be killed and started one by one."""

    def __init__(self, folder: Path = FOLDER, *, port: int | None = None, jars: Path | None = None) -> None:
        self.folder = folder.resolve()
        self.broker = Broker(self.folder / "kafka", port=port, jars=jars)
        self.database = Database(self.folder / "postgres")
        self._lock: IO[str] | None = None

    @property
    def bootstrap(self) -> str:
        """Kafka's `host:port`."""
        return self.broker.bootstrap

    @property
    def dsn(self) -> str:
        """Postgres's URI."""
        return self.database.dsn

    def start(self, on_progress: Progress = silent) -> None:
        """Start both, about 5 s (30 s the very first time); earlier data is found again.

        Raises LocalStackError (`in_use` when another owner lives), JarUnavailable.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_lock(on_progress)
        try:
            self.database.start(on_progress)
            self.broker.start(on_progress)
            self._write_addresses()
        except BaseException:
            self.stop()
            raise

    def stop(self, on_progress: Progress = silent) -> bool:
        """End Kafka, then Postgres, within 10 s (6 + 3, then SIGKILL). True when both ended by themselves."""
        if self._lock is None:
            return True
        (self.folder / "stack.json").unlink(missing_ok=True)
        on_progress("stopping Kafka")
        kafka_orderly = self.broker.stop()
        on_progress("stopping Postgres")
        postgres_orderly = self.database.stop()
        self._lock.truncate(0)
        self._lock.close()
        self._lock = None
        return kafka_orderly and postgres_orderly

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _take_lock(self, on_progress: Progress) -> None:
        """The kernel holds the lock for as long as the owner lives; the pid in it is for people."""
        if self._lock is not None:
            raise LocalStackError("this stack was started already", code="already_running")
        lock = (self.folder / "stack.lock").open("a+", encoding="utf-8")
        lock.seek(0)
        earlier = lock.read().strip()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            sentence = f"the stack in {self.folder} is in use by pid {earlier or 'unknown'}"
            remedy = f"Use it as it runs, or end it first: Ctrl-C where it runs, or `kill {earlier}`."
            raise LocalStackError(sentence, code="in_use", remedy=remedy) from None
        if earlier:
            on_progress(f"the last owner of this folder, pid {earlier}, did not end in order: cleaning up")
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _write_addresses(self) -> None:
        """In one step, so that a reader sees all of it or nothing."""
        kafka, postgres = self.broker.pid, self.database.pid
        if kafka is None or postgres is None:
            raise LocalStackError(
                f"a server ended right after its start; see the logs in {self.folder}", code="died"
            )
        found = Addresses(self.bootstrap, self.dsn, os.getpid(), kafka, postgres)
        fresh = self.folder / "stack.json.new"
        fresh.write_text(json.dumps(asdict(found), indent=2) + "\n", encoding="utf-8")
        fresh.replace(self.folder / "stack.json")


def running(folder: Path = FOLDER) -> Addresses | None:
    """The addresses of the stack that runs in `folder`, or None when its owner is gone."""
    try:
        found = Addresses(**json.loads((folder / "stack.json").read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return found if psutil.pid_exists(found.owner_pid) else None
