"""What can go wrong at a provider, as plain data: the answers to calls, and what becomes of the message.

A plot is one recipient's whole fate; scenario files and rules may write one down. It must not know a
recipient, an instant or a connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

IN_TRANSIT = "accepted"  # what a message is called before its plot says more
STEPS_MAX = 100  # answers or statuses of one plot; real message histories have under twenty


class Answer(StrEnum):
    """What the provider does with one call."""

    ACCEPT = "accept"
    # Taken, and the answer is lost on the way.
    LOSE = "lose"  # the connection closes in the middle of the body
    RESET = "reset"  # the connection is reset in the middle of the body
    CLOSE = "close"  # the connection closes without a byte
    HANG = "hang"  # no byte within any timeout
    HTML = "html"  # 200 with a page
    GATEWAY = "gateway"  # 502 with a page
    EMPTY = "empty"  # 200 without a body
    LIST = "list"  # 200 with `[]`
    NO_ID = "no_id"  # 202 with an object that names no message
    # Not taken.
    VANISH = "vanish"  # the connection closes in the middle of the body
    ERROR = "error"  # 500
    UNAVAILABLE = "unavailable"  # 503
    THROTTLE = "throttle"  # 429
    UNAUTHORISED = "unauthorized"  # 401
    FORBIDDEN = "forbidden"  # 403
    SUSPENDED = "account_suspended"  # 403
    # Refused by code: 422.
    INVALID = "invalid_recipient"
    SUPPRESSED = "suppressed"
    OPTED_OUT = "opted_out"
    COMPLAINED = "complained"
    BLOCKED = "blocked"
    CONTENT = "content_refused"
    # Look-ups only.
    NOT_FOUND = "not_found"  # 404, though the message exists
    OTHER_ID = "other_id"  # 200 about another message


_A = Answer
LOOKUP_ONLY = frozenset({_A.NOT_FOUND, _A.OTHER_ID})
REFUSED = frozenset({_A.INVALID, _A.SUPPRESSED, _A.OPTED_OUT, _A.COMPLAINED, _A.BLOCKED, _A.CONTENT})
TAKEN = frozenset(
    {_A.ACCEPT, _A.LOSE, _A.RESET, _A.CLOSE, _A.HANG, _A.HTML, _A.GATEWAY, _A.EMPTY, _A.LIST, _A.NO_ID}
)


@dataclass(frozen=True, slots=True)
class Step:
    """One answer. The time to wait is written as seconds, as an HTTP date when `as_date`, or verbatim.

    `working_ms`: how long the provider works before it answers; the same idempotency key is told
    `in_progress` meanwhile, also when this answer was lost at once.
    """

    answer: Answer = Answer.ACCEPT
    retry_after_s: int | None = None
    as_date: bool = False
    retry_after_text: str | None = None
    working_ms: int = 0

    def __post_init__(self) -> None:
        if self.working_ms < 0 or (self.retry_after_s or 0) < 0:
            raise ValueError("a step waits forwards: working_ms and retry_after_s are not negative")


@dataclass(frozen=True, slots=True)
class Status:
    """From `after_ms` after acceptance on the provider says this. Tokens are whatever providers send."""

    after_ms: int
    token: str | int | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """`submits`: answers to submissions in order, the last one repeating. `statuses`: by time.

    `lookups`: answers to look-ups of this message, in order, before the statuses are told.
    `visible_after_ms`: the look-up delay of this message; None is the account's.
    """

    submits: tuple[Step, ...] = (Step(),)
    statuses: tuple[Status, ...] = ()
    lookups: tuple[Step, ...] = ()
    visible_after_ms: int | None = None

    def __post_init__(self) -> None:
        times = [s.after_ms for s in self.statuses]
        if not self.submits:
            raise ValueError("a plot answers at least one submission")
        if times != sorted(times) or (times and times[0] < 0):
            raise ValueError("statuses come in the order of their times, none before the acceptance")
        if max(len(self.submits), len(times), len(self.lookups)) > STEPS_MAX:
            raise ValueError(f"a plot has at most {STEPS_MAX} submits, statuses and lookups")
        if any(s.answer in LOOKUP_ONLY for s in self.submits):
            raise ValueError("not_found and other_id answer look-ups only")

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Plot:
        """`{"submits": ["throttle", {"answer": "accept"}], "statuses": [[400, "bounced"]]}`.

        Every key is optional; `ValueError` names what is unknown or out of range.
        """
        unknown = set(fields) - {"submits", "statuses", "lookups", "visible_after_ms"}
        if unknown:
            raise ValueError(f"a plot has no {', '.join(sorted(unknown))}")
        made: dict[str, Any] = {}
        if "submits" in fields:
            made["submits"] = tuple(map(_step, _several(fields["submits"], "submits")))
        if "lookups" in fields:
            made["lookups"] = tuple(map(_step, _several(fields["lookups"], "lookups")))
        if "statuses" in fields:
            made["statuses"] = tuple(map(_status, _several(fields["statuses"], "statuses")))
        visible = fields.get("visible_after_ms")
        if visible is not None and not _is_whole(visible):
            raise ValueError("visible_after_ms is a whole number of milliseconds")
        return cls(**made, visible_after_ms=visible)

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` reads: JSON-able, and without a recipient."""
        return asdict(self)


def _several(value: Any, name: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} is a list")  # noqa: TRY004  a value of a file
    return value


def _step(value: Any) -> Step:
    fields = {"answer": value} if isinstance(value, str) else value
    if not isinstance(fields, Mapping):
        raise ValueError("a step is an answer's name or a table")  # noqa: TRY004  a value of a file
    try:
        step = Step(**{**fields, "answer": Answer(fields.get("answer", Answer.ACCEPT))})
    except TypeError:
        raise ValueError(f"a step has answer and {', '.join(_STEP_FIELDS)}") from None
    whole = (step.working_ms, step.retry_after_s)
    if not all(n is None or _is_whole(n) for n in whole) or not isinstance(step.as_date, bool):
        raise ValueError("working_ms and retry_after_s are whole numbers, as_date is true or false")
    if step.retry_after_text is not None and not _is_header(step.retry_after_text):
        raise ValueError("retry_after_text is printable ASCII")
    return step


_STEP_FIELDS = ("retry_after_s", "as_date", "retry_after_text", "working_ms")


def _status(value: Any) -> Status:
    parts = [value.get(n) for n in ("after_ms", "token", "reason")] if isinstance(value, Mapping) else value
    if not isinstance(parts, list | tuple) or len(parts) not in (2, 3) or not _is_whole(parts[0]):
        raise ValueError("a status is [after_ms, token] or [after_ms, token, reason]")
    if not isinstance(parts[1], str | int | None) or not isinstance(parts[-1], str | int | None):
        raise ValueError("a status token is a text, a number or null")  # noqa: TRY004  a value of a file
    return Status(*parts)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_header(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and (value.isprintable() or not value)
