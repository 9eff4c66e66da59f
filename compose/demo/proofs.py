"""The four proofs, from the outside: the provider's ledger, the topics and Postgres. Pure.

It must not ask a process of ours how it did; it reads what they left behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

EXAMPLES_MAX = 5  # lines of detail per proof; the counts say the rest


@dataclass(frozen=True, slots=True)
class Submitted:
    """One answer «taken»: our reference, when, and whether it replayed an earlier answer."""

    reference: str
    at_ms: int
    replayed: bool


@dataclass(frozen=True, slots=True)
class Fence:
    """What forbids a submission of one (intent, channel), and since when.

    `claimed_ms` is when the dispatcher claimed it: a fence known before the claim makes a submission
    wrong, one that came after it makes it an overlap in flight.
    """

    reference: str
    expiry_ms: int
    claimed_ms: int
    closed_ms: int | None = None
    suppressed_ms: int | None = None


@dataclass(slots=True)
class Proof:
    """One sentence, whether it holds, and what stands against it."""

    sentence: str
    holds: bool
    counted: dict[str, int] = field(default_factory=dict)
    against: list[str] = field(default_factory=list)


def no_duplicates(submitted: Iterable[Submitted]) -> Proof:
    """At most one logical submission per (intent, channel): replays of the same key are not new messages."""
    taken = Counter(s.reference for s in submitted if not s.replayed)
    twice = sorted(r for r, n in taken.items() if n > 1)
    return Proof(
        "0 duplicate logical submissions",
        not twice,
        {"logical submissions": sum(taken.values()), "duplicates": len(twice)},
        [f"{r}: {taken[r]} messages" for r in twice[:EXAMPLES_MAX]],
    )


def nothing_too_late(submitted: Iterable[Submitted], fences: Mapping[str, Fence]) -> Proof:
    """No submission after expiry, completion or suppression as known at the claim; overlaps are listed."""
    wrong: list[str] = []
    overlaps: list[str] = []
    checked = 0
    for one in submitted:
        if one.replayed:
            continue
        checked += 1
        fence = fences.get(one.reference)
        if fence is None:
            wrong.append(f"{one.reference}: submitted without a claim")
            continue
        if one.at_ms >= fence.expiry_ms:
            wrong.append(f"{one.reference}: {one.at_ms - fence.expiry_ms} ms after expiry")
        for name, since in (("completion", fence.closed_ms), ("suppression", fence.suppressed_ms)):
            if since is None or since > one.at_ms:
                continue
            line = f"{one.reference}: {one.at_ms - since} ms after {name}"
            (wrong if since < fence.claimed_ms else overlaps).append(line)
    return Proof(
        "0 submissions after expiry, completion or suppression",
        not wrong,
        {"checked": checked, "wrong": len(wrong), "overlaps in flight": len(overlaps)},
        wrong[:EXAMPLES_MAX] + [f"overlap {line}" for line in overlaps[:EXAMPLES_MAX]],
    )


def all_accounted(progress: Mapping[str, Mapping[str, int]], on_topics: Mapping[str, int]) -> Proof:
    """`inputs = decided + absorbed + parked + dead-lettered`; inputs are all records, parked is 0.

    `progress`: per input topic, the counters summed over partitions. `on_topics`: records per topic.
    """
    against: list[str] = []
    total: Counter[str] = Counter()
    for topic, count in sorted(on_topics.items()):
        counters = progress.get(topic, {})
        total.update({k: v for k, v in counters.items() if k in _COUNTED})
        fates = sum(counters.get(f, 0) for f in _FATES)
        if counters.get("inputs", 0) != fates:
            against.append(f"{topic}: {counters.get('inputs', 0)} inputs, {fates} fates")
        if counters.get("inputs", 0) != count:
            against.append(f"{topic}: {count} records, {counters.get('inputs', 0)} counted")
        if counters.get("parked", 0):
            against.append(f"{topic}: {counters['parked']} still parked")
    return Proof(
        "inputs = decided + absorbed + parked + dead-lettered, parked 0",
        not against,
        {name: total[name] for name in _COUNTED},
        against[:EXAMPLES_MAX],
    )


_FATES = ("decided", "absorbed", "parked", "dead_lettered")
_COUNTED = ("inputs", *_FATES)


def all_audited(on_topics: Mapping[str, int], rows: Mapping[str, int]) -> Proof:
    """Every record of every topic is one audit row."""
    against = [
        f"{topic}: {count} records, {rows.get(topic, 0)} rows"
        for topic, count in sorted(on_topics.items())
        if rows.get(topic, 0) != count
    ]
    return Proof(
        "audit rows = records on the topics",
        not against,
        {"records": sum(on_topics.values()), "rows": sum(rows.get(t, 0) for t in on_topics)},
        against[:EXAMPLES_MAX],
    )
