"""The connection pool: UTC, durable commits, bounded waits, usable behind a transaction pooler.

It must not hold SQL; that is in named files (`sinks.postgres.queries`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from schemas.errors import GuardUnavailable

STATEMENT_TIMEOUT_MS = 5_000  # a claim that takes longer is not a claim
LOCK_TIMEOUT_MS = 3_000
CONNECT_S = 3.0
NOT_REACHED = "guard_not_reached"  # code of `GuardUnavailable`: no connection, so nothing was committed

# A process that stands still inside a transaction loses it before those who wait for its locks give up: every
# SMS claim takes one lock that they share.
IDLE_MS_MAX = 2_500

_OPTIONS = (
    f"-c timezone=UTC -c synchronous_commit=on -c statement_timeout={STATEMENT_TIMEOUT_MS} "
    f"-c lock_timeout={LOCK_TIMEOUT_MS}"
)


class Database:
    """`with database.transaction() as cursor:` commits at the end; `GuardUnavailable` when it is away."""

    def __init__(self, dsn: str, *, size_max: int = 8, idle_ms_max: int = IDLE_MS_MAX) -> None:
        self._pool = ConnectionPool(
            dsn,
            min_size=0,
            max_size=size_max,
            timeout=CONNECT_S,
            # The pool's own back-off doubles up to minutes: a database that is back must be seen at once.
            reconnect_timeout=CONNECT_S,
            open=True,
            kwargs={
                "options": f"{_OPTIONS} -c idle_in_transaction_session_timeout={idle_ms_max}",
                "connect_timeout": int(CONNECT_S),
                "row_factory": dict_row,
                # Server-side prepared statements do not survive a transaction pooler (case F58).
                "prepare_threshold": None,
            },
            check=ConnectionPool.check_connection,
        )

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor[dict[str, Any]]]:
        """One transaction. Any database failure is `GuardUnavailable`; its text is not passed on."""
        try:
            with (
                self._pool.connection() as connection,
                connection.transaction(),
                connection.cursor() as cursor,
            ):
                yield cursor  # type: ignore[misc]
        except PoolTimeout:
            raise GuardUnavailable("the database cannot be reached", code=NOT_REACHED) from None
        except psycopg.Error as exc:
            raise GuardUnavailable(
                f"the database cannot answer ({type(exc).__name__})", code="guard_unavailable"
            ) from None

    def close(self) -> None:
        self._pool.close()
