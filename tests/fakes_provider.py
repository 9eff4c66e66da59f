"""A provider that does as it is told, for tests of the dispatcher. It must not hold an expectation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from schemas.accounts import Account
from schemas.attempt import AttemptState
from sinks.providers.base import LookupRequest, LookupResult, Submission, SubmitResult

TAKEN = SubmitResult(AttemptState.ACCEPTED, message_id="m-1")


@dataclass
class ScriptedProvider:
    """Answers in order, the last one for ever; what was submitted is kept."""

    account: Account
    answers: list[SubmitResult] = field(default_factory=lambda: [TAKEN])
    submitted: list[Submission] = field(default_factory=list)
    during: Callable[[], None] = field(default=lambda: None)

    def submit(self, submission: Submission, *, now_ms: int, timeout_ms: int) -> SubmitResult:
        self.submitted.append(submission)
        self.during()
        return self.answers[min(len(self.submitted), len(self.answers)) - 1]

    def look_up(
        self, requests: Sequence[LookupRequest], *, now_ms: int, timeout_ms: int
    ) -> Sequence[LookupResult]:
        raise NotImplementedError

    def close(self) -> None: ...
