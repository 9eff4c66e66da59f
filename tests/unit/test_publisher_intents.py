"""Does the publisher refuse what no reader would accept, before it promises anything, and say no content."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import decode
from schemas.errors import RecordRefused
from schemas.fingerprints import FingerprintKeys
from schemas.intent import IntentRequested
from schemas.policy import Policy, released
from schemas.record import TopicKind
from schemas.sealed import Binding, SealingKey, UnsealingKeys, generate_key, unseal
from schemas.topics import TopicNames
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.publisher import IntentPublisher, NewIntent

NAMES = TopicNames()
PUBLIC, PRIVATE = generate_key("s1")
AT = datetime(2026, 9, 21, 14, 0, tzinfo=UTC)
EMAIL, PHONE, LINK, NAME = "ada.canary@example.com", "+447700900456", "https://app.example/r?t=canary", "Ada"
CANARIES = (EMAIL, "ada.canary", PHONE, "7700900456", LINK, "t=canary")


class Kept(Publisher):
    """Keeps what it is given; a service's own tests do the same."""

    def __init__(self) -> None:
        self.taken: list[OutgoingRecord] = []

    def publish(self, records: Sequence[OutgoingRecord]) -> None:
        self.taken += records


def new(**changes: Any) -> NewIntent:
    one = NewIntent(
        intent_id="int-0001-test",
        tenant="tenant-0001",
        policy="password_reset:v1",
        locale="en",
        email=EMAIL,
        phone=PHONE,
        variables={"name": NAME, "link": LINK},
        challenge_ref="ch-1",
        requested_at=AT,
        deadline=AT + timedelta(minutes=2),
        expiry=AT + timedelta(minutes=15),
        sms_consent_at=AT - timedelta(days=1),
    )
    return replace(one, **changes)


def publisher(
    kept: Kept | None = None, policies: dict[str, Policy] | None = None, name: str | None = None
) -> IntentPublisher:
    return IntentPublisher(
        NAMES,
        publisher=kept or Kept(),
        sealing=SealingKey(PUBLIC),
        fingerprints=FingerprintKeys("k1", {"k1": b"f" * 32}),
        policies=dict(released()) if policies is None else policies,
        name=name,
    )


def later(**span: int) -> datetime:
    return AT + timedelta(**span)


def naive(**span: int) -> datetime:
    return later(**span).replace(tzinfo=None)


CONSENT_TEXT, GRANTED = "/sms_consent/text_ref", "/sms_consent/granted_at_ms"
CHALLENGE = "/challenge_ref"
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("a deadline without a zone", {"deadline": naive(minutes=2)}, "naive_time", "/deadline"),
    ("a request without a zone", {"requested_at": naive()}, "naive_time", "/requested_at"),
    ("an expiry without a zone", {"expiry": naive(hours=1)}, "naive_time", "/expiry"),
    ("deadline at expiry", {"deadline": later(minutes=15)}, "out_of_bounds", "/deadline"),
    ("deadline after expiry", {"deadline": later(minutes=20)}, "out_of_bounds", "/deadline"),
    ("a deadline too soon", {"deadline": later(seconds=14)}, "out_of_bounds", "/deadline"),
    ("a deadline before the request", {"deadline": later(seconds=-1)}, "out_of_bounds", "/deadline"),
    (
        "a deadline too late",
        {"deadline": later(minutes=11), "expiry": later(minutes=50)},
        "out_of_bounds",
        "/deadline",
    ),
    ("an expiry too late", {"expiry": later(hours=2)}, "out_of_bounds", "/expiry"),
    ("no time left for an SMS", {"expiry": later(minutes=3)}, "out_of_bounds", "/deadline"),
    ("a subject that is no text", {"subject": 4711}, "wrong_type", "/subject"),
    ("an empty subject", {"subject": ""}, "wrong_type", "/subject"),
    ("an unknown policy", {"policy": "password_reset:v99"}, "policy_unknown", "/policy"),
    ("a policy that is none", {"policy": EMAIL}, "policy_unknown", "/policy"),
    ("a missing variable", {"variables": {"name": NAME}}, "invalid_variables", "/variables"),
    (
        "an unknown variable",
        {"variables": {"name": NAME, "link": LINK, "extra": "x"}},
        "invalid_variables",
        "/variables",
    ),
    ("an empty variable", {"variables": {"name": " ", "link": LINK}}, "invalid_variables", "/variables"),
    ("a null variable", {"variables": {"name": None, "link": LINK}}, "invalid_variables", "/variables"),
    (
        "a link elsewhere",
        {"variables": {"name": NAME, "link": "https://elsewhere.example/canary"}},
        "link_origin",
        "/variables",
    ),
    (
        "a link as the challenge",
        {"challenge_ref": "https://app.example/r"},
        "challenge_not_opaque",
        CHALLENGE,
    ),
    ("the token as the challenge", {"challenge_ref": "canary"}, "challenge_not_opaque", CHALLENGE),
    ("an address as the challenge", {"challenge_ref": EMAIL}, "invalid_field", CHALLENGE),
    ("a number as the challenge", {"challenge_ref": PHONE}, "invalid_field", CHALLENGE),
    ("an address that is none", {"email": "ada.canary@"}, "syntax", "/email"),
    ("two addresses", {"email": f"{EMAIL}, b@example.com"}, "control_or_space", "/email"),
    ("a national number", {"phone": "07700900456"}, "not_e164", "/phone"),
    ("a number of nowhere", {"phone": "+9997700900456"}, "unknown_country", "/phone"),
    ("an id in capitals", {"intent_id": "INT-0001-TEST"}, "invalid_field", "/intent_id"),
    ("an address as an id", {"intent_id": EMAIL}, "invalid_field", "/intent_id"),
    ("an address as a tenant", {"tenant": EMAIL}, "invalid_field", "/tenant"),
    ("a consent without a zone", {"sms_consent_at": naive(days=-9)}, "naive_time", "/sms_consent_at"),
    ("a consent text that is none", {"sms_consent_text": EMAIL + " x"}, "invalid_field", CONSENT_TEXT),
    ("a consent of long ago", {"sms_consent_at": AT.replace(year=1999)}, "invalid_field", GRANTED),
    ("a number verified without a zone", {"phone_verified_at": naive()}, "naive_time", "/phone_verified_at"),
    (
        "a number verified later",
        {"phone_verified_at": later(seconds=1)},
        "out_of_bounds",
        "/phone_verified_at",
    ),
    ("a number verified as text", {"phone_verified_at": "yesterday"}, "wrong_type", "/phone_verified_at"),
    ("no address at all", {"email": None}, "wrong_type", "/email"),
    ("a number as a number", {"phone": 447700900456}, "wrong_type", "/phone"),
    ("an instant as text", {"deadline": "2026-09-21T14:02:00Z"}, "wrong_type", "/deadline"),
    ("variables that are none", {"variables": None}, "wrong_type", "/variables"),
]


@pytest.mark.parametrize(
    ("changes", "code", "pointer"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_it_is_refused_before_anything_is_produced(changes: dict[str, Any], code: str, pointer: str) -> None:
    kept = Kept()
    with pytest.raises(RecordRefused) as caught:
        publisher(kept).publish(new(**changes))
    assert (caught.value.code, caught.value.pointer) == (code, pointer)
    assert caught.value.remedy.endswith(".")
    assert "README" not in caught.value.remedy, "the remedy is about this field"
    assert kept.taken == []
    said = str(caught.value) + repr(caught.value) + caught.value.remedy
    assert not any(canary in said for canary in CANARIES)


def test_a_template_that_is_not_here_is_a_matter_of_the_policy() -> None:
    policy = released()["password_reset:v1"].model_copy(update={"template": "password_reset:v99"})
    with pytest.raises(RecordRefused) as caught:
        publisher(policies={policy.policy: policy}).plan(new())
    assert (caught.value.code, caught.value.pointer) == ("template_unknown", "/policy")


def test_a_whole_intent_is_sealed_keyed_and_readable_by_every_reader() -> None:
    kept = Kept()
    record = publisher(kept).publish(new())
    (taken,) = kept.taken
    assert (taken.topic, taken.key) == ("backstop.intents", b"int-0001-test")
    assert decode(TopicKind.INTENTS, taken.key, taken.value) == record
    assert isinstance(record, IntentRequested)
    assert (record.purpose, record.country) == ("password_reset", "GB")
    assert record.variables == ("link", "name")
    assert record.deadline_ms - record.requested_at_ms == 120_000
    assert (taken.headers or [])[1] == ("ce_type", b"backstop.intent_requested.v1")
    binding = Binding(
        record.intent_id,
        record.tenant,
        record.purpose,
        record.policy,
        record.deadline_ms,
        record.expiry_ms,
        record.email_fingerprint,
        record.sms_fingerprint,
    )
    opened = unseal(record.sealed, binding, UnsealingKeys([PRIVATE]))
    assert (opened.email, opened.phone) == (EMAIL, PHONE)
    assert opened.variables == {"name": NAME, "link": LINK}
    assert not any(canary.encode() in (taken.value or b"") for canary in CANARIES)


def test_without_a_phone_there_is_no_country_and_no_fingerprint() -> None:
    record = publisher().plan(new(phone=None, sms_consent_at=None))
    assert (record.country, record.sms_fingerprint, record.sms_consent) == (None, None, None)


def test_since_when_a_number_is_known_travels_in_clear_up_to_the_request_itself() -> None:
    assert publisher().plan(new()).phone_verified_at_ms is None
    record = publisher().plan(new(phone_verified_at=AT))
    assert record.phone_verified_at_ms == record.requested_at_ms


def test_any_zone_names_the_same_instant() -> None:
    auckland = timezone(timedelta(hours=13))
    moved = {
        name: getattr(new(), name).astimezone(auckland) for name in ("requested_at", "deadline", "expiry")
    }
    here, there = publisher().plan(new()), publisher().plan(new(**moved))
    for name in ("requested_at_ms", "deadline_ms", "expiry_ms"):
        assert getattr(here, name) == getattr(there, name)


def test_a_service_that_has_a_name_says_it_in_the_record_and_beside_it() -> None:
    kept = Kept()
    assert publisher(kept, name="accounts-web").publish(new()).publisher == "accounts-web"
    assert ("ce_source", b"accounts-web") in (kept.taken[0].headers or [])
    assert publisher(kept).publish(new()).publisher is None
    assert ("ce_source", b"backstop/publisher") in (kept.taken[1].headers or [])
    with pytest.raises(RecordRefused) as caught:
        publisher(name="ada@example.com").plan(new())
    assert caught.value.pointer == "/publisher"


def test_planning_produces_nothing() -> None:
    kept = Kept()
    publisher(kept).plan(new())
    assert kept.taken == []


def test_a_subject_leaves_as_a_keyed_hash_and_only_when_it_is_given() -> None:
    kept = Kept()
    record = publisher(kept).publish(new(subject="account-4711-canary"))
    assert record.subject_key == FingerprintKeys("k1", {"k1": b"f" * 32}).of_subject(
        "tenant-0001", "account-4711-canary"
    )
    assert b"4711" not in (kept.taken[0].value or b"")
    assert "4711" not in repr(new(subject="account-4711-canary"))
    assert publisher().plan(new()).subject_key is None


def test_a_completion_and_a_cancellation_go_where_the_intent_went() -> None:
    kept = Kept()
    one = publisher(kept)
    done = one.complete("int-0001-test", at=AT, source="reset-form")
    gone = one.cancel("int-0001-test", at=AT, source="support")
    found = [decode(TopicKind.INTENTS, r.key, r.value) for r in kept.taken]
    assert found == [done, gone]
    assert {r.key for r in kept.taken} == {b"int-0001-test"}


@pytest.mark.parametrize(
    ("intent_id", "at", "source", "pointer"),
    [
        ("INT-0001-TEST", AT, "form", "/intent_id"),
        ("int-0001-test", AT.replace(tzinfo=None), "form", "/at"),
        ("int-0001-test", AT, "two words", "/source"),
        ("int-0001-test", AT.replace(year=9999), "form", "/completed_at_ms"),
    ],
)
def test_a_completion_nobody_could_read_is_refused(
    intent_id: str, at: datetime, source: str, pointer: str
) -> None:
    kept = Kept()
    with pytest.raises(RecordRefused) as caught:
        publisher(kept).complete(intent_id, at=at, source=source)
    assert caught.value.pointer == pointer
    assert kept.taken == []


def test_what_a_service_gives_is_not_in_the_printed_form_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        one = new()
        publisher().publish(one)
    assert not any(canary in repr(one) + caplog.text for canary in CANARIES)


WILD = st.one_of(
    st.none(),
    st.text(max_size=20),
    st.integers(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=5), max_size=2),
    st.binary(max_size=5),
)
FIELDS = sorted(NewIntent.__dataclass_fields__)


@given(changes=st.dictionaries(st.sampled_from(FIELDS), WILD, min_size=1, max_size=3))
def test_whatever_is_given_it_is_published_or_refused(changes: dict[str, Any]) -> None:
    kept = Kept()
    try:
        publisher(kept).publish(new(**changes))
    except RecordRefused:
        assert kept.taken == []
    else:
        (taken,) = kept.taken
        assert isinstance(decode(TopicKind.INTENTS, taken.key, taken.value), IntentRequested)
