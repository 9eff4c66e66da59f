"""The target that reads HTTP: whatever bytes come back on the socket, the adapter's answer is one of ours.

The bytes travel through a real socket, httpx and the adapter, and the answer into the record that the
dispatcher or the poller would publish. It must not know what outcome an entry of the corpus should have.
"""

from __future__ import annotations

import atexit
import socket
import threading
import time
from typing import Any

from schemas.accounts import Account, Capabilities
from schemas.attempt import Attempt, AttemptState
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.ids import Channel
from schemas.observation import LookupAnswer, Observation
from sinks.providers.base import LookupRequest, LookupResult, Submission, SubmitResult
from sinks.providers.http import Http
from sinks.providers.simulated import SimulatedProvider
from tests.builders import ID, T0
from tests.contract.raw_server import RawServer, read_request
from tests.fuzz.records import says_nothing_private

CALL_MS = 10_000  # nothing waits for it, the server closes after its bytes; a loaded machine may stall
_CAPS = Capabilities(
    idempotent_submit=True, lookup_by_message_id=True, lookup_by_reference=True, lookup_batch_max=10
)
_MAIL = Submission(
    reference=f"{ID}.email",
    to=EmailAddress.parse("person@example.com"),
    sender="no-reply@example.com",
    text="Hello",
    subject="Reset",
    html="<p>Hello</p>",
    ttl_ms=60_000,
)
_TEXT = Submission(
    reference=f"{ID}.sms",
    to=PhoneNumber.parse("+447700900123"),
    sender="Example",
    text="Hello",
    ttl_ms=60_000,
)
_ASKED = (
    [LookupRequest(f"{ID}.email", "m-1", 1)],
    [LookupRequest(f"{ID}.email", None, 1)],
    [LookupRequest(f"{ID}.email", "m-1", 1), LookupRequest(f"{ID}.email", "a/b", 2)],
)


class _Answerer:
    """One server and two adapters for all examples; what it says is set before each."""

    def __init__(self) -> None:
        self.answer = b""
        server = RawServer(self._say)
        self._server = server.__enter__()
        atexit.register(server.__exit__, None, None, None)
        self.mail = self._adapter(Channel.EMAIL)
        self.text = self._adapter(Channel.SMS)

    def _say(self, peer: socket.socket, _over: threading.Event) -> None:
        read_request(peer)
        peer.sendall(self.answer)

    def _adapter(self, channel: Channel) -> SimulatedProvider:
        account = Account(
            name=f"fuzz-{channel.value}", provider="simulated", channel=channel, capabilities=_CAPS
        )
        http = Http(self._server.url, monotonic=time.monotonic)
        transport: Any = http._client._transport
        transport._pool._max_keepalive_connections = 0  # one example must not meet the end of another's
        return SimulatedProvider(account, http)


_answerer: _Answerer | None = None


def http(data: bytes) -> str:
    """The bytes of an HTTP answer, to a submission on either channel and to three look-ups."""
    global _answerer
    one = _answerer = _answerer or _Answerer()
    one.answer = data
    sent = one.mail.submit(_MAIL, now_ms=T0, timeout_ms=CALL_MS)
    texted = one.text.submit(_TEXT, now_ms=T0, timeout_ms=CALL_MS)
    assert (sent.state, sent.reason, sent.retry_at_ms) == (texted.state, texted.reason, texted.retry_at_ms)
    for result, channel in ((sent, Channel.EMAIL), (texted, Channel.SMS)):
        _is_an_attempt(result, channel)
    looked = []
    for asked in _ASKED:
        found = one.mail.look_up(asked, now_ms=T0, timeout_ms=CALL_MS)
        assert len(found) == len(asked)
        for answer in found:
            _is_an_observation(answer)
        looked.append(_said(found[0]))
    return f"submit: {sent.state.value}; by id: {looked[0]}; by reference: {looked[1]}; batch: {looked[2]}"


def _said(found: LookupResult) -> str:
    return found.answer.value if found.provider_state is None else found.provider_state.value


def _is_an_attempt(found: SubmitResult, channel: Channel) -> None:
    """It fits the record, and it says no more than the provider did."""
    record = Attempt(
        attempt_id=f"{ID}:{channel.value}:1:{found.state.value}",
        intent_id=ID,  # type: ignore[arg-type]
        channel=channel,
        submission_no=1,
        state=found.state,
        reason=found.reason,
        retry_at_ms=found.retry_at_ms,
        provider_account="mail-a",
        message_id=found.message_id,
        template="password_reset:v1",
        at_ms=T0,
    )
    record.to_bytes()
    assert found.state is not AttemptState.ACCEPTED or found.message_id is not None
    assert (found.reason is None) == (found.state is AttemptState.ACCEPTED)
    assert not found.suppress or found.state is AttemptState.FAILED


def _is_an_observation(found: LookupResult) -> None:
    record = Observation(
        observation_id=f"{ID}:email:1:1",
        intent_id=ID,  # type: ignore[arg-type]
        channel=Channel.EMAIL,
        submission_no=1,
        poll_no=1,
        answer=found.answer,
        provider_state=found.provider_state,
        reason=found.reason,
        raw_token=found.raw_token,
        provider_account="mail-a",
        message_id=found.message_id,
        provider_time_ms=found.provider_time_ms,
        observed_at_ms=T0,
        paused_until_ms=found.retry_at_ms,
    )
    record.to_bytes()
    assert (found.provider_state is not None) == (found.answer is LookupAnswer.ANSWERED)
    says_nothing_private(found.raw_token, found.reason)
