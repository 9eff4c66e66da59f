"""Bugs planted in the machine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replace_struct

from schemas.attempt import AttemptState
from schemas.decision import Phase
from schemas.observation import ProviderState
from schemas.reasons import Reason
from streams.core import acts, claim, draft, intake, machine, polling
from streams.core import evidence as core_evidence
from streams.core import facts as core_facts
from streams.core import gates as gates_module
from streams.core.table import TABLE, Move
from streams.worker import outbox
from streams.worker import processor as worker_processor
from tests.simulation.planting import patched, sees, unchecked

# the machine


@sees("no_early_sms", "claims_are_in_time")
def deadline_read_from_the_workers_clock() -> Iterator[None]:
    before = draft.Draft.__init__

    def init(self: Any, state: Any, given: Any, context: Any) -> None:
        before(self, state, given, context)
        self.now_ms = max(getattr(given.record, "emitted_at_ms", 0) + 5_000, self.now_ms)

    with patched(draft.Draft, "__init__", init):
        yield


@sees("instants_never_move", "nothing_after_expiry")
def expiry_extended_by_a_poll() -> Iterator[None]:
    before = core_facts.take_observation

    def take(made: Any, seen: Any) -> bool:
        found = before(made, seen)
        made.state.expiry_ms += 5_000 * found
        return found

    with unchecked(), patched(core_facts, "take_observation", take):
        yield


@sees("phases_follow_the_table")
def late_accepted_overwrites_delivered() -> Iterator[None]:
    before = core_facts.take_observation

    def take(made: Any, seen: Any) -> bool:
        found = before(made, seen)
        if made.state.phase is Phase.EMAIL_DELIVERED and seen.provider_state is not ProviderState.DELIVERED:
            made.state.phase, made.state.email.facts.delivered_ms = Phase.EMAIL_PENDING, 0
            made.because(Reason.IN_FLIGHT)
            return True
        return found

    with unchecked(), patched(core_facts, "take_observation", take):
        yield


@sees("no_fallback_for_a_guess", "no_early_sms")
def temporary_failure_is_final() -> Iterator[None]:
    before = core_evidence.join

    def join(known: Any, seen: Any) -> Any:
        if seen.provider_state is ProviderState.FAILED_TEMPORARY:
            seen = seen.model_copy(update={"provider_state": ProviderState.FAILED_PERMANENT})
        return before(known, seen)

    with patched(core_facts, "join", join):
        yield


@sees("nothing_is_ordered_after_an_early_end")
def completion_lost_when_it_comes_first() -> Iterator[None]:
    before = intake.take

    def take(request: Any, made: Any) -> Any:
        made.state.early = []
        return before(request, made)

    with patched(intake, "take", take):
        yield


@sees("closed_stays_closed")
def closed_intent_reopened() -> Iterator[None]:
    def reopen(made: Any) -> None:
        made.state.closed, made.state.phase = None, Phase.EMAIL_PENDING
        made.because(Reason.LATE_EVIDENCE)

    with unchecked(), patched(machine, "_after_the_end", reopen):
        yield


@sees("forgotten_no_earlier_than_the_expiry")
def state_dropped_before_the_expiry() -> Iterator[None]:
    with patched(acts, "_forget_ms", lambda made: made.now_ms):
        yield


@sees("one_claim")
def claim_taken_back() -> Iterator[None]:
    before = core_facts.take_attempt

    def take(made: Any, attempt: Any) -> bool:
        found = before(made, attempt)
        if found and made.state.phase is Phase.SMS_CLAIMED and attempt.state is AttemptState.HELD:
            made.state.phase, made.state.sms = Phase.EMAIL_PENDING, None
            made.state.claim_due_ms = made.now_ms
        return found

    with unchecked(), patched(core_facts, "take_attempt", take):
        yield


@sees("numbers_are_ordered_once")
def submission_number_used_twice() -> Iterator[None]:
    before = acts.order_submission

    def order(made: Any, channel: Any, **more: Any) -> None:
        track = acts.track_of(made.state, channel)
        if track is not None and track.submission_no > 1:
            track.submission_no -= 1
        before(made, channel, **more)

    with unchecked(), patched(polling, "order_submission", order):
        yield


@sees("claims_are_in_time", "nothing_after_expiry")
def claim_without_a_useful_window() -> Iterator[None]:
    before = gates_module.before_claim

    def gates(state: Any, policy: Any, *given: Any, **more: Any) -> Any:
        more["now_ms"] = 0
        return before(state, policy, *given, **more)

    with unchecked(), patched(gates_module, "before_claim", gates):
        yield


@sees("no_sms_without_permission")
def consent_not_asked_for() -> Iterator[None]:
    before = gates_module.before_claim

    def gates(state: Any, *given: Any, **more: Any) -> Any:
        agreed, state.sms_consent = state.sms_consent, True
        try:
            return before(state, *given, **more)
        finally:
            state.sms_consent = agreed

    with unchecked(), patched(gates_module, "before_claim", gates):
        yield


@sees("no_sms_without_permission", chances={"policy.ages": 0.8})
def ages_measured_at_the_claim() -> Iterator[None]:
    """Waiting for the deadline makes a consent or a number old enough."""

    def age(gate: str, reason: Reason, state: Any, *, since_ms: int, wanted_ms: int) -> Any:
        aged = replace_struct(state, requested_ms=state.deadline_ms)
        return before(gate, reason, aged, since_ms=since_ms, wanted_ms=wanted_ms)

    before = gates_module._age
    with unchecked(), patched(gates_module, "_age", age):
        yield


@sees("no_sms_without_permission", chances={"policy.no_sms": 0.8})
def purpose_not_asked_for() -> Iterator[None]:
    before = gates_module.before_claim

    def gates(state: Any, policy: Any, *given: Any, **more: Any) -> Any:
        allowed = policy.sms.model_copy(update={"allowed": True})
        return before(state, policy.model_copy(update={"sms": allowed}), *given, **more)

    with unchecked(), patched(gates_module, "before_claim", gates):
        yield


@sees("not_found_counts_late", "one_message")
def not_found_counts_at_once() -> Iterator[None]:
    with patched(core_facts, "counts_ms", lambda *_: 0), patched(polling, "counts_ms", lambda *_: 0):
        yield


@sees("not_found_counts_late", "one_message")
def not_found_settles_the_first_time() -> Iterator[None]:
    """As it was: a provider that denies a message once gets it twice."""
    before = core_facts._not_found

    def not_found(draft: Any, track: Any, seen: Any) -> None:
        track.missed_ms = track.missed_ms or 1
        before(draft, track, seen)

    with patched(core_facts, "_not_found", not_found):
        yield


@sees("skipped_email_stays_skipped")
def skipped_email_sent_all_the_same() -> Iterator[None]:
    before = outbox.Outbox.dispatch

    def dispatch(self: Any, order: Any, *given: Any, **more: Any) -> Any:
        return before(self, replace(order, unless_sms_claimed=False), *given, **more)

    with patched(outbox.Outbox, "dispatch", dispatch):
        yield


@sees("one_lookup_outstanding")
def two_lookups_outstanding() -> Iterator[None]:
    before = acts.order_lookup

    def order(made: Any, channel: Any, purpose: Any) -> None:
        before(made, channel, purpose)
        track = acts.track_of(made.state, channel)
        if track is not None:
            track.next_poll_ms = made.now_ms + 200
            track.asked_until_ms = 0

    with patched(polling, "order_lookup", order):
        yield


@sees("overlaps_are_listed")
def overlap_hidden() -> Iterator[None]:
    before = draft.Draft.because

    def because(self: Any, reason: Reason) -> None:
        if reason is not Reason.OVERLAP:
            before(self, reason)

    with patched(draft.Draft, "because", because):
        yield


@sees("needless_fallbacks_are_counted")
def needless_fallback_not_counted() -> Iterator[None]:
    with patched(machine, "_count_needless", lambda *_: None):
        yield


@sees("replay_gives_the_same_bytes")
def schedule_drawn_anew() -> Iterator[None]:
    with patched(acts, "poll_delay_ms", lambda *_, **__: random.randint(1_000, 9_000)):
        yield


@sees("fallbacks_go_out", gentle=True)
def deadline_forgotten() -> Iterator[None]:
    before = claim.when_due

    def when_due(made: Any) -> None:
        if made.state.phase is Phase.EMAIL_PENDING:
            made.state.claim_due_ms, made.silent = 0, True
            return
        before(made)

    with patched(claim, "when_due", when_due):
        yield


@sees("decisions_fold_to_the_state", "phases_follow_the_table")
def phase_moves_without_a_decision() -> Iterator[None]:
    before = draft.Draft.decided

    def decided(self: Any) -> Any:
        found = before(self)
        if found.state is not None and found.state.phase is Phase.EMAIL_PENDING:
            found.state.phase = TABLE[Phase.EMAIL_PENDING, Move.EMAIL_DELIVERED]
        return found

    with unchecked(), patched(draft.Draft, "decided", decided):
        yield


@sees("nothing_stays_parked", "books_balance")
def parked_facts_never_taken_up() -> Iterator[None]:
    def steps(state: Any, given: Any, context: Any) -> list[Any]:
        return [machine.step(state, given, context)]

    with patched(worker_processor, "steps", steps):
        yield


@sees("polls_are_bounded")
def look_ups_without_budget_or_pause() -> Iterator[None]:
    before = core_facts._answered

    def answered(made: Any, track: Any, seen: Any) -> None:
        before(made, track, seen)
        track.budget_spent, track.stage_answers = False, 0

    with patched(core_facts, "_answered", answered), patched(acts, "poll_delay_ms", lambda *_, **__: 20):
        yield
