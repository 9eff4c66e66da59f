"""What a recipient makes the simulated provider do: plots as plain data, chosen by magic recipients.

    e-mail local part (before a +)    what happens
    delivered                         accepted, delivered after 1 s
    slow                              accepted, delivered after 30 s
    never                             accepted, and nothing more is ever reported
    bounce                            accepted, permanent bounce after 0.4 s
    latebounce                        delivered after 0.5 s, permanent bounce after 2 s
    complaint                         delivered, then reported as unwanted
    temporary                         deferred twice, then delivered after 1.5 s
    lost                              taken, the connection closes in the middle of the answer; delivered
    hang                              taken, the answer never comes; delivered
    vanish                            not taken, the connection closes in the middle of the answer, once
    html                              taken, answered with a page instead of JSON; delivered
    error                             not taken, 500 once; then accepted and delivered
    throttle                          429 with `Retry-After: 1` twice, then accepted and delivered
    throttledate                      429 with an HTTP date once, then accepted and delivered
    invalid                           refused: no such recipient
    suppressed                        refused: on the provider's suppression list
    content                           refused: content
    unknown                           accepted, then words no document lists
    reorder                           delivered, then accepted again, then delivered again

    number ending in                  what happens
    0xx                               accepted, delivered after 0.5 s
    1xx                               refused: no such recipient
    2xx                               accepted, `sent` for ever
    3xx                               taken, the connection closes in the middle of the answer; delivered
    4xx                               429 with `Retry-After: 1` once, then accepted and delivered
    5xx                               accepted, undeliverable after 0.6 s
    6xx                               refused: the person answered STOP
    7xx                               accepted, delivered after 5 s

Any other recipient is drawn from the seed. It must not hold a clock or randomness of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b


class Answer(StrEnum):
    """What the provider does with one submission."""

    ACCEPT = "accept"
    LOSE = "lose"  # taken; the connection closes in the middle of the answer
    HANG = "hang"  # taken; no answer within any timeout
    HTML = "html"  # taken; 200 with a page
    VANISH = "vanish"  # not taken; the connection closes in the middle of the answer
    ERROR = "error"  # not taken; 500
    THROTTLE = "throttle"  # not taken; 429
    INVALID = "invalid_recipient"
    SUPPRESSED = "suppressed"
    OPTED_OUT = "opted_out"
    CONTENT = "content_refused"


TAKEN = frozenset({Answer.ACCEPT, Answer.LOSE, Answer.HANG, Answer.HTML})


@dataclass(frozen=True, slots=True)
class Submit:
    """`retry_after_s` is written as seconds, or as an HTTP date when `as_date`."""

    answer: Answer = Answer.ACCEPT
    retry_after_s: int | None = None
    as_date: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """From `after_ms` after acceptance on the provider says this."""

    after_ms: int
    token: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """Answers to submissions in order, the last one repeating; then statuses by time."""

    submits: tuple[Submit, ...] = (Submit(),)
    statuses: tuple[Status, ...] = ()


def _plot(
    *statuses: tuple[int, str] | tuple[int, str, str], submits: tuple[Submit, ...] = (Submit(),)
) -> Plot:
    return Plot(submits, tuple(Status(*s) for s in statuses))


_A = Answer
_THEN_ACCEPT = Submit()
_DELIVERED = (1_000, "delivered")

EMAIL_PLOTS: dict[str, Plot] = {
    "delivered": _plot(_DELIVERED),
    "slow": _plot((30_000, "delivered")),
    "never": _plot(),
    "bounce": _plot((400, "bounced", "mailbox_unknown")),
    "latebounce": _plot((500, "delivered"), (2_000, "bounced", "mailbox_unknown")),
    "complaint": _plot((300, "delivered"), (900, "complained")),
    "temporary": _plot((200, "deferred"), (700, "deferred"), (1_500, "delivered")),
    "lost": _plot(_DELIVERED, submits=(Submit(_A.LOSE), _THEN_ACCEPT)),
    "hang": _plot(_DELIVERED, submits=(Submit(_A.HANG), _THEN_ACCEPT)),
    "vanish": _plot(_DELIVERED, submits=(Submit(_A.VANISH), _THEN_ACCEPT)),
    "html": _plot(_DELIVERED, submits=(Submit(_A.HTML), _THEN_ACCEPT)),
    "error": _plot(_DELIVERED, submits=(Submit(_A.ERROR), _THEN_ACCEPT)),
    "throttle": _plot(_DELIVERED, submits=(Submit(_A.THROTTLE, 1), Submit(_A.THROTTLE, 1), _THEN_ACCEPT)),
    "throttledate": _plot(_DELIVERED, submits=(Submit(_A.THROTTLE, 1, as_date=True), _THEN_ACCEPT)),
    "invalid": _plot(submits=(Submit(_A.INVALID),)),
    "suppressed": _plot(submits=(Submit(_A.SUPPRESSED),)),
    "content": _plot(submits=(Submit(_A.CONTENT),)),
    "unknown": _plot((200, "DLR_TIMEOUT"), (900, "sent-internationally"), (1_600, "Partially Delivered")),
    "reorder": _plot((300, "delivered"), (600, "accepted"), (900, "delivered")),
}

SMS_PLOTS: dict[str, Plot] = {
    "0": _plot((500, "delivered")),
    "1": _plot(submits=(Submit(_A.INVALID),)),
    "2": _plot((200, "sent")),
    "3": _plot((500, "delivered"), submits=(Submit(_A.LOSE), _THEN_ACCEPT)),
    "4": _plot((500, "delivered"), submits=(Submit(_A.THROTTLE, 1), _THEN_ACCEPT)),
    "5": _plot((600, "undeliverable", "unreachable")),
    "6": _plot(submits=(Submit(_A.OPTED_OUT),)),
    "7": _plot((5_000, "delivered")),
}

# Drawn for any other recipient: three of four arrive at once, the rest over everything that is slow or odd.
_DRAWN_EMAIL = ("delivered",) * 15 + ("slow", "never", "temporary", "bounce", "throttle")
_DRAWN_SMS = ("0",) * 8 + ("7", "2")
_NUMBER_END = re.compile(r"([0-9])[0-9]{2}$")


def plot_for(recipient: str, *, seed: int) -> Plot:
    """The plot of a recipient: by magic name or digit, else by the seed. Pure."""
    if "@" in recipient:
        name = recipient.partition("@")[0].partition("+")[0]
        return EMAIL_PLOTS.get(name) or EMAIL_PLOTS[_drawn(_DRAWN_EMAIL, recipient, seed)]
    end = _NUMBER_END.search(recipient)
    return SMS_PLOTS.get(end[1] if end else "") or SMS_PLOTS[_drawn(_DRAWN_SMS, recipient, seed)]


def _drawn(names: tuple[str, ...], recipient: str, seed: int) -> str:
    number = int.from_bytes(blake2b(f"{seed}/{recipient}".encode(), digest_size=4).digest(), "big")
    return names[number % len(names)]
