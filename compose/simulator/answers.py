"""The forms of an answer: code, body, headers, and how it leaves the provider (or does not).

It must not decide which answer is given (`behaviour` does) or touch a connection (`wire` does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import StrEnum
from typing import Any

from compose.simulator.parts import Message
from compose.simulator.script import IN_TRANSIT, REFUSED, Answer, Step

REPLAYED = {"Idempotency-Replayed": "true"}
DETAILS = {
    "no_such_account": "There is no such account.",
    "unauthorized": "The credential is not valid.",
    "forbidden": "The credential may not do this.",
    "account_suspended": "The account is suspended.",
    "unavailable": "Not available at the moment.",
    "ledger_full": "The simulator has recorded all it may; start it again.",
    "throttle": "Too many requests.",
    "internal": "Something went wrong.",
    "bad_request": "The request is not understood.",
    "too_many_ids": "More ids than one look-up may ask for.",
    "not_offered": "This account does not offer this look-up.",
    "not_found": "There is no such message.",
    "in_progress": "A request with this key is being answered.",
    "idempotency_mismatch": "This key was used with another body.",
    "invalid_recipient": "The recipient is not valid.",
    "suppressed": "The recipient is suppressed.",
    "opted_out": "The recipient has opted out.",
    "complained": "The recipient has complained.",
    "blocked": "The recipient is blocked.",
    "content_refused": "The content is refused.",
}


class Wire(StrEnum):
    """How an answer leaves the provider."""

    ANSWER = "answer"
    CUT = "cut"  # the connection closes in the middle of the body
    RESET = "reset"  # it is reset there
    CLOSE = "close"  # it closes without a byte
    HANG = "hang"  # no byte, as long as the client waits
    HTML = "html"
    EMPTY = "empty"
    LIST = "list"  # `[]`


@dataclass(frozen=True, slots=True)
class Reply:
    """`delay_ms`: how long the answer takes. `told`: its name in the ledger when no script gave one.

    `about`: the messages that the body describes, in its order, for a dialect to say in its own words.
    """

    code: int
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    wire: Wire = Wire.ANSWER
    delay_ms: int = 0
    about: tuple[Message, ...] = field(default=(), repr=False)

    @property
    def told(self) -> str:
        if self.wire is not Wire.ANSWER:
            return self.wire.value
        return str(self.body["code"]) if self.code >= 400 else "answered"


_A = Answer
_WIRES: dict[Answer, tuple[int, Wire]] = {
    _A.ACCEPT: (202, Wire.ANSWER),
    _A.LOSE: (202, Wire.CUT),
    _A.VANISH: (202, Wire.CUT),
    _A.RESET: (202, Wire.RESET),
    _A.CLOSE: (202, Wire.CLOSE),
    _A.HANG: (202, Wire.HANG),
    _A.HTML: (200, Wire.HTML),
    _A.GATEWAY: (502, Wire.HTML),
    _A.EMPTY: (200, Wire.EMPTY),
    _A.LIST: (200, Wire.LIST),
}
_ERRORS: dict[Answer, tuple[int, str]] = {
    _A.ERROR: (500, "internal"),
    _A.UNAVAILABLE: (503, "unavailable"),
    _A.THROTTLE: (429, "throttle"),
    _A.UNAUTHORISED: (401, "unauthorized"),
    _A.FORBIDDEN: (403, "forbidden"),
    _A.SUSPENDED: (403, "account_suspended"),
    _A.NOT_FOUND: (404, "not_found"),
    **{answer: (422, answer.value) for answer in REFUSED},
}
# Ids of case F05; usable, and each spoilt by gluing it into a path, decoding it twice or not encoding it.
_ODD_SHAPES = ("<{0}/a+b@sim.example>", "../../{0}", "{0}/x", "{0}?x=1", "{0}#frag", "{0}%2Fb", "{0}+b==")


def error(code: int, name: str, *, wait_ms: int | None = None) -> Reply:
    """`{"code","detail"}`; `wait_ms` becomes whole seconds of Retry-After, rounded up."""
    headers = {} if wait_ms is None else {"Retry-After": str(-(-wait_ms // 1000))}
    return Reply(code, {"code": name, "detail": DETAILS[name]}, headers)


def replayed(first: Mapping[str, Any]) -> Reply:
    """The first answer again, marked."""
    return Reply(202, first, REPLAYED)


def to_submission(step: Step, taken: Mapping[str, Any] | None, now_ms: int) -> Reply:
    """`taken`: id and status of the message that exists because of it."""
    body = {"status": IN_TRANSIT} if step.answer is Answer.NO_ID else taken or {}
    return _reply(step, body, now_ms, ok=202)


def to_look_up(step: Step, described: Mapping[str, Any], now_ms: int) -> Reply:
    """A scripted answer to a look-up of the message `described`."""
    body = {**described, "id": "another"} if step.answer is Answer.OTHER_ID else described
    return _reply(step, body, now_ms, ok=200)


def _reply(step: Step, body: Mapping[str, Any], now_ms: int, *, ok: int) -> Reply:
    if step.answer in _ERRORS:
        code, name = _ERRORS[step.answer]
        body = {"code": name, "detail": DETAILS[name]}
        return Reply(code, body, _retry_after(step, now_ms), delay_ms=step.working_ms)
    code, wire = _WIRES.get(step.answer, (ok, Wire.ANSWER))
    # A connection that is cut is cut at once; the provider goes on working.
    delay_ms = step.working_ms if wire is Wire.ANSWER else 0
    return Reply(ok if wire is Wire.ANSWER else code, body, wire=wire, delay_ms=delay_ms)


def _retry_after(step: Step, now_ms: int) -> dict[str, str]:
    if step.retry_after_text is not None:
        return {"Retry-After": step.retry_after_text}
    if step.retry_after_s is None:
        return {}
    if step.as_date:
        # Dates have whole seconds; rounded up, or the wait would be shorter than said.
        return {"Retry-After": formatdate(-(-now_ms // 1000) + step.retry_after_s, usegmt=True)}
    return {"Retry-After": str(step.retry_after_s)}


def plain_id(stem: str) -> str:
    """The id of a message whose provider has no shape of its own. `stem`: 32 hex digits."""
    return f"m-{stem[:16]}"


def odd_id(stem: str) -> str:
    """An id that contains `stem` and is not safe in a path; the shape is the stem's."""
    stem = stem[:16]
    return _ODD_SHAPES[int(stem, 16) % len(_ODD_SHAPES)].format(stem)
