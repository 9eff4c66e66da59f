"""What the demo publishes: outcomes by name, who gets what, and what has to come of it.

Recipients are the simulator's magic ones (`compose.simulator.plots`). It must not publish or wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemas.decision import CloseKind
from schemas.reasons import Reason


class Twist(StrEnum):
    """What the service does besides publishing the intent once."""

    NONE = "none"
    COMPLETES = "completes"  # before the deadline
    COMPLETES_FIRST = "completes_first"  # the completion overtakes the request
    PUBLISHES_TWICE = "publishes_twice"
    LATE = "late"  # the request was held up until after its expiry
    SAME_PERSON_LATER = "same_person_later"  # an address that bounced before


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table. `phone`: the digit that chooses the SMS plot, "" for none, or a whole number."""

    name: str
    policy: str
    email: str
    phone: str
    ended: CloseKind
    fallback: bool
    because: Reason  # a decision with this reason has to be there
    emails: int  # messages the provider took, per intent
    texts: int
    consent: bool = True
    twist: Twist = Twist.NONE
    count: int = 11


_R, _C = Reason, CloseKind
RESET, KEYED, SIGNUP, BUILD = (
    "password_reset__demo:v1",
    "password_reset__keyed:v1",
    "signup_verification__demo:v1",
    "build_failure__demo:v1",
)
JAMAICA = "+18765550123"

KINDS: tuple[Kind, ...] = (
    Kind("delivered in time", RESET, "delivered", "0", _C.SETTLED, False, _R.DELIVERED, 1, 0, count=20),
    Kind("never reported, SMS at the deadline", SIGNUP, "never", "0", _C.SETTLED, True, _R.DEADLINE_REACHED, 1, 1),
    Kind("slow, SMS at the deadline", RESET, "slow", "0", _C.SETTLED, True, _R.DEADLINE_REACHED, 1, 1),
    Kind("bounced, SMS at once", RESET, "bounce", "0", _C.SETTLED, True, _R.CONCLUSIVE_FAILURE, 1, 1),
    Kind("refused, SMS at once", BUILD, "invalid", "0", _C.SETTLED, True, _R.CONCLUSIVE_FAILURE, 0, 1),
    Kind("answer lost, found by look-up", RESET, "lost", "0", _C.SETTLED, False, _R.SUBMIT_UNKNOWN, 1, 0),
    Kind("answer lost, same key again", KEYED, "lost", "0", _C.SETTLED, False, _R.RESUBMITTED, 1, 0),
    Kind("never taken, ordered again", RESET, "vanish", "0", _C.SETTLED, False, _R.NOT_FOUND, 1, 0),
    Kind("throttled, then delivered", RESET, "throttle", "0", _C.SETTLED, False, _R.THROTTLED, 1, 0),
    Kind("throttled by a date", SIGNUP, "throttledate", "0", _C.SETTLED, False, _R.THROTTLED, 1, 0),
    Kind("deferred, then delivered", SIGNUP, "temporary", "0", _C.SETTLED, False, _R.DELIVERED, 1, 0),
    Kind(
        "completed before the deadline", RESET, "never", "0", _C.COMPLETED, False, _R.COMPLETED, 1, 0,
        twist=Twist.COMPLETES,
    ),
    Kind(
        "completed before its request came", RESET, "never", "0", _C.COMPLETED, False, _R.COMPLETED, 0, 0,
        twist=Twist.COMPLETES_FIRST,
    ),
    Kind(
        "published twice", RESET, "delivered", "0", _C.SETTLED, False, _R.DELIVERED, 1, 0,
        twist=Twist.PUBLISHES_TWICE,
    ),
    Kind("no consent", SIGNUP, "never", "0", _C.EXPIRED, False, _R.NO_CONSENT, 1, 0, consent=False),
    Kind("no phone", BUILD, "never", "", _C.EXPIRED, False, _R.NO_PHONE, 1, 0),
    Kind("country not allowed", RESET, "never", JAMAICA, _C.EXPIRED, False, _R.COUNTRY_NOT_ALLOWED, 1, 0),
    Kind(
        "expired on arrival", RESET, "delivered", "0", _C.EXPIRED, False, _R.EXPIRED_AT_INTAKE, 0, 0,
        twist=Twist.LATE,
    ),
    Kind("both channels fail", RESET, "bounce", "1", _C.SETTLED, True, _R.EXHAUSTED, 1, 0),
    Kind("SMS reported undeliverable", RESET, "bounce", "5", _C.SETTLED, True, _R.EXHAUSTED, 1, 1),
    Kind("SMS answer lost, found by look-up", RESET, "bounce", "3", _C.SETTLED, True, _R.SUBMIT_UNKNOWN, 1, 1),
    Kind("SMS throttled, then delivered", RESET, "bounce", "4", _C.SETTLED, True, _R.THROTTLED, 1, 1),
    Kind("person answered STOP", RESET, "bounce", "6", _C.SETTLED, True, _R.OPTED_OUT, 1, 0),
    Kind("SMS never confirmed", RESET, "bounce", "2", _C.UNRESOLVED, True, _R.UNRESOLVED, 1, 1, count=5),
    Kind("words nobody knows, then SMS", RESET, "unknown", "0", _C.SETTLED, True, _R.UNKNOWN_TOKEN, 1, 1),
    Kind(
        "address bounced before, SMS at once", BUILD, "bounce", "0", _C.SETTLED, True, _R.SUPPRESSED, 0, 1,
        twist=Twist.SAME_PERSON_LATER,
    ),
)  # fmt: skip

GARBAGE: tuple[bytes, ...] = (
    b'{"record": "intent_requested", "version": 1, "link": "https://app.example/r?t=CANARY"',
    b'{"record": "intent_requested", "version": 9}',
    b'{"record": "surprise", "to": "CANARY@example.com"}',
    b"null",
    b"\xff\xfe\x00CANARY",
    b'{"record": "intent_requested", "version": 1, "intent_id": null, "email": "CANARY@example.com"}',
)


@dataclass(frozen=True, slots=True)
class Person:
    """Where one intent goes. Unique per intent, so that one person's bounce is nobody else's."""

    email: str
    phone: str | None


def person(kind: Kind, number: int, *, run: str) -> Person:
    """`number` counts the intents of a kind from 0; numbers repeat only where the plot allows it."""
    whose = (
        "bounced-twice"
        if kind.twist is Twist.SAME_PERSON_LATER or kind.name == _FIRST_BOUNCE
        else _slug(kind)
    )
    email = f"{kind.email}+{run}-{whose}-{number}@example.com"
    if not kind.phone:
        return Person(email, None)
    if kind.phone.startswith("+"):
        return Person(email, kind.phone)
    offset = [k.name for k in KINDS if k.phone == kind.phone].index(kind.name)
    return Person(email, f"+447700900{kind.phone}{(offset * 13 + number) % 100:02d}")


_FIRST_BOUNCE = "bounced, SMS at once"


def _slug(kind: Kind) -> str:
    return "".join(c if c.isalnum() else "-" for c in kind.name.lower())
