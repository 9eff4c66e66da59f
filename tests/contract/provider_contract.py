"""The suite every adapter passes, over real HTTP against the simulator speaking that provider's wire.

A new adapter is a class in `test_providers.py` that inherits `ProviderContract` and says what its provider
calls things. What a provider cannot do is read from its capabilities and asserted, never left out.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from compose.simulator import dialects
from compose.simulator.behaviour import Model
from compose.simulator.plots import EMAIL_PLOTS, SMS_PLOTS
from compose.simulator.script import Answer, Plot, Status, Step
from compose.simulator.server import Server, create_app
from schemas.accounts import Account, Capabilities
from schemas.attempt import AttemptState
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.ids import Channel
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason
from sinks.providers import registry
from sinks.providers.base import LookupRequest, LookupResult, Provider, Submission, SubmitResult
from tests.contract.raw_server import Behaviour, RawServer, drip, reset, says, silence
from tests.orders import PRINTS as FINGERPRINTS

T0 = 1_790_000_000_000
TIMEOUT_MS = 5_000
SHORT_MS = 300
SLACK_S = 1.0  # a loaded machine; the server would hold the call for 5 s and more
TOKEN = "tok-canary-1"
# By name for both channels; `opted_out` and `complained` have no magic address of their own.
PLOTS: dict[str, Plot] = {
    **EMAIL_PLOTS,
    "opted_out": SMS_PLOTS["6"],
    "complained": Plot((Step(Answer.COMPLAINED),)),
    "undeliverable": SMS_PLOTS["5"],
    "unlisted": Plot(statuses=(Status(200, "Quite New Word"),)),
}
_NAMES = sorted(PLOTS)
Outcome = tuple[AttemptState, Reason | None, bool]
HELD: Outcome = (AttemptState.HELD, Reason.ACCOUNT_PROBLEM, False)


def failed(reason: Reason, *, suppress: bool = True) -> Outcome:
    return (AttemptState.FAILED, reason, suppress)


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


def answer_of(status: str, body: bytes, *headers: str) -> bytes:
    """A whole response as bytes."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


NO_ANSWERS: list[Any] = [
    pytest.param(says(answer_of("200 OK", b"<html>gateway</html>")), id="a page"),
    pytest.param(says(answer_of("200 OK", b"")), id="empty"),
    pytest.param(says(answer_of("200 OK", b"[]")), id="a list"),
    pytest.param(says(answer_of("200 OK", b"null")), id="null"),
    pytest.param(says(answer_of("200 OK", b'{"id": 7, "messages": {}, "sid": []}')), id="types"),
    pytest.param(says(answer_of("200 OK", b'{"a":' * 100_000)), id="deeply nested"),
    pytest.param(says(answer_of("200 OK", b'{"a": "' + b"x" * 1_200_000 + b'"}')), id="huge"),
    pytest.param(says(answer_of("302 Found", b"", "Location: http://127.0.0.1:1/")), id="redirect"),
    pytest.param(says(b"HTTP/1.1 202 Accepted\r\nContent-Length: 99\r\n\r\n{"), id="truncated"),
    pytest.param(silence, id="never answers"),
    pytest.param(says(b""), id="closes without a response"),
    pytest.param(says(answer_of("502 Bad", b"<html>")), id="502 page"),
    pytest.param(says(b"not http at all\r\n\r\n"), id="not HTTP"),
    pytest.param(reset, id="resets in mid-body"),
    pytest.param(drip(b"HTTP/1.1 202 Accepted\r\nX: "), id="drips a header"),
    pytest.param(drip(b"HTTP/1.1 202 Accepted\r\nContent-Length: 9999\r\n\r\n"), id="drips a body"),
]
_NOTHING_SAID = frozenset({LookupAnswer.UNAVAILABLE, LookupAnswer.MALFORMED})


@dataclass
class Rig:
    """The provider behind the adapter, its clock, and account `acc-a`."""

    contract: ProviderContract
    model: Model
    clock: SimClock
    server: str
    accounts: dict[str, Account]

    def provider(self, *, secret: str = TOKEN, url: str = "", account: str = "acc-a") -> Provider:
        found = self.accounts.get(account) or self.accounts["acc-a"].model_copy(update={"name": account})
        adapter = registry.adapter_of(found.provider)
        base = url or self.server + dialects.place(found.provider, account)
        return registry.build(
            found,
            base_url=base,
            options=self.contract.options_at(base),
            credential=adapter.read_credential(self.contract.credential_text.format(secret)),
            fingerprints=FINGERPRINTS,
            monotonic=time.monotonic,
        )

    def later(self, ms: int) -> None:
        self.clock.at_ms += ms

    @property
    def caps(self) -> Capabilities:
        return self.accounts["acc-a"].capabilities


class ProviderContract:
    """What the dispatcher and the poller rely on.

    `refusals`: what comes of a recipient the provider refuses at once, by plot; `bounces`: of one that it
    takes and then reports. `credential_text`: the file's line, with the secret for `{}`.
    """

    provider_name: ClassVar[str]
    channel: ClassVar[Channel]
    credential_text: ClassVar[str] = "{}"
    given_capabilities: ClassVar[Mapping[str, Any]] = {}
    refusals: ClassVar[Mapping[str, Outcome]]
    bounces: ClassVar[Mapping[str, tuple[ProviderState, Reason | None]]]

    def options_at(self, base_url: str) -> Mapping[str, Any]:
        """`[accounts.options]` for an account whose base address is this."""
        return {}

    @pytest.fixture
    def rig(self, request: pytest.FixtureRequest) -> Iterator[Rig]:
        said = Account(
            name="acc-a",
            provider=self.provider_name,
            channel=self.channel,
            capabilities=Capabilities(**self.given_capabilities),
        )
        held = registry.capabilities(said, frozenset(self.given_capabilities))
        accounts = {"acc-a": said.model_copy(update={"capabilities": held})}
        clock = SimClock()
        model = Model(
            accounts,
            odd_ids=getattr(request, "param", False),
            id_shapes=dialects.ID_SHAPES,
            plots=self._plot,
        )
        with Server(create_app(model, clock, credential=TOKEN)) as url:
            yield Rig(self, model, clock, url, accounts)

    def _plot(self, to: str) -> Plot | None:
        return PLOTS[to.partition("+")[0] if "@" in to else _NAMES[int(to[-2:])]]

    def message(self, name: str, reference: str = "int-0001-test.x") -> Submission:
        """To a recipient with the plot of that name."""
        if self.channel is Channel.EMAIL:
            to = EmailAddress.parse(f"{name}+canary@example.com")
            return Submission(reference, to, "no-reply@example.com", "canary", "subject", "<p>x</p>", 60_000)
        number = PhoneNumber.parse(f"+4477009009{_NAMES.index(name):02d}")
        return Submission(reference, number, "+447700900001", "canary", ttl_ms=60_000)

    def wanted(
        self, submission: Submission, taken: SubmitResult | None = None, *, message_id: str | None = None
    ) -> LookupRequest:
        """The order to ask about it, as the machine would give it."""
        known = taken.message_id if taken is not None else message_id
        print_ = FINGERPRINTS.of(submission.to)
        return LookupRequest(submission.reference, known, 1, submitted_ms=T0, fingerprint=print_)

    def submit(self, rig: Rig, submission: Submission, **given: str) -> SubmitResult:
        provider = rig.provider(**given)
        try:
            return provider.submit(submission, now_ms=rig.clock.now_ms(), timeout_ms=TIMEOUT_MS)
        finally:
            provider.close()

    def ask(self, rig: Rig, *requests: LookupRequest, **given: str) -> list[LookupResult]:
        provider = rig.provider(**given)
        try:
            return list(provider.look_up(requests, now_ms=rig.clock.now_ms(), timeout_ms=TIMEOUT_MS))
        finally:
            provider.close()

    def visible(self, rig: Rig) -> None:
        """Wait until the provider's look-ups can know."""
        rig.later(max(rig.caps.visibility_delay_ms, 2_000))

    # submitting

    def test_an_accepted_message_can_be_asked_for(self, rig: Rig) -> None:
        sent = [self.message("delivered", f"int-000{number}-test.x") for number in range(3)]
        taken = [self.submit(rig, one) for one in sent]
        assert {t.state for t in taken} == {AttemptState.ACCEPTED}
        assert len({t.message_id for t in taken}) == len(sent) if rig.caps.lookup_by_reference else True
        self.visible(rig)
        found = [self.ask(rig, self.wanted(one, got))[0] for one, got in zip(sent, taken, strict=True)]
        assert {f.provider_state for f in found} == {ProviderState.DELIVERED}
        assert [f.message_id for f in found] == [t.message_id for t in taken]
        assert all(f.provider_time_ms is None or T0 <= f.provider_time_ms <= T0 + 2_000 for f in found)

    def test_look_ups_in_a_batch_say_what_single_ones_say(self, rig: Rig) -> None:
        most = min(5, rig.caps.lookup_batch_max)
        sent = [self.message("delivered", f"int-000{number}-test.x") for number in range(most)]
        asks = [self.wanted(one, self.submit(rig, one)) for one in sent]
        self.visible(rig)
        single = [self.ask(rig, one)[0] for one in asks]
        before = len(rig.model.lines())
        assert self.ask(rig, *asks) == single
        assert len(rig.model.lines()) - before <= max(1, most if rig.caps.lookup_batch_max == 1 else 2)

    @pytest.mark.parametrize("name", ["lost", "error", "html", "throttle"])
    def test_a_call_is_made_once_and_never_again_by_itself(self, rig: Rig, name: str) -> None:
        self.submit(rig, self.message(name))
        assert [line["route"] for line in rig.model.lines()] == ["submit"]

    @pytest.mark.parametrize(
        "name", ["invalid", "suppressed", "content", "blocked", "swallowed", "opted_out", "complained"]
    )
    def test_a_refusal_is_what_the_providers_documents_say(self, rig: Rig, name: str) -> None:
        found = self.submit(rig, self.message(name))
        assert (found.state, found.reason, found.suppress) == self.refusals[name]

    @pytest.mark.parametrize(
        ("name", "delay_ms"), [("throttle", (1_000, 1_000)), ("throttledate", (1_000, 2_000))]
    )
    def test_a_throttled_submission_was_not_accepted_and_says_until_when(
        self, rig: Rig, name: str, delay_ms: tuple[int, int]
    ) -> None:
        found = self.submit(rig, self.message(name))
        assert (found.state, found.reason) == (AttemptState.NOT_ACCEPTED, Reason.THROTTLED)
        assert found.retry_at_ms is not None
        assert delay_ms[0] <= found.retry_at_ms - T0 <= delay_ms[1]

    @pytest.mark.parametrize("name", ["lost", "html", "gateway", "empty", "list", "noid", "reset", "close"])
    def test_a_message_whose_answer_was_lost_is_unknown_until_it_is_found(self, rig: Rig, name: str) -> None:
        sent = self.message(name)
        found = self.submit(rig, sent)
        assert (found.state, found.reason) == (AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)
        ask = self.wanted(sent)
        if not rig.caps.lookup_by_reference:
            assert self.ask(rig, ask)[0].answer is LookupAnswer.SKIPPED
            return
        assert self.ask(rig, ask)[0].answer is LookupAnswer.NOT_FOUND  # not visible yet
        self.visible(rig)
        (answer,) = self.ask(rig, ask)
        assert answer.provider_state in (ProviderState.ACCEPTED, ProviderState.DELIVERED)
        assert answer.message_id is not None
        (known,) = self.ask(rig, self.wanted(sent, message_id=answer.message_id))
        assert (known.provider_state, known.message_id) == (ProviderState.DELIVERED, answer.message_id)
        assert [e["took"] for e in rig.model.lines() if e["route"] == "submit"] == [
            rig.model.lines()[-1]["found"]
        ]

    @pytest.mark.parametrize("name", ["vanish", "error"])
    def test_a_message_that_was_not_taken_is_unknown_and_stays_not_found(self, rig: Rig, name: str) -> None:
        sent = self.message(name)
        assert self.submit(rig, sent).state is AttemptState.UNKNOWN
        self.visible(rig)
        (answer,) = self.ask(rig, self.wanted(sent))
        nothing = LookupAnswer.NOT_FOUND if rig.caps.lookup_by_reference else LookupAnswer.SKIPPED
        assert (answer.answer, answer.provider_state) == (nothing, None)

    def test_two_who_get_the_same_words_are_not_taken_for_each_other(self, rig: Rig) -> None:
        ours, other = self.message("lost", "int-0001-test.x"), self.message("delivered", "int-0002-test.x")
        self.submit(rig, ours)
        taken = self.submit(rig, other)
        self.visible(rig)
        (found,) = self.ask(rig, self.wanted(ours))
        assert found.message_id is None or found.message_id != taken.message_id

    # asking

    def test_words_no_document_lists_are_kept_without_consequence(self, rig: Rig) -> None:
        sent = self.message("unlisted")
        taken = self.submit(rig, sent)
        self.visible(rig)
        (found,) = self.ask(rig, self.wanted(sent, taken))
        assert (found.answer, found.provider_state) == (LookupAnswer.ANSWERED, ProviderState.UNKNOWN)
        assert found.raw_token == "Quite_New_Word"

    @pytest.mark.parametrize("name", ["oddtokens", "badtext", "repeat", "reorder"])
    def test_odd_words_and_odd_orders_never_make_it_fail(self, rig: Rig, name: str) -> None:
        sent = self.message(name)
        taken = self.submit(rig, sent)
        self.visible(rig)
        (found,) = self.ask(rig, self.wanted(sent, taken))
        allowed = {ProviderState.DELIVERED, ProviderState.UNKNOWN, ProviderState.ACCEPTED}
        assert found.answer in {LookupAnswer.ANSWERED, LookupAnswer.MALFORMED}
        assert found.provider_state is None or found.provider_state in allowed

    @pytest.mark.parametrize("name", ["bounce", "bouncesuppressed", "complaint", "undeliverable"])
    def test_a_failure_after_acceptance_has_its_reason(self, rig: Rig, name: str) -> None:
        sent = self.message(name)
        taken = self.submit(rig, sent)
        self.visible(rig)
        (found,) = self.ask(rig, self.wanted(sent, taken))
        assert (found.provider_state, found.reason) == self.bounces[name]

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
        sent = self.message(name)
        taken = self.submit(rig, sent)
        self.visible(rig)
        ask = self.wanted(sent, taken)
        (told,) = self.ask(rig, ask)
        assert (told.answer, told.provider_state) == (first, None)
        assert self.ask(rig, ask)[0].provider_state is ProviderState.DELIVERED

    def test_refused_credentials_hold_a_submission_and_are_told_by_a_look_up(self, rig: Rig) -> None:
        sent = self.message("delivered")
        taken = self.submit(rig, sent)
        held = self.submit(rig, self.message("delivered", "int-0002-test.x"), secret="tok-canary-2")
        assert (held.state, held.reason) == (AttemptState.HELD, Reason.CREDENTIALS_REFUSED)
        (found,) = self.ask(rig, self.wanted(sent, taken), secret="tok-canary-2")
        assert found.answer is LookupAnswer.CREDENTIALS

    @pytest.mark.parametrize("name", ["forbidden", "suspended"])
    def test_an_account_that_may_not_send_holds_the_submission(self, rig: Rig, name: str) -> None:
        held = self.submit(rig, self.message(name))
        assert held.state is AttemptState.HELD
        assert held.reason in (Reason.CREDENTIALS_REFUSED, Reason.ACCOUNT_PROBLEM)

    def test_an_outage_is_unknown_for_a_submission_and_unavailable_for_a_look_up(self, rig: Rig) -> None:
        sent = self.message("delivered")
        taken = self.submit(rig, sent)
        rig.model.out_of_order.add("acc-a")
        gone = self.submit(rig, self.message("delivered", "int-0002-test.x"))
        assert gone.state in (AttemptState.UNKNOWN, AttemptState.NOT_ACCEPTED)
        assert self.ask(rig, self.wanted(sent, taken))[0].answer is LookupAnswer.UNAVAILABLE

    def test_an_account_the_provider_does_not_know_is_a_problem_of_ours(self, rig: Rig) -> None:
        sent = self.message("delivered")
        held = self.submit(rig, sent, account="acc-b")
        assert held.state is AttemptState.HELD
        (found,) = self.ask(rig, self.wanted(sent, message_id="m-1"), account="acc-b")
        assert found.answer is LookupAnswer.CREDENTIALS  # never «not found»: it would read as not accepted

    # the wire at its worst (case F09)

    def test_a_refused_connection_was_not_accepted(self, rig: Rig) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        sent = self.message("delivered")
        found = self.submit(rig, sent, url=url)
        assert (found.state, found.reason) == (AttemptState.NOT_ACCEPTED, Reason.PROVIDER_UNREACHABLE)
        asked = self.ask(rig, self.wanted(sent, message_id="m-1"), url=url)
        assert asked[0].answer is LookupAnswer.UNAVAILABLE

    def test_a_failed_tls_handshake_was_not_accepted(self, rig: Rig) -> None:
        with RawServer(says(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
            found = self.submit(rig, self.message("delivered"), url=server.url.replace("http:", "https:"))
        assert (found.state, found.reason) == (AttemptState.NOT_ACCEPTED, Reason.PROVIDER_UNREACHABLE)

    @pytest.mark.parametrize("behaviour", NO_ANSWERS)
    def test_an_answer_that_is_none_is_unknown_within_the_calls_time_after_one_request(
        self, rig: Rig, behaviour: Behaviour
    ) -> None:
        sent = self.message("delivered")
        with RawServer(behaviour) as server:
            provider = rig.provider(url=server.url)
            began = time.monotonic()
            found = provider.submit(sent, now_ms=T0, timeout_ms=SHORT_MS)
            assert time.monotonic() - began < SHORT_MS / 1000 + SLACK_S
            assert (found.state, found.reason) == (AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)
            assert server.connections == 1
            asked = provider.look_up([self.wanted(sent, message_id="m-1")], now_ms=T0, timeout_ms=SHORT_MS)
            assert asked[0].answer in _NOTHING_SAID
            provider.close()

    @pytest.mark.parametrize(
        "status", ["204 No Content", "400 Bad Request", "404 Not Found", "422 X", "500 X"]
    )
    @pytest.mark.parametrize(
        "body", [b"", b"{}", b'{"code": "x", "errors": 7}', b'{"errors": [7, null], "messages": [[]]}']
    )
    def test_no_answer_of_a_stranger_says_that_a_message_is_gone(
        self, rig: Rig, status: str, body: bytes
    ) -> None:
        sent = self.message("delivered")
        with RawServer(says(answer_of(status, body))) as server:
            found = self.submit(rig, sent, url=server.url)
            assert found.state in (AttemptState.UNKNOWN, AttemptState.HELD)
            (asked,) = self.ask(rig, self.wanted(sent, message_id="m-1"), url=server.url)
            assert asked.answer in _NOTHING_SAID

    def test_an_id_that_is_not_safe_in_a_path_is_asked_for_as_it_is(self, rig: Rig) -> None:
        for odd in ("../../x", "a/b", "a?b=1", "a#b", "a%2Fb", "<a+b@c>"):
            (found,) = self.ask(rig, self.wanted(self.message("delivered"), message_id=odd))
            assert found.answer in (LookupAnswer.NOT_FOUND, LookupAnswer.MALFORMED)
            assert found.message_id is None

    def test_one_adapter_serves_many_threads(self, rig: Rig) -> None:
        provider = rig.provider()
        sent = [self.message("delivered", f"int-{i:04d}-test.x") for i in range(40)]
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda one: provider.submit(one, now_ms=T0, timeout_ms=TIMEOUT_MS), sent))
        assert {r.state for r in results} == {AttemptState.ACCEPTED}
        assert len({r.message_id for r in results}) == len(sent)
        provider.close()

    def test_the_same_submission_is_the_same_bytes(self, rig: Rig) -> None:
        for _ in range(2):
            self.submit(rig, self.message("error"))
        assert len({e.body_hash for e in rig.model.ledger}) == 1

    def test_nothing_a_call_carries_is_logged_or_printed(
        self, rig: Rig, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.DEBUG):
            results = [self.submit(rig, self.message(name)) for name in ("delivered", "invalid", "lost")]
            provider = rig.provider()
            self.ask(rig, self.wanted(self.message("delivered"), message_id="m-canary"))
        written = "".join(r.getMessage() for r in caplog.records if not r.name.startswith("uvicorn"))
        written += json.dumps(rig.model.lines())
        assert "canary" not in f"{written}{results!r}{provider!r}{self.message('delivered')!r}"
        assert "900900" not in written
        provider.close()
