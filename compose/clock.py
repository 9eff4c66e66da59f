"""The only place where clocks and randomness are read.

It must not be called from `schemas` or `streams.core`: they take instants and random bytes as arguments.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from typing import Protocol

RANDOM_ID_BYTES = 16  # 128 bits: a collision among 10^9 ids has a chance below 10^-20
_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Time as every process takes it: an argument, so that tests and scenarios bring their own."""

    def now_ms(self) -> int:
        """Wall clock: whole milliseconds since the epoch, UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary instant. Never jumps; for leases and timeouts."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass on this clock."""
        ...


class SystemClock:
    """This machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def entropy(count: int) -> bytes:
    """`count` unpredictable bytes from the operating system; fit for keys."""
    return os.urandom(count)


def random_id() -> str:
    """32 lower-case hex digits: valid as an id or a tenant (`schemas.ids`)."""
    return secrets.token_hex(RANDOM_ID_BYTES)
