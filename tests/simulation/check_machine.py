"""Checkers of SYSTEM.md §5: the machine, from its decisions.

They must not repeat the code they check.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256
from itertools import pairwise

from compose.simulator.script import Answer
from schemas.attempt import AttemptState
from schemas.codec import decode
from schemas.decision import CloseKind, Decision, OrderKind, Phase, Verdict
from schemas.ids import Channel
from schemas.intent import IntentCancelled, IntentCompleted, IntentRequested
from schemas.observation import LookupAnswer, ProviderState
from schemas.partitions import partition_for
from schemas.policy import UndispatchedEmail
from schemas.reasons import Reason
from schemas.record import TopicKind
from sinks.dispatcher.rules import ORDER_FRESH_MS
from streams.core.table import STEPS
from tests.simulation.evidence import Seen
from tests.simulation.process import FINE_MS
from tests.simulation.sentences import Found, safety
from tests.simulation.world import PARTITIONS

# §5: the machine


@safety("§5.1, §5.3: no SMS before the deadline unless the e-mail has conclusively failed")
def no_early_sms(seen: Seen) -> Found:
    for entry in seen.new_messages:
        intent_id, channel = seen.place_of(entry)
        early = channel is Channel.SMS and entry.at_ms < seen.world.asked[intent_id].deadline_ms
        if early and not _email_failed(seen, intent_id, entry.at_ms):
            yield f"{intent_id}: SMS at {entry.at_ms}, deadline {seen.world.asked[intent_id].deadline_ms}"


_REFUSALS = {a.value for a in (Answer.INVALID, Answer.SUPPRESSED, Answer.OPTED_OUT, Answer.COMPLAINED,
                               Answer.BLOCKED, Answer.CONTENT)}  # fmt: skip


def _email_failed(seen: Seen, intent_id: str, by_ms: int) -> bool:
    """Whether the provider's own books, or the suppression list, say that the e-mail cannot arrive."""
    place = (intent_id, Channel.EMAIL)
    refused = any(e.answered in _REFUSALS and seen.place_of(e) == place and e.at_ms <= by_ms
                  for e in seen.submissions)  # fmt: skip
    if refused or seen.truth(intent_id, Channel.EMAIL, ProviderState.FAILED_PERMANENT, by_ms):
        return True
    prints = {r.email_fingerprint for _, r in seen.requests[intent_id]}
    # The guard has it with the result that caused it; the topic once the dispatcher has lived to tell.
    listed = any(
        g.what == "suppressed" and g.fingerprints[0] in prints and g.at_ms <= by_ms
        for g in seen.world.granted
    )
    return listed or any(s.fingerprint in prints and m.timestamp_ms <= by_ms for m, s in seen.suppressions)


@safety("§5.3: an SMS is claimed with the useful window left, and every gate open")
def claims_are_in_time(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        for _, d in chain:
            if Phase.SMS_CLAIMED not in (*d.via, d.next_phase) or not _orders(d, Channel.SMS, first=True):
                continue
            asked = seen.world.asked[intent_id]
            window = seen.policy(intent_id).bounds.min_useful_window_ms
            if d.now_ms >= asked.expiry_ms - window:
                yield f"{intent_id} claimed at {d.now_ms}, expiry {asked.expiry_ms}"
            if not d.gates or any(g.verdict is not Verdict.OPEN for g in d.gates):
                yield f"{intent_id} claimed with {d.gates}"


def _orders(decision: Decision, channel: Channel, *, first: bool = False) -> bool:
    return any(
        o.order is OrderKind.DISPATCH and o.channel is channel and (not first or o.number == 1)
        for o in decision.orders
    )


@safety("§5.3: no SMS without a purpose that allows it, a number and a consent, each as old as it must be")
def no_sms_without_permission(seen: Seen) -> Found:
    for entry in seen.submissions:
        intent_id, channel = seen.place_of(entry)
        if channel is Channel.SMS and not may_have_sms(seen, intent_id):
            yield f"{intent_id}: an SMS under {seen.policy(intent_id).policy}"


def may_have_sms(seen: Seen, intent_id: str) -> bool:
    """What the service said of the person, against the policy; a clock of ours is not asked."""
    new, sms = seen.world.asked[intent_id].new, seen.policy(intent_id).sms
    if not sms.allowed or new.phone is None or new.sms_consent_at is None:
        return False
    consent_s = (new.requested_at - new.sms_consent_at).total_seconds()
    if consent_s * 1000 < sms.consent_age_ms_min:
        return False
    if not sms.phone_age_ms_min:
        return True
    known = new.phone_verified_at
    return known is not None and (new.requested_at - known).total_seconds() * 1000 >= sms.phone_age_ms_min


@safety("§5.2: a delivery is not undone by a late acceptance: phases follow the table")
def phases_follow_the_table(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        for _, d in chain:
            path = [p for p in (d.prior_phase, *d.via, d.next_phase) if p is not None]
            for prior, after in pairwise(path):
                if prior is not after and (prior, after) not in STEPS:
                    yield f"{intent_id}: {prior.value} → {after.value} in {d.decision_id}"


@safety("§5.2: temporary failures and unknown words cause no fallback before the deadline")
def no_fallback_for_a_guess(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        for _, d in chain:
            early = d.now_ms < seen.world.asked[intent_id].deadline_ms
            claimed = Phase.SMS_CLAIMED in (*d.via, d.next_phase) and _orders(d, Channel.SMS, first=True)
            if (
                early
                and claimed
                and d.evidence is not None
                and d.evidence.says in ("failed_temporary", "unknown")
            ):
                yield f"{intent_id}: {d.evidence.says} in {d.decision_id}"


@safety("§5.4: «not found» counts only after the lease and the visibility delay, and settles the second time")
def not_found_counts_late(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        for message, d in chain:
            evidence = d.evidence
            if Reason.NOT_FOUND not in (d.reason, *d.notes) or evidence is None:
                continue
            place = (intent_id, evidence.channel, evidence.submission_no)
            begun = [
                b.at_ms
                for b in seen.begins
                if (b.intent_id, b.channel, b.submission_no) == place and b.at_ms <= message.timestamp_ms
            ]
            if begun and message.timestamp_ms < max(begun) + seen.world.limits.lease_ms:
                yield f"{intent_id}: begun at {max(begun)}, counted at {message.timestamp_ms}"
            denied = {
                o.poll_no
                for m, o in seen.observations
                if (o.intent_id, o.channel, o.submission_no) == place
                and o.answer is LookupAnswer.NOT_FOUND
                and m.timestamp_ms <= message.timestamp_ms
            }
            if len(denied) < 2:
                yield f"{intent_id}: settled at {message.timestamp_ms} by one answer"


_STAYED = {AttemptState.NOT_ACCEPTED, AttemptState.HELD, AttemptState.REFUSED}  # known not to have left


@safety("§5.5: an e-mail that never left is not sent once the SMS is claimed, unless the policy extends")
def skipped_email_stays_skipped(seen: Seen) -> Found:
    first: dict[str, int] = {}
    # An e-mail ordered after the deadline was ordered in full knowledge of it (case F31 a), for a while.
    late = {
        (str(d.intent_id), d.submission_no): d.ordered_at_ms
        for _, d in seen.dispatches
        if d.channel is Channel.EMAIL and d.ordered_at_ms >= d.deadline_ms
    }
    left = {seen.place_of(e)[0] for e in seen.submissions if seen.place_of(e)[1] is Channel.EMAIL}
    stayed = {a.claim_id for _, a in seen.attempts if a.state in _STAYED}
    may_have_left: set[str] = set()  # what had its first byte goes on, whether or not the provider saw it
    for begin in sorted(seen.begins, key=lambda b: b.at_ms):
        ordered_ms = late.get((begin.intent_id, begin.submission_no), 0)
        is_fresh = begin.at_ms < ordered_ms + ORDER_FRESH_MS + seen.world.limits.lease_ms
        if begin.channel is not Channel.EMAIL or begin.intent_id in may_have_left:
            continue
        if begin.intent_id in left and not is_fresh:
            first.setdefault(begin.intent_id, begin.at_ms)
        if begin.claim_id not in stayed:
            may_have_left.add(begin.intent_id)
    for intent_id, at_ms in first.items():
        skips = seen.policy(intent_id).undispatched_email is UndispatchedEmail.SKIP_EMAIL
        claimed = [d.now_ms for _, d in seen.decisions[intent_id] if _orders(d, Channel.SMS, first=True)]
        if skips and claimed and at_ms > claimed[0]:
            yield f"{intent_id}: SMS claimed at {claimed[0]}, first e-mail at {at_ms}"


@safety("§5.6: closed never reopens and orders nothing; expired is never revived")
def closed_stays_closed(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        closed: CloseKind | None = None
        for _, d in sorted(chain, key=lambda pair: pair[0].offset):
            if d.seq <= 1:
                closed = None  # an intent that was forgotten and came again has a chain of its own
            if closed is not None and (d.next_phase is not Phase.CLOSED or _dispatches(d)):
                yield f"{intent_id}: {d.decision_id} after it was closed"
            closed = d.closed or closed


def _dispatches(decision: Decision) -> bool:
    return any(o.order is OrderKind.DISPATCH for o in decision.orders)


@safety("§4: an intent is remembered until its expiry: its chain does not begin anew before")
def forgotten_no_earlier_than_the_expiry(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        ordered = sorted(chain, key=lambda pair: pair[0].offset)
        for _, d in ordered[1:]:
            if d.seq == 1 and d.now_ms < seen.world.asked[intent_id].expiry_ms:
                yield f"{intent_id}: {d.decision_id} at {d.now_ms}"


@safety("§4: a completion or cancellation first means nothing is ever ordered")
def nothing_is_ordered_after_an_early_end(seen: Seen) -> Found:
    place: dict[str, int] = {}
    for position, (message, _) in enumerate(seen.world.processed):
        record = decode(seen.world.names.kind_of(message.topic), message.key, message.value)
        at_home = message.key and message.partition == partition_for(message.key, PARTITIONS)
        if not at_home:
            continue  # it is sent home first
        if isinstance(record, IntentCompleted | IntentCancelled):
            place.setdefault(record.intent_id, position)
        elif isinstance(record, IntentRequested) and record.intent_id not in place:
            place[record.intent_id] = -1
    for _, order in seen.dispatches:
        if place.get(order.intent_id, -1) >= 0:
            yield f"{order.intent_id}: {order.channel.value} {order.submission_no}"


@safety("§4: evidence first: what lay in the log before a tick's evidence mark was decided before the tick")
def evidence_comes_first(seen: Seen) -> Found:
    if {"clock.skew", "clock.jump"} & set(seen.world.options.chances):
        return  # a mark is by the worker's clock; the machine's own now is the log's
    order = {(m.topic, m.partition, m.offset): n for n, (m, _) in enumerate(seen.world.processed)}
    ticks = seen.world.names[TopicKind.TICKS]
    latest: dict[int, list[tuple[int, int]]] = defaultdict(list)  # partition -> (log time, place) of evidence
    for m, _ in seen.world.processed:
        if m.topic != ticks:
            latest[m.partition].append((m.timestamp_ms, order[m.topic, m.partition, m.offset]))
    for intent_id, chain in seen.decisions.items():
        for _, d in chain:
            if d.trigger.topic != ticks or not d.evidence_until_ms:
                continue
            at = order.get((d.trigger.topic, d.trigger.partition, d.trigger.offset))
            behind = [t for t, n in latest[d.trigger.partition]
                      if at is not None and n > at and t < d.evidence_until_ms - 2 * FINE_MS]  # fmt: skip
            if behind:
                yield f"{intent_id}: {d.decision_id} says {d.evidence_until_ms}, {min(behind)} came after it"


@safety("§5.3: deadline and expiry never move: every order carries those of the request")
def instants_never_move(seen: Seen) -> Found:
    for _, order in seen.dispatches:
        asked = seen.world.asked[order.intent_id]
        if (order.deadline_ms, order.expiry_ms) != (asked.deadline_ms, asked.expiry_ms):
            yield f"{order.intent_id}: {order.deadline_ms}/{order.expiry_ms}"
        if order.not_after_ms > asked.expiry_ms:
            yield f"{order.intent_id}: allowed until {order.not_after_ms}"


@safety("§5.7: one look-up outstanding per attempt: the next is ordered once the last was answered or lost")
def one_lookup_outstanding(seen: Seen) -> Found:
    answered: dict[tuple[str, Channel, int], int] = {}
    for message, o in seen.observations:
        if o.poll_no is not None:
            answered.setdefault((o.intent_id, o.channel, o.poll_no), message.timestamp_ms)
    by_number = {
        (q.intent_id, q.channel, q.poll_no): (q.ordered_at_ms, q.answer_by_ms) for _, q in seen.lookups
    }
    for (intent_id, channel, number), (ordered_ms, _) in by_number.items():
        before = by_number.get((intent_id, channel, number - 1))
        if before is None:
            continue
        free_ms = min(answered.get((intent_id, channel, number - 1), before[1]), before[1])
        last_look = seen.is_last_look(intent_id, channel, number)
        if ordered_ms < free_ms and not last_look:
            yield f"{intent_id} {channel.value} look-up {number} at {ordered_ms}, not before {free_ms}"


@safety("§5.7: look-ups stay within the budget of answered calls per stage")
def polls_are_bounded(seen: Seen) -> Found:
    told: dict[tuple[str, Channel], set[int]] = defaultdict(set)
    for _, o in seen.observations:
        if o.poll_no is not None and o.answer in (LookupAnswer.ANSWERED, LookupAnswer.NOT_FOUND):
            told[o.intent_id, o.channel].add(o.poll_no)
    for (intent_id, channel), numbers in told.items():
        policy = seen.policy(intent_id)
        poll = (policy.email if channel is Channel.EMAIL else policy.sms).poll
        # Told and not counted: what came after its order was given up as lost, or after its stage was over.
        lost = sum(Reason.LOOKUP_LOST in (d.reason, *d.notes) for _, d in seen.decisions[intent_id])
        if len(numbers) > STAGES[channel] * (poll.answers_max + 1) + lost:
            yield f"{intent_id} {channel.value}: {len(numbers)} answers"


# An e-mail is watched before its delivery, after it, and after the claim; an SMS until it is settled.
STAGES = {Channel.EMAIL: 3, Channel.SMS: 1}


@safety("§5.9: decisions form one chain per intent: numbers without gaps, each the digest of the one before")
def chains_are_whole(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        before: tuple[int, str] = (0, "")
        for message, d in sorted(chain, key=lambda pair: pair[0].offset):
            if d.seq == 1 and d.prev_digest == "":
                before = (0, "")
            if d.seq != before[0] + 1 or d.prev_digest != before[1]:
                yield f"{d.decision_id} does not follow {before[0]}"
            before = (d.seq, sha256(message.value or b"").hexdigest())
        state = seen.states.get(intent_id)
        if state is not None and state.request_digest and (state.seq, state.prev_digest) != before:
            yield f"{intent_id}: its state stands at {state.seq}, its chain at {before[0]}"


@safety("§5.9: the fold of the decisions gives the state: phase and end are those of the last decision")
def decisions_fold_to_the_state(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        ordered = [d for _, d in sorted(chain, key=lambda pair: pair[0].offset)]
        for before, after in pairwise(ordered):
            if after.seq == before.seq + 1 and after.prior_phase is not before.next_phase:
                yield f"{after.decision_id} begins in {after.prior_phase}, after {before.next_phase}"
        state = seen.states.get(intent_id)
        if state is None or not state.request_digest:
            continue
        is_closed = any(d.closed is not None for d in ordered)
        if state.phase is not ordered[-1].next_phase or (state.closed is not None) != is_closed:
            yield f"{intent_id}: state {state.phase.value}, last decision {ordered[-1].next_phase}"


@safety("§5.9: replaying an intent's inputs in the order of its chain gives the same bytes")
def replay_gives_the_same_bytes(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        wanted = [m.value for m, _ in sorted(chain, key=lambda pair: pair[0].offset)]
        again = seen.replayed.get(intent_id, [])
        if again != wanted:
            same = sum(a == b for a, b in zip(again, wanted, strict=False))
            yield f"{intent_id}: {len(wanted)} decisions, {len(again)} replayed, the first {same} alike"
