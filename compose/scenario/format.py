"""The scenario file: TOML in, a checked story out, with every mistake named by its place in the file.

    title = "Bounce: one SMS at once"
    policy = "password_reset:v1"        # a released policy, or a whole policy under [policy]
    changes = { when_unsure = "wait", "email.submissions_max" = 3 }   # what differs from it in this story
    until = "16m"                       # how long to play; everything is counted from the request

    [intent]                            # every field has a default
    deadline = "60s"
    expiry = "15m"
    phone = "+447700900123"             # "" for none
    consent = true
    requested = "0s"                    # when the request reaches the log
    again_at = ["5s"]                   # the same request published again, sealed anew

    [email]                             # what the provider of this channel does; [sms] the same
    submits = [{ answer = "accepted", after = "200ms" }]     # in order; the last one repeats
    statuses = [{ at = "3s", token = "bounced" }]            # since the first message was taken
    lookups = [{ answer = "throttled", retry_after = "30" }] # in order, then the statuses answer
    capabilities = { idempotent_submit = false }             # changes what the account promises

    [[completions]]                     # [[cancellations]] the same
    at = "59.9s"
    [[others]]                          # another intent of the same subject reaches the log then
    at = "30s"
    older = false                       # true: it was asked for a minute before this one, and comes late
    [[controls]]
    at = "10s"
    pause = "country:GB"                # or resume = "country:GB"
    [[faults]]
    process = "worker"                  # worker, dispatcher, poller or database (the claim guard)
    from = "10s"
    until = "70s"

    [expect]                            # checked when present; the command fails when it does not hold
    phase = "closed"
    closed = "settled"
    sms = 1                             # messages the provider took; email the same
    others_sms = 1                      # what the other intents of its subject sent
    sms_at = "60s"                      # when the SMS was claimed, to the tenth of a second
    closed_at = "15m"                   # when the intent was closed, likewise
    reasons = ["deadline_reached"]      # reasons or notes of decisions, in this order
    never = ["expired"]                 # reasons or notes of no decision
    overlap = false                     # what the closing decision sums up; needless_fallback the same
    dead_letters = 0                    # checked even when not said
    refused = "out_of_bounds"           # the publisher refuses the request; nothing else happens

It must not play anything (`compose.scenario.play`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from schemas.accounts import Capabilities
from schemas.control import Control, ControlAction
from schemas.decision import CloseKind, Phase
from schemas.errors import RecordRefused
from schemas.policy import Policy, released
from schemas.reasons import Reason
from schemas.written import NotToml, shown, toml

# A week and a day: the longest late evidence a policy may wait for, and then some.
UNTIL_MS_MAX = 8 * 86_400_000
_ANY_MS = 1_790_000_000_000  # a control is checked before it has its instant
DURATION_MS_MAX = 3_650 * 86_400_000  # ten years: from any request until then, an instant is still one
FILE_BYTES_MAX = 262_144  # a story a person wrote: 256 KiB is already a hundred of them

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def _duration(value: Any) -> int:
    """`"59.9s"` → 59 900; a bare number has no unit and is refused."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('a duration is a number with ms, s, m, h or d, such as "59.9s"')
    length_ms = float(found[1]) * _UNITS[found[2]]
    if length_ms > DURATION_MS_MAX:
        raise ValueError("a duration has at most ten years")
    return round(length_ms)


Duration = Annotated[int, BeforeValidator(_duration)]


def _policy(value: Any) -> Any:
    """A whole policy, or the name of a released one."""
    if isinstance(value, dict):
        return _checked(value)
    if isinstance(value, str):
        found = released().get(value)
        if found is None:
            raise ValueError(f"not a released policy (known: {', '.join(sorted(released()))})")
        return found
    return value


def _checked(fields: dict[str, Any]) -> Policy:
    try:
        return Policy.model_validate(fields, strict=False)
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _capabilities(value: Any) -> Any:
    """Names and types are those of `schemas.accounts.Capabilities`."""
    if isinstance(value, dict):
        try:
            Capabilities.model_validate(value, strict=False)
        except ValidationError as exc:
            first = exc.errors(include_input=False, include_url=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        unknown = sorted(set(value) - set(Capabilities.model_fields))
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}")
    return value


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SubmitAnswer(StrEnum):
    """What the provider does with a submission."""

    ACCEPTED = "accepted"
    LOST = "lost"  # taken, but the answer never arrives
    VANISHED = "vanished"  # not taken, and the answer never arrives either
    THROTTLED = "throttled"
    UNREACHABLE = "unreachable"
    INVALID = "invalid_recipient"
    SUPPRESSED = "provider_suppressed"
    OPTED_OUT = "opted_out"
    CONTENT = "content_refused"
    CREDENTIALS = "credentials_refused"


class LookupKind(StrEnum):
    """What a look-up meets before the statuses answer."""

    STATUSES = "statuses"  # this one is answered; the next line is about the next
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    MALFORMED = "malformed"
    NOT_FOUND = "not_found"
    CREDENTIALS = "credentials"


class Submit(_Part):
    """`after` is how long the call takes: 50 ms when not said, the whole time-out for a lost answer."""

    answer: SubmitAnswer = SubmitAnswer.ACCEPTED
    after: Duration | None = None
    retry_after: str | None = None  # the header as the provider writes it


class Status(_Part):
    at: Duration
    token: str | None
    reason: str | None = None


class Asked(_Part):
    answer: LookupKind
    retry_after: str | None = None


class ProviderScript(_Part):
    """One channel's provider. With nothing said it accepts at once and never reports more."""

    submits: Annotated[tuple[Submit, ...], Field(min_length=1)] = (Submit(),)
    statuses: tuple[Status, ...] = ()
    lookups: tuple[Asked, ...] = ()
    capabilities: Annotated[dict[str, Any], BeforeValidator(_capabilities)] = Field(default_factory=dict)


class IntentScript(_Part):
    tenant: str = "tenant-0001"
    locale: str = "en"
    email: str = "person@example.com"
    phone: str = "+447700900123"
    consent: bool = True
    requested: Duration = 0
    deadline: Duration = 60_000
    expiry: Duration = 900_000
    variables: dict[str, str] | None = None
    again_at: tuple[Duration, ...] = ()  # the same request published again


class Moment(_Part):
    at: Duration


class Other(_Part):
    """Another intent of the same subject; its provider accepts everything and never reports more."""

    at: Duration
    older: bool = False


class ControlScript(_Part):
    at: Duration
    pause: str | None = None
    resume: str | None = None

    @model_validator(mode="after")
    def _one_control(self) -> Self:
        if (self.pause is None) == (self.resume is None):
            raise ValueError("a control either pauses or resumes")
        try:  # the record knows the scopes
            Control(
                name=self.name, action=ControlAction.PAUSE, operator="scenario", why="check", at_ms=_ANY_MS
            )
        except ValidationError as exc:
            raise ValueError(exc.errors(include_input=False, include_url=False)[0]["msg"]) from None
        return self

    @property
    def name(self) -> str:
        return self.pause or self.resume or ""


class Process(StrEnum):
    WORKER = "worker"
    DISPATCHER = "dispatcher"
    POLLER = "poller"
    DATABASE = "database"


class Fault(_Part):
    """The process is down from `from` until `until`; what waits for it waits."""

    process: Process
    since: Duration = Field(alias="from")
    until: Duration

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> Self:
        if self.since >= self.until:
            raise ValueError("from must be before until")
        return self


class Expectation(_Part):
    phase: Phase | None = None
    closed: CloseKind | None = None
    email: int | None = None
    sms: int | None = None
    others_sms: int | None = None
    sms_at: Duration | None = None
    closed_at: Duration | None = None
    reasons: tuple[Reason, ...] = ()
    never: tuple[Reason, ...] = ()
    overlap: bool | None = None
    needless_fallback: bool | None = None
    refused: str | None = None
    dead_letters: int = 0


class Scenario(_Part):
    title: str
    policy: Annotated[Policy, BeforeValidator(_policy)] = Field("password_reset:v1", validate_default=True)
    changes: dict[str, Any] = Field(default_factory=dict)
    until: Annotated[Duration, Field(le=UNTIL_MS_MAX)] = 1_200_000
    intent: IntentScript = IntentScript()
    email: ProviderScript = ProviderScript()
    sms: ProviderScript = ProviderScript()
    completions: tuple[Moment, ...] = ()
    cancellations: tuple[Moment, ...] = ()
    others: tuple[Other, ...] = ()
    controls: tuple[ControlScript, ...] = ()
    faults: tuple[Fault, ...] = ()
    expect: Expectation | None = None

    @model_validator(mode="after")
    def _changes_fit(self) -> Self:
        _ = self.played_policy
        return self

    @property
    def played_policy(self) -> Policy:
        """The policy with the changes of this story, under a name of its own: released ones never change."""
        if not self.changes:
            return self.policy
        fields = self.policy.model_dump()
        for name, value in self.changes.items():
            *outer, last = name.split(".")
            place: Any = fields
            for step in outer:
                place = place.get(step) if isinstance(place, dict) else None
            if not isinstance(place, dict) or last not in place:
                raise ValueError(f"changes: a policy has no {name}")
            place[last] = value
        fields["policy"] = f"{self.policy.purpose}__scenario:v1"
        return _checked(fields)


def parse(text: str, *, name: str) -> Scenario:
    """Raises `RecordRefused` naming the first wrong place; values are not quoted."""
    try:
        return Scenario.model_validate(toml(text))
    except NotToml as exc:
        raise RecordRefused(f"{name} is not TOML: {exc}", code="malformed") from None
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        place = shown("/" + "/".join(str(p) for p in first["loc"]))
        raise RecordRefused(f"{name}: {place}: {first['msg']}", code="invalid_field", pointer=place) from None
