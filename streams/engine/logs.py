"""Broker-away logs, at most one of a kind per interval.

aiokafka and librdkafka repeat themselves several times per second while a broker is away. Nothing but
repetition may be dropped: the first of each kind passes, and says how many like it were left out.
"""

from __future__ import annotations

import logging

SAME_KIND_EVERY_S = 10.0
KINDS_MAX = 256  # bound of the memory of kinds; then it starts afresh
KIND_CHARACTERS = 32  # enough of a formatted sentence to tell kinds apart

LIBRDKAFKA = "streams.engine.librdkafka"
NOISY = (
    LIBRDKAFKA,
    "aiokafka",
    "aiokafka.client",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.consumer",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.coordinator.base",
)


class OncePerInterval(logging.Filter):
    """Lets one record of each kind (logger, level, beginning of the sentence) pass per interval."""

    def __init__(self, interval_s: float = SAME_KIND_EVERY_S) -> None:
        super().__init__()
        self._interval_s = interval_s
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}  # kind -> (last passed, left out)

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, record.levelno, str(record.msg)[:KIND_CHARACTERS])
        passed, left_out = self._seen.get(kind, (float("-inf"), 0))
        if record.created - passed < self._interval_s:
            self._seen[kind] = (passed, left_out + 1)
            return False
        if len(self._seen) >= KINDS_MAX:
            self._seen.clear()
        self._seen[kind] = (record.created, 0)
        if left_out:
            record.msg = f"{record.msg} ({left_out} more like this were left out)"
        return True


def calm_broker_logs() -> None:
    """Install the filter on the loggers that repeat themselves; once per process."""
    for name in NOISY:
        logger = logging.getLogger(name)
        if not any(isinstance(known, OncePerInterval) for known in logger.filters):
            logger.addFilter(OncePerInterval())


def librdkafka_logger() -> logging.Logger:
    """Where librdkafka's own lines go."""
    return logging.getLogger(LIBRDKAFKA)
