"""Orders a dispatcher can prepare: sealed, bound and fingerprinted under keys of the tests.

It must not hold an expectation.
"""

from __future__ import annotations

from typing import Any

from schemas.destinations import EmailAddress, PhoneNumber
from schemas.dispatch import Dispatch
from schemas.fingerprints import FingerprintKeys
from schemas.ids import Channel, dispatch_key
from schemas.sealed import Binding, Payload, SealingKey, generate_key, seal
from tests.builders import T0

PUBLIC, PRIVATE = generate_key("s1")
PRINTS = FingerprintKeys("k1", {"k1": b"1" * 32})
EMAIL, PHONE = EmailAddress.parse("canary@example.com"), PhoneNumber.parse("+447700900123")
VARIABLES = {"link": "https://app.example/r?t=canary", "name": "Ada"}


def order(number: int = 1, channel: Channel = Channel.EMAIL, *, t0: int = T0, **changes: Any) -> Dispatch:
    """Valid, ordered at `t0` (ms), deadline after a minute; `payload_variables`, `payload_email` and
    `payload_phone`, in the spelling that is given, go into the envelope."""
    intent = changes.get("intent_id", "int-0001-test")
    email = changes.pop("payload_email", EMAIL.reveal())
    phone = PhoneNumber.parse(changes.pop("payload_phone", PHONE.reveal()))
    email_fp, sms_fp = PRINTS.of(EmailAddress.parse(email)), PRINTS.of(phone)
    binding = Binding(
        intent,
        "tenant-0001",
        "password_reset",
        "password_reset:v1",
        t0 + 60_000,
        t0 + 900_000,
        email_fp,
        sms_fp,
    )
    payload = Payload(email, phone.reveal(), changes.pop("payload_variables", VARIABLES))
    fields: dict[str, Any] = {
        "decision_id": "int-0001-test:1",
        "intent_id": intent,
        "tenant": "tenant-0001",
        "purpose": "password_reset",
        "policy": "password_reset:v1",
        "template": "password_reset:v1",
        "channel": channel,
        "dispatch_key": dispatch_key(intent, channel),
        "submission_no": number,
        "provider_account": "mail-a" if channel is Channel.EMAIL else "text-a",
        "locale": "en",
        "country": phone.country,
        "email_fingerprint": email_fp,
        "sms_fingerprint": sms_fp,
        "deadline_ms": t0 + 60_000,
        "expiry_ms": t0 + 900_000,
        "not_after_ms": t0 + 840_000,
        "ordered_at_ms": t0,
        "unless_sms_claimed": channel is Channel.EMAIL,
        "after_unknown": number > 1,
        "sealed": seal(payload, binding, SealingKey(PUBLIC)),
    }
    return Dispatch.model_validate(fields | changes)
