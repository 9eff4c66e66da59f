"""A provider, a clock and look-ups for the poller's tests. It must not hold an expectation.

The fake provider passes no contract: it is told what to answer and notes when it was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.accounts import Account, Capabilities
from schemas.ids import Channel
from schemas.lookup import Lookup
from schemas.observation import LookupAnswer, ProviderState
from sinks.providers.base import LookupRequest, LookupResult, Submission, SubmitResult

T0 = 1_790_000_000_000
DELIVERED = LookupResult(LookupAnswer.ANSWERED, ProviderState.DELIVERED, raw_token="delivered")


@dataclass
class HandClock:
    """Both clocks, moved together by hand."""

    at_ms: int = T0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic(self) -> float:
        return (self.at_ms - T0) / 1000


@dataclass
class TellingProvider:
    """Answers every request with `answer(request)`; `asked` has one entry per call."""

    account: Account
    clock: HandClock
    answer: Callable[[LookupRequest], LookupResult] = lambda _request: DELIVERED
    asked: list[tuple[int, list[str]]] = field(default_factory=list)

    def submit(self, submission: Submission, *, now_ms: int, timeout_ms: int) -> SubmitResult:
        raise AssertionError("a poller submits nothing")

    def look_up(
        self, requests: Sequence[LookupRequest], *, now_ms: int, timeout_ms: int
    ) -> Sequence[LookupResult]:
        self.asked.append((self.clock.now_ms(), [r.reference for r in requests]))
        return [self.answer(r) for r in requests]

    def close(self) -> None:
        return None


def provider(name: str, clock: HandClock, **capabilities: Any) -> TellingProvider:
    fields = {"lookup_by_message_id": True, "lookup_by_reference": True} | capabilities
    caps = Capabilities.model_validate(fields)
    account = Account(name=name, provider="simulated", channel=Channel.EMAIL, capabilities=caps)
    return TellingProvider(account, clock)


def lookup(number: int, *, account: str = "mail-a", by_ms: int = 15_000, **changes: Any) -> Lookup:
    fields: dict[str, Any] = {
        "intent_id": f"int-{number:04d}-test",
        "channel": "email",
        "submission_no": 1,
        "poll_no": 1,
        "purpose": "schedule",
        "provider_account": account,
        "message_id": f"m-{number}",
        "reference": f"int-{number:04d}-test.email",
        "ordered_at_ms": T0,
        "answer_by_ms": T0 + by_ms,
    }
    return Lookup.model_validate(fields | changes, strict=False)
