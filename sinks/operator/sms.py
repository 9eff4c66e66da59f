"""Why the SMS of an intent went, or did not, in one sentence. Pure.

It must not decide again what was decided: it reads decisions and what the dispatcher said of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.attempt import ATTEMPT_RANK, AttemptState
from schemas.decision import Decision, Phase, Verdict
from schemas.ids import Channel
from schemas.reasons import reason_of
from sinks.operator.sentences import Row, since

_TAKEN = frozenset({AttemptState.ACCEPTED, AttemptState.DELIVERED})


def why_sms(decisions: Sequence[Decision], rows: Sequence[Row], start_ms: int) -> str:
    """One sentence. `decisions` in their order; `rows` are all of the story; `start_ms` is the request."""
    claim = claim_of(decisions)
    if claim is not None:
        at = since(claim.now_ms - start_ms)
        return f"{_fate(decisions, rows)}; claimed at {at}: {_sentence(claim.reason.value)}"
    if any(_is_sms(row) for row in rows if row["record"] in ("dispatch", "attempt", "claim")):
        return f"{_fate(decisions, rows)}; the decision that claimed it is not here"
    return _unclaimed(decisions, start_ms)


def claim_of(decisions: Sequence[Decision]) -> Decision | None:
    """The decision that gave the SMS its one right."""
    return next((d for d in decisions if Phase.SMS_CLAIMED in (d.next_phase, *d.via)), None)


def _fate(decisions: Sequence[Decision], rows: Sequence[Row]) -> str:
    """What became of a claimed SMS, as far as anybody said."""
    phases = [phase for d in decisions for phase in (*d.via, d.next_phase)]
    told = sorted(_attempts(rows), key=lambda b: (b["submission_no"], ATTEMPT_RANK[AttemptState(b["state"])]))
    if Phase.SMS_DELIVERED in phases:
        return "SMS went, and the provider says it arrived"
    if Phase.SMS_ACCEPTED in phases or any(AttemptState(b["state"]) in _TAKEN for b in told):
        end = next((d for d in decisions if d.next_phase is Phase.EXHAUSTED), None)
        known = "whether it arrived is not known" if end is None else _sentence(end.reason.value)
        return f"SMS went: the provider took it; {known}"
    if not told:
        return "SMS was ordered; what came of it is not known"
    state, why = AttemptState(told[-1]["state"]), told[-1].get("reason")
    because = "" if why is None else f": {_sentence(why)}"
    match state:
        case AttemptState.FAILED | AttemptState.REFUSED:
            return f"no SMS went{because}"
        case AttemptState.HELD | AttemptState.NOT_ACCEPTED:
            return f"no SMS is known to have gone{because}"
    return f"whether the SMS went is not known{because or ': the answer to its submission was lost'}"


def _unclaimed(decisions: Sequence[Decision], start_ms: int) -> str:
    if not decisions:
        return "whether an SMS goes is not decided yet"
    last = decisions[-1]
    arrived = _first(decisions, Phase.EMAIL_DELIVERED)
    refused = next((d for d in reversed(decisions) if _gate(d, Verdict.REFUSE)), None)
    if refused is not None:
        gate = _gate(refused, Verdict.REFUSE)
        return f"no SMS went: {_sentence(gate)} (decided at {since(refused.now_ms - start_ms)})"
    ended = _first(decisions, Phase.CLOSED)
    if arrived is not None and (ended is None or ended.prior_phase is Phase.EMAIL_DELIVERED):
        at = since(arrived.now_ms - start_ms)
        return f"no SMS went: the provider said at {at} that the e-mail arrived"
    if ended is not None:
        return f"no SMS went: {_sentence(ended.reason.value)} ({since(ended.now_ms - start_ms)})"
    held = _gate(last, Verdict.HOLD)
    if held is not None:
        return f"no SMS yet: {_sentence(held)}"
    return "no SMS yet: it goes at the deadline, unless the e-mail is known to have arrived or all is done"


def _gate(decision: Decision, verdict: Verdict) -> str | None:
    """The reason of the first gate that said so."""
    return next((g.reason.value for g in decision.gates if g.verdict is verdict and g.reason), None)


def _first(decisions: Sequence[Decision], phase: Phase) -> Decision | None:
    return next((d for d in decisions if phase in (d.next_phase, *d.via)), None)


def _attempts(rows: Sequence[Row]) -> Iterator[Mapping[str, Any]]:
    states = AttemptState.__members__.values()
    for row in rows:
        if row["record"] == "attempt" and _is_sms(row) and row["body"]["state"] in states:
            yield row["body"]


def _is_sms(row: Row) -> bool:
    return row["body"] is not None and row["body"].get("channel") == Channel.SMS.value


def _sentence(code: str | None) -> str:
    """A reason inside a sentence; a code of a newer version stands for itself."""
    try:
        found = reason_of(code or "").sentence
    except KeyError:
        return code or "not known"
    return found[0].lower() + found[1:].rstrip(".")
