"""The simulated provider as a pure model: requests and instants in, answers and a ledger out.

It must not read a clock or roll dice, and its ledger holds no address, link or body: hashes only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from enum import StrEnum
from hashlib import sha256
from typing import Any

from compose.simulator.plots import TAKEN, Answer, Plot, Submit, plot_for
from schemas.accounts import Account

HASH_CHARS = 16
IN_TRANSIT = "accepted"


class Wire(StrEnum):
    """How an answer leaves the provider."""

    ANSWER = "answer"
    CUT = "cut"  # the connection closes in the middle of the body
    HANG = "hang"
    HTML = "html"


@dataclass(frozen=True, slots=True)
class Reply:
    code: int
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    wire: Wire = Wire.ANSWER


@dataclass(frozen=True, slots=True)
class Request:
    """A submission as the wire carries it."""

    account: str
    reference: str
    to: str
    body: bytes
    key: str | None = None
    credential_ok: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger. `took` is the id of the message that exists because of this request."""

    at_ms: int
    account: str
    reference: str
    answered: str
    took: str | None
    replayed: bool
    recipient_hash: str
    body_hash: str


@dataclass(slots=True)
class Message:
    """One logical message."""

    message_id: str
    account: str
    reference: str
    accepted_ms: int
    plot: Plot


class Model:
    """All accounts of one simulated provider. `plots` may name a plot per recipient (scenarios)."""

    def __init__(
        self,
        accounts: Mapping[str, Account],
        *,
        seed: int = 1,
        plots: Callable[[str], Plot | None] | None = None,
        odd_ids: bool = False,
    ) -> None:
        self._accounts, self._seed, self._plots, self._odd_ids = accounts, seed, plots, odd_ids
        self.ledger: list[Entry] = []
        self.broken_credentials: set[str] = set()
        self.out_of_order: set[str] = set()  # accounts that answer 503
        self._messages: dict[str, Message] = {}
        self._by_reference: dict[tuple[str, str], list[Message]] = {}
        self._keys: dict[tuple[str, str], tuple[str, int, Message | None]] = {}
        self._asked: dict[tuple[str, str], int] = {}

    # submitting

    def submit(self, request: Request, now_ms: int) -> Reply:
        """One POST. Every request is one ledger line, whatever came of it."""
        refusal = self._refused(request.account, credential_ok=request.credential_ok)
        if refusal is not None:
            return self._note(request, now_ms, refusal, str(refusal.code))
        caps = self._accounts[request.account].capabilities
        body_hash = _hash(request.body)
        if caps.idempotent_submit and request.key is not None:
            known = self._keys.get((request.account, request.key))
            if known is not None and now_ms < known[1] + caps.idempotency_window_ms:
                return self._repeat(request, now_ms, known, body_hash)
        place = (request.account, request.reference)
        asked = self._asked.get(place, 0)
        self._asked[place] = asked + 1
        plot = self._plot(request.to)
        step = plot.submits[min(asked, len(plot.submits) - 1)]
        message = self._take(request, now_ms, plot) if step.answer in TAKEN else None
        if caps.idempotent_submit and request.key is not None and message is not None:
            self._keys[request.account, request.key] = (body_hash, now_ms, message)
        reply = _reply(step, message, now_ms)
        return self._note(request, now_ms, reply, step.answer.value, message)

    def _repeat(self, request: Request, now_ms: int, known: Any, body_hash: str) -> Reply:
        if known[0] != body_hash:
            return self._note(
                request, now_ms, Reply(409, {"code": "idempotency_mismatch"}), "idempotency_mismatch"
            )
        reply = Reply(202, {"id": known[2].message_id, "status": IN_TRANSIT})
        return self._note(request, now_ms, reply, "replayed", known[2], replayed=True)

    def _take(self, request: Request, now_ms: int, plot: Plot) -> Message:
        place = (request.account, request.reference)
        found = self._by_reference.setdefault(place, [])
        stem = _hash(f"{self._seed}/{request.account}/{request.reference}/{len(found)}".encode())
        message_id = f"<{stem}/a+b@sim.example>" if self._odd_ids else f"m-{stem}"
        message = Message(message_id, request.account, request.reference, now_ms, plot)
        found.append(message)
        self._messages[message_id] = message
        return message

    def _note(
        self,
        request: Request,
        now_ms: int,
        reply: Reply,
        answered: str,
        message: Message | None = None,
        *,
        replayed: bool = False,
    ) -> Reply:
        self.ledger.append(
            Entry(
                now_ms,
                request.account,
                request.reference,
                answered,
                None if message is None else message.message_id,
                replayed,
                _hash(request.to.encode()),
                _hash(request.body),
            )
        )
        return reply

    # asking

    def look_up(self, account: str, message_id: str, now_ms: int, *, credential_ok: bool = True) -> Reply:
        """GET by id: 404 until the visibility delay has passed."""
        refusal = self._refused(account, credential_ok=credential_ok)
        if refusal is not None:
            return refusal
        found = self._messages.get(message_id)
        if found is None or found.account != account or not self._is_visible(found, now_ms):
            return Reply(404, {"code": "not_found"})
        return Reply(200, _described(found, now_ms))

    def search(self, account: str, reference: str, now_ms: int, *, credential_ok: bool = True) -> Reply:
        """GET by our own reference: a list, empty until the visibility delay has passed."""
        refusal = self._refused(account, credential_ok=credential_ok)
        if refusal is not None:
            return refusal
        found = self._by_reference.get((account, reference), ())
        return Reply(200, {"messages": [_described(m, now_ms) for m in found if self._is_visible(m, now_ms)]})

    def batch(self, account: str, ids: list[str], now_ms: int, *, credential_ok: bool = True) -> Reply:
        """POST of several ids: those that are visible, in any order."""
        refusal = self._refused(account, credential_ok=credential_ok)
        if refusal is not None:
            return refusal
        found = [m for i in ids if (m := self._messages.get(i)) is not None and m.account == account]
        return Reply(200, {"messages": [_described(m, now_ms) for m in found if self._is_visible(m, now_ms)]})

    # what anyone may read

    def lines(self) -> list[dict[str, Any]]:
        return [asdict(entry) for entry in self.ledger]

    def duplicates(self) -> list[str]:
        """References under which more than one message exists."""
        return sorted(ref for (_, ref), found in self._by_reference.items() if len(found) > 1)

    def _is_visible(self, message: Message, now_ms: int) -> bool:
        delay = self._accounts[message.account].capabilities.visibility_delay_ms
        return now_ms >= message.accepted_ms + delay

    def _plot(self, to: str) -> Plot:
        given = self._plots(to) if self._plots is not None else None
        return given or plot_for(to, seed=self._seed)

    def _refused(self, account: str, *, credential_ok: bool) -> Reply | None:
        if account not in self._accounts:
            return Reply(404, {"code": "no_such_account"})
        if not credential_ok or account in self.broken_credentials:
            return Reply(401, {"code": "unauthorized"})
        if account in self.out_of_order:
            return Reply(503, {"code": "unavailable"})
        return None


def _reply(step: Submit, message: Message | None, now_ms: int) -> Reply:
    taken = {} if message is None else {"id": message.message_id, "status": IN_TRANSIT}
    match step.answer:
        case Answer.ACCEPT:
            return Reply(202, taken)
        case Answer.LOSE | Answer.VANISH:
            return Reply(202, taken, wire=Wire.CUT)
        case Answer.HANG:
            return Reply(202, taken, wire=Wire.HANG)
        case Answer.HTML:
            return Reply(200, wire=Wire.HTML)
        case Answer.ERROR:
            return Reply(500, {"code": "internal"})
        case Answer.THROTTLE:
            return Reply(429, {"code": "too_many"}, _retry_after(step, now_ms))
        case _:
            return Reply(422, {"code": step.answer.value})


def _retry_after(step: Submit, now_ms: int) -> dict[str, str]:
    if step.retry_after_s is None:
        return {}
    if step.as_date:
        # Whole seconds, rounded up: a date in the past would say «now».
        return {"Retry-After": formatdate(now_ms // 1000 + step.retry_after_s + 1, usegmt=True)}
    return {"Retry-After": str(step.retry_after_s)}


def _described(message: Message, now_ms: int) -> dict[str, Any]:
    token, reason, at = IN_TRANSIT, None, message.accepted_ms
    for status in message.plot.statuses:
        if now_ms >= message.accepted_ms + status.after_ms:
            token, reason, at = status.token, status.reason, message.accepted_ms + status.after_ms
    return {
        "id": message.message_id,
        "reference": message.reference,
        "status": token,
        "reason": reason,
        "at_ms": at,
    }


def _hash(value: bytes) -> str:
    return sha256(value).hexdigest()[:HASH_CHARS]
