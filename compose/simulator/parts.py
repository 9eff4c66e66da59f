"""The parts of the simulated provider: a request, a message, a rule, an outage, a key and a rate.

They must not answer anything; `behaviour` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import ceil

from compose.simulator.script import IN_TRANSIT, Plot

RULES_MAX = 1_000  # each is tried for every submission
SECOND_MS = 1_000


@dataclass(frozen=True, slots=True)
class Request:
    """A submission as the wire carries it; its printed form shows no content."""

    account: str
    reference: str
    to: str = field(repr=False)
    body: bytes = field(repr=False)
    key: str | None = None
    credential_ok: bool = True
    not_after_ms: int | None = None
    content: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class Message:
    """One logical message. `to` and `content` (what a provider shows of it later, in the provider's words)
    are empty when it was restored: a ledger file knows no addresses."""

    message_id: str
    account: str
    reference: str = field(repr=False)
    accepted_ms: int
    plot: Plot
    to: str = field(default="", repr=False)
    content: Mapping[str, str] = field(default_factory=dict, repr=False)
    asked: int = 0  # look-ups answered so far

    def happened(self, until_ms: int) -> list[tuple[int, str | int | None, str | None]]:
        """(instant, token, reason) in order, beginning with the acceptance."""
        at = self.accepted_ms
        later = [(at + s.after_ms, s.token, s.reason) for s in self.plot.statuses]
        return [(at, IN_TRANSIT, None), *(x for x in later if x[0] <= until_ms)]


@dataclass(frozen=True, slots=True)
class Rule:
    """Recipients and references as shell patterns; the first rule that matches gives the plot."""

    plot: Plot
    account: str = "*"
    to: str = field(default="*", repr=False)
    reference: str = "*"

    def matches(self, request: Request) -> bool:
        pairs = ((request.account, self.account), (request.to, self.to), (request.reference, self.reference))
        return all(fnmatchcase(value, pattern) for value, pattern in pairs)


@dataclass(frozen=True, slots=True)
class Outage:
    """503 for everything from `since_ms` (inclusive) to `until_ms` (exclusive)."""

    since_ms: int
    until_ms: int
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """What is remembered under an idempotency key: the first answer belongs to the message."""

    body_hash: str
    since_ms: int
    ready_ms: int
    message: Message


class Rate:
    """At most `per_s` calls in any second (below one: one call in 1/per_s seconds)."""

    def __init__(self, per_s: float) -> None:
        burst = max(1, int(per_s))
        self._window_ms = ceil(burst / per_s * SECOND_MS)
        self._recent: deque[int] = deque(maxlen=burst)

    def wait_ms(self, now_ms: int) -> int:
        """0 and counted, or how long to wait."""
        full = len(self._recent) == self._recent.maxlen
        wait = self._recent[0] + self._window_ms - now_ms if full else 0
        if wait <= 0:
            self._recent.append(now_ms)
        return max(0, wait)
