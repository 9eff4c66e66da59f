"""Is every adapter the same thing behind the port: one suite, over real HTTP on loopback.

A new adapter adds a class that inherits `ProviderContract`; its simulator must speak its wire.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from compose.simulator.behaviour import Model
from compose.simulator.server import Server, create_app
from schemas.accounts import Account, Capabilities
from schemas.attempt import AttemptState
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.ids import Channel
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason, ReasonClass
from sinks.providers.base import LookupRequest, LookupResult, Provider, Submission, SubmitResult
from sinks.providers.credentials import BearerToken
from sinks.providers.registry import build
from tests.contract.raw_server import RawServer, drip, reset, says, silence

T0 = 1_790_000_000_000
TIMEOUT_MS = 5_000
SHORT_MS = 300
SLACK_S = 1.0  # a loaded machine; the server would hold the call for 5 s and more
VISIBILITY_MS = 2_000
CAPS = Capabilities(
    idempotent_submit=True,
    idempotency_window_ms=3_600_000,
    lookup_by_message_id=True,
    lookup_by_reference=True,
    lookup_batch_max=20,
    visibility_delay_ms=VISIBILITY_MS,
)
PLAIN = CAPS.model_copy(update={"idempotent_submit": False, "idempotency_window_ms": 0})
TOKEN = "tok-canary-1"
# Plain ids, and ids such as `<3f…/a+b@sim.example>` (case F05).
with_odd_ids = pytest.mark.parametrize("rig", [False, True], indirect=True, ids=["plain ids", "odd ids"])


@dataclass
class SimClock:
    """The simulator's clock, moved by hand."""

    at_ms: int = T0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic(self) -> float:
        return self.at_ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.at_ms += int(seconds * 1000)


@dataclass
class Rig:
    """The provider behind the adapter, its clock, and accounts `mail-a`, `text-a`, `mail-plain`."""

    model: Model
    clock: SimClock
    url: str
    accounts: dict[str, Account]

    def provider(self, name: str = "mail-a", *, token: str = TOKEN, url: str = "") -> Provider:
        return build(
            self.accounts[name],
            base_url=url or self.url,
            credential=BearerToken(token),
            monotonic=time.monotonic,
        )

    def later(self, ms: int) -> None:
        self.clock.at_ms += ms


def mail(name: str, reference: str = "int-0001-test.email") -> Submission:
    to = EmailAddress.parse(f"{name}+canary@example.com")
    return Submission(reference, to, "no-reply@example.com", "text canary", "subject", "<p>html</p>", 60_000)


def text(digits: str, reference: str = "int-0001-test.sms") -> Submission:
    return Submission(
        reference, PhoneNumber.parse(f"+447700900{digits}"), "Backstop", "canary", ttl_ms=60_000
    )


class ProviderContract:
    """What the dispatcher and the poller rely on. `provider_name` is the adapter's name in the registry."""

    provider_name: str

    @pytest.fixture
    def rig(self, request: pytest.FixtureRequest) -> Iterator[Rig]:
        accounts = {
            name: Account(name=name, provider=self.provider_name, channel=channel, capabilities=caps)
            for name, channel, caps in (
                ("mail-a", Channel.EMAIL, CAPS),
                ("mail-plain", Channel.EMAIL, PLAIN),
                ("text-a", Channel.SMS, CAPS),
            )
        }
        clock, model = SimClock(), Model(accounts, odd_ids=getattr(request, "param", False))
        with Server(create_app(model, clock, credential=TOKEN)) as url:
            yield Rig(model, clock, url, dict(accounts))

    def submit(self, rig: Rig, submission: Submission, account: str = "mail-a") -> SubmitResult:
        provider = rig.provider(account)
        try:
            return provider.submit(submission, now_ms=rig.clock.now_ms(), timeout_ms=TIMEOUT_MS)
        finally:
            provider.close()

    def ask(self, rig: Rig, *requests: LookupRequest, account: str = "mail-a") -> list[LookupResult]:
        provider = rig.provider(account)
        try:
            return list(provider.look_up(requests, now_ms=rig.clock.now_ms(), timeout_ms=TIMEOUT_MS))
        finally:
            provider.close()

    # submitting

    @with_odd_ids
    def test_an_accepted_message_can_be_asked_for_by_id_by_reference_and_in_a_batch(self, rig: Rig) -> None:
        ids = {}
        for number in range(3):
            taken = self.submit(rig, mail("delivered", f"int-000{number}-test.email"))
            assert taken.state is AttemptState.ACCEPTED
            ids[f"int-000{number}-test.email"] = taken.message_id
        rig.later(VISIBILITY_MS)
        by_id = [LookupRequest(reference, message_id, 1) for reference, message_id in ids.items()]
        by_reference = [LookupRequest(reference, None, 1) for reference in ids]
        single = self.ask(rig, by_id[0]) + self.ask(rig, by_reference[0])
        for found in single + self.ask(rig, *by_id) + self.ask(rig, *by_id, *by_reference):
            assert (found.answer, found.provider_state) == (LookupAnswer.ANSWERED, ProviderState.DELIVERED)
            assert found.provider_time_ms == T0 + 1_000
        assert [r.message_id for r in self.ask(rig, *by_id)] == list(ids.values())
        assert [r.message_id for r in self.ask(rig, *by_reference)] == list(ids.values())

    def test_the_same_submission_again_under_its_key_is_the_same_message(self, rig: Rig) -> None:
        first, again = self.submit(rig, mail("delivered")), self.submit(rig, mail("delivered"))
        assert first.message_id == again.message_id
        assert rig.model.duplicates() == []
        assert rig.model.lines()[1]["replayed"]

    def test_without_keys_the_adapter_sends_once_per_call_and_never_again_by_itself(self, rig: Rig) -> None:
        for name in ("lost", "error", "html", "throttle"):
            self.submit(rig, mail(name, f"int-{name}-1.email"), "mail-plain")
        assert len(rig.model.lines()) == 4

    def test_other_bytes_under_the_same_key_are_unknown(self, rig: Rig) -> None:
        self.submit(rig, mail("delivered"))
        found = self.submit(rig, mail("slow"))
        assert (found.state, found.reason) == (AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)

    @pytest.mark.parametrize(
        ("name", "reason", "suppress"),
        [
            ("invalid", Reason.INVALID_RECIPIENT, True),
            ("suppressed", Reason.PROVIDER_SUPPRESSED, True),
            ("content", Reason.CONTENT_REFUSED, False),
            ("blocked", Reason.BLOCKED, False),
            ("swallowed", Reason.PROVIDER_SUPPRESSED, True),  # 202, and a status that says it (case F35)
        ],
    )
    def test_an_email_refused_by_code_has_failed(
        self, rig: Rig, name: str, reason: Reason, suppress: bool
    ) -> None:
        found = self.submit(rig, mail(name))
        assert (found.state, found.reason, found.suppress) == (AttemptState.FAILED, reason, suppress)

    @pytest.mark.parametrize(
        ("digits", "reason"), [("123", Reason.INVALID_RECIPIENT), ("623", Reason.OPTED_OUT)]
    )
    def test_an_sms_refused_by_code_has_failed(self, rig: Rig, digits: str, reason: Reason) -> None:
        found = self.submit(rig, text(digits), "text-a")
        assert (found.state, found.reason, found.suppress) == (AttemptState.FAILED, reason, True)

    @pytest.mark.parametrize(
        ("name", "delay_ms"), [("throttle", (1_000, 1_000)), ("throttledate", (1_000, 2_000))]
    )
    def test_a_throttled_submission_was_not_accepted_and_says_until_when(
        self, rig: Rig, name: str, delay_ms: tuple[int, int]
    ) -> None:
        found = self.submit(rig, mail(name))
        assert (found.state, found.reason) == (AttemptState.NOT_ACCEPTED, Reason.THROTTLED)
        assert found.retry_at_ms is not None
        assert delay_ms[0] <= found.retry_at_ms - T0 <= delay_ms[1]

    @with_odd_ids
    @pytest.mark.parametrize("name", ["lost", "html", "gateway", "empty", "list", "noid", "reset", "close"])
    def test_a_message_whose_answer_was_lost_is_unknown_until_it_is_found(self, rig: Rig, name: str) -> None:
        found = self.submit(rig, mail(name))
        assert (found.state, found.reason) == (AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)
        ask = LookupRequest("int-0001-test.email", None, 1)
        assert self.ask(rig, ask)[0].answer is LookupAnswer.NOT_FOUND  # not visible yet
        rig.later(VISIBILITY_MS)
        (answer,) = self.ask(rig, ask)
        assert answer.provider_state is ProviderState.DELIVERED
        assert answer.message_id == rig.model.lines()[0]["took"]

    @pytest.mark.parametrize("name", ["vanish", "error"])
    def test_a_message_that_was_not_taken_is_unknown_and_stays_not_found(self, rig: Rig, name: str) -> None:
        assert self.submit(rig, mail(name)).state is AttemptState.UNKNOWN
        rig.later(VISIBILITY_MS)
        (answer,) = self.ask(rig, LookupRequest("int-0001-test.email", None, 1))
        assert (answer.answer, answer.provider_state) == (LookupAnswer.NOT_FOUND, None)

    # asking

    def test_words_move_with_time_and_unknown_ones_are_kept_without_consequence(self, rig: Rig) -> None:
        taken = self.submit(rig, mail("unknown"))
        rig.later(VISIBILITY_MS)
        (found,) = self.ask(rig, LookupRequest("int-0001-test.email", taken.message_id, 1))
        assert (found.answer, found.provider_state) == (LookupAnswer.ANSWERED, ProviderState.UNKNOWN)
        assert found.raw_token == "Partially_Delivered"

    @pytest.mark.parametrize(
        ("name", "reason"), [("bounce", Reason.INVALID_RECIPIENT), ("complaint", Reason.COMPLAINT)]
    )
    def test_a_permanent_failure_has_a_reason_about_the_recipient(
        self, rig: Rig, name: str, reason: Reason
    ) -> None:
        taken = self.submit(rig, mail(name))
        rig.later(VISIBILITY_MS)
        (found,) = self.ask(rig, LookupRequest("int-0001-test.email", taken.message_id, 1))
        assert (found.provider_state, found.reason) == (ProviderState.FAILED_PERMANENT, reason)
        assert reason.reason_class is ReasonClass.RECIPIENT

    @pytest.mark.parametrize(
        ("name", "first"),
        [
            ("lookupthrottle", LookupAnswer.THROTTLED),
            ("lookuperror", LookupAnswer.UNAVAILABLE),
            ("lookuphtml", LookupAnswer.MALFORMED),
            ("lookupother", LookupAnswer.MALFORMED),
            ("lookupmissing", LookupAnswer.NOT_FOUND),
        ],
    )
    def test_an_answer_that_is_none_says_nothing_about_the_message(
        self, rig: Rig, name: str, first: LookupAnswer
    ) -> None:
        taken = self.submit(rig, mail(name))
        rig.later(VISIBILITY_MS)
        ask = LookupRequest("int-0001-test.email", taken.message_id, 1)
        (told,) = self.ask(rig, ask)
        assert (told.answer, told.provider_state) == (first, None)
        assert self.ask(rig, ask)[0].provider_state is ProviderState.DELIVERED

    def test_a_key_whose_first_request_is_still_answered_is_unknown_until_later(self, rig: Rig) -> None:
        assert self.submit(rig, mail("busy")).state is AttemptState.UNKNOWN
        again = self.submit(rig, mail("busy"))
        assert (again.state, again.reason) == (AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)
        assert again.retry_at_ms == T0 + 2_000
        rig.later(2_000)
        assert self.submit(rig, mail("busy")).state is AttemptState.ACCEPTED
        assert rig.model.duplicates() == []

    def test_refused_credentials_hold_a_submission_and_are_told_by_a_look_up(self, rig: Rig) -> None:
        taken = self.submit(rig, mail("delivered"))
        rig.model.broken_credentials.add("mail-a")
        held = self.submit(rig, mail("delivered", "int-0002-test.email"))
        assert (held.state, held.reason) == (AttemptState.HELD, Reason.CREDENTIALS_REFUSED)
        (found,) = self.ask(rig, LookupRequest("int-0001-test.email", taken.message_id, 1))
        assert found.answer is LookupAnswer.CREDENTIALS
        assert self.submit(rig, text("023"), "text-a").state is AttemptState.ACCEPTED

    def test_an_outage_is_unknown_for_a_submission_and_unavailable_for_a_look_up(self, rig: Rig) -> None:
        rig.model.out_of_order.add("mail-a")
        assert self.submit(rig, mail("delivered")).state is AttemptState.UNKNOWN
        batch = [LookupRequest(f"ref-{i}", f"m-{i}", 1) for i in range(3)]
        assert {r.answer for r in self.ask(rig, *batch)} == {LookupAnswer.UNAVAILABLE}

    def test_an_account_the_provider_does_not_know_is_a_problem_of_ours(self, rig: Rig) -> None:
        rig.accounts["mail-b"] = rig.accounts["mail-a"].model_copy(update={"name": "mail-b"})
        held = self.submit(rig, mail("delivered"), "mail-b")
        assert (held.state, held.reason) == (AttemptState.HELD, Reason.ACCOUNT_PROBLEM)
        (found,) = self.ask(rig, LookupRequest("ref-1", "m-1", 1), account="mail-b")
        assert found.answer is LookupAnswer.CREDENTIALS  # never «not found»: it would read as not accepted

    # the wire at its worst (case F09)

    def test_a_refused_connection_was_not_accepted(self, rig: Rig) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        provider = rig.provider(url=url)
        found = provider.submit(mail("delivered"), now_ms=T0, timeout_ms=TIMEOUT_MS)
        assert (found.state, found.reason) == (AttemptState.NOT_ACCEPTED, Reason.PROVIDER_UNREACHABLE)
        asked = provider.look_up([LookupRequest("ref-1", "m-1", 1)], now_ms=T0, timeout_ms=TIMEOUT_MS)
        assert asked[0].answer is LookupAnswer.UNAVAILABLE
        provider.close()

    @pytest.mark.parametrize(
        "behaviour",
        [
            pytest.param(silence, id="never answers"),
            pytest.param(says(b""), id="closes without a response"),
            pytest.param(says(b"HTTP/1.1 502 Bad\r\nContent-Length: 6\r\n\r\n<html>"), id="502 HTML"),
            pytest.param(says(b"not http at all\r\n\r\n"), id="not HTTP"),
            pytest.param(reset, id="resets in mid-body"),
            pytest.param(drip(b"HTTP/1.1 202 Accepted\r\nX: "), id="drips a header"),
            pytest.param(drip(b"HTTP/1.1 202 Accepted\r\nContent-Length: 9999\r\n\r\n"), id="drips a body"),
        ],
    )
    def test_a_lost_answer_is_unknown_within_the_calls_time_after_one_request(
        self, rig: Rig, behaviour: object
    ) -> None:
        with RawServer(behaviour) as server:  # type: ignore[arg-type]
            provider = rig.provider(url=server.url)
            began = time.monotonic()
            found = provider.submit(mail("delivered"), now_ms=T0, timeout_ms=SHORT_MS)
            assert time.monotonic() - began < SHORT_MS / 1000 + SLACK_S
            assert (found.state, found.reason) == (AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)
            assert server.connections == 1
            asked = provider.look_up([LookupRequest("ref-1", "m-1", 1)], now_ms=T0, timeout_ms=SHORT_MS)
            assert asked[0].answer is LookupAnswer.UNAVAILABLE
            provider.close()

    def test_one_adapter_serves_many_threads(self, rig: Rig) -> None:
        provider = rig.provider()
        names = [f"int-{i:04d}-test.email" for i in range(40)]
        with ThreadPoolExecutor(8) as pool:
            results = list(
                pool.map(
                    lambda n: provider.submit(mail("delivered", n), now_ms=T0, timeout_ms=TIMEOUT_MS), names
                )
            )
        assert {r.state for r in results} == {AttemptState.ACCEPTED}
        assert len({r.message_id for r in results}) == len(names)
        provider.close()

    def test_nothing_a_call_carries_is_logged_or_printed(
        self, rig: Rig, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.DEBUG):
            results = [self.submit(rig, mail(name)) for name in ("delivered", "invalid", "lost")]
            results.append(self.submit(rig, text("023"), "text-a"))
            provider = rig.provider()
            self.ask(rig, LookupRequest("int-0001-test.email", "m-canary", 1))
        written = "".join(r.getMessage() for r in caplog.records if not r.name.startswith("uvicorn"))
        assert "canary" not in f"{written}{results!r}{provider!r}{mail('delivered')!r}"
        provider.close()


class TestSimulated(ProviderContract):
    provider_name = "simulated"
