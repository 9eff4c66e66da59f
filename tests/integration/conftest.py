"""Topics and databases of one test on the shared servers.

It must not hold an expectation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg.sql import SQL, Identifier

from compose.local.broker import Broker
from compose.local.database import Database

CREATE_S = 30.0
PARTITIONS = 4  # the local count of SYSTEM.md, section 3


class MakeTopics(Protocol):
    """`make_topics("intents", "ticks")` creates both under this test's prefix and returns the full names."""

    def __call__(
        self, *names: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None
    ) -> list[str]: ...


@pytest.fixture
def make_topics(broker: Broker, prefix: str) -> MakeTopics:
    """Creates topics on the real broker; they are usable when it returns."""

    def make(*names: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None) -> list[str]:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topics = [
            NewTopic(
                prefix + name, num_partitions=partitions, replication_factor=1, config=dict(config or {})
            )
            for name in names
        ]
        for created in admin.create_topics(topics, operation_timeout=CREATE_S).values():
            created.result(CREATE_S)
        return [topic.topic for topic in topics]

    return make


@pytest.fixture
def fresh_dsn(database: Database, prefix: str) -> Iterator[str]:
    """The URI of an empty database of this test's own; dropped afterwards, whoever is still connected."""
    name = prefix.rstrip(".")
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    yield database.dsn.replace("@/backstop?", f"@/{name}?")
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
