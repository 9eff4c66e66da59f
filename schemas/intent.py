"""What services publish: an intent, its completion, its cancellation; and the worker: that a newer one came.

It must not hold a destination, a link, a name or a token in clear: those travel in `sealed` only.
"""

from __future__ import annotations

from typing import Annotated, Literal, LiteralString, Self

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from schemas.ids import (
    VARIABLE_PATTERN,
    Country,
    FingerprintText,
    Instant,
    IntentId,
    Locale,
    PolicyRef,
    PublisherName,
    Purpose,
    Reference,
    SubjectKey,
    TenantId,
)
from schemas.record import Model, Record

VARIABLES_COUNT_MAX = 32
SEALED_CHARS_MAX = 65_536  # a JWE of 48 KiB of payload: far above any template's variables

VariableName = Annotated[str, StringConstraints(pattern=VARIABLE_PATTERN)]
Sealed = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*){4}$", max_length=SEALED_CHARS_MAX)
]


class SmsConsent(Model):
    """That the person agreed to SMS, since when, and under which text."""

    granted_at_ms: Instant
    text_ref: Reference


class IntentRequested(Record):
    """One thing a service wants one person to learn: one id, one deadline, one expiry, for ever.

    Instants are whole milliseconds since the epoch, UTC; deadline < expiry. `country` is the ISO
    3166-1 code of the phone number. `challenge_ref` is what the service calls the challenge by: one for
    both channels, opaque, and not the token that the link carries. `variables` are the names of the sealed
    variables. `subject_key` says whom it is about: a newer request of the same tenant, purpose and subject
    supersedes this one.
    `publisher` is the name of the service that asks: a refusal is told to it.
    `phone_verified_at_ms`: since when this number is known to belong to this person; a service that
    does not know leaves it out, and a policy that demands an age of the number refuses the SMS then.
    """

    record: Literal["intent_requested"] = "intent_requested"
    version: Literal[1] = 1
    intent_id: IntentId
    tenant: TenantId
    purpose: Purpose
    policy: PolicyRef
    locale: Locale
    country: Country | None = None
    email_fingerprint: FingerprintText
    sms_fingerprint: FingerprintText | None = None
    sms_consent: SmsConsent | None = None
    phone_verified_at_ms: Instant | None = None
    challenge_ref: Reference
    subject_key: SubjectKey | None = None
    publisher: PublisherName | None = None
    variables: Annotated[tuple[VariableName, ...], Field(max_length=VARIABLES_COUNT_MAX)]
    requested_at_ms: Instant
    deadline_ms: Instant
    expiry_ms: Instant
    sealed: Sealed

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        if self.deadline_ms >= self.expiry_ms:
            raise _misfit("deadline_ms", "deadline_ms must be before expiry_ms")
        if self.email_fingerprint.split(".")[1] != "e":
            raise _misfit("email_fingerprint", "email_fingerprint must be of channel e")
        if self.sms_fingerprint is not None:
            if self.sms_fingerprint.split(".")[1] != "s":
                raise _misfit("sms_fingerprint", "sms_fingerprint must be of channel s")
            if self.country is None:
                raise _misfit("country", "country is required with sms_fingerprint")
        if self.phone_verified_at_ms is not None and self.phone_verified_at_ms > self.requested_at_ms:
            raise _misfit("phone_verified_at_ms", "phone_verified_at_ms must not be after requested_at_ms")
        return self


def _misfit(name: LiteralString, says: LiteralString) -> PydanticCustomError:
    """Two fields that do not fit: the error's type is the field to correct (`codec` makes its pointer)."""
    return PydanticCustomError(name, says)


class IntentCompleted(Record):
    """The person did the thing. Only an explicit act by a person completes (case F39)."""

    record: Literal["intent_completed"] = "intent_completed"
    version: Literal[1] = 1
    intent_id: IntentId
    completed_at_ms: Instant
    source: Reference


class IntentCancelled(Record):
    """The service no longer wants the person to learn it."""

    record: Literal["intent_cancelled"] = "intent_cancelled"
    version: Literal[1] = 1
    intent_id: IntentId
    cancelled_at_ms: Instant
    source: Reference


class IntentSuperseded(Record):
    """A newer request about the same subject was read: what this intent would say is no longer true.

    Written by the worker that keeps the subject, never by a service.
    """

    record: Literal["intent_superseded"] = "intent_superseded"
    version: Literal[1] = 1
    intent_id: IntentId
    by_intent_id: IntentId
    superseded_at_ms: Instant
