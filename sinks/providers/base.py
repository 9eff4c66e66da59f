"""The provider port: what the dispatcher and the poller may ask of a provider.

An adapter declares its capabilities and translates; it must never decide, repeat a call, or log a body. It
takes the recipient from `recipient` and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.accounts import Account
from schemas.attempt import NEEDS_REASON, AttemptState
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.errors import InvalidDestination, InvariantBroken
from schemas.ids import Channel
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason


@dataclass(frozen=True, slots=True, repr=False)
class Submission:
    """One message to one recipient. `reference` is the dispatch key: it is also the idempotency key.

    `ttl_ms` is how long the provider may go on trying; fixed at the claim so that the bytes of a
    resubmission are the same. The printed form shows no content.
    """

    reference: str
    to: EmailAddress | PhoneNumber
    sender: str
    text: str
    subject: str | None = None
    html: str | None = None
    ttl_ms: int = 0

    def __repr__(self) -> str:
        return f"Submission({self.reference}, hidden)"


def recipient(submission: Submission, channel: Channel) -> str:
    """The one recipient of a request, in the form that was fingerprinted and looked up (cases F28 and F34).

    Raises `InvariantBroken`, which quotes nothing, for what `parse` would not give: a list, another
    spelling, a number where an address belongs.
    """
    to = submission.to
    wanted = EmailAddress if channel is Channel.EMAIL else PhoneNumber
    if not isinstance(to, wanted) or not _is_normal(to):
        raise InvariantBroken("a request would not go to exactly one recipient", scope="partition")
    return to.reveal()


def _is_normal(to: EmailAddress | PhoneNumber) -> bool:
    try:
        return type(to).parse(to.reveal()) == to
    except InvalidDestination:
        return False


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """What came of it: `accepted` (with a message id), `failed` (refused by code),
    `unknown`, `not_accepted`, `held`.

    `retry_at_ms` with held and not_accepted. `suppress` when the answer must enter the suppression list.
    `ValueError` for a state that needs a reason and has none: an adapter's fault, found at once.
    """

    state: AttemptState
    reason: Reason | None = None
    message_id: str | None = None
    retry_at_ms: int | None = None
    suppress: bool = False

    def __post_init__(self) -> None:
        if self.state in NEEDS_REASON and self.reason is None:
            raise ValueError(f"{self.state.value} without a reason")


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """Ask by `message_id` when there is one, else by `reference`.

    `submitted_ms` and `fingerprint` (of the recipient) find a message in a provider's list that knows no
    reference of ours, and those whose id there is not the one the provider gave us.
    """

    reference: str
    message_id: str | None
    submission_no: int
    submitted_ms: int | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class LookupResult:
    """One answer, in our words. `retry_at_ms` with throttled: the whole account pauses until then."""

    answer: LookupAnswer
    provider_state: ProviderState | None = None
    reason: Reason | None = None
    raw_token: str | None = None
    message_id: str | None = None
    provider_time_ms: int | None = None
    retry_at_ms: int | None = None
    retry_after_malformed: bool = False


class Provider(Protocol):
    """One account at one provider. Calls block for at most `timeout_ms` and never raise for what the
    world does; a raise is a fault of ours."""

    @property
    def account(self) -> Account: ...

    def submit(self, submission: Submission, *, now_ms: int, timeout_ms: int) -> SubmitResult: ...

    def look_up(
        self, requests: Sequence[LookupRequest], *, now_ms: int, timeout_ms: int
    ) -> Sequence[LookupResult]:
        """One result per request, in order; at most `capabilities.lookup_batch_max` requests."""
        ...

    def close(self) -> None: ...
