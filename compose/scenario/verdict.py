"""Whether a story ended as its file expects, line by line. It must not play or print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compose.scenario.format import Expectation
from compose.scenario.play import ZERO_MS, Played
from schemas.decision import CloseKind, Decision, OrderKind, Phase
from schemas.ids import Channel
from schemas.reasons import Reason

TENTH_MS = 100  # a story is told to the tenth of a second; transactions and calls take milliseconds


@dataclass(frozen=True, slots=True)
class Line:
    """One expectation: what was wanted, what was found."""

    name: str
    wanted: str
    found: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """How a story ended, read from its decisions and the ledger alone."""

    phase: Phase | None
    closed: CloseKind | None
    closed_ms: int | None
    claimed_ms: int | None
    overlap: bool
    needless_fallback: bool


def ending(played: Played) -> Ending:
    """The last phase and end, and when; instants relative to the request."""
    phases = [d.next_phase for d in played.decisions if d.next_phase is not None]
    ends = [d for d in played.decisions if d.closed is not None]
    claims = [d for d in played.decisions if _claims(d)]
    outcome = next((d.outcome for d in ends if d.outcome is not None), None)
    said = set(reasons(played.decisions))
    return Ending(
        phases[-1] if phases else None,
        ends[0].closed if ends else None,
        ends[0].now_ms - ZERO_MS if ends else None,
        claims[0].now_ms - ZERO_MS if claims else None,
        Reason.OVERLAP in said or (outcome is not None and outcome.overlap),
        Reason.NEEDLESS_FALLBACK in said or (outcome is not None and outcome.needless_fallback),
    )


def _claims(decision: Decision) -> bool:
    return any(
        o.order is OrderKind.DISPATCH and o.channel is Channel.SMS and o.number == 1 for o in decision.orders
    )


def reasons(decisions: Iterable[Decision]) -> Iterator[Reason]:
    """All reasons and notes, in order."""
    for decision in decisions:
        yield decision.reason
        yield from decision.notes


def taken(played: Played, channel: Channel) -> list[int]:
    """When the provider of a channel took a message, relative to the request."""
    return [
        line.at_ms - ZERO_MS for line in played.ledger if line.took is not None and line.channel is channel
    ]


def verdict(played: Played) -> list[Line]:
    """One line per expectation that the file states; empty when it states none."""
    wanted = played.scenario.expect
    if wanted is None:
        return []
    found = list(_lines(wanted, played))
    if wanted.refused is None and played.refused is not None:
        found.append(Line("refused", "no", played.refused, holds=False))
    if wanted.dead_letters or played.dead_letters:
        holds = wanted.dead_letters == played.dead_letters
        found.append(Line("dead_letters", str(wanted.dead_letters), str(played.dead_letters), holds=holds))
    return found


def _lines(wanted: Expectation, played: Played) -> Iterator[Line]:
    end = ending(played)
    said = list(reasons(played.decisions))
    plain: list[tuple[str, object, object]] = [
        ("phase", wanted.phase, end.phase),
        ("closed", wanted.closed, end.closed),
        ("email", wanted.email, len(taken(played, Channel.EMAIL))),
        ("sms", wanted.sms, len(taken(played, Channel.SMS))),
        ("others_sms", wanted.others_sms, sum(line.channel is Channel.SMS for line in played.others)),
        ("overlap", wanted.overlap, end.overlap),
        ("needless_fallback", wanted.needless_fallback, end.needless_fallback),
        ("refused", wanted.refused, played.refused),
    ]
    for name, want, got in plain:
        if want is not None:
            yield Line(name, _shown(want), _shown(got), holds=want == got)
    for name, at, was in (
        ("sms_at", wanted.sms_at, end.claimed_ms),
        ("closed_at", wanted.closed_at, end.closed_ms),
    ):
        if at is not None:
            holds = was is not None and abs(at - was) < TENTH_MS
            yield Line(name, seconds(at), "never" if was is None else seconds(was), holds=holds)
    if wanted.reasons:
        missing = _first_missing(wanted.reasons, said)
        told = "in this order" if missing is None else f"no {missing.value} in its place"
        yield Line("reasons", ", ".join(r.value for r in wanted.reasons), told, holds=missing is None)
    for reason in wanted.never:
        yield Line("never", reason.value, "said" if reason in said else "not said", holds=reason not in said)


def _first_missing(wanted: Iterable[Reason], said: list[Reason]) -> Reason | None:
    rest = iter(said)
    return next((reason for reason in wanted if reason not in rest), None)


def _shown(value: object) -> str:
    return "yes" if value is True else "no" if value is False else "none" if value is None else str(value)


def seconds(ms: int) -> str:
    """`+60.0 s`, relative to the request."""
    return f"{'+' if ms >= 0 else '-'}{abs(ms) / 1000:.1f} s"
