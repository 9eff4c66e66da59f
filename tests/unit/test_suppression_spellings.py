"""Who is on the list gets nothing, in whatever spelling and on whatever path; who is not, does (case F34)."""

from __future__ import annotations

import pytest

from schemas.attempt import AttemptState
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.ids import Channel
from schemas.reasons import Reason
from sinks.dispatcher.rules import Listed
from sinks.operator import suppression_csv
from sinks.providers.base import SubmitResult
from tests.builders import T0
from tests.dispatcher_bench import Bench
from tests.fakes_provider import TAKEN
from tests.orders import PHONE, PRINTS

NOT_TAKEN = SubmitResult(AttemptState.NOT_ACCEPTED, Reason.THROTTLED, retry_at_ms=T0 + 1)
SPELLINGS = [
    ("alice@example.com", "Alice@Example.COM"),
    ("ALICE@EXAMPLE.COM", "alice@example.com"),
    ("x@b\u00fccher.example", "x@xn--bcher-kva.example"),
    ("x@xn--bcher-kva.example", "X@B\u00dcCHER.example"),
]
OTHERS = [
    ("alice@example.com", "alice+reset@example.com"),
    ("alice+reset@example.com", "alice@example.com"),
    ("alice@example.com", "al.ice@example.com"),
    ("x@istanbul.example", "x@\u0131stanbul.example"),
    ("x@strasse.example", "x@stra\u00dfe.example"),
    ("x@apple.example", "x@\u0430pple.example"),
]


def suppress(bench: Bench, text: str) -> None:
    """As an operator's list does."""
    found = suppression_csv.parse(f"destination\n{text}\n", PRINTS, key_ids=["k1"], now_ms=T0)
    (line,) = found.lines
    channel = Channel.EMAIL if "@" in text else Channel.SMS
    listed = Listed(line.fingerprint, channel.value, line.reason, "cause", T0)
    bench.claims.write_facts(closed=[], suppressed=[listed], lifted=[], progress={})


@pytest.mark.parametrize(("listed", "sent"), SPELLINGS)
def test_a_listed_person_gets_no_first_message_in_any_spelling(bench: Bench, listed: str, sent: str) -> None:
    suppress(bench, listed)
    found = bench.attempt(payload_email=sent)
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.SUPPRESSED)
    assert bench.mail.submitted == []


@pytest.mark.parametrize(("listed", "sent"), SPELLINGS)
def test_a_person_listed_after_the_first_try_gets_no_second(bench: Bench, listed: str, sent: str) -> None:
    bench.mail.answers = [NOT_TAKEN, TAKEN]
    assert bench.attempt(1, payload_email=sent).state is AttemptState.NOT_ACCEPTED
    suppress(bench, listed)
    found = bench.attempt(2, payload_email=sent, after_unknown=False)
    assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.SUPPRESSED)
    assert len(bench.mail.submitted) == 1


@pytest.mark.parametrize("again", [1, 2])
def test_a_listed_number_gets_no_fallback_and_the_email_was_free_to_go(bench: Bench, again: int) -> None:
    suppress(bench, PHONE.reveal())
    assert bench.attempt().state is AttemptState.ACCEPTED
    for _ in range(again):
        found = bench.attempt(channel=Channel.SMS)
        assert (found.state, found.reason) == (AttemptState.REFUSED, Reason.SUPPRESSED)
    assert bench.text.submitted == []


@pytest.mark.parametrize(("listed", "sent"), OTHERS)
def test_another_person_is_not_meant(bench: Bench, listed: str, sent: str) -> None:
    suppress(bench, listed)
    assert bench.attempt(payload_email=sent).state is AttemptState.ACCEPTED


def test_one_normaliser_gives_the_list_what_an_order_is_matched_by() -> None:
    for listed, sent in SPELLINGS:
        assert suppression_csv.destination(listed) == EmailAddress.parse(sent)
    assert suppression_csv.destination(PHONE.reveal()) == PhoneNumber.parse(PHONE.reveal())
