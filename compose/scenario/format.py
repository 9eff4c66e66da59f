"""The scenario file: TOML in, a checked story out, with every mistake named by its place in the file.

    title = "Bounce: one SMS at once"
    policy = "password_reset:v1"        # a released policy, or a whole policy under [policy]
    until = "16m"                       # how long to play; everything is counted from the request

    [intent]                            # every field has a default
    deadline = "60s"
    expiry = "15m"
    phone = "+447700900123"             # "" for none
    consent = true
    requested = "0s"                    # when the request reaches the log

    [email]                             # what the provider of this channel does; [sms] the same
    submits = [{ answer = "accepted", after = "200ms" }]     # in order; the last one repeats
    statuses = [{ at = "3s", token = "bounced" }]            # since the first accepted submission
    lookups = [{ answer = "throttled", retry_after = "30" }] # in order, then the statuses answer
    capabilities = { idempotent_submit = false }

    [[completions]]
    at = "59.9s"
    [[controls]]
    at = "10s"
    pause = "country:GB"                # or resume = "country:GB"
    [[faults]]
    process = "worker"                  # worker, dispatcher or poller
    from = "10s"
    until = "70s"

    [expect]                            # checked when present; the command fails when it does not hold
    closed = "settled"
    sms = 1                             # messages the provider took
    sms_at = "60s"                      # when the SMS was claimed
    reasons = ["deadline_reached"]      # decisions that must have been made, in this order

It must not play anything (`compose.scenario.play`).
"""

from __future__ import annotations

import re
import tomllib
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from schemas.decision import CloseKind, Phase
from schemas.errors import RecordRefused
from schemas.policy import Policy
from schemas.reasons import Reason

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def _duration(value: Any) -> int:
    """`"59.9s"` → 59 900; a bare number has no unit and is refused."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('a duration is a number with ms, s, m, h or d, such as "59.9s"')
    return round(float(found[1]) * _UNITS[found[2]])


Duration = Annotated[int, BeforeValidator(_duration)]


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

    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    MALFORMED = "malformed"
    NOT_FOUND = "not_found"
    CREDENTIALS = "credentials"


class Submit(_Part):
    answer: SubmitAnswer = SubmitAnswer.ACCEPTED
    after: Duration = 50
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

    submits: tuple[Submit, ...] = (Submit(),)
    statuses: tuple[Status, ...] = ()
    lookups: tuple[Asked, ...] = ()
    capabilities: dict[str, Any] = Field(default_factory=dict)


class IntentScript(_Part):
    tenant: str = "tenant-0001"
    purpose: str = "password_reset"
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


class ControlScript(_Part):
    at: Duration
    pause: str | None = None
    resume: str | None = None


class Process(StrEnum):
    WORKER = "worker"
    DISPATCHER = "dispatcher"
    POLLER = "poller"


class Fault(_Part):
    """The process is down from `from` until `until`; what waits for it waits."""

    process: Process
    since: Duration = Field(alias="from")
    until: Duration


class Expectation(_Part):
    phase: Phase | None = None
    closed: CloseKind | None = None
    email: int | None = None
    sms: int | None = None
    sms_at: Duration | None = None
    reasons: tuple[Reason, ...] = ()
    never: tuple[Reason, ...] = ()


class Scenario(_Part):
    title: str
    policy: str | Policy = "password_reset:v1"
    until: Duration = 1_200_000
    intent: IntentScript = IntentScript()
    email: ProviderScript = ProviderScript()
    sms: ProviderScript = ProviderScript()
    completions: tuple[Moment, ...] = ()
    cancellations: tuple[Moment, ...] = ()
    controls: tuple[ControlScript, ...] = ()
    faults: tuple[Fault, ...] = ()
    expect: Expectation | None = None


def parse(text: str, *, name: str) -> Scenario:
    """Raises `RecordRefused` naming the first wrong place; values are not quoted."""
    try:
        return Scenario.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as exc:
        raise RecordRefused(f"{name} is not TOML: {exc}", code="malformed") from None
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        place = "/" + "/".join(str(p) for p in first["loc"])
        raise RecordRefused(f"{name}: {place}: {first['msg']}", code="invalid_field", pointer=place) from None
