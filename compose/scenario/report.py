"""A story that was played, as text for people and as one document for machines.

It must not hold a destination, a link or key material, nor anything that differs between two runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compose.scenario.play import ZERO_MS, Played
from compose.scenario.provider import LedgerLine
from compose.scenario.verdict import Line, ending, seconds, taken, verdict
from schemas.decision import Decision, Order
from schemas.ids import Channel

_COLUMN = 12


def document(played: Played) -> dict[str, Any]:
    """Everything the text says and more; instants in milliseconds since the request."""
    end, lines = ending(played), verdict(played)
    return {
        "title": played.scenario.title,
        "policy": played.scenario.played_policy.policy,
        "deadline_ms": played.scenario.intent.deadline,
        "expiry_ms": played.scenario.intent.expiry,
        "when_unsure": played.scenario.played_policy.when_unsure.value,
        "refused": played.refused,
        "around": [{"at_ms": n.at_ms - ZERO_MS, "what": n.text} for n in played.notes],
        "decisions": [_decision(d) for d in played.decisions],
        "ledger": [_ledger(line) for line in played.ledger],
        "messages": {c.value: taken(played, c) for c in Channel},
        "duplicates": _duplicates(played),
        "dead_letters": played.dead_letters,
        "phase": end.phase.value if end.phase else None,
        "closed": end.closed.value if end.closed else None,
        "closed_at_ms": end.closed_ms,
        "sms_claimed_at_ms": end.claimed_ms,
        "overlap": end.overlap,
        "needless_fallback": end.needless_fallback,
        "expectations": [
            {"name": e.name, "wanted": e.wanted, "found": e.found, "holds": e.holds} for e in lines
        ],
        "holds": all(e.holds for e in lines),
    }


def text(played: Played) -> str:
    """The story: what happened when and why, what the providers took, how it ended, what was expected."""
    parts = [played.scenario.title, "", *_timeline(played), "", *_providers(played), "", *_end(played)]
    return "\n".join(parts)


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "at_ms": decision.now_ms - ZERO_MS,
        "seq": decision.seq,
        "from": decision.prior_phase.value if decision.prior_phase else None,
        "to": decision.next_phase.value if decision.next_phase else None,
        "reason": decision.reason.value,
        "class": decision.reason_class.value,
        "sentence": decision.reason.sentence,
        "notes": [n.value for n in decision.notes],
        "looked": decision.looked.value if decision.looked else None,
        "orders": [o.model_dump(mode="json", exclude_none=True) for o in decision.orders],
        "closed": decision.closed.value if decision.closed else None,
    }


def _ledger(line: LedgerLine) -> dict[str, Any]:
    return {
        "at_ms": line.at_ms - ZERO_MS,
        "channel": line.channel.value,
        "answered": line.answered,
        "took": line.took,
    }


def _duplicates(played: Played) -> dict[str, int]:
    return {c.value: max(0, len(taken(played, c)) - 1) for c in Channel}


def _timeline(played: Played) -> Iterator[str]:
    """What happened around the machine, and each decision below it, by time."""
    told: list[tuple[int, int, list[str]]] = [(n.at_ms, 0, [f"· {n.text}"]) for n in played.notes]
    told += [(d.now_ms, 1, _told(d)) for d in played.decisions]
    for at_ms, _, lines in sorted(told, key=lambda entry: entry[:2]):
        for number, line in enumerate(lines):
            when = seconds(at_ms - ZERO_MS) if number == 0 else ""
            yield f"{when:>{_COLUMN}}  {line}"
    if played.refused is not None:
        yield f"{'refused':>{_COLUMN}}  {played.refused}: {played.refused_why}"


def _told(decision: Decision) -> list[str]:
    moved = decision.next_phase is not None and decision.next_phase is not decision.prior_phase
    step = f" → {decision.next_phase.value}" if moved and decision.next_phase is not None else ""
    prior = decision.prior_phase.value if decision.prior_phase is not None else "new"
    lines = [f"{prior}{step}  {decision.reason.value}: {decision.reason.sentence}"]
    lines += [f"  also {note.value}: {note.sentence}" for note in decision.notes]
    lines += [f"  order: {_order(order)}" for order in decision.orders]
    if decision.closed is not None and moved:
        lines.append(f"  closed: {decision.closed.value}")
    return lines


def _order(order: Order) -> str:
    reason = f" ({order.reason.value})" if order.reason is not None else ""
    return f"{order.order.value} {order.channel.value} {order.number}{reason}"


def _providers(played: Played) -> Iterator[str]:
    for channel in Channel:
        times = taken(played, channel)
        when = f" at {', '.join(map(seconds, times))}" if times else ""
        again = f", {len(times) - 1} duplicate" if len(times) > 1 else ""
        yield f"{channel.value}: {len(times)} taken{when}{again}"
        for line in played.ledger:
            if line.channel is channel:
                took = f" → {line.took}" if line.took else ""
                yield f"{seconds(line.at_ms - ZERO_MS):>{_COLUMN}}  submit: {line.answered}{took}"


def _end(played: Played) -> Iterator[str]:
    end, lines = ending(played), verdict(played)
    phase = end.phase.value if end.phase else "none"
    closed = "" if end.closed is None or end.closed_ms is None else (
        f", {end.closed.value} at {seconds(end.closed_ms)}"
    )  # fmt: skip
    yield f"end: {phase}{closed}"
    yield from (f"  {_shown(line)}" for line in lines)
    broken = sum(not line.holds for line in lines)
    if not lines:
        yield "nothing was expected"
    elif broken:
        yield f"does not hold: {broken} of {len(lines)}"
    else:
        yield f"holds: {len(lines)} of {len(lines)}"


def _shown(line: Line) -> str:
    mark = "✓" if line.holds else "✗"
    return f"{mark} {line.name}: wanted {line.wanted}, found {line.found}"
