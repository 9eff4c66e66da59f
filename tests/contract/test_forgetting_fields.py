"""Is every field of every record either forgotten with a person, or known to lead to nobody."""

from __future__ import annotations

import pytest

from schemas.record import Record
from schemas.topics import TOPICS
from sinks.operator.forgetting import LEADS

# What a row keeps: ours, not a person's. Locale and instants are of the message; a tenant is a company.
# fmt: off
STAYS = frozenset({
    "action", "after_unknown", "ages", "answer", "answer_by_ms", "at_ms", "attempt_id", "by",
    "by_intent_id", "cancelled_at_ms", "cause", "channel", "claim_id", "closed", "completed_at_ms",
    "controls_offset", "deadline_ms", "decision_id", "detail", "dispatch_key", "due_ms",
    "emitted_at_ms", "evidence", "evidence_until_ms", "expiry_ms", "forget_at_ms", "gates",
    "generation", "input", "instruction_id", "intent_id", "key_until_ms", "lease_until_ms", "limits",
    "letter_id", "locale", "looked", "name", "next_due_ms", "next_phase", "not_after_ms", "notes",
    "now_ms", "observation_id", "observed_at_ms", "operator", "ordered_at_ms", "orders", "outcome",
    "paused_until_ms", "pointer", "policy", "poll_no", "prev_digest", "prior_phase",
    "provider_account", "provider_state", "provider_time_ms", "publisher", "purpose", "raw_token", "reason",
    "reference", "reason_class", "record", "requested_at_ms", "retry_at_ms", "seq", "size",
    "source", "state", "submission_no", "submitted_at_ms", "superseded_at_ms", "template", "tenant",
    "trigger", "unless_sms_claimed", "unrecorded", "value_hmac", "variables", "version", "via",
    "why",
})
# fmt: on
SEALED = {"sealed"}  # never stored: the audit keeps `sealed_chars` and `sealed_sha256`
RECORDS = {record.__name__: record for topic in TOPICS.values() for record in topic.records}


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_every_field_of_a_record_is_forgotten_or_leads_to_nobody(name: str) -> None:
    record: type[Record] = RECORDS[name]
    unknown = set(record.model_fields) - set(LEADS) - STAYS - SEALED
    assert not unknown, "decide what `backstop forget` does with these: LEADS, or STAYS with a reason"


def test_no_field_is_in_both_lists() -> None:
    assert not STAYS & set(LEADS)


def test_decisions_hold_nothing_that_is_forgotten() -> None:
    """Their bytes stay as they are, so that the chain can be verified for ever."""
    assert not set(RECORDS["Decision"].model_fields) & set(LEADS)
