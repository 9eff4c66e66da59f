"""The proofs fail when what they prove is not so."""

from __future__ import annotations

from compose.demo.proofs import (
    Fence,
    Submitted,
    all_accounted,
    all_audited,
    no_duplicates,
    nothing_too_late,
)

FENCE = Fence("int-0001-a.sms", expiry_ms=1_000, claimed_ms=500)


def sent(at_ms: int = 600, *, replayed: bool = False) -> Submitted:
    return Submitted("int-0001-a.sms", at_ms, replayed)


def test_two_messages_under_one_reference_are_a_duplicate() -> None:
    assert no_duplicates([sent(), sent(601, replayed=True)]).holds
    assert not no_duplicates([sent(), sent(601)]).holds


def test_a_submission_at_expiry_is_too_late_and_one_before_is_not() -> None:
    assert nothing_too_late([sent(999)], {"int-0001-a.sms": FENCE}).holds
    assert not nothing_too_late([sent(1_000)], {"int-0001-a.sms": FENCE}).holds


def test_a_completion_known_before_the_claim_forbids_and_one_after_it_is_an_overlap() -> None:
    known = Fence("int-0001-a.sms", 1_000, claimed_ms=500, closed_ms=400)
    assert not nothing_too_late([sent()], {"int-0001-a.sms": known}).holds
    late = Fence("int-0001-a.sms", 1_000, claimed_ms=500, closed_ms=550)
    proof = nothing_too_late([sent()], {"int-0001-a.sms": late})
    assert proof.holds
    assert proof.counted["overlaps in flight"] == 1


def test_a_suppression_known_before_the_claim_forbids() -> None:
    known = Fence("int-0001-a.sms", 1_000, claimed_ms=500, suppressed_ms=499)
    assert not nothing_too_late([sent()], {"int-0001-a.sms": known}).holds


def test_a_submission_without_a_claim_is_wrong() -> None:
    assert not nothing_too_late([sent()], {}).holds


def test_accounting_fails_on_a_missing_fate_a_missing_input_and_something_parked() -> None:
    good = {"t": {"inputs": 3, "decided": 2, "absorbed": 1}}
    assert all_accounted(good, {"t": 3}).holds
    assert not all_accounted(good, {"t": 4}).holds
    assert not all_accounted({"t": {"inputs": 3, "decided": 2}}, {"t": 3}).holds
    assert not all_accounted({"t": {"inputs": 3, "decided": 2, "parked": 1}}, {"t": 3}).holds
    assert not all_accounted({}, {"t": 1}).holds


def test_audit_fails_on_a_missing_and_on_an_extra_row() -> None:
    assert all_audited({"t": 2}, {"t": 2}).holds
    assert not all_audited({"t": 2}, {"t": 1}).holds
    assert not all_audited({"t": 2}, {"t": 3}).holds
