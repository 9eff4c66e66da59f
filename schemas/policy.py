"""Policies: immutable versioned documents that say what may be sent, when, and what to do when unsure.

The worker never chooses a version: an intent names one. A released file never changes; it must not
be read from anywhere but this package (or a folder handed in by tests and scenarios).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from schemas.errors import PolicyError
from schemas.ids import AccountName, Country, Milliseconds, PolicyRef, Purpose, TemplateRef
from schemas.manifest import check, released_files
from schemas.record import Model
from schemas.written import NotToml, toml

POLLS_MAX = 200  # per stage: 200 look-ups at 1 s are over by 3.4 min; no provider limit allows more
SUBMISSIONS_MAX = 50


class UrgencyClass(StrEnum):
    URGENT = "urgent"
    BULK = "bulk"


class WhenUnsure(StrEnum):
    """A lost answer that neither look-up nor key can settle."""

    WAIT = "wait"
    RISK_DUPLICATE = "risk_duplicate"


class UndispatchedEmail(StrEnum):
    """No submission of the e-mail is known at the deadline."""

    SKIP_EMAIL = "skip_email"
    EXTEND = "extend"


class BounceAfterDelivered(StrEnum):
    KEEP = "keep"
    FALLBACK = "fallback"


class Clause(Model):
    """A part of a policy. Unlike a record it refuses a field it does not know: that is a slip of the pen."""

    model_config = ConfigDict(extra="forbid")


class PollSchedule(Clause):
    """Bounded exponential with jitter: `initial_ms · factor^(n−1)`, at most `interval_ms_max`, ± 20 %."""

    initial_ms: Annotated[int, Field(ge=20, le=3_600_000)]
    factor: Annotated[float, Field(ge=1, le=4)] = 2.0
    interval_ms_max: Annotated[int, Field(ge=20, le=86_400_000)]
    answers_max: Annotated[int, Field(ge=1, le=POLLS_MAX)]  # budget: answered calls per stage
    answer_within_ms: Annotated[int, Field(ge=50, le=600_000)]  # then the order counts as lost


class ChannelPolicy(Clause):
    """One channel: route, look-up schedule, how many submissions may be ordered at most."""

    account: AccountName
    poll: PollSchedule
    submissions_max: Annotated[int, Field(ge=1, le=SUBMISSIONS_MAX)] = 8
    resubmit_after_ms: Annotated[int, Field(ge=10, le=600_000)] = 1_000


class SmsPolicy(ChannelPolicy):
    """The fallback and its gates. Ages are measured back from `requested_at_ms` of the intent; 0: none."""

    allowed: bool  # the assurance of the purpose (NIST SP 800-63B: the telephone network is restricted)
    consent_required: bool = True
    consent_age_ms_min: Milliseconds = 0  # of the consent: who typed in a number a minute ago is refused
    phone_age_ms_min: Milliseconds = 0  # of the knowledge whose number it is: after a change it is refused
    countries: Annotated[tuple[Country, ...], Field(max_length=250)]
    complaint_forbids: bool = True


class Bounds(Clause):
    """What an intent under this policy may ask for; refused at intake, never clamped."""

    deadline_ms_min: Annotated[int, Field(ge=100)]
    deadline_ms_max: Milliseconds
    expiry_ms_max: Milliseconds
    min_useful_window_ms: Annotated[int, Field(ge=0)]  # an SMS with less time left is useless


class Policy(Clause):
    """All durations in milliseconds, from the instant an intent was requested where nothing else is said."""

    policy: PolicyRef
    purpose: Purpose
    urgency: UrgencyClass
    template: TemplateRef
    bounds: Bounds
    email: ChannelPolicy
    sms: SmsPolicy
    fresh_ms: Milliseconds  # a last answer younger than this needs no last look
    look_wait_ms: Milliseconds  # how long the last look may take
    claim_hold_ms_max: Milliseconds  # how late incomplete evidence may make a tick
    late_evidence_ms: Annotated[int, Field(ge=0, le=7 * 86_400_000)]  # grace after expiry
    when_unsure: WhenUnsure = WhenUnsure.WAIT
    undispatched_email: UndispatchedEmail = UndispatchedEmail.SKIP_EMAIL
    extend_ms_max: Milliseconds = 0
    bounce_after_delivered: BounceAfterDelivered = BounceAfterDelivered.KEEP

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        b = self.bounds
        if not b.deadline_ms_min <= b.deadline_ms_max < b.expiry_ms_max:
            raise ValueError("bounds: deadline_ms_min ≤ deadline_ms_max < expiry_ms_max must hold")
        if self.policy.split(":")[0].split("__")[0] != self.purpose:
            raise ValueError("policy is named after its purpose, optionally with __ and a variant")
        if self.undispatched_email is UndispatchedEmail.EXTEND and self.extend_ms_max <= 0:
            raise ValueError("undispatched_email = extend needs extend_ms_max")
        if self.sms.consent_age_ms_min and not self.sms.consent_required:
            raise ValueError("sms.consent_age_ms_min needs sms.consent_required")
        return self


def parse(text: str, *, name: str) -> Policy:
    """One policy from TOML. Raises `PolicyError` naming each wrong field."""
    try:
        return Policy.model_validate(toml(text), strict=False)
    except NotToml as exc:
        raise PolicyError(f"policy {name} is not TOML: {exc}", code="malformed") from None
    except ValidationError as exc:
        wrong = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors(include_input=False)
        )
        raise PolicyError(f"policy {name}: {wrong}", code="invalid_field") from None


def table(policies: Iterable[Policy]) -> dict[str, Policy]:
    """By reference; `PolicyError` when two claim the same one."""
    found: dict[str, Policy] = {}
    for policy in policies:
        if policy.policy in found:
            raise PolicyError(f"two policies are called {policy.policy}", code="duplicate")
        found[policy.policy] = policy
    return found


@cache
def released() -> Mapping[str, Policy]:
    """The policies that ship with this version, by reference."""
    return table(read(files("schemas.policies")))


def read(root: Traversable) -> list[Policy]:
    """The policies in a folder with `<name>/v<n>.toml` and `MANIFEST`, which says what was released.

    Raises `PolicyError` when a file differs from the manifest, is malformed, or is not where its name says.
    """
    wrong = check(root)
    if wrong is not None:
        raise PolicyError(f"policies: {wrong}", code="manifest")
    return [named(path, content) for path, content in sorted(released_files(root).items())]


def named(path: str, content: bytes) -> Policy:
    """One policy of a folder. Raises `PolicyError`, also when its name is not that of its place."""
    try:
        policy = parse(content.decode("utf-8"), name=path)
    except UnicodeDecodeError:
        raise PolicyError(f"policy {path} is not text (UTF-8)", code="malformed") from None
    if policy.policy != path.removesuffix(".toml").replace("/", ":"):
        raise PolicyError(f"{path} calls itself {policy.policy}", code="misnamed")
    return policy
