"""What an order means: at most one logical submission per intent and channel.

In this order: prepare, gates, claim, last check directly before the first byte, submit once, result first
(row, then Attempt, then offset). It must not decide whether an order makes sense (the machine did) nor
order another one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import orjson

from schemas.attempt import Attempt, AttemptState
from schemas.dispatch import Dispatch
from schemas.errors import GuardUnavailable
from schemas.ids import Channel
from schemas.metrics import STORED_REPLIES
from schemas.reasons import Reason, ReasonClass
from schemas.suppression import Suppression
from sinks.dispatcher.estimate import cost_of
from sinks.dispatcher.ports import Handled, Limits, Ports
from sinks.dispatcher.prepare import Prepared, Problem
from sinks.dispatcher.rules import (
    Busy,
    ClaimRequest,
    Expired,
    GiveBack,
    Grant,
    Refuse,
    RowAnswer,
    Stored,
    Superseded,
    Verdict,
    asked_again_from_ms,
)
from sinks.dispatcher.spend import Cost, Met
from sinks.dispatcher.told import LimitLog, count_attempts
from sinks.postgres.pool import NOT_REACHED
from sinks.providers.base import Submission, SubmitResult
from streams.core.evidence import SUPPRESSING

log = logging.getLogger("backstop.dispatcher")


class Dispatcher:
    """One per process; `handle` may be called from several threads for different intents."""

    def __init__(self, ports: Ports, limits: Limits) -> None:
        self._ports, self._limits, self._limit_log = ports, limits, LimitLog(ports.meter)

    def handle(self, order: Dispatch) -> Handled:
        """One order. Never raises for what the world does; a raise is a fault of ours."""
        handled = self._handle(order)
        count_attempts(self._ports.meter, handled.attempts)
        return handled

    def _handle(self, order: Dispatch) -> Handled:
        now_ms = self._ports.clock.now_ms()
        if now_ms >= order.not_after_ms:
            return self._unclaimed(order, AttemptState.REFUSED, Reason.EXPIRED)
        prepared = self._ports.preparer.prepare(order)
        if isinstance(prepared, Problem):
            ours = prepared.reason.reason_class is ReasonClass.OURS
            state = AttemptState.HELD if ours else AttemptState.REFUSED
            return self._unclaimed(order, state, prepared.reason)
        cost: Cost | None = None
        if order.channel is Channel.SMS:
            cost = cost_of(order, prepared, self._ports.prices, now_ms)
            if cost is None:
                return self._unclaimed(order, AttemptState.REFUSED, Reason.COUNTRY_NOT_PRICED)
        held = self._gate(order)
        if held is not None:
            return self._unclaimed(order, AttemptState.HELD, held)
        return self._claim(order, prepared, cost)

    def _unclaimed(self, order: Dispatch, state: AttemptState, reason: Reason) -> Handled:
        """Say that nothing was sent, unless the row knows better: an earlier delivery of this order may have
        had a claim. Without the guard nobody knows: held, and its row answers the next order."""
        try:
            known = self._ports.claims.look(
                order.intent_id,
                order.channel,
                order.submission_no,
                after_unknown=order.after_unknown,
                call_timeout_ms=self._limits.call_timeout_ms,
            )
        except GuardUnavailable:
            return self._hold(order, Reason.GUARD_UNAVAILABLE)
        if known is None:
            return Handled(attempts=[self._attempt(order, state, reason=reason)])
        return self._answered(order, known)

    def _answered(self, order: Dispatch, known: RowAnswer) -> Handled:
        match known:
            case Stored():
                return self._again(order, Attempt.model_validate_json(_json(known.result)))
            case Busy():
                return Handled(wait_until_ms=known.until_ms)
            case Expired():
                return self._expired(order, known)
            case Superseded():
                return Handled()

    def _again(self, order: Dispatch, known: Attempt) -> Handled:
        """The row's result once more, and the suppression it caused: whoever wrote both may have died before
        the list was told."""
        self._ports.meter.count(STORED_REPLIES, order.channel.value)
        handled = Handled(attempts=[_for(order, known)])
        reason = known.reason
        if known.state is AttemptState.FAILED and known.fingerprint and reason in SUPPRESSING and reason:
            handled.suppressions.append(self._suppression(order, (known.fingerprint, reason), known))
        return handled

    # gates that need no row

    def _gate(self, order: Dispatch) -> Reason | None:
        ports = self._ports
        if order.provider_account not in ports.providers:
            return Reason.ACCOUNT_UNKNOWN
        if self._paused(order):
            return Reason.CONTROL_PAUSED
        try:
            if not ports.clock_trusted():
                return Reason.CLOCK_SKEWED
            if order.channel is Channel.SMS and not ports.completions_read():
                return Reason.COMPLETIONS_UNREAD
        except GuardUnavailable:
            return Reason.GUARD_UNAVAILABLE
        return None

    def _paused(self, order: Dispatch) -> bool:
        return (
            self._ports.controls().paused_by(
                purpose=order.purpose,
                tenant=order.tenant,
                channel=order.channel,
                account=order.provider_account,
                country=order.country,
            )
            is not None
        )

    # the claim

    def _claim(self, order: Dispatch, prepared: Prepared, cost: Cost | None) -> Handled:
        request = self._request(order, prepared, cost)
        started = self._ports.clock.monotonic()
        self._ports.fault("before_claim")
        try:
            verdict = self._ask(request)
        except GuardUnavailable:
            # Perhaps it was committed all the same: the row then stands as claimed, no byte has left, and
            # the machine's next order takes it over once the lease has ended.
            return self._hold(order, Reason.GUARD_UNAVAILABLE)
        self._ports.fault("after_claim")
        if isinstance(verdict, Grant | Refuse | GiveBack) and verdict.met:
            self._limit_log.reached(verdict.met, self._ports.clock.now_ms())
        match verdict:
            case Grant():
                self._limit_log.passed(verdict.warned)
                return self._submit(order, prepared, request, grant=verdict, started=started)
            case Refuse():
                return self._said_no(order, AttemptState.REFUSED, verdict)
            case GiveBack():
                return self._said_no(order, AttemptState.HELD, verdict)
            case Stored() | Busy() | Expired() | Superseded():
                return self._answered(order, verdict)

    def _said_no(self, order: Dispatch, state: AttemptState, verdict: Refuse | GiveBack) -> Handled:
        return Handled(attempts=[self._attempt(order, state, reason=verdict.reason, met=verdict.met)])

    def _ask(self, request: ClaimRequest) -> Verdict:
        """A commit whose answer was lost is found again by its claim id, once."""
        try:
            return self._ports.claims.claim(request)
        except GuardUnavailable as exc:
            if exc.code == NOT_REACHED:
                raise
            return self._ports.claims.claim(request)

    def _request(self, order: Dispatch, prepared: Prepared, cost: Cost | None) -> ClaimRequest:
        return ClaimRequest(
            intent_id=order.intent_id,
            channel=order.channel,
            tenant=order.tenant,
            fingerprint=prepared.fingerprint,
            fingerprints=prepared.fingerprints,
            request_digest=prepared.digest,
            dispatch_key=order.dispatch_key,
            template=order.template,
            expiry_ms=order.expiry_ms,
            submission_no=order.submission_no,
            account=order.provider_account,
            unless_sms_claimed=order.unless_sms_claimed,
            after_unknown=order.after_unknown,
            cost=cost,
            key_until_ms=order.key_until_ms or 0,
            claim_id=self._ports.new_id(),
            lease_ms=self._limits.lease_ms,
            call_timeout_ms=self._limits.call_timeout_ms,
            asked_again_from_ms=asked_again_from_ms(order),
        )

    def _expired(self, order: Dispatch, verdict: Expired) -> Handled:
        """A holder died between its first byte and its result: unknown, and said so."""
        row = verdict.row
        attempt = self._attempt(
            order,
            AttemptState.UNKNOWN,
            claim_id=row.claim_id,
            number=verdict.submission_no,
            submitted_ms=row.submitted_ms,
            lease_until_ms=row.lease_until_ms,
        )
        return self._record(order, row.claim_id, attempt, None)

    # the submission

    def _submit(
        self, order: Dispatch, prepared: Prepared, request: ClaimRequest, *, grant: Grant, started: float
    ) -> Handled:
        ports, limits = self._ports, self._limits
        stopped = self._last_check(order, started)
        submitted_ms: int | None = None
        if stopped is None:
            try:
                submitted_ms = ports.claims.begin(request.claim_id)
                if submitted_ms is None:
                    stopped = ports.claims.stopped_by(request.claim_id)
            except GuardUnavailable:
                stopped = Reason.GUARD_UNAVAILABLE
        if stopped is None:  # the database may have taken its time: nothing leaves after the lease
            stopped = self._last_check(order, started)
        if stopped is not None:
            return self._stopped(order, request, stopped)
        if self._was_overtaken(request, grant):
            return self._stopped(order, request, Reason.EMAIL_SKIPPED, is_held=True)
        ports.fault("before_call")
        result = self._call(order, prepared.submission(order.dispatch_key, ttl_ms=grant.ttl_ms))
        ports.fault("after_call")
        attempt = self._attempt(
            order,
            result.state,
            result=result,
            claim_id=request.claim_id,
            digest=request.request_digest,
            submitted_ms=submitted_ms,
            lease_until_ms=(submitted_ms or 0) + limits.lease_ms,
            fingerprint=prepared.fingerprint,
            met=grant.met,
        )
        suppress = (prepared.fingerprint, result.reason) if result.suppress and result.reason else None
        return self._record(order, request.claim_id, attempt, suppress)

    def _call(self, order: Dispatch, submission: Submission) -> SubmitResult:
        """Once. An adapter that raises has a fault of ours; its bytes may have left all the same."""
        try:
            return self._ports.providers[order.provider_account].submit(
                submission, now_ms=self._ports.clock.now_ms(), timeout_ms=self._limits.call_timeout_ms
            )
        except Exception as exc:  # noqa: BLE001  unknown is the truth, and no text of it is printed
            log.error("adapter of %s failed: %s", order.provider_account, type(exc).__name__)  # noqa: TRY400
            return SubmitResult(AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)

    def _last_check(self, order: Dispatch, started: float) -> Reason | None:
        """Time, lease and control, directly before the first byte."""
        limits, clock = self._limits, self._ports.clock
        if clock.now_ms() + limits.call_timeout_ms + limits.clock_skew_ms_max >= order.not_after_ms:
            return Reason.EXPIRED
        spent_ms = (clock.monotonic() - started) * 1000
        if spent_ms + limits.call_timeout_ms >= limits.lease_ms:
            return Reason.LEASE_LOST
        return Reason.CONTROL_PAUSED if self._paused(order) else None

    def _was_overtaken(self, request: ClaimRequest, grant: Grant) -> bool:
        """Whether the time at which the claim would have given the order back has passed since."""
        from_ms = request.asked_again_from_ms
        return bool(from_ms) and not grant.may_have_left and self._ports.clock.now_ms() >= from_ms

    def _stopped(
        self, order: Dispatch, request: ClaimRequest, reason: Reason, *, is_held: bool = False
    ) -> Handled:
        """Claimed, and then not sent: the row says so, and the machine may order again if it was ours, or if
        it is asked again."""
        ours = is_held or reason.reason_class is ReasonClass.OURS
        attempt = self._attempt(
            order,
            AttemptState.HELD if ours else AttemptState.REFUSED,
            reason=reason,
            claim_id=request.claim_id,
            digest=request.request_digest,
        )
        return self._record(order, request.claim_id, attempt, None)

    # results

    def _record(
        self, order: Dispatch, claim_id: str, attempt: Attempt, suppress: tuple[str, Reason] | None
    ) -> Handled:
        """The row first, in one transaction with the suppression; without a guard the Attempt goes first."""

        def write() -> None:
            self._ports.claims.finish(
                claim_id,
                intent_id=order.intent_id,
                channel=order.channel,
                submission_no=attempt.submission_no,
                state=attempt.state.value,
                result=attempt.model_dump(mode="json", exclude_none=True),
                suppress=suppress,
            )

        handled = Handled(attempts=[attempt])
        if suppress is not None:
            handled.suppressions.append(self._suppression(order, suppress, attempt))
        self._ports.fault("before_result")
        try:
            write()
        except GuardUnavailable:
            handled.attempts = [attempt.model_copy(update={"unrecorded": True})]
            handled.heal = write
        self._ports.fault("after_result")
        return handled

    def _suppression(self, order: Dispatch, suppress: tuple[str, Reason], attempt: Attempt) -> Suppression:
        fingerprint, reason = suppress
        return Suppression(
            fingerprint=fingerprint,
            channel=order.channel,
            reason=reason,
            provider_account=order.provider_account,
            intent_id=order.intent_id,
            cause=attempt.attempt_id,
            at_ms=attempt.at_ms,
        )

    def _hold(self, order: Dispatch, reason: Reason) -> Handled:
        return Handled(attempts=[self._attempt(order, AttemptState.HELD, reason=reason)])

    def _attempt(
        self,
        order: Dispatch,
        state: AttemptState,
        *,
        reason: Reason | None = None,
        result: SubmitResult | None = None,
        number: int | None = None,
        claim_id: str | None = None,
        digest: str | None = None,
        submitted_ms: int | None = None,
        lease_until_ms: int | None = None,
        fingerprint: str | None = None,
        met: Sequence[Met] = (),
    ) -> Attempt:
        submission_no = order.submission_no if number is None else number
        at_ms = self._ports.clock.now_ms()
        retry_at_ms = result.retry_at_ms if result is not None else None
        return Attempt(
            attempt_id=_attempt_id(order, submission_no, state),
            intent_id=order.intent_id,
            channel=order.channel,
            submission_no=submission_no,
            state=state,
            reason=result.reason if result is not None else reason,
            retry_at_ms=retry_at_ms,
            provider_account=order.provider_account,
            message_id=result.message_id if result is not None else None,
            fingerprint=fingerprint,
            template=order.template,
            request_digest=digest,
            claim_id=claim_id,
            submitted_at_ms=submitted_ms,
            lease_until_ms=lease_until_ms,
            at_ms=at_ms,
            limits=tuple(m.limit for m in met) or None,
        )


def _for(order: Dispatch, known: Attempt) -> Attempt:
    """The row's result as the answer to this order. A machine that has ordered a higher number no longer
    listens to a refusal of the lower one: told under that, the order would never be answered."""
    if known.submission_no >= order.submission_no:
        return known
    number = order.submission_no
    return known.model_copy(
        update={"submission_no": number, "attempt_id": _attempt_id(order, number, known.state)}
    )


def _attempt_id(order: Dispatch, number: int, state: AttemptState) -> str:
    return f"{order.intent_id}:{order.channel.value}:{number}:{state.value}"


def _json(value: Mapping[str, object]) -> bytes:
    return orjson.dumps(value)
