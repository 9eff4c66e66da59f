"""Is what was sealed under a destroyed key unreadable everywhere, and is its intent still told and ended."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compose import keys
from compose import settings as configuration
from schemas.codec import decode
from schemas.decision import Phase
from schemas.errors import SealError, SealKeyShredded, SealKeyUnknown
from schemas.intent import IntentRequested
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.sealed import Binding, Payload, UnsealingKeys, unseal
from sinks.kafka.consumer import read_all
from sinks.publisher import IntentPublisher
from tests.canaries import forms
from tests.conftest import Servers
from tests.integration import pipeline_rig
from tests.integration.guard_rig import eventually, messages
from tests.integration.pipeline_rig import Pipeline

pytestmark = pytest.mark.proof

LIVE_S = 25.0  # long enough to turn two dispatchers' worth of starts before the SMS is due


@dataclass(frozen=True, slots=True)
class Shredded:
    """`live` had its e-mail out and its SMS to come when the key went; `unsent` had nothing out; `fresh` came
    after, under the new key."""

    pipeline: Pipeline
    live: str
    unsent: str
    fresh: str


@pytest.fixture(scope="module")
def shredded(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shredded]:
    dsn = stack.new_database("shred")
    with pipeline_rig.pipeline(stack.bootstrap, dsn, tmp_path_factory.mktemp("shred")) as one:
        one.rig.fleet.add("auditor", "auditor")
        live = one.publish(LIVE_S, to="never")
        eventually(lambda: messages(one.emails(live)) == 1)
        _end_dispatcher(one)
        unsent = one.publish(LIVE_S)
        assert "s2" in one.backstop("keys", "rotate").stdout
        said = one.backstop("keys", "shred", "s1", "--yes").stdout
        assert "s1 was destroyed" in said
        one.rig.fleet.start("dispatcher")
        one.service = _service(one)
        fresh = one.publish(LIVE_S)
        one.until_said(Phase.EMAIL_DELIVERED, fresh)
        one.until_said(Reason.KEY_SHREDDED, live, unsent, within_s=LIVE_S + 30.0)
        yield Shredded(one, live, unsent, fresh)


def _end_dispatcher(one: Pipeline) -> None:
    process = one.rig.fleet.members["dispatcher"].process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    process.wait(20.0)


def _service(one: Pipeline) -> IntentPublisher:
    """A service that was given the new publisher.json."""
    held = keys.publisher_keys(one.settings.keys)
    assert held.sealing.key_id == "s2"
    return IntentPublisher(
        one.names,
        publisher=one.raw,
        sealing=held.sealing,
        fingerprints=held.fingerprints,
        policies=configuration.policies(one.settings),
    )


def test_a_live_intent_under_it_ends_with_that_reason_and_nothing_more_is_sent(shredded: Shredded) -> None:
    one, stories = shredded.pipeline, shredded.pipeline.stories()
    for intent_id, sent in ((shredded.live, (1, 0)), (shredded.unsent, (0, 0))):
        last = stories[intent_id][-1]
        assert last.next_phase in (Phase.CLOSED, Phase.EXHAUSTED)
        assert one.sent(intent_id) == sent


def test_intents_under_the_new_key_are_sent(shredded: Shredded) -> None:
    assert shredded.pipeline.sent(shredded.fresh) == (1, 0)


@pytest.mark.parametrize("which", ["live", "unsent"])
def test_explain_still_tells_the_intent_and_why_it_ended(shredded: Shredded, which: str) -> None:
    intent_id = getattr(shredded, which)

    def told() -> str:
        return shredded.pipeline.backstop("explain", intent_id, "--why", "ticket 4711").stdout

    eventually(lambda: "key_shredded" in told() and "decisions verified" in told())
    assert "Sealed under a key that was destroyed" in told()


def test_no_envelope_on_any_topic_opens_any_more(shredded: Shredded) -> None:
    """Neither with the file as it is nor with its list of destroyed keys taken out."""
    one = shredded.pipeline
    fields = json.loads((one.settings.keys / keys.DISPATCHER).read_text())
    ring, bare = keys.dispatcher_keys(one.settings.keys).unsealing, UnsealingKeys(fields["unsealing"])
    seen = set()
    for m in read_all(one.settings.kafka, one.names[TopicKind.INTENTS]):
        asked = decode(TopicKind.INTENTS, m.key, m.value)
        if not isinstance(asked, IntentRequested):
            continue
        seen.add(asked.intent_id)
        if asked.intent_id == shredded.fresh:
            assert isinstance(_opened(asked, ring), Payload)
            continue
        assert isinstance(_opened(asked, ring), SealKeyShredded)
        assert isinstance(_opened(asked, bare), SealKeyUnknown)
    assert seen == {shredded.live, shredded.unsent, shredded.fresh}


def _opened(asked: IntentRequested, ring: UnsealingKeys) -> Payload | SealError:
    binding = Binding(
        asked.intent_id,
        asked.tenant,
        asked.purpose,
        asked.policy,
        asked.deadline_ms,
        asked.expiry_ms,
        asked.email_fingerprint,
        asked.sms_fingerprint,
    )
    try:
        return unseal(asked.sealed, binding, ring)
    except SealError as exc:
        return exc


def test_neither_topics_nor_database_nor_commands_nor_logs_show_the_payload(shredded: Shredded) -> None:
    one = shredded.pipeline
    places = one.kept()
    places["explain"] = one.backstop("explain", shredded.live, "--json").stdout.encode()
    places["keys"] = one.backstop("keys", "list").stdout.encode()
    assert places["audit"], "the search found something to search"
    assert places[one.names[TopicKind.DISPATCHES_URGENT]]
    secrets = [one.given[i].email for i in (shredded.live, shredded.unsent)]
    secrets += [str(one.given[i].phone) for i in (shredded.live, shredded.unsent)]
    secrets += [one.given[shredded.live].variables["link"]]
    found = [(p, s) for p, held in places.items() for s in secrets for f in forms(s) if f in held]
    assert found == []
