"""One channel's provider as its script says, behind the real adapter: it answers in HTTP, not in our words.

The adapter (`sinks.providers.simulated`) builds the request, reads status, body, `Retry-After` and tokens as
it would from a socket. Only the wire is replaced: a call passes time on a virtual clock. It must not decide
what an answer means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol, cast
from urllib.parse import unquote

import orjson

from compose.scenario.format import Asked, LookupKind, ProviderScript, Submit, SubmitAnswer
from schemas.accounts import Account
from schemas.ids import Channel
from sinks.providers.base import Provider
from sinks.providers.http import Failure, Http, Reply, Sent
from sinks.providers.simulated import SimulatedProvider

_FIRST_WORD: str | None = "accepted"  # what a message is called before its script says more
_OTHER = "other-"
CALL_MS = 50  # what a call takes when the script does not say

_S, _L = SubmitAnswer, LookupKind
TAKEN = frozenset({_S.ACCEPTED, _S.LOST})
_NO_ANSWER = frozenset({_S.LOST, _S.VANISHED})
_REFUSALS: dict[SubmitAnswer, tuple[int, str]] = {
    _S.THROTTLED: (429, "throttle"),
    _S.INVALID: (422, "invalid_recipient"),
    _S.SUPPRESSED: (422, "suppressed"),
    _S.OPTED_OUT: (400, "opted_out"),
    _S.CONTENT: (422, "content_refused"),
    _S.CREDENTIALS: (401, "unauthorized"),
}
_LOOKUPS: dict[LookupKind, Reply] = {
    _L.THROTTLED: Reply(429, {"code": "throttle"}),
    _L.UNAVAILABLE: Reply(503, None),
    _L.MALFORMED: Reply(200, None),
    _L.CREDENTIALS: Reply(401, {"code": "unauthorized"}),
}


class PassingClock(Protocol):
    """A virtual clock that a call can move on."""

    def now_ms(self) -> int: ...

    def spend(self, ms: int) -> None: ...


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One submission as the provider saw it. `took`: a new message exists since `at_ms`."""

    at_ms: int
    channel: Channel
    answered: str
    took: str | None


class ScriptedSide:
    """What the provider knows: its messages, its keys, how far its script has been played.

    The script is about one intent; whatever is submitted for another is accepted and never reported.
    """

    def __init__(self, account: Account, script: ProviderScript, *, about: str) -> None:
        self.account, self._script, self._about = account, script, about
        self.ledger: list[LedgerLine] = []
        self.others: list[LedgerLine] = []
        self._taken: dict[str, int] = {}  # message id -> since when
        self._keys: dict[str, tuple[str, str]] = {}  # key -> body hash, message id
        self._submitted = self._asked = 0

    def adapter(self, clock: PassingClock) -> Provider:
        """The real adapter of this account for one process with its own clock."""
        return SimulatedProvider(self.account, cast("Http", Wire(self, clock)))

    # submissions

    def submit(self, body: bytes, key: str | None, clock: PassingClock, timeout_ms: int) -> Reply | Failure:
        """One POST; every call is one line of the ledger."""
        if not self._is_about(orjson.loads(body)["reference"]):
            return self._other(clock)
        replayed = self._replayed(body, key, clock)
        if replayed is not None:
            return replayed
        script = self._script.submits
        step = script[min(self._submitted, len(script) - 1)]
        self._submitted += 1
        at_ms = clock.now_ms()
        took_ms = _duration_ms(step, timeout_ms)
        took = None
        if step.answer in TAKEN:
            took = f"{self.account.name}-{len(self._taken) + 1}"
            self._taken[took] = at_ms
            if key is not None:
                self._keys[key] = (sha256(body).hexdigest(), took)
        clock.spend(min(took_ms, timeout_ms))
        self.ledger.append(LedgerLine(at_ms, self.account.channel, step.answer.value, took))
        if took_ms >= timeout_ms or step.answer in _NO_ANSWER:
            return Failure(Sent.UNKNOWN, "ReadTimeout")
        return _answer(step, took)

    def _is_about(self, reference: str | None) -> bool:
        return reference is None or reference.startswith(f"{self._about}.")

    def _other(self, clock: PassingClock) -> Reply:
        took = f"{_OTHER}{self.account.name}-{len(self.others) + 1}"
        self.others.append(LedgerLine(clock.now_ms(), self.account.channel, _S.ACCEPTED.value, took))
        clock.spend(CALL_MS)
        return Reply(202, {"id": took, "status": _FIRST_WORD})

    def _replayed(self, body: bytes, key: str | None, clock: PassingClock) -> Reply | None:
        """The same key again: the first answer, or a refusal when the bytes differ (case F08)."""
        known = self._keys.get(key or "")
        if known is None:
            return None
        body_hash, took = known
        caps = self.account.capabilities
        if clock.now_ms() >= self._taken[took] + caps.idempotency_window_ms:
            return None
        same = body_hash == sha256(body).hexdigest()
        told = "replayed" if same else "idempotency_mismatch"
        self.ledger.append(LedgerLine(clock.now_ms(), self.account.channel, told, None))
        clock.spend(CALL_MS)
        return Reply(200, {"id": took, "status": "accepted"}) if same else Reply(409, {"code": told})

    # look-ups

    def look_up(self, message_id: str | None, reference: str | None, clock: PassingClock) -> Reply | Failure:
        """One GET, by id or by our reference."""
        now_ms = clock.now_ms()
        clock.spend(CALL_MS)
        if message_id is not None and message_id.startswith(_OTHER):
            return Reply(200, {"id": message_id, "status": _FIRST_WORD, "at_ms": now_ms})
        asked = self._script.lookups
        step = asked[self._asked] if self._asked < len(asked) else Asked(answer=LookupKind.STATUSES)
        self._asked += 1
        if step.answer in _LOOKUPS:
            found = _LOOKUPS[step.answer]
            return Reply(found.status, found.body, step.retry_after)
        delay_ms = self.account.capabilities.visibility_delay_ms
        visible = [m for m, since in self._taken.items() if now_ms >= since + delay_ms]
        if step.answer is LookupKind.NOT_FOUND:
            visible = []
        if message_id is None:
            return Reply(200, {"messages": [self._described(m, reference, now_ms) for m in visible]})
        if message_id not in visible:
            return Reply(404, {"code": "not_found"})
        return Reply(200, self._described(message_id, reference, now_ms))

    def _described(self, message_id: str, reference: str | None, now_ms: int) -> dict[str, Any]:
        first_ms = min(self._taken.values())
        at_ms, word, why = first_ms, _FIRST_WORD, None
        for status in self._script.statuses:
            if first_ms + status.at <= now_ms:
                at_ms, word, why = first_ms + status.at, status.token, status.reason
        return {"id": message_id, "reference": reference, "status": word, "reason": why, "at_ms": at_ms}


class Wire:
    """The part of `sinks.providers.http.Http` that an adapter uses, on a virtual clock."""

    def __init__(self, side: ScriptedSide, clock: PassingClock) -> None:
        self._side, self._clock = side, clock

    def call(
        self,
        method: str,
        path: str,
        *,
        timeout_ms: int,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply | Failure:
        if method == "POST":
            key = (headers or {}).get("Idempotency-Key")
            return self._side.submit(body or b"", key, self._clock, timeout_ms)
        if query is not None:
            return self._side.look_up(None, query["reference"], self._clock)
        return self._side.look_up(unquote(path.rsplit("/", 1)[1]), None, self._clock)

    def close(self) -> None: ...


def _duration_ms(step: Submit, timeout_ms: int) -> int:
    if step.after is not None:
        return step.after
    return timeout_ms if step.answer in _NO_ANSWER else CALL_MS


def _answer(step: Submit, took: str | None) -> Reply | Failure:
    if step.answer is SubmitAnswer.UNREACHABLE:
        return Failure(Sent.NO, "ConnectError")
    if took is not None:
        return Reply(202, {"id": took, "status": "accepted"})
    status, code = _REFUSALS[step.answer]
    return Reply(status, {"code": code}, step.retry_after)
