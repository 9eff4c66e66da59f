"""The claim: the one step that gives the SMS its one right, and what comes before it.

A claim is tried when e-mail has conclusively failed or a tick says the deadline passed. It must not be
tried from anywhere else, and nothing here reads the database: the dispatcher asks its own gates again.
"""

from __future__ import annotations

from schemas.attempt import AttemptState
from schemas.decision import GateResult, Looked, Phase, Verdict
from schemas.ids import Channel
from schemas.lookup import LookupPurpose
from schemas.policy import UndispatchedEmail
from schemas.reasons import Reason
from streams.core import gates, polling
from streams.core.acts import last_useful_ms, new_stage, order_lookup, order_submission, policy_of
from streams.core.draft import Draft
from streams.core.schedule import hold_delay_ms
from streams.core.state import Track
from streams.core.table import Move


def attempt(draft: Draft, why: Reason) -> None:
    """The SMS gets its one right, if every gate is open; a refusal is final, a hold is tried again."""
    state, policy = draft.state, policy_of(draft)
    route_known = policy.sms.account in draft.context.accounts
    draft.gates = gates.before_claim(
        state, policy, draft.context.controls, now_ms=draft.now_ms, route_known=route_known
    )
    decisive = gates.verdict(draft.gates)
    if decisive is None:
        draft.move(Move.CLAIM_AFTER_DELIVERY if state.phase is Phase.EMAIL_DELIVERED else Move.CLAIM)
        state.claim_due_ms, state.hold_reason = 0, None
        state.sms = Track(account=policy.sms.account)
        if state.email is not None:
            new_stage(state.email)
        order_submission(draft, Channel.SMS)
        draft.above_all(why)
    elif decisive.verdict is Verdict.REFUSE:
        _refuse_claim(draft, decisive)
    else:
        _hold_claim(draft, decisive)


def _refuse_claim(draft: Draft, gate: GateResult) -> None:
    state = draft.state
    state.sms_refused = gate.reason
    state.claim_due_ms, state.hold_reason = 0, None
    if gate.reason is not None:
        draft.above_all(gate.reason)
    if state.phase is Phase.EMAIL_INVALID:
        draft.move(Move.NO_CHANNEL_LEFT)
        draft.because(Reason.EXHAUSTED)


def _hold_claim(draft: Draft, gate: GateResult) -> None:
    """Decided once per reason and controls offset; the trials in between are bookkeeping."""
    state, controls = draft.state, draft.context.controls
    same = state.hold_reason is gate.reason and state.hold_controls_offset == controls.offset
    state.hold_count = state.hold_count + 1 if same else 0
    state.hold_reason, state.hold_controls_offset = gate.reason, controls.offset
    useful = last_useful_ms(state, policy_of(draft))
    state.claim_due_ms = max(draft.now_ms + 1, min(draft.now_ms + hold_delay_ms(state.hold_count), useful))
    if same:
        draft.silent = True
    elif gate.reason is not None:
        draft.above_all(gate.reason)


def when_due(draft: Draft) -> None:
    """The deadline, a hold or a last look is over: look once more if that can help, then claim."""
    state, policy, email = draft.state, policy_of(draft), draft.state.email
    if email is None:
        raise AssertionError("a claim before the e-mail was ordered")
    if state.phase is not Phase.EMAIL_PENDING:
        attempt(draft, Reason.CONCLUSIVE_FAILURE)
        return
    useful = last_useful_ms(state, policy)
    if (
        not email.submitted_ms
        and not state.extended
        and policy.undispatched_email is UndispatchedEmail.EXTEND
    ):
        until = min(state.deadline_ms + policy.extend_ms_max, useful - 1)
        if until > draft.now_ms:
            state.extended = True
            state.claim_due_ms = until
            draft.because(Reason.EXTENDED)
            return
    if state.looked is None and email.submitted_ms and _look_first(draft, email, useful):
        return
    attempt(draft, Reason.DEADLINE_REACHED)


def _look_first(draft: Draft, email: Track, useful_ms: int) -> bool:
    """Whether the claim waits for one look-up; says what became of it otherwise."""
    state, policy = draft.state, policy_of(draft)
    if state.look_poll_no:
        state.looked = Looked.NO_ANSWER
        return False
    if not polling.can_look(draft, email):
        state.looked = Looked.IMPOSSIBLE
        return False
    fresh = email.last_answer_ms and draft.now_ms - email.last_answer_ms < policy.fresh_ms
    if fresh and email.state is not AttemptState.UNKNOWN:
        state.looked = Looked.FRESH
        return False
    if draft.now_ms >= useful_ms - 1:
        state.looked = Looked.NO_ANSWER
        return False
    state.claim_due_ms = min(draft.now_ms + policy.look_wait_ms, useful_ms - 1)
    if not email.asked_until_ms:
        order_lookup(draft, Channel.EMAIL, LookupPurpose.LAST_LOOK)
    state.look_poll_no = email.poll_no
    draft.because(Reason.LAST_LOOK)
    return True
