"""The whole story of one intent from the audit: what was asked, seen, decided and sent, and why.

Pure but for `load`. It must not hold an address, a link or a name: the audit has none to show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import orjson

from schemas.decision import Ages, Decision, Phase, Verdict
from schemas.errors import BackstopError
from schemas.reasons import Reason, reason_of
from sinks.operator.books import SQL
from sinks.postgres.pool import Database

TEXT_WIDTH = 110


class IntentUnknown(BackstopError):
    """The audit has no record of this id."""

    remedy = (
        "Check the id and BACKSTOP_PREFIX; a record published a moment ago is audited within a second "
        "while `backstop auditor` runs."
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened. `details` are sentences under it."""

    at_ms: int
    since_ms: int
    what: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Story:
    """An intent's life. Instants in ms since the epoch; `since_ms` counts from the request."""

    intent_id: str
    asked: Mapping[str, Any]
    lines: tuple[Line, ...]
    phase: str
    closed: str | None
    outcome: Mapping[str, Any] | None
    ages: Mapping[str, Any] = field(default_factory=dict)
    chain: str = ""


def load(database: Database, intent_id: str, *, who: str, why: str) -> list[dict[str, Any]]:
    """The audited records of one intent; the reading is logged with who and why. Raises `IntentUnknown`."""
    with database.transaction() as cursor:
        asked = {"intent_id": intent_id, "who": who, "why": why}
        rows = [dict(r) for r in cursor.execute(SQL["story"], asked).fetchall()]
    if not rows:
        raise IntentUnknown(f"nothing is audited under {intent_id}", code="intent_unknown")
    return rows


def tell(intent_id: str, rows: Sequence[Mapping[str, Any]]) -> Story:
    """The story of these rows, in the order things were logged."""
    asked = [r["body"] for r in rows if r["record"] == "intent_requested"]
    request: dict[str, Any] = asked[0] if asked else {}
    start = request.get("requested_at_ms") or rows[0]["log_ms"]
    decisions = [_decision(r["body"]) for r in rows if r["record"] == "decision"]
    decisions.sort(key=lambda d: (d.now_ms, d.seq))
    last = decisions[-1] if decisions else None
    lines = sorted(
        (_line(row, start) for row in rows if row["record"] != "tick"), key=lambda line: line.at_ms
    )
    claim = next((d for d in decisions if Phase.SMS_CLAIMED in (d.next_phase, *d.via)), None)
    ages = {
        name: _ages(d.ages) for name, d in (("at the SMS claim", claim), ("at the end", last)) if d and d.ages
    }
    return Story(
        intent_id,
        request,
        tuple(lines),
        "unknown" if last is None or last.next_phase is None else last.next_phase.value,
        None if last is None or last.closed is None else last.closed.value,
        None
        if last is None or last.outcome is None
        else last.outcome.model_dump(mode="json", exclude_none=True),
        ages,
        verify(decisions),
    )


def verify(decisions: Sequence[Decision]) -> str:
    """Whether each decision names the digest of the one before; the first that does not."""
    prior = ""
    for number, decision in enumerate(decisions, 1):
        if decision.seq == 1:
            prior = ""  # a life of its own: the request came again after the first was forgotten
        if decision.prev_digest != prior:
            return f"the chain breaks at decision {number} ({decision.decision_id})"
        prior = sha256(decision.to_bytes()).hexdigest()
    return f"chain of {len(decisions)} decisions verified"


def render(story: Story) -> str:
    """The story as plain text."""
    return "\n".join(_text(story))


def as_dict(story: Story) -> dict[str, Any]:
    """The story for machines."""
    return {
        "intent_id": story.intent_id,
        "asked": dict(story.asked),
        "timeline": [
            {
                "at": _utc(line.at_ms),
                "since_ms": line.since_ms,
                "what": line.what,
                "details": list(line.details),
            }
            for line in story.lines
        ],
        "phase": story.phase,
        "closed": story.closed,
        "outcome": None if story.outcome is None else dict(story.outcome),
        "ages_ms": dict(story.ages),
        "chain": story.chain,
    }


def _text(story: Story) -> Iterator[str]:
    asked = story.asked
    yield f"intent {story.intent_id}: {story.phase}" + (f" ({story.closed})" if story.closed else "")
    if asked:
        start = asked["requested_at_ms"]
        yield f"  policy {asked['policy']}, tenant {asked['tenant']}, locale {asked['locale']}"
        yield f"  requested {_utc(start)}"
        yield f"  deadline  {_utc(asked['deadline_ms'])} ({_since(asked['deadline_ms'] - start)})"
        yield f"  expiry    {_utc(asked['expiry_ms'])} ({_since(asked['expiry_ms'] - start)})"
        phone = f"a phone in {asked['country']}" if asked.get("sms_fingerprint") else "no phone"
        yield f"  {phone}, {'consent to SMS' if asked.get('sms_consent') else 'no consent to SMS'}"
    else:
        yield "  no request was seen under this id"
    yield ""
    for line in story.lines:
        yield f"{_since(line.since_ms):>10}  {line.what}"
        yield from (f"{'':12}{detail}" for detail in line.details)
    yield ""
    for name, ages in story.ages.items():
        yield f"ages {name}: " + ", ".join(f"{k} {_since(v).removeprefix('+')}" for k, v in ages.items())
    if story.outcome is not None:
        yield "outcome: " + _summary(story.outcome)
    yield story.chain


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


def _line(row: Mapping[str, Any], start: int) -> Line:
    body, record = row["body"] or {}, row["record"]
    if record is None:
        why = f"a record that could not be used: {row['reason']} {row['pointer'] or ''}".rstrip()
        return Line(row["log_ms"], row["log_ms"] - start, why, (_place(row),))
    if record == "decision":
        decision = _decision(body)
        return Line(decision.now_ms, decision.now_ms - start, _headline(decision), tuple(_why(decision)))
    return Line(row["log_ms"], row["log_ms"] - start, _what(record, body))


def _what(record: str, b: Mapping[str, Any]) -> str:
    """One record that is not a decision, as a sentence."""
    match record:
        case "intent_requested":
            return "the service asked"
        case "intent_completed":
            return f"the person is done, says {b['source']}"
        case "intent_cancelled":
            return f"cancelled by {b['source']}"
        case "dispatch":
            return f"order: {b['channel']} submission {b['submission_no']} by {b['provider_account']}"
        case "attempt":
            return f"{b['channel']} submission {b['submission_no']}: {b['state']}{_because(b)}"
        case "lookup":
            return f"order: look-up {b['poll_no']} of {b['channel']} ({b['purpose']})"
        case "observation":
            return _seen(b)
        case "instruction":
            return f"operator {b['operator']}: {b['action']} ({b['why']})"
        case "suppression":
            return f"suppressed for {b['channel']}: {b['reason']}"
        case "dead_letter":
            return f"dead letter: {b['reason']}"
    return record


def _seen(body: Mapping[str, Any]) -> str:
    says = body.get("provider_state") or body["answer"]
    token = f", in its words {body['raw_token']}" if body.get("raw_token") else ""
    return f"look-up {body.get('poll_no', '?')} of {body['channel']}: {says}{_because(body)}{token}"


def _because(body: Mapping[str, Any]) -> str:
    return f" ({body['reason']})" if body.get("reason") else ""


def _headline(decision: Decision) -> str:
    path = [p.value for p in (decision.prior_phase, *decision.via, decision.next_phase) if p is not None]
    moved = " → ".join(dict.fromkeys(path))
    closed = (
        f" ({decision.closed.value})" if decision.closed is not None and Phase.CLOSED.value in path else ""
    )
    return f"DECISION {decision.seq}: {moved}{closed}: {decision.reason.value}"


def _why(decision: Decision) -> Iterator[str]:
    yield decision.reason.sentence
    yield from (f"also: {note.sentence}" for note in decision.notes)
    if decision.looked is not None:
        yield f"last look before the claim: {decision.looked.value}"
    for gate in decision.gates:
        if gate.verdict is not Verdict.OPEN:
            detail = f" ({gate.detail})" if gate.detail else ""
            yield f"gate {gate.gate}: {gate.verdict.value}{detail}"
    if decision.gates and all(g.verdict is Verdict.OPEN for g in decision.gates):
        yield "gates open: " + ", ".join(g.gate for g in decision.gates)
    if decision.evidence is not None:
        source = decision.evidence.source
        says = f"{decision.evidence.channel.value} {decision.evidence.says}"
        yield f"evidence: {says}, at {source.topic}/{source.partition}/{source.offset}"
    if decision.orders:
        ordered = [f"{o.order.value} {o.channel.value} {o.number}" for o in decision.orders]
        yield "ordered: " + ", ".join(ordered)


def _decision(body: Mapping[str, Any]) -> Decision:
    return Decision.model_validate_json(orjson.dumps(body))


def _ages(ages: Ages | None) -> dict[str, int]:
    return (
        {}
        if ages is None
        else {k.removesuffix("_ms"): v for k, v in ages.model_dump(exclude_none=True).items()}
    )


def _place(row: Mapping[str, Any]) -> str:
    sentence = reason_of(row["reason"]).sentence if row["reason"] else Reason.MALFORMED.sentence
    return f"{sentence} At {row['topic']}/{row['partition']}/{row['kafka_offset']}."


def _since(ms: int) -> str:
    return f"{'+' if ms >= 0 else '-'}{abs(ms) / 1000:.3f} s"


def _utc(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"
