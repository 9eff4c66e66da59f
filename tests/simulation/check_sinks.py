"""Checkers of SYSTEM.md §1, §6, §8, §9: reasons, the dispatcher, privacy, the audit.

They must not repeat the code they check.
"""

from __future__ import annotations

from collections import Counter

from schemas.attempt import AttemptState
from schemas.reasons import ReasonClass
from schemas.topics import TOPICS
from tests.simulation.evidence import Seen
from tests.simulation.sentences import Found, safety
from tests.simulation.services import LINK

# §1, §6: reasons and the dispatcher


@safety("§1: our own refusal is never the recipient's failure: a reason of class ours holds")
def ours_is_held(seen: Seen) -> Found:
    for _, attempt in seen.attempts:
        ours = attempt.reason is not None and attempt.reason.reason_class is ReasonClass.OURS
        if ours and attempt.state in (AttemptState.FAILED, AttemptState.REFUSED):
            yield f"{attempt.attempt_id}: {attempt.reason}"


@safety("§6.4: a first byte is allowed under a living lease only")
def begins_within_the_lease(seen: Seen) -> Found:
    claimed = {c.claim_id: c.at_ms for c in seen.claims}
    for begin in seen.begins:
        if begin.at_ms >= claimed[begin.claim_id] + seen.world.limits.lease_ms:
            yield f"{begin.intent_id}: claimed at {claimed[begin.claim_id]}, begun at {begin.at_ms}"


@safety("§6.6: a result is in the row before its order is finished: nothing is submitted again for it")
def results_come_first(seen: Seen) -> Found:
    orders = Counter((str(d.intent_id), d.channel) for _, d in seen.dispatches)
    reached = Counter(seen.place_of(e) for e in seen.submissions)
    for place, count in reached.items():
        if count > orders[place]:
            yield f"{place}: {count} submissions of {orders[place]} orders"


@safety("§9: no address, number, name or link leaves the sealed payload")
def no_secret_in_the_log(seen: Seen) -> Found:
    canaries = [LINK.encode()]
    for asked in seen.world.asked.values():
        canaries += [asked.new.email.encode(), (asked.new.phone or LINK).encode()]
    for kind in TOPICS:
        for message in seen.messages(kind):
            for canary in canaries:
                if message.value is not None and canary in message.value:
                    yield f"{message.topic}/{message.partition}/{message.offset}"


# §8: the audit


@safety("§8: an audit row is one record, and says what the record says")
def audit_says_what_is(seen: Seen) -> Found:
    there = seen.all_records()
    for place, row in seen.audit_rows.items():
        message = there.get(place)
        if message is None:
            yield f"{place} is no committed record"
        elif row["size"] != len(message.value or b"") or row["log_ms"] != message.timestamp_ms:
            yield f"{place} is another record"


@safety("§8: the audit's position never passes a record that is not a row")
def audit_misses_nothing_it_passed(seen: Seen) -> Found:
    positions, rows = seen.world.audit.positions, seen.audit_rows
    for place in seen.all_records():
        if place[2] < positions.get(place[:2], 0) and place not in rows:
            yield f"{place} has no row, and the position is {positions[place[:2]]}"
