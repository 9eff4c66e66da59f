"""An adapter that gets answers from a list: for the tables of its provider's codes and words.

Real wires are the contract suite's; here every row of a table is one answer. It must not hold an expectation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from schemas.accounts import Account, Capabilities
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.ids import Channel
from sinks.providers import registry
from sinks.providers.base import LookupRequest, LookupResult, Provider, Submission, SubmitResult
from tests.orders import PRINTS

NOW = 1_790_000_000_000
MAIL = Submission(
    reference="int-0001-test.email",
    to=EmailAddress.parse("canary@example.com"),
    sender="no-reply@example.com",
    text="Hello é",
    subject="Reset",
    html="<p>Hello</p>",
    ttl_ms=60_000,
)
TEXT = Submission(
    reference="int-0001-test.sms",
    to=PhoneNumber.parse("+447700900123"),
    sender="Backstop",
    text="Hello é",
    ttl_ms=60_000,
)


@dataclass
class Answers:
    """`replies`: (status, body, headers) in order, the last one repeating; `seen`: the requests."""

    provider: str
    credential: str
    replies: Sequence[tuple[int, Any] | tuple[int, Any, Mapping[str, str]]]
    options: Mapping[str, Any] = field(default_factory=dict)
    channel: Channel | None = None
    seen: list[httpx.Request] = field(default_factory=list)

    def adapter(self) -> Provider:
        about = registry.adapter_of(self.provider)
        channel = self.channel or next(iter(about.channels))
        account = Account(name="acc-a", provider=self.provider, channel=channel, capabilities=Capabilities())
        held = registry.capabilities(account, frozenset())
        return registry.build(
            account.model_copy(update={"capabilities": held}),
            options=self.options,
            credential=about.read_credential(self.credential),
            fingerprints=PRINTS,
            monotonic=lambda: 0.0,
            transport=httpx.MockTransport(self._answer),
        )

    def submit(self, submission: Submission) -> SubmitResult:
        return self.adapter().submit(submission, now_ms=NOW, timeout_ms=1_000)

    def look_up(self, message_id: str | None = None) -> LookupResult:
        mail = self.adapter().account.channel is Channel.EMAIL
        about = MAIL if mail else TEXT
        asked = LookupRequest(
            about.reference, message_id, 1, submitted_ms=NOW - 60_000, fingerprint=PRINTS.of(about.to)
        )
        (found,) = self.adapter().look_up([asked], now_ms=NOW, timeout_ms=1_000)
        return found

    def _answer(self, request: httpx.Request) -> httpx.Response:
        status, body, *more = self.replies[min(len(self.seen), len(self.replies) - 1)]
        self.seen.append(request)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = dict(more[0]) if more else {}
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))
