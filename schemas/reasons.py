"""Why: the closed list of reason codes, each with its class and the sentence an operator reads.

The class decides (SYSTEM.md §1). Renaming a code is a schema change; it must not hold free text.
"""

from __future__ import annotations

from enum import StrEnum


class ReasonClass(StrEnum):
    """What a reason does to the intent."""

    RECIPIENT = "recipient"  # this channel has conclusively failed for this person
    OURS = "ours"  # never a refusal: held, the channel stays pending, SMS waits for the deadline
    INTENT = "intent"  # the intent ends, nothing goes out on either channel
    POLICY = "policy"  # a gate said no for a reason that lies in the policy or the intent
    PROGRESS = "progress"  # nothing is wrong
    INPUT = "input"  # a record that could not be used: dead letter


class Reason(StrEnum):
    """A stable code; `.reason_class` and `.sentence` explain it."""

    reason_class: ReasonClass
    sentence: str

    def __new__(cls, code: str, reason_class: ReasonClass, sentence: str) -> Reason:
        member = str.__new__(cls, code)
        member._value_ = code
        member.reason_class = reason_class
        member.sentence = sentence
        return member

    # progress
    INTAKE = "intake", ReasonClass.PROGRESS, "The intent was accepted and its e-mail was ordered."
    ACCEPTED = "accepted", ReasonClass.PROGRESS, "The provider took the message; that is not delivery."
    DELIVERED = "delivered", ReasonClass.PROGRESS, "The provider says the message arrived."
    IN_FLIGHT = "in_flight", ReasonClass.PROGRESS, "The provider still works on it."
    TEMPORARY_FAILURE = (
        "temporary_failure",
        ReasonClass.PROGRESS,
        "The provider reported a temporary failure; it causes no fallback before the deadline.",
    )
    UNKNOWN_TOKEN = (
        "unknown_token",
        ReasonClass.PROGRESS,
        "The provider used a word we do not know; kept, and no reason to act.",
    )
    NOT_FOUND_YET = "not_found_yet", ReasonClass.PROGRESS, "The provider does not show the message yet."
    NOT_FOUND = (
        "not_found",
        ReasonClass.PROGRESS,
        "The provider does not know the message after the lease and its visibility delay: it was not accepted.",
    )
    SUBMIT_UNKNOWN = (
        "submit_unknown",
        ReasonClass.PROGRESS,
        "The answer to a submission was lost: accepted or not, we do not know.",
    )
    DEADLINE_REACHED = (
        "deadline_reached",
        ReasonClass.PROGRESS,
        "The deadline passed without a usable answer; SMS was claimed.",
    )
    CONCLUSIVE_FAILURE = (
        "conclusive_failure",
        ReasonClass.PROGRESS,
        "E-mail has conclusively failed; SMS was claimed at once.",
    )
    BOUNCE_AFTER_DELIVERED = (
        "bounce_after_delivered",
        ReasonClass.PROGRESS,
        "A permanent bounce came after a delivery report; kept, and the policy decides.",
    )
    POLL_DUE = "poll_due", ReasonClass.PROGRESS, "A look-up was due and was ordered."
    LAST_LOOK = (
        "last_look",
        ReasonClass.PROGRESS,
        "One look-up was ordered before deciding, because the last is too old.",
    )
    LOOKUP_LOST = (
        "lookup_lost",
        ReasonClass.PROGRESS,
        "A look-up was not answered in time; counted, not guessed.",
    )
    LOOKUP_FAILED = "lookup_failed", ReasonClass.PROGRESS, "The provider could not be asked."
    POLL_BUDGET_SPENT = (
        "poll_budget_spent",
        ReasonClass.PROGRESS,
        "The look-up budget of this stage is used up; polling ends.",
    )
    RESUBMITTED = (
        "resubmitted",
        ReasonClass.PROGRESS,
        "The same bytes were ordered again under the same key.",
    )
    RISK_DUPLICATE = (
        "risk_duplicate",
        ReasonClass.PROGRESS,
        "Neither look-up nor key can settle a lost answer; the policy chose to risk a duplicate.",
    )
    WAITING_UNSURE = (
        "waiting_unsure",
        ReasonClass.PROGRESS,
        "Neither look-up nor key can settle a lost answer; the policy chose to wait.",
    )
    EXTENDED = (
        "extended",
        ReasonClass.PROGRESS,
        "No submission of the e-mail is known at the deadline; the policy gives it bounded extra time.",
    )
    CONSENT_GIVEN = "consent_given", ReasonClass.PROGRESS, "The person agreed again after opting out."
    LISTED_BY_MISTAKE = (
        "listed_by_mistake",
        ReasonClass.PROGRESS,
        "The destination was on the suppression list by mistake.",
    )
    RELEASED = "released", ReasonClass.PROGRESS, "A hold ended and the order was given again."
    NEEDLESS_FALLBACK = (
        "needless_fallback",
        ReasonClass.PROGRESS,
        "E-mail proved delivered after SMS was claimed; nothing is retracted.",
    )
    OVERLAP = (
        "overlap",
        ReasonClass.PROGRESS,
        "The intent ended while a submission was in flight; recorded as it is.",
    )
    LATE_EVIDENCE = (
        "late_evidence",
        ReasonClass.PROGRESS,
        "Evidence after the end: appended, nothing reopens.",
    )
    RESEALED = "resealed", ReasonClass.PROGRESS, "The same request sealed again; absorbed."
    EARLY_FACT = "early_fact", ReasonClass.PROGRESS, "A fact came before its intent and was parked."
    SETTLED = "settled", ReasonClass.PROGRESS, "Its time is over and the outcome is known."
    UNRESOLVED = (
        "unresolved",
        ReasonClass.PROGRESS,
        "Its time and the grace are over; the provider never said what became of it.",
    )
    EXHAUSTED = "exhausted", ReasonClass.PROGRESS, "No channel is left that could still reach the person."

    # recipient
    INVALID_RECIPIENT = (
        "invalid_recipient",
        ReasonClass.RECIPIENT,
        "The provider says this destination does not exist.",
    )
    PERMANENT_BOUNCE = "permanent_bounce", ReasonClass.RECIPIENT, "The message was returned for good."
    SUPPRESSED = "suppressed", ReasonClass.RECIPIENT, "The destination is on our suppression list."
    PROVIDER_SUPPRESSED = (
        "provider_suppressed",
        ReasonClass.RECIPIENT,
        "The destination is on the provider's suppression list.",
    )
    COMPLAINT = "complaint", ReasonClass.RECIPIENT, "The person reported an earlier message as unwanted."
    OPTED_OUT = "opted_out", ReasonClass.RECIPIENT, "The person answered STOP."
    SUPPRESSED_BY_HAND = (
        "suppressed_by_hand",
        ReasonClass.RECIPIENT,
        "An operator put the destination on the suppression list.",
    )
    BLOCKED = "blocked", ReasonClass.RECIPIENT, "The carrier or mail server blocks this message for good."
    CONTENT_REFUSED = (
        "content_refused",
        ReasonClass.RECIPIENT,
        "The provider refuses this content on this channel.",
    )
    SUBMISSIONS_SPENT = (
        "submissions_spent",
        ReasonClass.POLICY,
        "The submission budget of this channel is used up.",
    )

    # ours
    CONTROL_PAUSED = "control_paused", ReasonClass.OURS, "An operator paused this; it is held, not refused."
    CREDENTIALS_REFUSED = "credentials_refused", ReasonClass.OURS, "The provider refuses our credentials."
    ACCOUNT_PROBLEM = (
        "account_problem",
        ReasonClass.OURS,
        "The provider refuses our account, not this message.",
    )
    THROTTLED = "throttled", ReasonClass.OURS, "The provider asked us to slow down."
    PROVIDER_UNREACHABLE = (
        "provider_unreachable",
        ReasonClass.OURS,
        "No connection was made; nothing was sent.",
    )
    KEY_UNKNOWN = "key_unknown", ReasonClass.OURS, "Sealed under a key the dispatcher does not hold yet."
    GUARD_UNAVAILABLE = (
        "guard_unavailable",
        ReasonClass.OURS,
        "The claim database cannot answer; nothing is sent.",
    )
    COMPLETIONS_UNREAD = (
        "completions_unread",
        ReasonClass.OURS,
        "Who is done could not be read to the end in time; held.",
    )
    CLOCK_SKEWED = (
        "clock_skewed",
        ReasonClass.OURS,
        "Our clock differs too much from the database and the log.",
    )
    LEASE_LOST = "lease_lost", ReasonClass.OURS, "The lease ended before the first byte; another may act."
    POLICY_UNKNOWN = "policy_unknown", ReasonClass.OURS, "This worker does not know the policy version yet."
    TEMPLATE_UNKNOWN = (
        "template_unknown",
        ReasonClass.OURS,
        "This process does not know the template version yet.",
    )
    ACCOUNT_UNKNOWN = (
        "account_unknown",
        ReasonClass.OURS,
        "The route names a provider account that is not configured.",
    )
    SPEND_EXHAUSTED = "spend_exhausted", ReasonClass.OURS, "The spend cap is reached."
    VELOCITY_EXCEEDED = "velocity_exceeded", ReasonClass.OURS, "Too many of this kind in a short time."
    BREAKER_OPEN = "breaker_open", ReasonClass.OURS, "A breaker is open for this destination or provider."
    CORE_ERROR = (
        "core_error",
        ReasonClass.OURS,
        "The machine failed on this record; the intent is quarantined.",
    )
    QUARANTINED = "quarantined", ReasonClass.OURS, "The intent is held until an operator releases it."

    # policy
    PURPOSE_FORBIDS_SMS = (
        "purpose_forbids_sms",
        ReasonClass.POLICY,
        "The assurance of this purpose forbids SMS.",
    )
    NO_CONSENT = "no_consent", ReasonClass.POLICY, "The person did not agree to SMS."
    CONSENT_TOO_RECENT = (
        "consent_too_recent",
        ReasonClass.POLICY,
        "The person agreed to SMS too shortly before the request for this policy.",
    )
    NO_PHONE = "no_phone", ReasonClass.POLICY, "There is no phone number for this person."
    PHONE_TOO_RECENT = (
        "phone_too_recent",
        ReasonClass.POLICY,
        "It is not known for as long as this policy demands that the number belongs to the person.",
    )
    COUNTRY_NOT_ALLOWED = (
        "country_not_allowed",
        ReasonClass.POLICY,
        "The policy does not send SMS to this country.",
    )
    COUNTRY_NOT_PRICED = (
        "country_not_priced",
        ReasonClass.POLICY,
        "No price is known for an SMS to this country, so none is sent.",
    )
    SMS_LIMIT_REACHED = (
        "sms_limit_reached",
        ReasonClass.POLICY,
        "A limit on SMS is reached whose action is to refuse; the attempt names it.",
    )
    TOO_LATE_FOR_SMS = (
        "too_late_for_sms",
        ReasonClass.POLICY,
        "Too little time is left before expiry for an SMS to be useful.",
    )
    COMPLAINT_FORBIDS_SMS = (
        "complaint_forbids_sms",
        ReasonClass.POLICY,
        "A complaint forbids SMS under this policy.",
    )
    EMAIL_SKIPPED = (
        "email_skipped",
        ReasonClass.POLICY,
        "The deadline came before the e-mail left: skipped if SMS was claimed, else ordered again.",
    )

    # intent
    COMPLETED = "completed", ReasonClass.INTENT, "The person did it; nothing more is sent."
    CANCELLED = "cancelled", ReasonClass.INTENT, "The service withdrew the intent."
    SUPERSEDED = "superseded", ReasonClass.INTENT, "A newer intent for the same subject replaced it."
    EXPIRED = "expired", ReasonClass.INTENT, "Its expiry passed; nothing may be sent."
    EXPIRED_AT_INTAKE = (
        "expired_at_intake",
        ReasonClass.INTENT,
        "It arrived with too little time left; nothing was sent.",
    )
    CLOSED = "closed", ReasonClass.INTENT, "The intent is already closed."
    FORCE_CLOSED = "force_closed", ReasonClass.INTENT, "An operator closed it."
    INVALID_VARIABLES = (
        "invalid_variables",
        ReasonClass.INTENT,
        "The template's variables are missing or wrong.",
    )
    KEY_SHREDDED = "key_shredded", ReasonClass.INTENT, "Sealed under a key that was destroyed."
    SEAL_BROKEN = "seal_broken", ReasonClass.INTENT, "The sealed payload cannot be opened."
    BINDING_MISMATCH = "binding_mismatch", ReasonClass.INTENT, "The sealed payload belongs to another intent."
    OUT_OF_BOUNDS = (
        "out_of_bounds",
        ReasonClass.INTENT,
        "Deadline or expiry is outside the bounds of the policy.",
    )
    PURPOSE_MISMATCH = "purpose_mismatch", ReasonClass.INTENT, "The policy named is for another purpose."
    CONFLICTING_REQUEST = (
        "conflicting_request",
        ReasonClass.INTENT,
        "Another request under the same id; the first stands.",
    )

    # input
    MALFORMED = "malformed", ReasonClass.INPUT, "Not JSON, or not a JSON object."
    INVALID_FIELD = (
        "invalid_field",
        ReasonClass.INPUT,
        "A field is missing, of the wrong type or out of range.",
    )
    UNKNOWN_RECORD = "unknown_record", ReasonClass.INPUT, "This topic has no record of that name."
    UNKNOWN_VERSION = "unknown_version", ReasonClass.INPUT, "This record version is newer than this process."
    NULL_KEY = "null_key", ReasonClass.INPUT, "The record has no key, so it belongs to no intent."
    KEY_MISMATCH = "key_mismatch", ReasonClass.INPUT, "The key differs from the id in the record."
    TOMBSTONE = "tombstone", ReasonClass.INPUT, "A record without a value says nothing here."
    TOO_LARGE = "too_large", ReasonClass.INPUT, "The record is larger than any valid one can be."
    ORPHAN_EXPIRED = (
        "orphan_expired",
        ReasonClass.INPUT,
        "A fact whose intent never came; parked, then given up.",
    )
    PARKING_FULL = (
        "parking_full",
        ReasonClass.INPUT,
        "Too many facts without an intent; the oldest was given up.",
    )
    WRONG_PARTITION_TWICE = (
        "wrong_partition_twice",
        ReasonClass.INPUT,
        "Still in the wrong partition after one repair.",
    )
    UNKNOWN_INTENT = (
        "unknown_intent",
        ReasonClass.INPUT,
        "No such intent, or it was forgotten after its time.",
    )


_BY_CODE = {reason.value: reason for reason in Reason}


def reason_of(code: str) -> Reason:
    """The reason with this code. Raises `KeyError`."""
    return _BY_CODE[code]
