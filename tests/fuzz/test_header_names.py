"""A header name that is no text stops nobody: not the worker, not those who read with the other library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from compose.local.broker import Broker
from schemas.partitions import partition_for
from schemas.reasons import Reason
from schemas.record import TopicKind
from sinks.kafka.consumer import Message, Reader
from tests.integration.test_worker import request
from tests.integration.workers import WAIT_S, deployment, wait_for

K = TopicKind
PARTITIONS = 4
POISON = "int-poison-01"
GOOD = 10


def test_a_header_name_that_is_no_text_stops_nobody(broker: Broker, prefix: str, tmp_path: Path) -> None:
    with deployment(broker.bootstrap, prefix, tmp_path, partitions=PARTITIONS) as one:
        topic, place = one.names[K.INTENTS], partition_for(POISON.encode(), PARTITIONS)
        asked = [sys.executable, "-m", "tests.fuzz.header_names", one.bootstrap, topic, str(place), POISON]
        subprocess.run(asked, env=os.environ | {"AIOKAFKA_NO_EXTENSIONS": "1"}, check=True, timeout=WAIT_S)
        one.publish(K.INTENTS, [request(n) for n in range(GOOD)])

        reader = Reader(one.bootstrap, f"{prefix}reader", [topic])
        try:
            found: list[Message] = []

            def all_read() -> bool:
                found.extend(reader.poll(GOOD, 1.0))
                return len(found) > GOOD

            wait_for(all_read)
        finally:
            reader.close()
        assert [m.headers for m in found if m.key == POISON.encode()] == [()]

        worker = one.start("a")
        wait_for(one.drained)
        assert worker.poll() is None
        assert one.stop() == {"a": 0}
        letters = [(r.intent_id, r.reason) for r in one.records(K.DEAD_LETTERS)]  # type: ignore[attr-defined]
        assert letters == [(POISON, Reason.MALFORMED)]
        assert len(one.records(K.DECISIONS)) == GOOD
