"""From an order to the bytes that would be sent: unseal, check the binding, render, digest.

Everything that can be wrong with the order itself is found here, before a claim. It must not call a
provider or the guard, and no content is printed.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from hashlib import sha256

from schemas.destinations import EmailAddress, PhoneNumber
from schemas.dispatch import Dispatch
from schemas.errors import (
    BindingMismatch,
    InvalidDestination,
    SealBroken,
    SealKeyShredded,
    SealKeyUnknown,
    TemplateBroken,
    TemplateUnknown,
    TemplateVariablesInvalid,
)
from schemas.fingerprints import FingerprintKeys
from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.sealed import Binding, Payload, UnsealingKeys, unseal
from schemas.templates import render
from schemas.templates.registry import Catalogue
from sinks.providers.base import Submission


@dataclass(frozen=True, slots=True)
class Prepared:
    """Ready to be claimed: the message without its time to live, which the claim fixes."""

    to: EmailAddress | PhoneNumber
    fingerprint: str
    fingerprints: tuple[str, ...]
    digest: str
    sender: str
    text: str = field(repr=False)
    subject: str | None = field(default=None, repr=False)
    html: str | None = field(default=None, repr=False)
    segments: int = 0  # of an SMS, and the keyed hash of the thousand numbers around its recipient's
    number_range: str = ""

    def submission(self, reference: str, *, ttl_ms: int) -> Submission:
        return Submission(
            reference=reference,
            to=self.to,
            sender=self.sender,
            text=self.text,
            subject=self.subject,
            html=self.html,
            ttl_ms=ttl_ms,
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the order cannot be prepared; class ours means hold, anything else means refuse."""

    reason: Reason


_PROBLEMS: dict[type[Exception], Reason] = {
    SealKeyUnknown: Reason.KEY_UNKNOWN,
    SealKeyShredded: Reason.KEY_SHREDDED,
    BindingMismatch: Reason.BINDING_MISMATCH,
    SealBroken: Reason.SEAL_BROKEN,
    TemplateUnknown: Reason.TEMPLATE_UNKNOWN,
    TemplateVariablesInvalid: Reason.INVALID_VARIABLES,
    TemplateBroken: Reason.TEMPLATE_UNKNOWN,  # our mistake: held until one renders it
    InvalidDestination: Reason.INVALID_RECIPIENT,
}


class Preparer:
    """Holds the keys; one per dispatcher."""

    def __init__(
        self,
        *,
        unsealing: UnsealingKeys,
        fingerprints: FingerprintKeys,
        digest_key: bytes,
        templates: Catalogue,
    ) -> None:
        self._unsealing, self._fingerprints, self._digest_key = unsealing, fingerprints, digest_key
        self._templates = templates

    def prepare(self, order: Dispatch) -> Prepared | Problem:
        """Total: what the world may have got wrong is a `Problem`."""
        try:
            payload = unseal(order.sealed, _binding(order), self._unsealing)
            to = self._destination(order, payload)
            if to is None:
                return Problem(Reason.BINDING_MISMATCH)
            return self._rendered(order, payload, to)
        except tuple(_PROBLEMS) as exc:
            return Problem(_PROBLEMS[type(exc)])

    def _destination(self, order: Dispatch, payload: Payload) -> EmailAddress | PhoneNumber | None:
        """The destination of the channel, if both fingerprints and the country are those of the order."""
        email = EmailAddress.parse(payload.email)
        if not self._fingerprints.matches(email, order.email_fingerprint):
            return None
        phone = None if payload.phone is None else PhoneNumber.parse(payload.phone)
        if (phone is None) != (order.sms_fingerprint is None):
            return None
        if phone is not None and order.sms_fingerprint is not None:
            same = self._fingerprints.matches(phone, order.sms_fingerprint)
            if not same or phone.country != order.country:
                return None
        return email if order.channel is Channel.EMAIL else phone

    def _rendered(self, order: Dispatch, payload: Payload, to: EmailAddress | PhoneNumber) -> Prepared:
        given = render.RenderInput(order.intent_id, order.locale, order.expiry_ms, payload.variables)
        own = order.email_fingerprint if order.channel is Channel.EMAIL else order.sms_fingerprint
        prints = tuple(dict.fromkeys((own or "", *self._fingerprints.all_of(to))))
        template = self._templates.find(order.template)
        sender = template.sender
        if order.channel is Channel.EMAIL:
            email = render.render_email(template, given)
            digest = self._digest(to, render.digest(email, self._digest_key))
            return Prepared(to, prints[0], prints, digest, sender, email.text, email.subject, email.html)
        sms = render.render_sms(template, given)
        digest = self._digest(to, render.digest(sms, self._digest_key))
        around = self._fingerprints.of_range(to) if isinstance(to, PhoneNumber) else ""
        return Prepared(
            to,
            prints[0],
            prints,
            digest,
            sender,
            sms.text,
            segments=sms.segments,
            number_range=around,
        )

    def _digest(self, to: EmailAddress | PhoneNumber, content: str) -> str:
        """Content and recipient: the same order to another address is another request."""
        return hmac.new(self._digest_key, f"{to.reveal()}\x00{content}".encode(), sha256).hexdigest()


def _binding(order: Dispatch) -> Binding:
    return Binding(
        order.intent_id,
        order.tenant,
        order.purpose,
        order.policy,
        order.deadline_ms,
        order.expiry_ms,
        order.email_fingerprint,
        order.sms_fingerprint,
    )
