"""One audited record of an intent as one line of its story. Pure.

It must not hold an address, a link or a name: the audit has none to show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import ValidationError

from schemas.decision import Decision, Phase, Verdict
from schemas.reasons import reason_of

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened. `details` are sentences under it."""

    at_ms: int
    since_ms: int
    what: str
    details: tuple[str, ...] = ()


def decision_of(row: Row) -> Decision | None:
    """The decision in a row; None when its body is not there or not one this version can read."""
    if row["body"] is None:
        return None
    try:
        return Decision.model_validate_json(orjson.dumps(row["body"]))
    except ValidationError:
        return None


def line(row: Row, start_ms: int) -> Line:
    """The line for a row; `start_ms` is when the intent was requested."""
    at = int(row["log_ms"])
    if row["record"] is None:
        why = f"a record that could not be used: {row['reason']} {row['pointer'] or ''}".rstrip()
        return Line(at, at - start_ms, why, (f"{_sentence(row['reason'])} At {place(row)}.",))
    if row["body"] is None:
        return Line(at, at - start_ms, f"{row['record']}, not readable: {row['note']}", (f"at {place(row)}",))
    if row["record"] != "decision":
        return Line(at, at - start_ms, _what(row["record"], row["body"]))
    decision = decision_of(row)
    if decision is None:
        return Line(at, at - start_ms, "DECISION this version cannot read", (f"at {place(row)}",))
    return Line(decision.now_ms, decision.now_ms - start_ms, _headline(decision), tuple(_why(decision)))


def place(row: Row) -> str:
    """Coordinates as text."""
    return f"{row['topic']}/{row['partition']}/{row['kafka_offset']}"


def since(ms: int) -> str:
    """A span in seconds, signed."""
    return f"{'+' if ms >= 0 else '-'}{abs(ms) / 1000:.3f} s"


def utc(ms: int) -> str:
    """An instant for people."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"


def _what(record: str, b: Mapping[str, Any]) -> str:
    """One record that is not a decision, as a sentence."""
    match record:
        case "intent_requested":
            return "the service asked"
        case "intent_completed":
            return f"the person is done, says {b['source']}"
        case "intent_cancelled":
            return f"cancelled by {b['source']}"
        case "intent_superseded":
            return f"replaced by the newer intent {b['by_intent_id']} of the same subject"
        case "subject_seen":
            return "seen by whoever keeps its subject: an older one would be over"
        case "dispatch":
            return f"order: {b['channel']} submission {b['submission_no']} by {b['provider_account']}"
        case "claim":
            return f"the guard's row: {b['channel']} submission {b['submission_no']}, {b['state']}"
        case "attempt":
            return f"{b['channel']} submission {b['submission_no']}: {b['state']}{_because(b)}{_limited(b)}"
        case "lookup":
            return f"order: look-up {b['poll_no']} of {b['channel']} ({b['purpose']})"
        case "observation":
            return _seen(b)
        case "instruction":
            return f"operator {b['operator']}: {b['action']} ({b['why']})"
        case "suppression":
            return f"suppressed for {b['channel']}: {b['reason']}"
        case "dead_letter":
            return f"dead letter: {b['reason']}" + _told_to(b.get("publisher"), b.get("pointer"))
    return record


def _seen(body: Mapping[str, Any]) -> str:
    says = body.get("provider_state") or body["answer"]
    token = f", in its words {body['raw_token']}" if body.get("raw_token") else ""
    return f"look-up {body.get('poll_no', '?')} of {body['channel']}: {says}{_because(body)}{token}"


def _because(body: Mapping[str, Any]) -> str:
    return f" ({body['reason']})" if body.get("reason") else ""


def _limited(body: Mapping[str, Any]) -> str:
    return f", limits reached: {', '.join(body['limits'])}" if body.get("limits") else ""


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
    if decision.pointer is not None:
        yield "in the request:" + _told_to(decision.publisher, decision.pointer)
    trigger = decision.trigger
    yield f"on reading: {decision.input.value} at {trigger.topic}/{trigger.partition}/{trigger.offset}"
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


def _told_to(publisher: str | None, pointer: str | None) -> str:
    """Which field of whose request."""
    return (f" at {pointer}" if pointer else "") + (f", published by {publisher}" if publisher else "")


def _sentence(code: str | None) -> str:
    """The sentence of a reason; a code of a newer version has none here."""
    try:
        return reason_of(code or "").sentence
    except KeyError:
        return "This version does not know the reason."
