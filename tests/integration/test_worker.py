"""Real worker processes on the real broker: exactly one decision per input, whatever dies."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from pathlib import Path

from schemas.attempt import AttemptState
from schemas.decision import Decision
from schemas.ids import Channel
from schemas.observation import ProviderState
from schemas.reasons import Reason
from schemas.record import TopicKind
from streams.worker.accounting import FATES
from tests import builders
from tests.conftest import Servers
from tests.integration.workers import Deployment, deployment, wait_for

K = TopicKind
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def request(number: int, *, deadline_ms: int = 600_000, expiry_ms: int = HOUR_MS) -> tuple[bytes, bytes]:
    asked, name = now_ms(), f"int-{number:06d}"
    record = builders.request(
        intent_id=name,
        requested_at_ms=asked,
        deadline_ms=asked + deadline_ms,
        expiry_ms=asked + expiry_ms,
    )
    return name.encode(), record.to_bytes()


def accepted(number: int, channel: Channel = Channel.EMAIL) -> tuple[bytes, bytes]:
    name = f"int-{number:06d}"
    record = builders.attempt(
        now_ms() - builders.T0,
        AttemptState.ACCEPTED,
        channel,
        intent_id=name,
        attempt_id=f"{name}:{channel.value}:1:accepted",
    )
    return name.encode(), record.to_bytes()


def seen(number: int, state: ProviderState, poll: int = 1) -> tuple[bytes, bytes]:
    name = f"int-{number:06d}"
    record = builders.observation(
        now_ms() - builders.T0,
        state,
        intent_id=name,
        poll_no=poll,
        observation_id=f"{name}:email:1:{poll}",
        reason=Reason.PERMANENT_BOUNCE if state is ProviderState.FAILED_PERMANENT else None,
    )
    return name.encode(), record.to_bytes()


def check_books(one: Deployment) -> Counter[str]:
    """One decision per decided input, chains unbroken, counters exact. Returns the counters."""
    decisions = [r for r in one.records(K.DECISIONS) if isinstance(r, Decision)]
    triggers = Counter((d.trigger.topic, d.trigger.partition, d.trigger.offset) for d in decisions)
    assert max(triggers.values()) == 1, "an input was decided twice"
    by_intent: dict[str, list[int]] = {}
    for decision in decisions:
        by_intent.setdefault(decision.intent_id, []).append(decision.seq)
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in by_intent.values()), "a broken chain"
    progress, inputs = one.progress(), one.inputs()
    total: Counter[str] = Counter()
    for topic, count in inputs.items():
        counted = progress.get(topic, Counter())
        assert counted["inputs"] == count == sum(counted[f] for f in FATES), topic
        total.update(counted)
    assert total["decided"] == len(decisions)
    return total


def test_a_bounce_leads_to_one_sms_and_a_deadline_to_another(
    stack: Servers, prefix: str, tmp_path: Path
) -> None:
    with deployment(stack.bootstrap, prefix, tmp_path) as one:
        one.start("a")
        one.publish(K.INTENTS, [request(1), request(2, deadline_ms=2_000), request(3)])
        one.publish(K.ATTEMPTS, [accepted(n) for n in (1, 2, 3)])
        one.publish(
            K.OBSERVATIONS, [seen(1, ProviderState.FAILED_PERMANENT), seen(3, ProviderState.DELIVERED)]
        )

        def two_claims() -> bool:
            return sum(d.reason in _CLAIMS for d in one.records(K.DECISIONS)) == 2  # type: ignore[attr-defined]

        wait_for(two_claims)
        channels = Counter(
            (d.intent_id, d.channel.value)  # type: ignore[attr-defined]
            for d in one.records(K.DISPATCHES_URGENT)
        )
        assert channels == {
            ("int-000001", "email"): 1,
            ("int-000002", "email"): 1,
            ("int-000003", "email"): 1,
            ("int-000001", "sms"): 1,
            ("int-000002", "sms"): 1,
        }
        claims = {d.intent_id: d for d in one.records(K.DECISIONS) if d.reason in _CLAIMS}  # type: ignore[attr-defined]
        late = claims["int-000002"]
        assert isinstance(late, Decision)
        assert late.reason is Reason.DEADLINE_REACHED
        assert late.evidence_until_ms is not None
        assert one.stop() == {"a": 0}
        check_books(one)


_CLAIMS = {Reason.DEADLINE_REACHED, Reason.CONCLUSIVE_FAILURE}


def test_bad_records_become_dead_letters_and_the_worker_goes_on(
    stack: Servers, prefix: str, tmp_path: Path
) -> None:
    with deployment(stack.bootstrap, prefix, tmp_path) as one:
        one.start("a")
        canary = b"canary-person@example.com"
        one.publish(K.INTENTS, [(b"int-000001", b'{"broken": "' + canary), request(2)])
        one.publish(K.INTENTS, [(b"int-000003", b'"' + b"x" * 900_000 + b'"'), (canary, request(4)[1])])
        wait_for(one.drained)
        assert one.stop() == {"a": 0}
        total = check_books(one)
        assert (total["dead_lettered"], total["decided"]) == (3, 1)
        written = b"".join((m.value or b"") + (m.key or b"") for m in one.read(K.DEAD_LETTERS))
        assert canary not in written
        assert "canary" not in one.log("a")


def test_two_workers_and_sigkill_under_load_decide_every_input_once(
    stack: Servers, prefix: str, tmp_path: Path
) -> None:
    with deployment(stack.bootstrap, prefix, tmp_path) as one:
        one.start("a")
        one.start("b")
        stop = threading.Event()
        published = [0]

        def load() -> None:
            number = 0
            while not stop.is_set():
                batch = range(number, number + 100)
                one.publish(K.INTENTS, [request(n) for n in batch])
                one.publish(K.ATTEMPTS, [accepted(n) for n in batch])
                one.publish(K.OBSERVATIONS, [seen(n, ProviderState.DELIVERED) for n in batch])
                number += 100
                published[0] = number

        feeder = threading.Thread(target=load)
        feeder.start()
        try:
            for slot in ("a", "b", "a"):
                before = published[0]
                wait_for(lambda: published[0] >= before + 400)  # noqa: B023  called at once
                one.processes[slot].kill()
                one.processes[slot].wait()
                one.start(slot)
        finally:
            stop.set()
            feeder.join()
        wait_for(one.drained)
        assert set(one.stop().values()) == {0}
        total = check_books(one)
        assert total["inputs"] >= 3 * published[0]
        assert total["parked"] == 0


def test_a_worker_stopped_for_longer_than_its_session_writes_nothing_when_it_wakes(
    stack: Servers, prefix: str, tmp_path: Path
) -> None:
    with deployment(stack.bootstrap, prefix, tmp_path) as one:
        first = one.start("a")
        one.publish(K.INTENTS, [request(n) for n in range(200)])
        wait_for(one.drained)
        one.publish(K.ATTEMPTS, [accepted(n) for n in range(200)])
        first.send_signal(signal.SIGSTOP)
        one.start("b")
        one.publish(K.OBSERVATIONS, [seen(n, ProviderState.DELIVERED) for n in range(200)])
        wait_for(one.drained)
        decided = len(one.read(K.DECISIONS))
        first.send_signal(signal.SIGCONT)
        first_code = first.wait(30) if first.poll() is None and _ends(first) else first.poll()
        assert len(one.read(K.DECISIONS)) == decided
        assert first_code in (None, 1, 3, 5)
        one.stop()
        check_books(one)


def _ends(process: object) -> bool:
    """A zombie either rejoins as a member without old work or ends; both are right."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if process.poll() is not None:  # type: ignore[attr-defined]
            return True
        time.sleep(0.1)
    return False
