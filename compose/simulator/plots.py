"""Magic recipients: what an address or a number makes the simulated provider do, as providers' test ones do.

An e-mail's local part is `name[-count][+tag]`. `count` is how many submissions meet the fault before one
is accepted (`throttle-3`, `lost-2`). A tag that begins with a time (`slow+90s-anything`) moves the first
status of `slow`, `bounce` and `latebounce` there, and is the time `answer` and `busy` work for.

    name                  what happens
    delivered             accepted, delivered after 1 s
    slow                  accepted, delivered after 30 s
    never                 accepted, and nothing more is ever reported
    bounce                accepted, permanent bounce after 0.4 s: no such mailbox
    bouncesuppressed      accepted, permanent bounce after 0.4 s: on the provider's own list
    latebounce            delivered after 0.5 s, permanent bounce after 2 s
    complaint             delivered, then reported as unwanted
    temporary             deferred twice, then delivered after 1.5 s
    repeat, reorder       delivered three times; delivered, then accepted again, then delivered again
    unknown, oddtokens    accepted, then words no document lists; `Delivered`, null, 7 and an empty text
    badtext               accepted, then words that databases refuse: a NUL, half a surrogate pair
    swallowed             202 whose status says suppressed: taken, never sent

    lost, reset, close    taken; the answer is cut in its body, reset in its body, or has no byte; delivered
    hang                  taken; the answer never comes; delivered
    html, gateway         taken; answered with a page, 200 or 502; delivered
    empty, list, noid     taken; 200 without a body, with `[]`, 202 without an id; delivered
    answer                taken; the answer takes 2 s; delivered
    busy                  taken; the answer is cut, the same key is told in_progress for 2 s; delivered

    vanish                not taken, the answer is cut in its body, once
    error, unavailable    not taken, 500 or 503 with `Retry-After: 1` once; then accepted and delivered
    throttle              429 with `Retry-After: 1` twice, then accepted and delivered
    throttledate          429 with an HTTP date once, then accepted and delivered
    throttlesoon          429 with `Retry-After: soon` once, then accepted and delivered
    unauthorised, forbidden, suspended      401, 403, 403 `account_suspended` once, then accepted
    invalid, suppressed, blocked, content   refused by code, always

    hidden                delivered after 1 s, look-ups find it after 5 s
    lookupthrottle, lookuperror, lookuphtml, lookupother, lookupmissing
                          delivered; the first look-up is a 429, a 500, a page, about another message, a 404

A number is read by its last three digits: the thousand of +447700900000–900999 (Ofcom's, for drama) give a
hundred for each. Of +1 AAA 555 01dn (reserved for fiction, valid to every library) the digit d is read.

    0nn                   accepted, delivered after 0.5 s
    1nn                   refused: no such recipient
    2nn                   accepted, `sent` for ever
    3nn                   taken; the answer is cut in its body; delivered
    4nn                   429 with `Retry-After: 1` once, then accepted and delivered
    5nn                   accepted, undeliverable after 0.6 s
    6nn                   refused: the person answered STOP
    7nn                   accepted, delivered after 5 s
    80n 81n 82n 83n       taken; the answer hangs, is reset, has no byte, is a 502 page; delivered
    84n 85n               not taken, 500 once; accepted and nothing more
    86n 87n               words no document lists; refused: blocked
    88n 89n               delivered after 30 s; expired at the carrier
    9nn                   drawn from the seed, as any other recipient

It must not read a clock or roll dice: the seed and the recipient decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b

from compose.simulator.script import Answer, Plot, Status, Step


def _plot(
    *statuses: tuple[int, str | int | None] | tuple[int, str | int | None, str],
    submits: tuple[Step, ...] = (Step(),),
    lookups: tuple[Step, ...] = (),
    visible_after_ms: int | None = None,
) -> Plot:
    return Plot(submits, tuple(Status(*s) for s in statuses), lookups, visible_after_ms)


_A = Answer
_DELIVERED = (1_000, "delivered")
_DELIVERED_SMS = (500, "delivered")


def _then_accepted(*first: Step) -> Plot:
    return _plot(_DELIVERED, submits=(*first, Step()))


def _then_accepted_sms(first: Answer, retry_after_s: int | None = None) -> Plot:
    return _plot(_DELIVERED_SMS, submits=(Step(first, retry_after_s), Step()))


def _refused(answer: Answer) -> Plot:
    return _plot(submits=(Step(answer),))


def _asked(first: Step) -> Plot:
    return _plot(_DELIVERED, lookups=(first,))


EMAIL_PLOTS: dict[str, Plot] = {
    "delivered": _plot(_DELIVERED),
    "slow": _plot((30_000, "delivered")),
    "never": _plot(),
    "bounce": _plot((400, "bounced", "mailbox_unknown")),
    "bouncesuppressed": _plot((400, "bounced", "suppressed")),
    "latebounce": _plot((500, "delivered"), (2_000, "bounced", "mailbox_unknown")),
    "complaint": _plot((300, "delivered"), (900, "complained")),
    "temporary": _plot((200, "deferred"), (700, "deferred"), (1_500, "delivered")),
    "repeat": _plot((300, "delivered"), (600, "delivered"), (900, "delivered")),
    "reorder": _plot((300, "delivered"), (600, "accepted"), (900, "delivered")),
    "unknown": _plot((200, "DLR_TIMEOUT"), (900, "sent-internationally"), (1_600, "Partially Delivered")),
    "oddtokens": _plot((200, "Delivered"), (600, None), (1_000, 7), (1_400, "")),
    "badtext": _plot((200, "a\x00b"), (600, "\ud83d"), (1_000, "delivered")),
    "swallowed": _plot((0, "suppressed")),
    "lost": _then_accepted(Step(_A.LOSE)),
    "reset": _then_accepted(Step(_A.RESET)),
    "close": _then_accepted(Step(_A.CLOSE)),
    "hang": _then_accepted(Step(_A.HANG)),
    "html": _then_accepted(Step(_A.HTML)),
    "gateway": _then_accepted(Step(_A.GATEWAY)),
    "empty": _then_accepted(Step(_A.EMPTY)),
    "list": _then_accepted(Step(_A.LIST)),
    "noid": _then_accepted(Step(_A.NO_ID)),
    "answer": _then_accepted(Step(working_ms=2_000)),
    "busy": _then_accepted(Step(_A.LOSE, working_ms=2_000)),
    "vanish": _then_accepted(Step(_A.VANISH)),
    "error": _then_accepted(Step(_A.ERROR)),
    "unavailable": _then_accepted(Step(_A.UNAVAILABLE, 1)),
    "throttle": _then_accepted(Step(_A.THROTTLE, 1), Step(_A.THROTTLE, 1)),
    "throttledate": _then_accepted(Step(_A.THROTTLE, 1, as_date=True)),
    "throttlesoon": _then_accepted(Step(_A.THROTTLE, retry_after_text="soon")),
    "unauthorised": _then_accepted(Step(_A.UNAUTHORISED)),
    "forbidden": _then_accepted(Step(_A.FORBIDDEN)),
    "suspended": _then_accepted(Step(_A.SUSPENDED)),
    "invalid": _refused(_A.INVALID),
    "suppressed": _refused(_A.SUPPRESSED),
    "blocked": _refused(_A.BLOCKED),
    "content": _refused(_A.CONTENT),
    "hidden": _plot(_DELIVERED, visible_after_ms=5_000),
    "lookupthrottle": _asked(Step(_A.THROTTLE, 1)),
    "lookuperror": _asked(Step(_A.ERROR)),
    "lookuphtml": _asked(Step(_A.HTML)),
    "lookupother": _asked(Step(_A.OTHER_ID)),
    "lookupmissing": _asked(Step(_A.NOT_FOUND)),
}

SMS_PLOTS: dict[str, Plot] = {
    "0": _plot(_DELIVERED_SMS),
    "1": _refused(_A.INVALID),
    "2": _plot((200, "sent")),
    "3": _then_accepted_sms(_A.LOSE),
    "4": _then_accepted_sms(_A.THROTTLE, 1),
    "5": _plot((600, "undeliverable", "unreachable")),
    "6": _refused(_A.OPTED_OUT),
    "7": _plot((5_000, "delivered")),
    "80": _then_accepted_sms(_A.HANG),
    "81": _then_accepted_sms(_A.RESET),
    "82": _then_accepted_sms(_A.CLOSE),
    "83": _then_accepted_sms(_A.GATEWAY),
    "84": _then_accepted_sms(_A.ERROR),
    "85": _plot(),
    "86": _plot((200, "DLR_TIMEOUT"), (900, "sent-internationally")),
    "87": _refused(_A.BLOCKED),
    "88": _plot((30_000, "delivered")),
    "89": _plot((200, "sent"), (600, "expired")),
}

# For any other recipient: three of four arrive at once, the rest over everything that is slow or odd.
EMAIL_WEIGHTS: Mapping[str, int] = {
    "delivered": 15,
    "slow": 1,
    "never": 1,
    "temporary": 1,
    "bounce": 1,
    "throttle": 1,
}
SMS_WEIGHTS: Mapping[str, int] = {"0": 8, "7": 1, "2": 1}

_LOCAL = re.compile(r"([a-z]+)(?:-([1-9][0-9]?))?(?:\+(.*))?")
_TIME = re.compile(r"([0-9]{1,6})(ms|s|m)(?:[-.+].*)?")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000}
_FICTION = re.compile(r"\+1[2-9][0-9]{2}55501([0-9])[0-9]")
_NUMBER_END = re.compile(r"[0-9]*(([0-9])[0-9])[0-9]")
_MOVES_STATUSES = frozenset({"slow", "bounce", "latebounce"})
_MOVES_ANSWER = frozenset({"answer", "busy"})


def plot_for(recipient: str, *, seed: int, weights: Mapping[str, int] | None = None) -> Plot:
    """The plot of a recipient: by magic name or digit, else drawn by `weights` (name → weight). Pure."""
    if "@" in recipient:
        return (
            _named(recipient.partition("@")[0])
            or EMAIL_PLOTS[_drawn(weights or EMAIL_WEIGHTS, recipient, seed)]
        )
    return _numbered(recipient) or SMS_PLOTS[_drawn(weights or SMS_WEIGHTS, recipient, seed)]


def _named(local: str) -> Plot | None:
    found = _LOCAL.fullmatch(local)
    plot = EMAIL_PLOTS.get(found[1]) if found else None
    if found is None or plot is None:
        return None
    if found[2] and len(plot.submits) > 1:
        plot = replace(plot, submits=(plot.submits[0],) * int(found[2]) + plot.submits[-1:])
    time = _TIME.fullmatch(found[3] or "")
    return plot if time is None else _timed(found[1], plot, int(time[1]) * _UNIT_MS[time[2]])


def _timed(name: str, plot: Plot, ms: int) -> Plot:
    if name in _MOVES_STATUSES:
        by = ms - plot.statuses[0].after_ms
        return replace(plot, statuses=tuple(replace(s, after_ms=s.after_ms + by) for s in plot.statuses))
    if name in _MOVES_ANSWER:
        first = replace(plot.submits[0], working_ms=ms)
        return replace(plot, submits=(first, *plot.submits[1:]))
    return plot


def _numbered(number: str) -> Plot | None:
    fiction = _FICTION.fullmatch(number)
    if fiction:
        return SMS_PLOTS.get(fiction[1])
    end = _NUMBER_END.fullmatch(number.removeprefix("+"))
    return None if end is None else SMS_PLOTS.get(end[2]) or SMS_PLOTS.get(end[1])


def _drawn(weights: Mapping[str, int], recipient: str, seed: int) -> str:
    digest = blake2b(f"{seed}/{recipient}".encode(), digest_size=8).digest()
    point = int.from_bytes(digest, "big") % sum(weights.values())
    for name, weight in weights.items():
        point -= weight
        if point < 0:
            return name
    raise AssertionError("a point below the sum of the weights is below one of them")
