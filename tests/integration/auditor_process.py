"""An auditor as a process of its own that can be killed between reading and writing; for `test_auditor`.

It must not hold an expectation.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.topics import TopicNames
from sinks.audit.loop import AuditorLoop
from sinks.audit.writer import AuditWriter
from sinks.kafka.consumer import Message, Place
from sinks.postgres.pool import Database


class Lingering(AuditWriter):
    """Says that it holds a batch, and takes its time: before the transaction, or after it."""

    mark: Path
    moment: str

    def write(self, messages: Sequence[Message], ends: Mapping[Place, int]) -> None:
        if messages and self.moment == "before":
            self._linger()
        super().write(messages, ends)
        if messages and self.moment == "after":
            self._linger()

    def _linger(self) -> None:
        self.mark.write_text("holds")
        time.sleep(60)


def main() -> None:
    bootstrap, dsn, prefix, mark, moment = sys.argv[1:]
    names, database, stop = TopicNames(prefix), Database(dsn, size_max=2), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    loop = AuditorLoop(
        names, bootstrap=bootstrap, database=database, letter_key=b"k" * 32, session_timeout_ms=3_000
    )
    if moment != "none":
        lingering = Lingering(names, database, letter_key=b"k" * 32)
        lingering.mark, lingering.moment = Path(mark), moment
        loop._writer = lingering
    loop.run(stop)
    database.close()


if __name__ == "__main__":
    main()
