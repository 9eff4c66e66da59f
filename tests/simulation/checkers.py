"""One checker for every sentence that is promised, written from the outside.

A checker reads what a world shows (`evidence.Seen`) and yields what violates its sentence. Those of `LIVENESS`
hold once faults have stopped and `SETTLE_MS` have passed. Each is shown to fail on a planted bug
(`tests/simulation/test_plants.py`). It must not repeat the code it checks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from compose.simulator.ledger import Entry
from compose.simulator.script import Answer
from schemas.attempt import AttemptState
from schemas.decision import CloseKind, Decision, OrderKind, Phase, Verdict
from schemas.ids import Channel
from schemas.observation import ProviderState
from schemas.policy import BounceAfterDelivered, UndispatchedEmail, WhenUnsure
from schemas.reasons import Reason, ReasonClass
from schemas.topics import TOPICS
from streams.core.table import STEPS
from tests.simulation.evidence import Seen
from tests.simulation.network import TOO_LATE_MS
from tests.simulation.services import LINK

Found = Iterator[str]


@dataclass(frozen=True, slots=True)
class Checker:
    """A sentence and how to see that it does not hold."""

    name: str
    sentence: str
    find: Callable[[Seen], Found]


SAFETY: list[Checker] = []
LIVENESS: list[Checker] = []
SHOWN_MAX = 5  # violations of one sentence that are told


def safety(sentence: str) -> Callable[[Callable[[Seen], Found]], Callable[[Seen], Found]]:
    return _into(SAFETY, sentence)


def liveness(sentence: str) -> Callable[[Callable[[Seen], Found]], Callable[[Seen], Found]]:
    return _into(LIVENESS, sentence)


def _into(
    checkers: list[Checker], sentence: str
) -> Callable[[Callable[[Seen], Found]], Callable[[Seen], Found]]:
    def add(find: Callable[[Seen], Found]) -> Callable[[Seen], Found]:
        checkers.append(Checker(find.__name__, sentence, find))
        return find

    return add


def violations(seen: Seen) -> list[tuple[Checker, str]]:
    """All that do not hold, a few examples of each."""
    found = []
    for checker in (*SAFETY, *LIVENESS):
        for count, text in enumerate(checker.find(seen)):
            if count >= SHOWN_MAX:
                break
            found.append((checker, text))
    return found


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
    """Frozen between its last check and its first byte for longer than its lease: said openly."""
    limits = seen.world.limits
    intent_id, channel = seen.place_of(entry)
    before = [b.at_ms for b in seen.begins
              if (b.intent_id, b.channel) == (intent_id, channel) and b.at_ms <= entry.at_ms]  # fmt: skip
    return bool(before) and entry.at_ms - max(before) > limits.lease_ms + TOO_LATE_MS[1]


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


@safety("§10: no SMS or e-mail is claimed for a recipient whose suppression the guard held")
def nothing_after_suppression(seen: Seen) -> Found:
    listed: dict[tuple[str, str], int] = {}
    for granted in seen.world.granted:
        if granted.what == "suppressed":
            listed.setdefault((granted.fingerprints[0], granted.channel.value), granted.at_ms)
    for claim in seen.claims:
        for fingerprint in claim.fingerprints:
            at_ms = listed.get((fingerprint, claim.channel.value))
            if at_ms is not None and at_ms < claim.at_ms:
                yield f"{claim.intent_id} {claim.channel.value} claimed at {claim.at_ms}, suppressed at {at_ms}"


@safety("§5.6: what went out although the intent was over is listed as an overlap")
def overlaps_are_listed(seen: Seen) -> Found:
    for entry in seen.new_messages:
        intent_id, channel = seen.place_of(entry)
        chain = seen.decisions[intent_id]
        closed = next((d for _, d in chain if d.closed is not None), None)
        if closed is None or closed.now_ms >= entry.at_ms or closed.closed is CloseKind.EXPIRED:
            continue
        listed = any(Reason.OVERLAP in (d.reason, *d.notes) for _, d in chain)
        if not listed and _was_told(seen, intent_id, channel):
            yield f"{intent_id} {channel.value}: closed at {closed.now_ms}, went out at {entry.at_ms}"


def _was_told(seen: Seen, intent_id: str, channel: Channel) -> bool:
    """Whether an attempt that says it went out was read while the intent was remembered."""
    row = seen.world.asked[intent_id]
    return any(
        a.intent_id == intent_id and a.channel is channel and a.state is AttemptState.ACCEPTED
        and m.timestamp_ms < row.expiry_ms
        for m, a in seen.attempts
    )  # fmt: skip


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
    return any(s.fingerprint in prints and m.timestamp_ms <= by_ms for m, s in seen.suppressions)


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


@safety("§5.3: no SMS without a number, a consent and an allowed country")
def no_sms_without_permission(seen: Seen) -> Found:
    for entry in seen.submissions:
        intent_id, channel = seen.place_of(entry)
        new = seen.world.asked[intent_id].new
        if channel is Channel.SMS and (new.phone is None or new.sms_consent_at is None):
            yield f"{intent_id}: phone {new.phone is not None}, consent {new.sms_consent_at is not None}"


@safety("§5.2: a delivery is not undone by a late acceptance: phases follow the table")
def phases_follow_the_table(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        for _, d in chain:
            path = [p for p in (d.prior_phase, *d.via, d.next_phase) if p is not None]
            for prior, after in zip(path, path[1:], strict=False):
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


@safety("§5.4: «not found» counts only after the lease and the provider's visibility delay")
def not_found_counts_late(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        for message, d in chain:
            evidence = d.evidence
            if Reason.NOT_FOUND not in (d.reason, *d.notes) or evidence is None:
                continue
            begun = [b.at_ms for b in seen.begins
                     if (b.intent_id, b.channel, b.submission_no) == (intent_id, evidence.channel, evidence.submission_no)]  # fmt: skip
            if begun and message.timestamp_ms < max(begun) + seen.world.limits.lease_ms:
                yield f"{intent_id}: begun at {max(begun)}, counted at {message.timestamp_ms}"


@safety("§5.5: an e-mail that never left is not sent once the SMS is claimed, unless the policy extends")
def skipped_email_stays_skipped(seen: Seen) -> Found:
    claimed = {c.intent_id: c.at_ms for c in reversed(seen.claims) if c.channel is Channel.SMS}
    first: dict[str, Entry] = {}
    for entry in seen.submissions:
        intent_id, channel = seen.place_of(entry)
        if channel is Channel.EMAIL:
            first.setdefault(intent_id, entry)
    for intent_id, entry in first.items():
        skips = seen.policy(intent_id).undispatched_email is UndispatchedEmail.SKIP_EMAIL
        since = [b.at_ms for b in seen.begins if (b.intent_id, b.channel) == (intent_id, Channel.EMAIL)]
        if skips and intent_id in claimed and min(since, default=0) > claimed[intent_id]:
            yield f"{intent_id}: SMS claimed at {claimed[intent_id]}, first e-mail at {entry.at_ms}"


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
            yield f"{intent_id} {channel.value} look-up {number} at {ordered_ms}, the one before until {free_ms}"


@safety("§5.7: look-ups stay within the budget of answered calls per stage")
def polls_are_bounded(seen: Seen) -> Found:
    told: Counter[tuple[str, Channel]] = Counter()
    for _, o in seen.observations:
        if o.poll_no is not None:
            told[o.intent_id, o.channel] += 1
    for (intent_id, channel), count in told.items():
        poll = (seen.policy(intent_id).email if channel is Channel.EMAIL else seen.policy(intent_id).sms).poll
        asked = seen.world.asked[intent_id]
        # Two stages of answered calls, and one unanswered call per `answer_within_ms` of its whole life.
        span = asked.expiry_ms - seen.begun_ms(intent_id) + 300_000
        if count > 2 * poll.answers_max + span // poll.initial_ms:
            yield f"{intent_id} {channel.value}: {count} observations"


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
    for intent_id, state in seen.states.items():
        chain = seen.decisions.get(intent_id)
        if not state.request_digest or not chain:
            continue
        last = max(chain, key=lambda pair: pair[0].offset)[1]
        ended = next((d.closed for _, d in reversed(chain) if d.closed is not None), None)
        if state.phase is not last.next_phase or (state.closed is not None) != (ended is not None):
            yield f"{intent_id}: state {state.phase.value}, last decision {last.next_phase.value}"


@safety("§5.9: replaying an intent's inputs in the order of its chain gives the same bytes")
def replay_gives_the_same_bytes(seen: Seen) -> Found:
    for intent_id, chain in seen.decisions.items():
        wanted = [m.value for m, _ in sorted(chain, key=lambda pair: pair[0].offset)]
        again = seen.replayed.get(intent_id, [])
        if again != wanted:
            same = sum(a == b for a, b in zip(again, wanted, strict=False))
            yield f"{intent_id}: {len(wanted)} decisions, {len(again)} replayed, the first {same} alike"


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
    orders = Counter((d.intent_id, d.channel) for _, d in seen.dispatches)
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


# liveness


@liveness("§4: every intent that came is settled and, once late evidence is over, forgotten")
def every_intent_settles(seen: Seen) -> Found:
    for intent_id, state in seen.states.items():
        if state.request_digest and state.closed is None:
            yield f"{intent_id} is still {state.phase.value}"
    for intent_id in seen.requests:
        if not seen.decisions.get(intent_id):
            yield f"{intent_id} was never decided"


@liveness("§4: parked is 0 at rest, apart from facts whose intent never came")
def nothing_stays_parked(seen: Seen) -> Found:
    for intent_id, state in seen.states.items():
        was_forgotten = any(d.closed is not None for _, d in seen.decisions.get(intent_id, ()))
        if not state.request_digest and intent_id in seen.requests and not was_forgotten:
            yield f"{intent_id}: {len(state.early)} facts wait for an intent that is there"


@liveness("§4: every input is read and accounted for")
def every_input_is_read(seen: Seen) -> Found:
    if seen.inputs() != seen.counters["inputs"]:
        yield f"{seen.inputs()} records, {seen.counters['inputs']} accounted for"


@liveness("§6, §7: every lag is zero")
def no_lag(seen: Seen) -> Found:
    for place, left in seen.lag().items():
        yield f"{place}: {left} left"


@liveness("§6: every order has an attempt, and §7: every look-up an observation")
def every_order_is_answered(seen: Seen) -> Found:
    told = {(a.intent_id, a.channel) for _, a in seen.attempts}
    for _, order in seen.dispatches:
        if (order.intent_id, order.channel) not in told:
            yield f"{order.intent_id} {order.channel.value} {order.submission_no}"
    seen_polls = {(o.intent_id, o.channel, o.poll_no) for _, o in seen.observations}
    for _, lookup in seen.lookups:
        if (lookup.intent_id, lookup.channel, lookup.poll_no) not in seen_polls:
            yield f"{lookup.intent_id} {lookup.channel.value} look-up {lookup.poll_no}"


@liveness("§8: every record is audited once: rows = records")
def every_record_is_audited(seen: Seen) -> Found:
    missing = set(seen.all_records()) - set(seen.audit_rows)
    for place in sorted(missing):
        yield f"{place} has no row"


@liveness("§5.3: a fallback that was due, allowed and possible went out")
def fallbacks_go_out(seen: Seen) -> Found:
    """In a world where nothing keeps the deadline from being seen in time."""
    if not seen.is_undisturbed:
        return
    sent = {seen.place_of(e) for e in seen.submissions}
    for intent_id, asked in seen.world.asked.items():
        new, chain = asked.new, seen.decisions.get(intent_id, [])
        may = new.phone is not None and new.sms_consent_at is not None and not asked.instructions
        ended = [at for at, _ in seen.ends.get(intent_id, ()) if at < asked.expiry_ms]
        delivered = seen.truth(intent_id, Channel.EMAIL, ProviderState.DELIVERED, asked.expiry_ms)
        refused = any(a.intent_id == intent_id and a.channel is Channel.SMS and a.state is AttemptState.REFUSED
                      for _, a in seen.attempts)  # fmt: skip
        if (
            may
            and chain
            and not ended
            and not delivered
            and not refused
            and (intent_id, Channel.SMS) not in sent
        ):
            yield f"{intent_id}: no SMS, and no e-mail that arrived"


@liveness("§5.8: a late e-mail delivery after an SMS claim is counted")
def needless_fallbacks_are_counted(seen: Seen) -> Found:
    for intent_id, state in seen.states.items():
        email = state.email
        if email is None or not state.claimed_ms or state.quarantined:
            continue
        late = email.facts.delivered_ms and email.facts.delivered_ms > state.claimed_ms
        kept = seen.policy(intent_id).bounce_after_delivered is BounceAfterDelivered.FALLBACK
        noted = any(Reason.NEEDLESS_FALLBACK in (d.reason, *d.notes) for _, d in seen.decisions[intent_id])
        if late and not noted and not kept:
            yield f"{intent_id}: delivered at {email.facts.delivered_ms}, claimed at {state.claimed_ms}"
