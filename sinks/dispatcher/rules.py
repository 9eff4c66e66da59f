"""What a claim row allows: at most one logical submission per intent and channel. Pure.

    order n, row of n         stored result               publish it again
                              claimed, same claim id      the answer was lost on its way: it is ours
                              claimed, lease over         no byte has left: claim it anew
                              submitting, lease over      unknown: the holder may have sent it
                              lease alive                 wait for its holder
    order above the row's     not_accepted held           the machine's next number: claim it
                              unknown, and known to be    the machine chose to go on: claim it
                              unknown, and not known      unknown under the new number: this order was given
                                                          because n was held, and n was delivered once more
                              claimed, lease over         claim it (no byte has left)
                              one that may have left,     unknown under the new number: a machine that relied
                              after the key's window      on the key must decide without it (case F08)
                              submitting, lease over      unknown under the new number: the machine may have
                                                          been told that n was held, and must decide knowing
                              anything else               publish the row again, under the new number
    order below the row's     claimed, submitting         nothing: it was answered before the higher one was
                                                          given, which lies behind it and settles the row
                              anything else               publish the row again
    other request digest      any                         conflicting_request, never sent
    other expiry, any channel any                         conflicting_request: the id had another life, which
                                                          the worker has forgotten

An order may be more than one above the row: holds while the database was away leave no row. The row is
read, judged and written under the destination's and the intent's lock. It must not do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from schemas.budget import Action, Budgets
from schemas.dispatch import Dispatch
from schemas.ids import Channel
from schemas.reasons import Reason, reason_of
from sinks.dispatcher.spend import Cost, Met, Used, Warned, met, warnings

# The clocks of log and database may each be 2 s from ours; an order is under way for far less than the rest.
ORDER_FRESH_MS = 10_000
AGAIN = frozenset({"unknown", "not_accepted", "held"})
NOT_TAKEN = frozenset({"refused", "failed", "held", "not_accepted"})


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a dispatcher asks the guard for. `fingerprints`: the destination under every live key."""

    intent_id: str
    channel: Channel
    tenant: str
    fingerprint: str
    fingerprints: tuple[str, ...]
    request_digest: str
    dispatch_key: str
    template: str
    expiry_ms: int
    submission_no: int
    account: str
    unless_sms_claimed: bool
    after_unknown: bool
    claim_id: str
    lease_ms: int
    call_timeout_ms: int
    cost: Cost | None = None  # of an SMS, which is never asked for without
    key_until_ms: int = 0  # until when only the provider's memory of the key makes the order safe; 0: it is
    asked_again_from_ms: int = 0  # an order that never left is given back from here on; 0: never

    def __post_init__(self) -> None:
        if (self.channel is Channel.SMS) != (self.cost is not None):
            raise ValueError("an SMS, and nothing else, is asked for with its cost")


@dataclass(frozen=True, slots=True)
class Row:
    """One claim as stored."""

    submission_no: int
    state: str
    claim_id: str
    request_digest: str
    lease_until_ms: int
    ttl_ms: int
    submitted_ms: int | None
    provider_account: str
    result: Mapping[str, Any] | None
    unless_sms_claimed: bool
    may_have_left: bool  # an earlier submission of this row, whatever its present state
    is_counted: bool = False  # its cost stands in the counts


@dataclass(frozen=True, slots=True)
class Facts:
    """What the guard's other tables say about this destination and intent."""

    closed: str | None = None
    suppressed: str | None = None
    withdrawn: bool = False
    sms_claimed: bool = False
    lived_before: bool = False  # a row of this intent, of either channel, has another expiry


@dataclass(frozen=True, slots=True)
class Listed:
    """A destination that enters the suppression list. `at_ms`: when the cause happened; None: now."""

    fingerprint: str
    channel: str
    reason: Reason
    cause: str
    at_ms: int | None = None
    operator: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Lifted:
    """One that leaves it. `consent_ms`: the person agreed again then; without it an opt-out stays."""

    fingerprint: str
    channel: str
    consent_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """Go on: `ttl_ms` is fixed by the first claim; `may_have_left`: an earlier submission may have.
    `met`: limits that are reached and only recorded; `warned`: shares of a cap that this one passes."""

    ttl_ms: int
    is_first: bool
    may_have_left: bool = False
    met: tuple[Met, ...] = ()
    warned: tuple[Warned, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """Publish the row's result again; nothing is sent."""

    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Expired:
    """What the row's submission did is unknown: its holder is over its time without a result, or the order
    was given by a machine that did not know of it."""

    row: Row
    submission_no: int  # of the row, or the higher one that asked


@dataclass(frozen=True, slots=True)
class Busy:
    """Another holder is at it until then (database clock)."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """A higher number has the row and is under way: this order is over, and its answer was told."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """`met`: the limits that are reached, if those refuse."""

    reason: Reason
    met: tuple[Met, ...] = ()


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Nothing was claimed: the machine decides anew, knowing what time it is. `met`: as in `Refuse`."""

    reason: Reason
    met: tuple[Met, ...] = ()


RowAnswer = Stored | Expired | Busy | Superseded
Verdict = Grant | RowAnswer | Refuse | GiveBack


def judge(request: ClaimRequest, row: Row | None, facts: Facts, now_ms: int) -> Verdict:
    """What this order may do, given the row and everything else the guard knows at `now_ms`."""
    if facts.lived_before:
        return Refuse(Reason.CONFLICTING_REQUEST)
    if row is not None:
        found = _by_row(request, row, now_ms)
        if found is not None:
            return found
    may_have_left = row is not None and (row.may_have_left or row.state in ("submitting", "unknown"))
    refusal = _refusal(request, facts, may_have_left=may_have_left)
    if refusal is not None:
        return Refuse(refusal)
    if request.asked_again_from_ms and now_ms >= request.asked_again_from_ms and not may_have_left:
        # We were away over the deadline: the SMS may have its claim, and its order wait behind this one.
        return GiveBack(Reason.EMAIL_SKIPPED)
    ttl_ms = row.ttl_ms if row is not None else request.expiry_ms - now_ms
    if ttl_ms <= 0:
        return Refuse(Reason.EXPIRED)
    return Grant(ttl_ms, row is None, may_have_left)


def is_to_count(request: ClaimRequest, row: Row | None) -> bool:
    """Whether this claim, if it is granted, costs something that was not counted yet."""
    return request.cost is not None and not (row is not None and row.is_counted)


def afford(grant: Grant, budgets: Budgets, cost: Cost, used: Mapping[str, Used]) -> Verdict:
    """What the limits make of a claim that everything else grants."""
    found = tuple(met(budgets, cost, used))
    if found and found[0].action is Action.REFUSE:
        return Refuse(Reason.SMS_LIMIT_REACHED, found)
    if found and found[0].action is Action.HOLD:
        return GiveBack(found[0].reason, found)
    return replace(grant, met=found, warned=tuple(warnings(budgets, cost, used)))


def gives_back(state: str, *, may_have_left: bool) -> bool:
    """Whether an SMS of this result costs nothing: no submission of it can have left."""
    return state in NOT_TAKEN and not may_have_left


def _by_row(request: ClaimRequest, row: Row, now_ms: int) -> Verdict | None:
    """What the row alone decides; None when it allows a new claim."""
    if row.request_digest != request.request_digest:
        return Refuse(Reason.CONFLICTING_REQUEST)
    if row.state == "claimed" and row.claim_id == request.claim_id:
        return None
    return answer_of(
        row,
        request.submission_no,
        after_unknown=request.after_unknown,
        call_timeout_ms=request.call_timeout_ms,
        key_until_ms=request.key_until_ms,
        now_ms=now_ms,
    )


def answer_of(
    row: Row,
    submission_no: int,
    *,
    after_unknown: bool,
    call_timeout_ms: int,
    now_ms: int,
    key_until_ms: int = 0,
) -> RowAnswer | None:
    """What the row says to an order of this number; None when nothing of that order can have left."""
    left = row.state == "unknown" or row.may_have_left
    key_forgotten = left and 0 < key_until_ms <= now_ms + call_timeout_ms
    if row.state in ("claimed", "submitting"):
        if submission_no < row.submission_no:
            return Superseded()
        over_ms = row.lease_until_ms + (call_timeout_ms if row.state == "submitting" else 0)
        if now_ms < over_ms:
            return Busy(over_ms)
        unsure = row.state == "submitting" or key_forgotten
        return Expired(row, max(submission_no, row.submission_no)) if unsure else None
    if submission_no > row.submission_no and row.state in AGAIN:
        # A hold has no row: an order held, answered by the next number and then delivered again was sent.
        unsure = key_forgotten or (row.state == "unknown" and not after_unknown)
        return Expired(row, submission_no) if unsure else None
    return Stored(row.result or {})


def _refusal(request: ClaimRequest, facts: Facts, *, may_have_left: bool) -> Reason | None:
    if facts.closed is not None:
        return reason_of(facts.closed)
    if facts.suppressed is not None:
        return Reason.SUPPRESSED
    if request.channel is Channel.SMS and facts.withdrawn:
        return Reason.NO_CONSENT
    # An e-mail that may have left goes on; one that never did is skipped once the SMS has its claim.
    if request.unless_sms_claimed and facts.sms_claimed and not may_have_left:
        return Reason.EMAIL_SKIPPED
    return None


def asked_again_from_ms(order: Dispatch) -> int:
    """From here on an e-mail that yields to the SMS is given back: the SMS may have been claimed meanwhile.

    One ordered before the deadline: from the deadline on. One ordered after it knew of the deadline, and not
    of the claims that followed: it is good for `ORDER_FRESH_MS`. 0: never.
    """
    if not order.unless_sms_claimed:
        return 0
    is_late = order.ordered_at_ms >= order.deadline_ms
    return order.ordered_at_ms + ORDER_FRESH_MS if is_late else order.deadline_ms
