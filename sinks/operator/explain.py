"""The whole story of one intent from the audit: what was asked, seen, decided and sent, and why.

Pure but for `load`; the words of single records are in `sentences`. It must not hold an address, a link or
a name: the audit has none to show.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.decision import Ages, Decision
from schemas.errors import BackstopError
from schemas.topics import TOPICS, TopicNames
from sinks.operator.books import SQL
from sinks.operator.chain import chain
from sinks.operator.sentences import Line, Row, decision_of, line, since, utc
from sinks.operator.sms import claim_of, why_sms
from sinks.operator.text import check, check_name, printable
from sinks.postgres.pool import Database

UNDECIDED = "undecided"
COLUMNS = 110
_DETAIL = 12  # where the text of a timed line begins


class IntentUnknown(BackstopError):
    """The audit has no record of this id."""

    remedy = (
        "Check the id and BACKSTOP_PREFIX; a record published a moment ago is audited within a second "
        "while `backstop auditor` runs."
    )


@dataclass(frozen=True, slots=True)
class Story:
    """An intent's life. Instants in ms since the epoch; `since_ms` counts from the request.

    `phase` is `undecided` before the first decision; `next_due_ms` is when an unfinished one is looked at
    again.
    """

    intent_id: str
    asked: Mapping[str, Any]
    lines: tuple[Line, ...]
    sms: str
    phase: str
    closed: str | None
    outcome: Mapping[str, Any] | None
    next_due_ms: int | None = None
    ages: Mapping[str, Any] = field(default_factory=dict)
    chain: str = ""


def names_of(database: Database, intent_id: str, *, default: TopicNames) -> TopicNames:
    """The topics of the deployment that audited this intent: a local stack may hold several (`up`, demos).

    Needs the right to read the audit itself, which the owner of a local stack has. Raises `GuardUnavailable`.
    """
    suffixes = [TopicNames("")[kind] for kind in TOPICS]
    with database.transaction() as cursor:
        rows = cursor.execute(SQL["topics_of"], {"intent_id": intent_id}).fetchall()
    prefixes = {
        row["topic"].removesuffix(suffix)
        for row in rows
        for suffix in suffixes
        if row["topic"].endswith(suffix)
    }
    own = sorted(p for p in prefixes if all(row["topic"].startswith(p) for row in rows))
    return TopicNames(own[-1]) if own and default.prefix not in prefixes else default


def load(
    database: Database, intent_id: str, *, names: TopicNames, who: str, why: str
) -> list[dict[str, Any]]:
    """What is audited of one intent under these topics, and its claims; the reading is logged.

    Raises `IntentUnknown`, `OperatorTextRefused` or `GuardUnavailable`.
    """
    asked = {"intent_id": intent_id, "who": check_name(who, "who"), "why": check(why, "why")}
    with database.transaction() as cursor:
        found = cursor.execute(SQL["story"], asked | {"topics": list(names.of(TOPICS))}).fetchall()
    rows = [dict(row) for row in found]
    if not rows:
        raise IntentUnknown(
            f"nothing is audited under {printable(intent_id)} in topics {names.prefix}*",
            code="intent_unknown",
        )
    return rows


def tell(intent_id: str, rows: Sequence[Row]) -> Story:
    """The story of these rows (at least one), in the order things happened."""
    asked = [r["body"] for r in rows if r["record"] == "intent_requested" and r["body"] is not None]
    request: dict[str, Any] = asked[0] if asked else {}
    start = request.get("requested_at_ms") or rows[0]["log_ms"]
    decided = [row for row in rows if row["record"] == "decision"]
    decisions = sorted(filter(None, map(decision_of, decided)), key=lambda d: (d.now_ms, d.seq))
    altered = len(decided) - len(decisions) + sum(row["sanitised"] > 0 for row in decided)
    last = decisions[-1] if decisions else None
    lines = sorted((line(row, start) for row in rows if row["record"] != "tick"), key=lambda one: one.at_ms)
    return Story(
        intent_id,
        request,
        tuple(lines),
        why_sms(decisions, rows, start),
        UNDECIDED if last is None or last.next_phase is None else last.next_phase.value,
        None if last is None or last.closed is None else last.closed.value,
        None
        if last is None or last.outcome is None
        else last.outcome.model_dump(mode="json", exclude_none=True),
        None if last is None else last.next_due_ms,
        _ages_told(decisions),
        chain(decisions, rows, altered=altered),
    )


def render(story: Story) -> str:
    """The story as plain text of at most `COLUMNS` columns, with nothing in it that a terminal would obey."""
    return "\n".join(folded for one in _text(story) for folded in _folded(printable(one)))


def _folded(text: str) -> list[str]:
    """The line, continued under its own beginning."""
    lead = len(text) - len(text.lstrip())
    under = " " * max(lead, _DETAIL)
    return textwrap.wrap(text, COLUMNS, subsequent_indent=under, break_on_hyphens=False) or [""]


def as_dict(story: Story) -> dict[str, Any]:
    """The story for machines."""
    return {
        "intent_id": story.intent_id,
        "asked": dict(story.asked),
        "timeline": [
            {"at": utc(one.at_ms), "since_ms": one.since_ms, "what": one.what, "details": list(one.details)}
            for one in story.lines
        ],
        "phase": story.phase,
        "closed": story.closed,
        "sms": story.sms,
        "outcome": None if story.outcome is None else dict(story.outcome),
        "next_due": None if story.next_due_ms is None else utc(story.next_due_ms),
        "ages_ms": dict(story.ages),
        "chain": story.chain,
    }


def _text(story: Story) -> Iterator[str]:
    asked = story.asked
    yield f"intent {story.intent_id}: {story.phase}" + (f" ({story.closed})" if story.closed else "")
    if asked:
        yield from _asked(asked)
    else:
        yield "  no request was seen under this id"
    yield f"  {story.sms}"
    yield ""
    for one in story.lines:
        yield f"{since(one.since_ms):>10}  {one.what}"
        yield from (f"{'':{_DETAIL}}{detail}" for detail in one.details)
    yield ""
    for name, ages in story.ages.items():
        yield f"ages {name}: " + ", ".join(f"{k} {_age(v)}" for k, v in ages.items())
    if story.outcome is not None:
        yield "outcome: " + _summary(story.outcome)
    yield from _open_end(story)
    yield story.chain


def _asked(asked: Mapping[str, Any]) -> Iterator[str]:
    start = asked["requested_at_ms"]
    yield f"  policy {asked['policy']}, tenant {asked['tenant']}, locale {asked['locale']}"
    if asked.get("publisher"):
        yield f"  published by {asked['publisher']}"
    yield f"  requested {utc(start)}"
    yield f"  deadline  {utc(asked['deadline_ms'])} ({since(asked['deadline_ms'] - start)})"
    yield f"  expiry    {utc(asked['expiry_ms'])} ({since(asked['expiry_ms'] - start)})"
    if asked.get("challenge_ref"):
        yield f"  challenge {asked['challenge_ref']}, the same in both channels"
    phone = f"a phone in {asked['country']}" if asked.get("sms_fingerprint") else "no phone"
    yield f"  {phone}, {'consent to SMS' if asked.get('sms_consent') else 'no consent to SMS'}"


def _open_end(story: Story) -> Iterator[str]:
    """What an unfinished intent waits for."""
    if story.phase == UNDECIDED:
        yield "not decided yet: the worker has not read it, or the audit has not come that far"
    elif story.closed is None:
        again = "" if story.next_due_ms is None else f"; it is looked at again at {utc(story.next_due_ms)}"
        yield f"not finished{again}"


def _summary(outcome: Mapping[str, Any]) -> str:
    parts = [f"ended {outcome['ended']}"]
    for channel in ("email", "sms"):
        one = outcome.get(channel)
        if one:
            why = f" ({one['reason']})" if one.get("reason") else ""
            parts.append(
                f"{channel} {one['state']}{why}, {one['submissions']} submissions, {one['answers']} answers"
            )
    if outcome.get("first_usable"):
        parts.append(
            f"usable first by {outcome['first_usable']} after {outcome['time_to_first_usable_ms']} ms"
        )
    parts += [name.replace("_", " ") for name in ("needless_fallback", "overlap") if outcome.get(name)]
    return "; ".join(parts)


def _ages_told(decisions: Sequence[Decision]) -> dict[str, dict[str, int | None]]:
    """The three ages at the two moments that matter; None where nobody knew."""
    moments = (
        ("at the SMS claim", claim_of(decisions)),
        ("at the end", decisions[-1] if decisions else None),
    )
    return {name: _ages(d.ages) for name, d in moments if d is not None}


def _ages(ages: Ages | None) -> dict[str, int | None]:
    return {name.removesuffix("_ms"): getattr(ages, name, None) for name in Ages.model_fields}


def _age(ms: int | None) -> str:
    return "not known" if ms is None else since(ms).removeprefix("+")
