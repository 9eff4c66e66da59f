"""Forward-only migrations: numbered SQL files, each applied once, in order, in one transaction.

It must not run a file that differs from what was applied under its name, and there is no way back: the
old code must survive the new table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.resources import files

import psycopg

from schemas.errors import GuardUnavailable, PreflightFailed
from sinks.postgres.pool import CONNECT_S, NOT_REACHED

_LOCK = 7_302_881  # any number; held while migrating so that two starts do not race
_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    name text PRIMARY KEY, digest text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
)"""


def known() -> dict[str, str]:
    """Name → SQL of every migration that ships with this version, in order."""
    folder = files("sinks.postgres").joinpath("migrations")
    return {
        f.name: f.read_text("utf-8")
        for f in sorted(folder.iterdir(), key=lambda f: f.name)
        if f.name.endswith(".sql")
    }


def migrate(dsn: str) -> list[str]:
    """Apply what is missing; the names applied.

    Raises `PreflightFailed` on a changed file or a missing right, `GuardUnavailable` without a connection.
    """
    applied: list[str] = []
    with _connected(dsn) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(_TABLE)
        there: dict[str, str] = dict(connection.execute("SELECT name, digest FROM migrations").fetchall())
        for name, text in known().items():
            digest = sha256(text.encode()).hexdigest()
            if name not in there:
                connection.execute(text.encode())
                connection.execute("INSERT INTO migrations (name, digest) VALUES (%s, %s)", (name, digest))
                applied.append(name)
            elif there[name] != digest:
                raise PreflightFailed([f"migration {name} was changed after it was applied"])
    return applied


def differences(dsn: str) -> list[str]:
    """What keeps this version from running on that database; empty when nothing does. Raises as `migrate`."""
    with _connected(dsn) as connection:
        exists = connection.execute("SELECT to_regclass('migrations')").fetchone()
        if exists is None or exists[0] is None:
            return ["database: no migration was applied"]
        there: dict[str, str] = dict(connection.execute("SELECT name, digest FROM migrations").fetchall())
    return [
        f"database: migration {name} is missing or differs"
        for name, text in known().items()
        if there.get(name) != sha256(text.encode()).hexdigest()
    ]


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection]:
    """One transaction. What the driver says is not passed on: it may quote the connection string."""
    try:
        with psycopg.connect(dsn, connect_timeout=int(CONNECT_S)) as connection:
            yield connection
    except psycopg.errors.InsufficientPrivilege:
        refused = PreflightFailed(["database: this role has no right to do that"])
        refused.remedy = (
            "Run `backstop migrate` as the role that owns the tables, and grant the others theirs."
        )
        raise refused from None
    except psycopg.OperationalError:
        raise GuardUnavailable(
            "the database cannot be reached",
            code=NOT_REACHED,
            remedy="Check that Postgres runs where BACKSTOP_POSTGRES says, and that its role may log in.",
        ) from None
    except psycopg.ProgrammingError as exc:
        if exc.diag.sqlstate is not None:  # the server's own: a fault of a migration, shown as it is
            raise
        refused = PreflightFailed(["database: BACKSTOP_POSTGRES is not a libpq connection string"])
        refused.remedy = "Write it as postgresql://user@host:5432/database."
        raise refused from None
