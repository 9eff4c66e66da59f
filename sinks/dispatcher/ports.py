"""What a dispatcher works with, and what it gives back.

It must not do anything: `handle` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from schemas.attempt import Attempt
from schemas.control import Controls
from schemas.metrics import NO_METER, Meter
from schemas.price import Prices
from schemas.suppression import Suppression
from sinks.dispatcher.claims import Claims
from sinks.dispatcher.prepare import Preparer
from sinks.providers.base import Provider


class HandlerClock(Protocol):
    """`now_ms` may jump; `monotonic` (seconds) may not."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Milliseconds. The lease outlives the call and the skew; settings check it."""

    lease_ms: int
    call_timeout_ms: int
    clock_skew_ms_max: int


@dataclass(slots=True)
class Ports:
    """What a dispatcher works with; all replaceable by scenarios and tests."""

    claims: Claims
    providers: Mapping[str, Provider]
    preparer: Preparer
    prices: Prices
    clock: HandlerClock
    new_id: Callable[[], str]
    controls: Callable[[], Controls]
    completions_read: Callable[[], bool]  # everything that was in the topics now is in the guard
    clock_trusted: Callable[[], bool]
    fault: Callable[[str], None] = field(default=lambda _point: None)  # crash tests only
    meter: Meter = NO_METER


@dataclass(slots=True)
class Handled:
    """What to publish, in this order; `wait_until_ms`: another holder is at it, ask again then.

    `heal` writes a result the guard could not take; the order is not done before it succeeds.
    """

    attempts: list[Attempt] = field(default_factory=list)
    suppressions: list[Suppression] = field(default_factory=list)
    wait_until_ms: int | None = None
    heal: Callable[[], None] | None = None
