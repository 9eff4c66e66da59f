"""Seals, fingerprints, keys and partitions an intent, and refuses what no reader would accept.

Everything is checked before anything is produced: a transport retry cannot repair a missing link (seed
004). It must not log or quote content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from schemas.codec import headers
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.errors import (
    BackstopError,
    InvalidDestination,
    RecordRefused,
    SealError,
    TemplateError,
    TemplateUnknown,
)
from schemas.fingerprints import FingerprintKeys
from schemas.intent import IntentCancelled, IntentCompleted, IntentRequested
from schemas.policy import Policy
from schemas.record import Record, TopicKind
from schemas.sealed import Binding, Payload, SealingKey, seal
from schemas.templates.registry import Catalogue, check_values, shipped
from schemas.templates.render import RenderInput, render_email, render_sms
from schemas.topics import TopicNames
from sinks.kafka.producer import OutgoingRecord, Publisher

SOURCE = "backstop/publisher"
_TIMES = ("requested_at", "deadline", "expiry")


@dataclass(frozen=True, slots=True)
class NewIntent:
    """What a service knows. Datetimes carry a zone; destinations and variables are never printed.

    `challenge_ref` is what the service calls the challenge by: an id of its own, not the token in the link.
    `sms_consent_at` is when the person agreed, and `phone_verified_at` since when the service knows that the
    number is theirs; neither is the time of this request, unless that is when it happened.
    `subject`: what the service calls the person by, such as an account id; it leaves as a keyed hash. A newer
    intent of the same tenant, purpose and subject supersedes the older ones.
    """

    intent_id: str
    tenant: str
    policy: str
    locale: str
    email: str = field(repr=False)
    variables: Mapping[str, str] = field(repr=False)
    challenge_ref: str
    requested_at: datetime
    deadline: datetime
    expiry: datetime
    phone: str | None = field(default=None, repr=False)
    sms_consent_at: datetime | None = None
    sms_consent_text: str = "consent-1"
    phone_verified_at: datetime | None = None
    subject: str | None = field(default=None, repr=False)


class IntentPublisher:
    """One per service process; safe to keep. Publishing the same intent again is absorbed downstream."""

    def __init__(
        self,
        names: TopicNames,
        *,
        publisher: Publisher,
        sealing: SealingKey,
        fingerprints: FingerprintKeys,
        policies: Mapping[str, Policy],
        templates: Catalogue | None = None,
        name: str | None = None,
    ) -> None:
        """`name`: of this service, such as `accounts-web`; a refusal is told to it.
        `templates`: the catalogue of the deployment; when not said, the one that ships with us.
        """
        self._templates = shipped() if templates is None else templates
        self._topic = names[TopicKind.INTENTS]
        self._publisher, self._sealing, self._fingerprints = publisher, sealing, fingerprints
        self._policies, self._name = policies, name

    def plan(self, new: NewIntent) -> IntentRequested:
        """The record as it would be published. Raises `RecordRefused` with code, pointer and remedy."""
        _check_types(new)
        policy = self._policies.get(new.policy)
        if policy is None:
            raise RecordRefused(
                f"this policy is not known here; known are {', '.join(sorted(self._policies))}",
                code="policy_unknown",
                pointer="/policy",
                remedy="Publish under a released version, or release this one first.",
            )
        times = {name: _milliseconds(getattr(new, name), name) for name in _TIMES}
        _check_bounds(policy, times)
        _ = _verified(new, times["requested_at"])
        email, phone = _destinations(new)
        _check_challenge(new)
        _check_content(self._templates, policy, new, times["expiry"])
        return self._sealed(new, policy, times, email, phone)

    def publish(self, new: NewIntent) -> IntentRequested:
        """Plan, produce, and return when the brokers have it.

        Raises `RecordRefused`, `PublishFailed` (publish it again) or `KafkaClientFailed` (this publisher is
        spent: make another).
        """
        record = self.plan(new)
        self._send(record.intent_id, record)
        return record

    def complete(self, intent_id: str, *, at: datetime, source: str) -> IntentCompleted:
        """The person did the thing. Raises as `publish`."""
        record = _valid(
            IntentCompleted, intent_id=intent_id, completed_at_ms=_milliseconds(at, "at"), source=source
        )
        self._send(intent_id, record)
        return record

    def cancel(self, intent_id: str, *, at: datetime, source: str) -> IntentCancelled:
        """The service withdraws it. Raises as `publish`."""
        record = _valid(
            IntentCancelled, intent_id=intent_id, cancelled_at_ms=_milliseconds(at, "at"), source=source
        )
        self._send(intent_id, record)
        return record

    def _sealed(
        self,
        new: NewIntent,
        policy: Policy,
        times: Mapping[str, int],
        email: EmailAddress,
        phone: PhoneNumber | None,
    ) -> IntentRequested:
        email_fp = self._fingerprints.of(email)
        sms_fp = None if phone is None else self._fingerprints.of(phone)
        binding = Binding(
            new.intent_id,
            new.tenant,
            policy.purpose,
            policy.policy,
            times["deadline"],
            times["expiry"],
            email_fp,
            sms_fp,
        )
        payload = Payload(email.reveal(), None if phone is None else phone.reveal(), new.variables)
        try:
            sealed = seal(payload, binding, self._sealing)
        except SealError as exc:
            raise _refused(exc, "/variables") from None
        consent = new.sms_consent_at
        return _valid(
            IntentRequested,
            intent_id=new.intent_id,
            tenant=new.tenant,
            purpose=policy.purpose,
            policy=policy.policy,
            locale=new.locale,
            country=None if phone is None else phone.country,
            email_fingerprint=email_fp,
            sms_fingerprint=sms_fp,
            sms_consent=None
            if consent is None
            else {
                "granted_at_ms": _milliseconds(consent, "sms_consent_at"),
                "text_ref": new.sms_consent_text,
            },
            phone_verified_at_ms=_verified(new, times["requested_at"]),
            challenge_ref=new.challenge_ref,
            subject_key=None
            if new.subject is None
            else self._fingerprints.of_subject(new.tenant, new.subject),
            publisher=self._name,
            variables=tuple(sorted(new.variables)),
            requested_at_ms=times["requested_at"],
            deadline_ms=times["deadline"],
            expiry_ms=times["expiry"],
            sealed=sealed,
        )

    def _send(self, intent_id: str, record: Any) -> None:
        made = headers(record, source=self._name or SOURCE, record_id=f"{intent_id}:{record.record}")
        self._publisher.publish([OutgoingRecord(self._topic, intent_id.encode(), record.to_bytes(), made)])


def _check_types(new: NewIntent) -> None:
    """A service is not always type-checked; what it gets wrong is said as any other refusal."""
    texts = ("intent_id", "tenant", "policy", "locale", "email", "challenge_ref", "sms_consent_text")
    wrong = [name for name in texts if not isinstance(getattr(new, name), str)]
    wrong += [name for name in _TIMES if not isinstance(getattr(new, name), datetime)]
    if not isinstance(new.phone, str | None):
        wrong.append("phone")
    if not isinstance(new.subject, str | None) or new.subject == "":
        wrong.append("subject")
    instants = ("sms_consent_at", "phone_verified_at")
    wrong += [name for name in instants if not isinstance(getattr(new, name), datetime | None)]
    if not isinstance(new.variables, Mapping) or not all(isinstance(name, str) for name in new.variables):
        wrong.append("variables")
    if wrong:
        raise RecordRefused(f"{wrong[0]} is of the wrong type", code="wrong_type", pointer=f"/{wrong[0]}")


def _destinations(new: NewIntent) -> tuple[EmailAddress, PhoneNumber | None]:
    try:
        email = EmailAddress.parse(new.email)
    except InvalidDestination as exc:
        raise _refused(exc, "/email") from None
    try:
        return email, None if new.phone is None else PhoneNumber.parse(new.phone)
    except InvalidDestination as exc:
        raise _refused(exc, "/phone") from None


def _check_bounds(policy: Policy, times: Mapping[str, int]) -> None:
    asked, deadline, expiry = times["requested_at"], times["deadline"], times["expiry"]
    bounds = policy.bounds
    if deadline >= expiry:
        _out("deadline must be before expiry", "/deadline")
    if not bounds.deadline_ms_min <= deadline - asked <= bounds.deadline_ms_max:
        _out(
            f"deadline is {deadline - asked} ms after the request; {policy.policy} allows "
            f"{bounds.deadline_ms_min} to {bounds.deadline_ms_max}",
            "/deadline",
        )
    if expiry - asked > bounds.expiry_ms_max:
        _out(f"expiry is {expiry - asked} ms after the request; {bounds.expiry_ms_max} allowed", "/expiry")
    if deadline >= expiry - bounds.min_useful_window_ms:
        _out(
            f"only {expiry - deadline} ms lie between deadline and expiry; an SMS needs "
            f"{bounds.min_useful_window_ms}",
            "/deadline",
        )


def _verified(new: NewIntent, requested_ms: int) -> int | None:
    """Since when the number is known to be theirs; nobody knows it from after the request on."""
    if new.phone_verified_at is None:
        return None
    verified_ms = _milliseconds(new.phone_verified_at, "phone_verified_at")
    if verified_ms > requested_ms:
        _out(f"phone_verified_at is {verified_ms - requested_ms} ms after the request", "/phone_verified_at")
    return verified_ms


def _check_content(templates: Catalogue, policy: Policy, new: NewIntent, expiry_ms: int) -> None:
    """Both channels render, with these very variables, before anything is promised."""
    given = RenderInput(new.intent_id, new.locale, expiry_ms, new.variables)
    try:
        template = templates.find(policy.template)
        check_values(template, new.variables)
        render_email(template, given)
        if policy.sms.allowed and new.phone is not None:
            render_sms(template, given)
    except TemplateUnknown as exc:
        raise _refused(exc, "/policy") from None
    except TemplateError as exc:
        raise _refused(exc, "/variables") from None


def _check_challenge(new: NewIntent) -> None:
    """The reference travels in clear: whoever reads a topic or the audit must not learn the link by it."""
    whole = re.compile(rf"(?<![A-Za-z0-9_-]){re.escape(new.challenge_ref)}(?![A-Za-z0-9_-])")
    if any(whole.search(value) for value in new.variables.values() if isinstance(value, str)):
        raise RecordRefused(
            "challenge_ref is part of a variable, and a variable is secret",
            code="challenge_not_opaque",
            pointer="/challenge_ref",
            remedy="Give the challenge an id of its own, beside the token in the link.",
        )


def _milliseconds(at: datetime, name: str) -> int:
    if at.tzinfo is None or at.utcoffset() is None:
        raise RecordRefused(
            f"{name} has no zone: give an aware datetime", code="naive_time", pointer=f"/{name}"
        )
    return int((at - _EPOCH) / timedelta(milliseconds=1))


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


_R = TypeVar("_R", bound=Record)


def _valid(kind: type[_R], **fields: Any) -> _R:
    """The record, or `RecordRefused` naming the field and not its value."""
    try:
        return kind.model_validate(fields)
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False, include_context=False)[0]
        pointer = "/" + "/".join(str(p) for p in first["loc"] or (first["type"],))
        raise RecordRefused(f"{pointer}: {first['msg']}", pointer=pointer) from None


def _refused(cause: BackstopError, pointer: str) -> RecordRefused:
    """The cause's own sentence, code and remedy, at a field of what the service gave."""
    field = pointer.removeprefix("/")
    return RecordRefused(f"{field}: {cause}", code=cause.code, pointer=pointer, remedy=cause.remedy)


def _out(sentence: str, pointer: str) -> NoReturn:
    raise RecordRefused(sentence, code="out_of_bounds", pointer=pointer)
