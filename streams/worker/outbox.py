"""Effects of a step as records on topics: key, partition, headers, bytes.

It must not decide what is sent; it knows only where each record goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from schemas.codec import headers
from schemas.dead_letter import DeadLetter
from schemas.dispatch import Dispatch
from schemas.ids import Channel, dispatch_key
from schemas.intent import IntentSuperseded
from schemas.lookup import Lookup
from schemas.partitions import partition_for
from schemas.policy import Policy, UrgencyClass
from schemas.record import TopicKind
from schemas.subject import SubjectSeen
from schemas.suppression import Suppression
from schemas.topics import TopicNames
from streams.core.effects import DispatchOrder, LookupOrder, Step, SuppressionOrder
from streams.core.state import IntentState
from streams.core.subjects import Superseded
from streams.engine.processor import Output

if TYPE_CHECKING:
    from schemas.codec import Headers

SOURCE = "backstop/worker"


class Outbox:
    """Turns effects into outputs. `partitions` is the fixed count of each topic by full name."""

    def __init__(self, names: TopicNames, partitions: Mapping[str, int]) -> None:
        self._names = names
        self._partitions = partitions
        self._decisions = names[TopicKind.DECISIONS]
        self._dispatches = {
            UrgencyClass.URGENT: names[TopicKind.DISPATCHES_URGENT],
            UrgencyClass.BULK: names[TopicKind.DISPATCHES_BULK],
        }
        self._place = cache(self._place_of)

    def _place_of(self, topic: str, key: bytes) -> int:
        return partition_for(key, self._partitions[topic])

    def decision(self, step: Step, key: bytes, partition: int) -> Output:
        decision = step.decision
        if decision is None:
            raise AssertionError("no decision to publish")
        return Output(
            self._decisions,
            partition,
            key,
            step.decision_bytes,
            headers(decision, source=SOURCE, record_id=decision.decision_id),
        )

    def dispatch(
        self,
        order: DispatchOrder,
        state: IntentState,
        policy: Policy,
        *,
        sealed: str,
        step: Step,
        partition: int,
    ) -> Output:
        """The order with the sealed payload; e-mail and SMS of an intent share its partition."""
        decision = step.decision
        if decision is None:
            raise AssertionError("a dispatch rests on a decision")
        record = Dispatch(
            decision_id=decision.decision_id,
            intent_id=state.intent_id,  # type: ignore[arg-type]
            tenant=state.tenant,
            purpose=state.purpose,
            policy=state.policy,
            template=state.template,
            channel=order.channel,
            dispatch_key=dispatch_key(state.intent_id, order.channel),
            submission_no=order.submission_no,
            provider_account=order.account,
            locale=state.locale,
            country=state.country,
            email_fingerprint=state.email_fingerprint,
            sms_fingerprint=state.sms_fingerprint,
            deadline_ms=state.deadline_ms,
            expiry_ms=state.expiry_ms,
            not_after_ms=order.not_after_ms,
            ordered_at_ms=decision.now_ms,
            unless_sms_claimed=order.unless_sms_claimed,
            after_unknown=order.after_unknown,
            key_until_ms=order.key_until_ms or None,
            sealed=sealed,
        )
        made = f"{record.dispatch_key}:{record.submission_no}"
        return Output(
            self._dispatches[policy.urgency],
            partition,
            state.intent_id.encode(),
            record.to_bytes(),
            headers(record, source=SOURCE, record_id=made),
        )

    def lookup(self, order: LookupOrder, state: IntentState, now_ms: int) -> Output:
        email = order.channel is Channel.EMAIL
        record = Lookup(
            intent_id=state.intent_id,  # type: ignore[arg-type]
            channel=order.channel,
            submission_no=order.submission_no,
            poll_no=order.poll_no,
            purpose=order.purpose,
            provider_account=order.account,
            message_id=order.message_id,
            reference=dispatch_key(state.intent_id, order.channel),
            fingerprint=state.email_fingerprint if email else state.sms_fingerprint,
            submitted_at_ms=order.submitted_ms or None,
            ordered_at_ms=now_ms,
            answer_by_ms=order.answer_by_ms,
        )
        topic, key = self._names[TopicKind.LOOKUPS], order.account.encode()
        made = f"{record.reference}:{order.submission_no}:{order.poll_no}"
        return Output(
            topic,
            self._place(topic, key),
            key,
            record.to_bytes(),
            headers(record, source=SOURCE, record_id=made),
        )

    def suppression(self, order: SuppressionOrder, *, intent_id: str, cause: str, at_ms: int) -> Output:
        record = Suppression(
            fingerprint=order.fingerprint,
            channel=order.channel,
            reason=order.reason,
            provider_account=order.account,
            intent_id=intent_id,  # type: ignore[arg-type]
            cause=cause,
            at_ms=at_ms,
        )
        topic, key = self._names[TopicKind.SUPPRESSIONS], record.key.encode()
        return Output(
            topic,
            partition_for(key, self._partitions[topic]),
            key,
            record.to_bytes(),
            headers(record, source=SOURCE, record_id=f"{cause}:{order.channel.value}"),
        )

    def subject(self, seen: SubjectSeen) -> Output:
        """To whoever keeps the subject, in the partition of its key."""
        topic, key = self._names[TopicKind.SUBJECTS], seen.key.encode()
        made = f"{seen.intent_id}:{seen.record}"
        place = partition_for(key, self._partitions[topic])
        return Output(topic, place, key, seen.to_bytes(), headers(seen, source=SOURCE, record_id=made))

    def superseded(self, over: Superseded, *, at_ms: int) -> Output:
        """To the older intent, in its own partition, where the dispatcher reads who is done."""
        record = IntentSuperseded(
            intent_id=over.intent_id,  # type: ignore[arg-type]
            by_intent_id=over.by_intent_id,  # type: ignore[arg-type]
            superseded_at_ms=at_ms,
        )
        topic, key = self._names[TopicKind.INTENTS], over.intent_id.encode()
        made = f"{over.intent_id}:{over.by_intent_id}:{record.record}"
        place = partition_for(key, self._partitions[topic])
        return Output(topic, place, key, record.to_bytes(), headers(record, source=SOURCE, record_id=made))

    def dead_letter(self, letter: DeadLetter) -> Output:
        topic = self._names[TopicKind.DEAD_LETTERS]
        # A key that is not one of our ids could be anybody's text: it is not copied.
        shown = letter.intent_id.encode() if letter.intent_id is not None else None
        place = partition_for(shown or letter.letter_id.encode(), self._partitions[topic])
        return Output(
            topic,
            place,
            shown or letter.letter_id.encode(),
            letter.to_bytes(),
            headers(letter, source=SOURCE, record_id=letter.letter_id),
        )

    def rerouted(self, topic: str, key: bytes, value: bytes | None, found: Headers) -> Output:
        """A record in a wrong partition, sent to the right one as it is, with where it came from."""
        return Output(topic, partition_for(key, self._partitions[topic]), key, value, found)
