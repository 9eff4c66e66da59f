"""Checkers of SYSTEM.md §10 and §4: one outcome per input, one claim, one message, nobody too late.

They must not repeat the code they check.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from compose.simulator.ledger import Entry
from schemas.attempt import AttemptState
from schemas.decision import CloseKind, Phase
from schemas.ids import Channel
from schemas.observation import LookupAnswer
from schemas.policy import WhenUnsure
from schemas.reasons import Reason
from tests.simulation.evidence import Seen
from tests.simulation.guard import Granted
from tests.simulation.network import TOO_LATE_MS
from tests.simulation.sentences import Found, safety

# §10, first: exactly one outcome per input, at most one claim


@safety("§10: every input has exactly one outcome: no two decisions rest on the same record")
def one_decision_per_input(seen: Seen) -> Found:
    rested: Counter[tuple[str, int, int]] = Counter()
    for chain in seen.decisions.values():
        for _, decision in chain:
            at = decision.trigger
            rested[at.topic, at.partition, at.offset] += 1
    for place, count in rested.items():
        if count > 1:
            yield f"{count} decisions rest on {place}"


@safety("§4: inputs = decided + absorbed + parked + dead-lettered, for all that was read")
def books_balance(seen: Seen) -> Found:
    if seen.counters["inputs"] != seen.fates():
        yield f"{seen.counters['inputs']} inputs, {seen.fates()} fates"
    decided = sum(map(len, seen.decisions.values()))
    if decided != seen.counters["decided"]:
        yield f"{decided} decisions on the topic, {seen.counters['decided']} counted"


@safety("§10: at most one claim per intent")
def one_claim(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        lives = Counter(
            d.decision_id.partition(":")[2].partition("@")[2]
            for _, d in chain
            if Phase.SMS_CLAIMED in (*d.via, d.next_phase) and d.prior_phase is not Phase.SMS_CLAIMED
            and d.prior_phase not in (Phase.SMS_ACCEPTED, Phase.SMS_DELIVERED)
        )  # fmt: skip
        for life, count in lives.items():
            if count > 1:
                yield f"{intent_id} was claimed {count} times in life {life!r}"


@safety("§6: a submission number of a channel is ordered once")
def numbers_are_ordered_once(seen: Seen) -> Found:
    ordered = Counter((d.decision_id.split("@")[0].split(":")[0], d.channel, d.submission_no, d.expiry_ms)
                      for _, d in seen.dispatches)  # fmt: skip
    for place, count in ordered.items():
        if count > 1:
            yield f"{place} ordered {count} times"


# §10, second: one logical submission


def _is_residue(seen: Seen, entry: Entry) -> bool:
    """Frozen between its last check and its first byte for longer than its lease: said openly.

    Each first byte that was allowed is matched with the arrival that follows it within a lease; an arrival
    that is left over belongs to one that was allowed long before.
    """
    place, limit_ms = seen.place_of(entry), seen.world.limits.lease_ms + TOO_LATE_MS[1]
    arrivals = sorted(e.at_ms for e in seen.submissions if seen.place_of(e) == place)
    begins = sorted((b.at_ms for b in seen.begins if (b.intent_id, b.channel) == place), reverse=True)
    for begun_ms in begins:
        follows = [at_ms for at_ms in arrivals if begun_ms <= at_ms <= begun_ms + limit_ms]
        if follows:
            arrivals.remove(follows[0])
    return entry.at_ms in arrivals


@safety("§10: at most one logical submission per (intent, channel)")
def one_message(seen: Seen) -> Found:
    made: dict[tuple[str, Channel], list[Entry]] = defaultdict(list)
    for entry in seen.new_messages:
        made[seen.place_of(entry)].append(entry)
    for (intent_id, channel), entries in made.items():
        if len(entries) < 2:
            continue
        risked = seen.policy(intent_id).when_unsure is WhenUnsure.RISK_DUPLICATE and any(
            Reason.RISK_DUPLICATE in (d.reason, *d.notes) for _, d in seen.decisions[intent_id]
        )
        residue = any(_is_residue(seen, e) for e in entries)
        if not residue and not (risked and len(entries) == 2):
            yield f"{intent_id} {channel.value}: {[e.at_ms for e in entries]}"


@safety("§5.4: never a fresh key: every submission of a reference has its key and its bytes")
def same_key_same_bytes(seen: Seen) -> Found:
    bodies: dict[str, set[str]] = defaultdict(set)
    for entry in seen.submissions:
        caps = seen.world.accounts[entry.account].capabilities
        if caps.idempotent_submit and entry.key != entry.reference:
            yield f"{entry.reference} was submitted under {entry.key}"
        bodies[entry.reference].add(entry.body_hash)
    for reference, hashes in bodies.items():
        if len(hashes) > 1:
            yield f"{reference} was submitted with {len(hashes)} different bodies"


@safety("§6: nothing is submitted without a claim that was begun, and once per claim")
def every_submission_has_a_claim(seen: Seen) -> Found:
    begun: dict[tuple[str, Channel], list[int]] = defaultdict(list)
    for begin in seen.begins:
        begun[begin.intent_id, begin.channel].append(begin.at_ms)
    reached: dict[tuple[str, Channel], list[int]] = defaultdict(list)
    for entry in seen.submissions:
        reached[seen.place_of(entry)].append(entry.at_ms)
    for place, instants in reached.items():
        for count, at_ms in enumerate(sorted(instants), 1):
            if sum(b <= at_ms for b in begun[place]) < count:
                yield f"{place}: submission {count} at {at_ms} has no claim of its own"


@safety("§6: a claim never goes back to an order with a lower number")
def claims_never_go_back(seen: Seen) -> Found:
    highest: dict[tuple[str, Channel], int] = {}
    for claim in seen.claims:
        place = (claim.intent_id, claim.channel)
        if claim.submission_no < highest.get(place, 0):
            yield f"{place}: order {claim.submission_no} claimed after order {highest[place]}"
        highest[place] = max(claim.submission_no, highest.get(place, 0))


# §10, third: nobody is written to too late


@safety("§10, §5.3: no submission reaches a provider at or after the expiry")
def nothing_after_expiry(seen: Seen) -> Found:
    for entry in seen.submissions:
        intent_id, channel = seen.place_of(entry)
        if entry.at_ms >= seen.world.asked[intent_id].expiry_ms and not _is_residue(seen, entry):
            yield f"{intent_id} {channel.value} at {entry.at_ms}"


@safety("§10, §6.3: no SMS is begun whose end was in the log when its order was taken up")
def nothing_after_the_end(seen: Seen) -> Found:
    for begin in seen.begins:
        since = seen.world.handling.get(begin.claim_id, 0)
        for at_ms, reason in seen.ends.get(begin.intent_id, ()):
            if begin.channel is Channel.SMS and at_ms < since:
                yield f"{begin.intent_id}: {reason.value} at {at_ms}, order taken up at {since}"


@safety("§6.4: no first byte is allowed of an intent that the guard knows to be over")
def nothing_after_the_guard_knows(seen: Seen) -> Found:
    known: dict[str, int] = {}
    for granted in seen.world.granted:
        if granted.what == "closed":
            known.setdefault(granted.intent_id, granted.at_ms)
    for begin in seen.begins:
        at_ms = known.get(begin.intent_id)
        if at_ms is not None and at_ms < begin.at_ms:
            yield f"{begin.intent_id} {begin.channel.value}: known at {at_ms}, begun at {begin.at_ms}"


@safety("§10: no SMS or e-mail is claimed for a recipient whose suppression the guard held")
def nothing_after_suppression(seen: Seen) -> Found:
    listed: dict[tuple[str, Channel], list[Granted]] = defaultdict(list)
    for granted in seen.world.granted:
        if granted.what == "suppressed":
            listed[granted.fingerprints[0], granted.channel].append(granted)
    for claim in seen.claims:
        agreed_ms = _agreed_ms(seen, claim)
        for one in (g for f in claim.fingerprints for g in listed[f, claim.channel]):
            undone = one.opted_out_ms is not None and one.opted_out_ms < agreed_ms
            if one.at_ms < claim.at_ms and not undone:
                yield f"{claim.intent_id}: suppressed at {one.at_ms}, claimed at {claim.at_ms}"


def _agreed_ms(seen: Seen, claim: Granted) -> int:
    """The latest consent of this recipient that was in the log when the claim was given."""
    return max(
        (
            min(r.sms_consent.granted_at_ms, r.requested_at_ms)
            for requests in seen.requests.values()
            for m, r in requests
            if r.sms_consent and r.sms_fingerprint in claim.fingerprints and m.timestamp_ms <= claim.at_ms
        ),
        default=0,
    )


_OVER_BY_OTHERS = (CloseKind.COMPLETED, CloseKind.CANCELLED, CloseKind.SUPERSEDED)


@safety("§5.6: what was in flight when an intent was done, withdrawn or replaced, and left, is an overlap")
def overlaps_are_listed(seen: Seen) -> Found:
    for entry in seen.new_messages:
        intent_id, channel = seen.place_of(entry)
        chain = seen.decisions[intent_id]
        closed = next((d for _, d in chain if d.closed is not None), None)
        if closed is None or closed.closed not in _OVER_BY_OTHERS:
            continue
        told_ms = _told_ms(seen, intent_id, channel)
        listed = any(Reason.OVERLAP in (d.reason, *d.notes) for _, d in chain)
        if told_ms is not None and told_ms > closed.now_ms and not listed:
            yield f"{intent_id} {channel.value}: closed at {closed.now_ms}, told to be out at {told_ms}"


def _told_ms(seen: Seen, intent_id: str, channel: Channel) -> int | None:
    """When the dispatcher first said that it went out while the intent was remembered. None when a look-up
    had said so before: then it was known, and in flight no more."""
    place, expiry_ms = (intent_id, channel), seen.world.asked[intent_id].expiry_ms
    told = [
        m.timestamp_ms
        for m, a in seen.attempts
        if (a.intent_id, a.channel) == place and a.state is AttemptState.ACCEPTED
    ]
    looked = [
        m.timestamp_ms
        for m, o in seen.observations
        if (o.intent_id, o.channel) == place and o.answer is LookupAnswer.ANSWERED
    ]
    first_ms = min(told, default=expiry_ms)
    known = first_ms >= expiry_ms or min(looked, default=expiry_ms) < first_ms
    return None if known else first_ms
