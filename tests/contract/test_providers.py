"""Does every adapter pass the suite (`provider_contract`), each against its provider's own wire."""

from __future__ import annotations

from typing import ClassVar

import pytest

from schemas.attempt import AttemptState
from schemas.ids import Channel
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason
from sinks.providers.base import LookupRequest
from tests.contract.provider_contract import HELD, T0, ProviderContract, Rig, failed

_S, _R = ProviderState, Reason
with_odd_ids = pytest.mark.parametrize("rig", [False, True], indirect=True, ids=["plain ids", "odd ids"])


class TestSimulated(ProviderContract):
    provider_name = "simulated"
    channel = Channel.EMAIL
    given_capabilities: ClassVar = {
        "idempotent_submit": True,
        "idempotency_window_ms": 3_600_000,
        "lookup_by_message_id": True,
        "lookup_by_reference": True,
        "lookup_batch_max": 20,
        "visibility_delay_ms": 2_000,
    }
    refusals: ClassVar = {
        "invalid": failed(_R.INVALID_RECIPIENT),
        "suppressed": failed(_R.PROVIDER_SUPPRESSED),
        "content": failed(_R.CONTENT_REFUSED, suppress=False),
        "blocked": failed(_R.BLOCKED, suppress=False),
        "swallowed": failed(_R.PROVIDER_SUPPRESSED),  # 202, and a status that says it (case F35)
        "opted_out": failed(_R.OPTED_OUT),
        "complained": failed(_R.COMPLAINT),
    }
    bounces: ClassVar = {
        "bounce": (_S.FAILED_PERMANENT, _R.INVALID_RECIPIENT),
        "bouncesuppressed": (_S.FAILED_PERMANENT, _R.PROVIDER_SUPPRESSED),
        "complaint": (_S.FAILED_PERMANENT, _R.COMPLAINT),
        "undeliverable": (_S.FAILED_PERMANENT, _R.BLOCKED),
    }

    @with_odd_ids
    def test_by_id_by_reference_and_in_a_batch_the_answer_is_the_same(self, rig: Rig) -> None:
        sent = [self.message("delivered", f"int-000{number}-test.x") for number in range(3)]
        taken = [self.submit(rig, one) for one in sent]
        self.visible(rig)
        by_id = [self.wanted(one, got) for one, got in zip(sent, taken, strict=True)]
        by_reference = [self.wanted(one) for one in sent]
        for found in self.ask(rig, *by_id) + self.ask(rig, *by_id, *by_reference):
            assert (found.answer, found.provider_state) == (LookupAnswer.ANSWERED, _S.DELIVERED)
            assert found.provider_time_ms == T0 + 1_000
        assert [r.message_id for r in self.ask(rig, *by_reference)] == [t.message_id for t in taken]

    def test_the_same_submission_again_under_its_key_is_the_same_message(self, rig: Rig) -> None:
        sent = self.message("delivered")
        first, again = self.submit(rig, sent), self.submit(rig, sent)
        assert first.message_id == again.message_id
        assert rig.model.duplicates() == []
        assert rig.model.lines()[1]["replayed"]

    def test_other_bytes_under_the_same_key_are_unknown(self, rig: Rig) -> None:
        self.submit(rig, self.message("delivered"))
        found = self.submit(rig, self.message("slow"))
        assert (found.state, found.reason) == (AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)

    def test_a_key_whose_first_request_is_still_answered_is_unknown_until_later(self, rig: Rig) -> None:
        assert self.submit(rig, self.message("busy")).state is AttemptState.UNKNOWN
        again = self.submit(rig, self.message("busy"))
        assert (again.state, again.reason) == (AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)
        assert again.retry_at_ms == T0 + 2_000
        rig.later(2_000)
        assert self.submit(rig, self.message("busy")).state is AttemptState.ACCEPTED
        assert rig.model.duplicates() == []

    def test_an_outage_answers_every_order_of_a_batch(self, rig: Rig) -> None:
        rig.model.out_of_order.add("acc-a")
        batch = [LookupRequest(f"ref-{i}", f"m-{i}", 1) for i in range(3)]
        assert {r.answer for r in self.ask(rig, *batch)} == {LookupAnswer.UNAVAILABLE}


class TestPostmark(ProviderContract):
    provider_name = "postmark"
    channel = Channel.EMAIL
    refusals: ClassVar = {
        "invalid": failed(_R.INVALID_RECIPIENT),
        "suppressed": failed(_R.PROVIDER_SUPPRESSED),
        "content": HELD,
        "blocked": HELD,
        "swallowed": failed(_R.PROVIDER_SUPPRESSED),  # an ErrorCode inside a 200
        "opted_out": failed(_R.PROVIDER_SUPPRESSED),
        "complained": failed(_R.PROVIDER_SUPPRESSED),
    }
    bounces: ClassVar = {
        "bounce": (_S.FAILED_PERMANENT, _R.INVALID_RECIPIENT),
        "bouncesuppressed": (_S.FAILED_PERMANENT, _R.PROVIDER_SUPPRESSED),
        "complaint": (_S.FAILED_PERMANENT, _R.COMPLAINT),
        "undeliverable": (_S.UNKNOWN, _R.UNKNOWN_TOKEN),  # no word of an e-mail provider
    }


class TestTwilio(ProviderContract):
    provider_name = "twilio"
    channel = Channel.SMS
    credential_text = "AC0123456789abcdef0123456789abcdef:{}"
    refusals: ClassVar = {
        "invalid": failed(_R.INVALID_RECIPIENT),
        "suppressed": failed(_R.OPTED_OUT),  # Twilio's one list is that of STOP
        "content": failed(_R.BLOCKED, suppress=False),
        "blocked": failed(_R.BLOCKED, suppress=False),
        "swallowed": failed(_R.OPTED_OUT),
        "opted_out": failed(_R.OPTED_OUT),
        "complained": failed(_R.OPTED_OUT),
    }
    bounces: ClassVar = {
        "bounce": (_S.FAILED_PERMANENT, _R.INVALID_RECIPIENT),
        "bouncesuppressed": (_S.FAILED_PERMANENT, _R.INVALID_RECIPIENT),
        "complaint": (_S.UNKNOWN, _R.UNKNOWN_TOKEN),  # no word of an SMS provider
        "undeliverable": (_S.FAILED_TEMPORARY, _R.TEMPORARY_FAILURE),
    }
