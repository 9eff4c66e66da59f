"""One suite for every guard: who must not be written to, until when, and what alone opens the way again."""

from __future__ import annotations

import pytest

from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.suppression import Suppression, SuppressionAction
from schemas.topics import TopicNames
from sinks.dispatcher.facts import write_facts
from sinks.dispatcher.rules import Grant, Lifted, Listed, Refuse
from sinks.kafka.consumer import Message
from tests import builders
from tests.builders import T0
from tests.contract.claims_guard import Guard, facts, guard, order

__all__ = ["guard"]  # the fixture with both guards

S = Channel.SMS
OLD, NEW = f"k0.s.{'b' * 32}", f"k1.s.{'a' * 32}"
NAMES = TopicNames()
LATER_MS = 60_000


def goes_out(guard: Guard, name: str = "one", prints: tuple[str, ...] = (NEW, OLD)) -> bool:
    asked = order(channel=S, intent_id=f"int-{name}-test", claim_id=name, fingerprints=prints)
    found = guard.claims.claim(asked)
    assert isinstance(found, Grant) or found == Refuse(Reason.SUPPRESSED)
    return isinstance(found, Grant)


def listed(reason: Reason, at_ms: int = T0, fingerprint: str = NEW) -> Listed:
    return Listed(fingerprint, "sms", reason, "cause", at_ms)


def test_after_stop_nothing_goes_out_until_a_consent_that_is_later(guard: Guard) -> None:
    facts(guard, suppressed=[listed(Reason.OPTED_OUT)])
    for number, given_ms in enumerate((T0 - LATER_MS, T0)):
        facts(guard, consented={NEW: given_ms})
        assert not goes_out(guard, f"before{number}")
    facts(guard, consented={NEW: T0 + 1})
    assert goes_out(guard, "after")


def test_a_consent_read_before_the_stop_it_is_later_than_counts_the_same(guard: Guard) -> None:
    facts(guard, consented={NEW: T0 + 1})
    facts(guard, suppressed=[listed(Reason.OPTED_OUT)])
    assert goes_out(guard)


def test_an_older_consent_read_later_does_not_take_back_a_newer_one(guard: Guard) -> None:
    facts(guard, suppressed=[listed(Reason.OPTED_OUT)], consented={NEW: T0 + 1})
    facts(guard, consented={NEW: T0 - 1})
    assert goes_out(guard)


def test_a_consent_under_the_new_fingerprint_key_undoes_a_stop_under_the_old_one(guard: Guard) -> None:
    facts(guard, suppressed=[listed(Reason.OPTED_OUT, fingerprint=OLD)])
    assert not goes_out(guard, "before")
    facts(guard, consented={NEW: T0 + 1})
    assert goes_out(guard, "after")


def test_a_stop_after_the_consent_closes_the_way_again(guard: Guard) -> None:
    facts(guard, suppressed=[listed(Reason.OPTED_OUT)], consented={NEW: T0 + 1})
    facts(guard, suppressed=[listed(Reason.OPTED_OUT, T0 + 2)])
    assert not goes_out(guard)


def test_a_stop_told_once_more_with_its_own_instant_changes_nothing(guard: Guard) -> None:
    facts(guard, suppressed=[listed(Reason.OPTED_OUT)], consented={NEW: T0 + 1})
    facts(guard, suppressed=[listed(Reason.OPTED_OUT)])
    assert goes_out(guard)


@pytest.mark.parametrize("reason", [Reason.PERMANENT_BOUNCE, Reason.COMPLAINT, Reason.SUPPRESSED_BY_HAND])
@pytest.mark.parametrize("stop_first", [True, False])
def test_a_consent_opens_nothing_that_is_closed_for_another_reason(
    guard: Guard, reason: Reason, stop_first: bool
) -> None:
    both = [listed(Reason.OPTED_OUT), listed(reason)]
    for one in both if stop_first else reversed(both):
        facts(guard, suppressed=[one])
    facts(guard, consented={NEW: T0 + LATER_MS})
    assert not goes_out(guard)


@pytest.mark.parametrize("stop_first", [True, False])
def test_taking_off_a_mistake_leaves_what_the_person_opted_out_of(guard: Guard, stop_first: bool) -> None:
    both = [listed(Reason.OPTED_OUT), listed(Reason.PERMANENT_BOUNCE)]
    for one in both if stop_first else reversed(both):
        facts(guard, suppressed=[one])
    facts(guard, lifted=[Lifted(NEW, "sms")])
    assert not goes_out(guard, "before")
    facts(guard, consented={NEW: T0 + LATER_MS})
    assert goes_out(guard, "after")


def test_an_operator_who_says_that_the_person_agreed_opens_it_and_an_old_stop_told_again_does_not_close_it(
    guard: Guard,
) -> None:
    facts(guard, suppressed=[listed(Reason.OPTED_OUT)])
    facts(guard, lifted=[Lifted(NEW, "sms", T0 + LATER_MS)])
    assert goes_out(guard, "one")
    facts(guard, suppressed=[listed(Reason.OPTED_OUT)])
    assert goes_out(guard, "two")
    facts(guard, suppressed=[listed(Reason.OPTED_OUT, T0 + 2 * LATER_MS)])
    assert not goes_out(guard, "three")


def test_a_stop_on_sms_closes_sms_only_and_this_number_only(guard: Guard) -> None:
    facts(guard, suppressed=[listed(Reason.OPTED_OUT)])
    assert isinstance(guard.claims.claim(order()), Grant)
    assert goes_out(guard, "other", (f"k1.s.{'c' * 32}",))


# as read from the topics


def read(guard: Guard, *records: object) -> None:
    """These records in one batch, in this order."""
    kinds = {"suppression": TopicKind.SUPPRESSIONS, "intent_requested": TopicKind.INTENTS}
    messages = []
    for offset, record in enumerate(records):
        kind = kinds[record.record]  # type: ignore[attr-defined]
        key = getattr(record, "key", None) or record.intent_id  # type: ignore[attr-defined]
        messages.append(Message(NAMES[kind], 0, offset, T0, key.encode(), record.to_bytes()))  # type: ignore[attr-defined]
    write_facts(guard.claims, NAMES, messages, {})


def record(reason: Reason, at_ms: int = T0, *, lift: bool = False) -> Suppression:
    action = SuppressionAction.LIFT if lift else SuppressionAction.SUPPRESS
    return Suppression(fingerprint=NEW, channel=S, action=action, reason=reason, cause="op-1", at_ms=at_ms)


def asked(granted_ms: int | None, requested_ms: int = T0 + LATER_MS) -> object:
    one = builders.request()
    consent = None
    if granted_ms is not None:
        assert one.sms_consent is not None
        consent = one.sms_consent.model_copy(update={"granted_at_ms": granted_ms})
    changes = {"sms_consent": consent, "sms_fingerprint": NEW, "requested_at_ms": requested_ms}
    return one.model_copy(update=changes)


@pytest.mark.parametrize(
    ("granted_ms", "open_again"), [(None, False), (T0 - 1, False), (T0, False), (T0 + 1, True)]
)
def test_a_request_opens_what_was_stopped_only_with_a_consent_of_later(
    guard: Guard, granted_ms: int | None, open_again: bool
) -> None:
    """Case F36: START alone is nothing of ours; what counts is the consent a service sends."""
    read(guard, record(Reason.OPTED_OUT), asked(granted_ms))
    assert goes_out(guard) is open_again


def test_a_consent_dated_after_its_own_request_counts_as_of_the_request(guard: Guard) -> None:
    read(guard, asked(T0 + 10 * LATER_MS, requested_ms=T0 + LATER_MS))
    read(guard, record(Reason.OPTED_OUT, T0 + 2 * LATER_MS))
    assert not goes_out(guard)


def test_of_a_stop_a_consent_and_a_stop_in_one_batch_the_last_counts(guard: Guard) -> None:
    read(
        guard,
        record(Reason.OPTED_OUT),
        record(Reason.CONSENT_GIVEN, T0 + 1, lift=True),
        record(Reason.OPTED_OUT, T0 + 2),
    )
    assert not goes_out(guard, "one")
    read(guard, record(Reason.OPTED_OUT, T0 + 3), record(Reason.CONSENT_GIVEN, T0 + 4, lift=True))
    assert goes_out(guard, "two")


def test_a_mistake_taken_off_in_the_same_batch_leaves_the_stop_in_it(guard: Guard) -> None:
    read(
        guard,
        record(Reason.PERMANENT_BOUNCE),
        record(Reason.OPTED_OUT),
        record(Reason.LISTED_BY_MISTAKE, T0 + 1, lift=True),
    )
    assert not goes_out(guard, "one")
    read(guard, record(Reason.PERMANENT_BOUNCE), record(Reason.LISTED_BY_MISTAKE, T0 + 1, lift=True))
    assert not goes_out(guard, "two")
    read(guard, record(Reason.CONSENT_GIVEN, T0 + 2, lift=True))
    assert goes_out(guard, "three")


@pytest.mark.parametrize("reason", [Reason.OPTED_OUT, Reason.PROVIDER_SUPPRESSED])
def test_what_one_account_learned_holds_on_another_account_and_for_another_tenant(
    guard: Guard, reason: Reason
) -> None:
    """The provider is changed in between: still nothing (cases F35, F36)."""
    assert goes_out(guard, "one")
    guard.claims.begin("one")
    guard.claims.finish(
        "one",
        intent_id="int-one-test",
        channel=S,
        submission_no=1,
        state="failed",
        result={},
        suppress=(NEW, reason),
    )
    for account, tenant in (("text-a", "tenant-0001"), ("text-b", "tenant-0001"), ("text-b", "tenant-0002")):
        asked = order(
            channel=S,
            intent_id=f"int-{account}-{tenant}",
            claim_id=f"{account}-{tenant}",
            fingerprints=(NEW, OLD),
            account=account,
            tenant=tenant,
        )
        assert guard.claims.claim(asked) == Refuse(Reason.SUPPRESSED)
