"""Whether the decisions of an intent are all here and unaltered: the digests, and what others know of them.

Pure. It must not read the audit. Decisions at the end that ordered nothing can be missing unseen: nobody else
heard of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from schemas.decision import Decision, OrderKind
from sinks.operator.sentences import Row, place

Ordered = tuple[str, str, int]  # kind of order, channel, number

_KINDS = {
    "dispatch": (OrderKind.DISPATCH, "submission_no"),
    "attempt": (OrderKind.DISPATCH, "submission_no"),
    "claim": (OrderKind.DISPATCH, "submission_no"),
    "lookup": (OrderKind.LOOKUP, "poll_no"),
}


def chain(decisions: Sequence[Decision], rows: Sequence[Row], *, altered: int) -> str:
    """One sentence. `altered`: decisions whose bodies are not as they were written."""
    if altered:
        return f"chain not verified: {altered} decisions are not here as they were written"
    found = broken(decisions)
    if found is not None:
        return found
    verified = f"chain of {len(decisions)} decisions verified"
    missing = next(unexplained(decisions, rows), None)
    if missing is None:
        return verified
    return f"{verified}, but {missing}: later decisions are missing, or the audit has not come that far"


def broken(decisions: Sequence[Decision]) -> str | None:
    """The first decision that does not name the digest of the one before; None when there is none."""
    prior = ""
    for number, decision in enumerate(decisions, 1):
        if decision.seq == 1:
            prior = ""  # a life of its own: the request came again after the first was forgotten
        if decision.prev_digest != prior:
            return f"the chain breaks at decision {number} ({decision.decision_id})"
        prior = sha256(decision.to_bytes()).hexdigest()
    return None


def unexplained(decisions: Sequence[Decision], rows: Sequence[Row]) -> Iterator[str]:
    """What was ordered, done or claimed, and no decision here ordered it."""
    here = {d.decision_id for d in decisions}
    ordered = {(o.order.value, o.channel.value, o.number) for d in decisions for o in d.orders}
    for row in rows:
        asked = _ordered(row)
        if asked is None:
            continue
        by = row["body"].get("decision_id")
        if asked not in ordered or (by is not None and by not in here):
            kind, channel, number = asked
            yield f"nothing here ordered {channel} {kind} {number} ({place(row)})"


def _ordered(row: Row) -> Ordered | None:
    kind, body = _KINDS.get(row["record"] or ""), row["body"]
    if kind is None or body is None or body.get(kind[1]) is None:
        return None
    return kind[0].value, body["channel"], body[kind[1]]
