"""The real broker and database, started once per run and only when a test asks; the hypothesis profile.

It must not hold an expectation, nor anything that only one folder of tests needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from compose.clock import random_id
from compose.local.broker import Broker
from compose.local.database import Database

PREFIX_CHARS = 10  # 40 random bits: two tests of one run do not meet

# One profile everywhere. New examples on every run; a failure prints what replays it. No deadline: a CI
# machine may stall for longer than any step of ours takes.
settings.register_profile(
    "ci", derandomize=False, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci")


@dataclass(frozen=True, slots=True)
class Servers:
    """Both servers of this run. A test may kill one, and must start it again before it ends."""

    broker: Broker
    database: Database

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def dsn(self) -> str:
        return self.database.dsn

    def new_database(self, named: str) -> str:
        """The connection string of an empty database that nobody else has; it goes with the server."""
        name = f"{named}{random_id()[:10]}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.dsn.replace("@/backstop?", f"@/{name}?")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Apache Kafka; about 5 s, once per run."""
    one = Broker(_folder(tmp_path_factory, "kafka"))
    one.start()
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """PostgreSQL; about 1 s, once per run."""
    one = Database(_folder(tmp_path_factory, "postgres"))
    one.start()
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="session")
def stack(broker: Broker, database: Database) -> Servers:
    """Both, the same ones that `broker` and `database` give."""
    return Servers(broker, database)


@pytest.fixture
def prefix() -> str:
    """A prefix for topics (a stem for groups and tables) no other test has, such as `t3f9c0a1b2e.`"""
    return f"t{random_id()[:PREFIX_CHARS]}."


def _folder(factory: pytest.TempPathFactory, name: str) -> Path:
    return factory.mktemp(name, numbered=True)
