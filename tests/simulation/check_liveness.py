"""Checkers of the second half: faults have stopped, and everything must come to rest.

They must not repeat the code they check.
"""

from __future__ import annotations

from collections import defaultdict

from schemas.attempt import AttemptState
from schemas.ids import Channel
from schemas.observation import ProviderState
from schemas.policy import BounceAfterDelivered
from schemas.reasons import Reason
from tests.simulation.check_machine import may_have_sms
from tests.simulation.evidence import Seen
from tests.simulation.sentences import Found, liveness

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
    waiting = 0
    for intent_id, state in seen.states.items():
        was_forgotten = any(d.closed is not None for _, d in seen.decisions.get(intent_id, ()))
        if state.request_digest:
            continue
        waiting += len(state.early)
        if intent_id in seen.requests and not was_forgotten:
            yield f"{intent_id}: {len(state.early)} facts wait for an intent that is there"
    if seen.counters["parked"] != waiting:
        yield f"{seen.counters['parked']} facts are counted as parked, {waiting} are there"


@liveness("§4: every input is read and accounted for")
def every_input_is_read(seen: Seen) -> Found:
    if seen.inputs() != seen.counters["inputs"]:
        yield f"{seen.inputs()} records, {seen.counters['inputs']} accounted for"


@liveness("§6, §7: every lag is zero")
def no_lag(seen: Seen) -> Found:
    for place, left in seen.lag().items():
        yield f"{place}: {left} left"


@liveness(
    "§6: every order has an attempt of its number or a higher one, and §7: every look-up an observation"
)
def every_order_is_answered(seen: Seen) -> Found:
    told: dict[tuple[str, Channel], int] = defaultdict(int)
    for _, a in seen.attempts:
        told[a.intent_id, a.channel] = max(told[a.intent_id, a.channel], a.submission_no)
    for _, order in seen.dispatches:
        if told[order.intent_id, order.channel] < order.submission_no:
            yield f"{order.intent_id} {order.channel.value} {order.submission_no}"
    seen_polls = {(o.intent_id, o.channel, o.poll_no) for _, o in seen.observations}
    for _, lookup in seen.lookups:
        if (lookup.intent_id, lookup.channel, lookup.poll_no) not in seen_polls:
            yield f"{lookup.intent_id} {lookup.channel.value} look-up {lookup.poll_no}"


@liveness(
    "§3: what the guard suppresses is on the compacted list too, once the result that caused it is told"
)
def every_suppression_is_listed(seen: Seen) -> Found:
    """A result that nobody could tell before its intent was over is in the guard only, for `reconcile`."""
    listed = {(s.fingerprint, s.channel) for _, s in seen.suppressions}
    told = {(a.fingerprint, a.channel) for _, a in seen.attempts if a.state is AttemptState.FAILED}
    for granted in seen.world.granted:
        if granted.what != "suppressed":
            continue
        place = (granted.fingerprints[0], granted.channel)
        if place in told and place not in listed:
            yield f"{granted.channel.value}: {granted.fingerprints[0]}, taken at {granted.at_ms}"


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
        chain = seen.decisions.get(intent_id, [])
        may = may_have_sms(seen, intent_id) and not asked.instructions
        ended = [at for at, _ in seen.ends.get(intent_id, ()) if at < asked.expiry_ms]
        delivered = seen.truth(intent_id, Channel.EMAIL, ProviderState.DELIVERED, asked.expiry_ms)
        place = (intent_id, Channel.SMS)
        refused = any(
            (a.intent_id, a.channel) == place and a.state is AttemptState.REFUSED for _, a in seen.attempts
        )
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
