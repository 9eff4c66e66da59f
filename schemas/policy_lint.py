"""What a policy's numbers come to, and what in them cannot be meant. Pure.

`parse` refuses what is malformed; here it is the arithmetic between fields. It must not know an account or
a price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.policy import (
    ChannelPolicy,
    Policy,
    PollSchedule,
    SmsPolicy,
    UndispatchedEmail,
    UrgencyClass,
)
from schemas.templates.registry import Template

POLLS_SHOWN_MAX = 1_000
MINUTE_MS, DAY_MS = 60_000, 86_400_000
AGE_MS_MIN = MINUTE_MS  # whoever can wait a minute would pass: what was meant were seconds, or hours
AGE_MS_MAX = 365 * DAY_MS  # longer than most people keep a number; it would refuse nearly everybody


@dataclass(frozen=True, slots=True)
class Remark:
    """`is_mistake`: the policy may not be released like this; else a figure worth knowing."""

    rule: str
    says: str
    is_mistake: bool


def lint(policy: Policy, template: Template | None) -> list[Remark]:
    """Every mistake and every figure. `template` is the version it pins, None when no catalogue has it."""
    found = [Remark(rule, says, True) for rule, says in _mistakes(policy, template)]
    return found + [Remark(rule, says, False) for rule, says in _figures(policy)]


Said = Iterator[tuple[str, str]]


def _mistakes(policy: Policy, template: Template | None) -> Said:
    bounds, email = policy.bounds, policy.email
    if template is None:
        yield "template_unknown", f"no catalogue here has {policy.template}"
    elif template.purpose != policy.purpose:
        yield "purpose_differs", f"{policy.template} is for {template.purpose}"
    room_ms = bounds.expiry_ms_max - bounds.min_useful_window_ms
    if bounds.deadline_ms_max > room_ms:
        yield (
            "no_room_for_sms",
            (
                f"deadline_ms_max {_s(bounds.deadline_ms_max)} > expiry_ms_max "
                f"{_s(bounds.expiry_ms_max)} - "
                f"min_useful_window_ms {_s(bounds.min_useful_window_ms)} = {_s(room_ms)}"
            ),
        )
    if policy.look_wait_ms >= bounds.deadline_ms_min:
        yield (
            "last_look_before_the_request",
            f"look_wait_ms {_s(policy.look_wait_ms)} >= deadline_ms_min {_s(bounds.deadline_ms_min)}",
        )
    looks = polls_until(email.poll, bounds.deadline_ms_max)
    if not looks:
        yield (
            "no_look_before_the_deadline",
            (
                f"the first look-up comes after {_s(email.poll.initial_ms)}, the longest deadline is "
                f"{_s(bounds.deadline_ms_max)}"
            ),
        )
    if looks > email.poll.answers_max:
        yield (
            "look_ups_run_out",
            (
                f"{looks} look-ups fit before the longest deadline, answers_max is {email.poll.answers_max}: "
                "the last ones before it would not be made"
            ),
        )
    for name, channel in (("email", email), ("sms", policy.sms)):
        if channel.poll.initial_ms > channel.poll.interval_ms_max:
            yield (
                "schedule_upside_down",
                (
                    f"{name}.poll: initial_ms {_s(channel.poll.initial_ms)} > interval_ms_max "
                    f"{_s(channel.poll.interval_ms_max)}"
                ),
            )
    if policy.sms.allowed and not policy.sms.countries:
        yield "sms_to_nowhere", "sms.allowed with no country in sms.countries"
    yield from _ages_that_cannot_be_meant(policy.sms)
    if policy.undispatched_email is UndispatchedEmail.EXTEND and policy.extend_ms_max > room_ms:
        yield "extends_past_expiry", f"extend_ms_max {_s(policy.extend_ms_max)} > {_s(room_ms)}"
    if policy.urgency is UrgencyClass.URGENT and policy.claim_hold_ms_max > bounds.deadline_ms_max:
        yield (
            "held_longer_than_the_deadline",
            f"claim_hold_ms_max {_s(policy.claim_hold_ms_max)} > {_s(bounds.deadline_ms_max)}",
        )


def _ages(sms: SmsPolicy) -> dict[str, int]:
    """The ages it demands, by field; those it does not demand are left out."""
    ages = {"consent_age_ms_min": sms.consent_age_ms_min, "phone_age_ms_min": sms.phone_age_ms_min}
    return {name: ms for name, ms in ages.items() if ms}


def _ages_that_cannot_be_meant(sms: SmsPolicy) -> Said:
    for name, ms in _ages(sms).items():
        if ms < AGE_MS_MIN:
            yield (
                "age_too_short",
                f"sms.{name} {_s(ms)} < 1 min = {_s(AGE_MS_MIN)}: waiting a minute passes it",
            )
        if ms > AGE_MS_MAX:
            yield "age_too_long", f"sms.{name} {_s(ms)} > 365 d = {_s(AGE_MS_MAX)}"
        if not sms.allowed:
            yield "age_of_nothing", f"sms.{name} {_s(ms)} with sms.allowed = false: it is never asked"


def _figures(policy: Policy) -> Said:
    bounds = policy.bounds
    for deadline_ms in (bounds.deadline_ms_min, bounds.deadline_ms_max):
        looks = polls_until(policy.email.poll, deadline_ms)
        yield (
            "look_ups",
            f"deadline {_s(deadline_ms)}: {looks} look-ups of the e-mail before it, and the last look",
        )
    late_ms = policy.look_wait_ms + policy.claim_hold_ms_max
    waits = f"look_wait_ms {_s(policy.look_wait_ms)} + claim_hold_ms_max {_s(policy.claim_hold_ms_max)}"
    left = f"{_s(bounds.min_useful_window_ms)} before the expiry at least"
    yield "latest_sms", f"{_s(late_ms)} after the deadline ({waits}), and {left}"
    for name, ms in _ages(policy.sms).items():
        yield "age", f"no SMS unless {_AGE_OF[name]} {_s(ms)} = {_d(ms)} before the request, or earlier"
    for name, channel in (("email", policy.email), ("sms", policy.sms)):
        yield "answers", f"{name}: {_budget(channel)}"


def _budget(channel: ChannelPolicy) -> str:
    times = list(_instants(channel.poll, channel.poll.answers_max))
    return (
        f"{channel.poll.answers_max} answered look-ups per stage are spent after {_s(int(times[-1]))}; "
        f"at most {channel.submissions_max} submissions"
    )


def polls_until(schedule: PollSchedule, end_ms: int) -> int:
    """How many look-ups a schedule plans before this instant, without jitter."""
    return sum(at < end_ms for at in _instants(schedule, POLLS_SHOWN_MAX))


def _instants(schedule: PollSchedule, count: int) -> Iterator[float]:
    at, pause = 0.0, float(schedule.initial_ms)
    for _ in range(count):
        at += min(pause, schedule.interval_ms_max)
        yield at
        pause *= schedule.factor


_AGE_OF = {
    "consent_age_ms_min": "the person agreed",
    "phone_age_ms_min": "the number was known to be theirs",
}


def _d(ms: int) -> str:
    """`1 d`, `0.5 d`."""
    return f"{ms / DAY_MS:.6g} d"


def _s(ms: int) -> str:
    """`90 s`, `0.4 s`."""
    return f"{ms / 1000:.12g} s"
