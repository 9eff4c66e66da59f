"""The gates before an SMS claim that an intent, a policy and the controls can answer.

Suppression, withdrawn consent, spend, velocity and breakers are the dispatcher's: they need the
database. A gate must not read anything but its arguments.
"""

from __future__ import annotations

from schemas.control import Controls
from schemas.decision import GateResult, Verdict
from schemas.ids import Channel
from schemas.policy import Policy, SmsPolicy
from schemas.reasons import Reason
from streams.core.state import IntentState

GATES = (
    "purpose",
    "phone",
    "phone_age",
    "consent",
    "consent_age",
    "country",
    "complaint",
    "expiry",
    "route",
    "control",
)
# One value per verdict that needs no detail: built once, used for every claim.
_OPEN = {gate: GateResult(gate=gate, verdict=Verdict.OPEN) for gate in GATES}


def _refuse(gate: str, reason: Reason, detail: str | None = None) -> GateResult:
    return GateResult(gate=gate, verdict=Verdict.REFUSE, reason=reason, detail=detail)


def _hold(gate: str, reason: Reason, detail: str) -> GateResult:
    return GateResult(gate=gate, verdict=Verdict.HOLD, reason=reason, detail=detail)


def _age(gate: str, reason: Reason, state: IntentState, *, since_ms: int, wanted_ms: int) -> GateResult:
    """How old something was when the intent was requested, against what the policy wants (0: nothing).

    Both instants are the service's own: its clock may be wrong and the difference is right, a replay finds
    the same, and waiting for the deadline, or in a hold, makes nothing older.
    """
    age_ms = state.requested_ms - since_ms
    if not wanted_ms or (since_ms and age_ms >= wanted_ms):
        return _OPEN[gate]
    said = f"{age_ms} ms" if since_ms else "not said"
    return _refuse(gate, reason, f"{said}, {wanted_ms} ms demanded")


def _consent_age(state: IntentState, sms: SmsPolicy) -> GateResult:
    """Open without a consent: whether there must be one is another gate's."""
    if not state.sms_consent:
        return _OPEN["consent_age"]
    given_ms, wanted_ms = state.consent_ms, sms.consent_age_ms_min
    return _age("consent_age", Reason.CONSENT_TOO_RECENT, state, since_ms=given_ms, wanted_ms=wanted_ms)


def _phone_age(state: IntentState, sms: SmsPolicy) -> GateResult:
    """Open without a number: that is another gate's."""
    if not state.sms_fingerprint:
        return _OPEN["phone_age"]
    known_ms, wanted_ms = state.phone_verified_ms, sms.phone_age_ms_min
    return _age("phone_age", Reason.PHONE_TOO_RECENT, state, since_ms=known_ms, wanted_ms=wanted_ms)


def before_claim(
    state: IntentState, policy: Policy, controls: Controls, *, now_ms: int, route_known: bool
) -> tuple[GateResult, ...]:
    """All gates with their results, so that a record shows what was open as well.

    `route_known`: the provider account of the policy is configured here.
    """
    sms = policy.sms
    found = [
        _OPEN["purpose"] if sms.allowed else _refuse("purpose", Reason.PURPOSE_FORBIDS_SMS),
        _OPEN["phone"] if state.sms_fingerprint else _refuse("phone", Reason.NO_PHONE),
        _phone_age(state, sms),
        _OPEN["consent"]
        if state.sms_consent or not sms.consent_required
        else _refuse("consent", Reason.NO_CONSENT),
        _consent_age(state, sms),
    ]
    if state.sms_fingerprint and state.country not in sms.countries:
        found.append(_refuse("country", Reason.COUNTRY_NOT_ALLOWED, state.country))
    else:
        found.append(_OPEN["country"])
    email = state.email
    complained = email is not None and email.facts.failed_reason is Reason.COMPLAINT
    found.append(
        _refuse("complaint", Reason.COMPLAINT_FORBIDS_SMS)
        if complained and sms.complaint_forbids
        else _OPEN["complaint"]
    )
    in_time = now_ms < state.expiry_ms - policy.bounds.min_useful_window_ms
    found.append(_OPEN["expiry"] if in_time else _refuse("expiry", Reason.TOO_LATE_FOR_SMS))
    found.append(_OPEN["route"] if route_known else _hold("route", Reason.ACCOUNT_UNKNOWN, sms.account))
    name = controls.paused_by(
        purpose=state.purpose,
        tenant=state.tenant,
        channel=Channel.SMS,
        account=sms.account,
        country=state.country,
    )
    found.append(_OPEN["control"] if name is None else _hold("control", Reason.CONTROL_PAUSED, name))
    return tuple(found)


def verdict(results: tuple[GateResult, ...]) -> GateResult | None:
    """The result that decides: a refusal before a hold, the first of its kind; None when all are open."""
    held = None
    for result in results:
        if result.verdict is Verdict.REFUSE:
            return result
        if held is None and result.verdict is Verdict.HOLD:
            held = result
    return held
