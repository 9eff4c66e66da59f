"""Does the contract suffice for a service in Node, that shares no code with us, on the real stack."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from compose.clock import SystemClock, random_id
from compose.commands.demo import free_port
from compose.keys import PUBLISHER
from compose.sample.challenges import Challenges
from compose.sample.page import PATH, create_app
from compose.simulator.server import Server
from schemas.codec import decode
from schemas.dead_letter import DeadLetter
from schemas.decision import CloseKind, Decision, Phase
from schemas.intent import IntentRequested
from schemas.partitions import partition_for
from schemas.reasons import Reason
from schemas.record import TopicKind
from sinks.kafka.consumer import read_all
from tests.canaries import forms
from tests.conftest import Servers
from tests.contract.test_sample_page import FORM
from tests.integration import pipeline_rig
from tests.integration.guard_rig import POLICY, eventually
from tests.integration.pipeline_rig import Pipeline, now

HERE = Path(__file__).parents[1] / "publishers" / "node"
VECTORS = Path(__file__).parents[2] / "schemas" / "publishers" / "vectors.json"
NAME = "node-publisher"
RUN_S = 30.0


def missing() -> str:
    """What keeps the publisher from running here; empty when nothing does."""
    node = shutil.which("node")
    if node is None:
        return "Node is not on this machine (20 or newer is needed): the Node publisher is not tested"
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(said.removeprefix("v").partition(".")[0]) < 20:
        return f"Node 20 or newer is needed, here is {said.strip()}: the Node publisher is not tested"
    if not (HERE / "node_modules" / "kafkajs").is_dir():
        return "the Node publisher's packages are not installed: run `make node`"
    return ""


WHY = missing()
pytestmark = pytest.mark.skipif(bool(WHY), reason=WHY)


def node(script: str, *arguments: str, given: str = "") -> str:
    """What a script prints; it must not fail."""
    found = subprocess.run(
        ["node", str(HERE / script), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@dataclass
class Service:
    """A service in Node beside the real processes."""

    pipeline: Pipeline
    challenges: Challenges
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    at: dict[str, dict[str, int]] = field(default_factory=dict)
    token: str = ""

    def publish(self, *records: Mapping[str, Any]) -> list[dict[str, int]]:
        """Where each record lies."""
        asked = {
            "kafka": self.pipeline.settings.kafka,
            "topic": self.pipeline.names[TopicKind.INTENTS],
            "keys": str(self.pipeline.settings.keys / PUBLISHER),
            "records": records,
        }
        return [json.loads(line) for line in node("publish.mjs", given=json.dumps(asked)).splitlines()]

    def id_of(self, name: str) -> str:
        return str(self.asked[name]["intent_id"])

    def decisions(self, intent_id: str) -> list[Decision]:
        return list(self.pipeline.stories().get(intent_id, ()))


def asked(to: str, *, deadline_s: int = 20, **changes: Any) -> dict[str, Any]:
    """A request of this service: everything in clear, as it would hold it."""
    at_ms, intent_id = int(now().timestamp() * 1000), f"node-{random_id()[:12]}"
    return {
        "intent_id": intent_id,
        "tenant": "tenant-node",
        "purpose": "password_reset",
        "policy": POLICY,
        "locale": "en",
        "country": "GB",
        "email": f"{to}+{intent_id}@Example.COM",
        "phone": "+447700900077",
        "variables": {"link": f"https://app.example/r?t=node-canary-{intent_id}", "name": "Zoé"},
        "subject": f"account-{intent_id}",
        "sms_consent": {"granted_at_ms": at_ms - 86_400_000, "text_ref": "consent-3"},
        "challenge_ref": f"challenge-{random_id()[:8]}",
        "requested_at_ms": at_ms,
        "deadline_ms": at_ms + deadline_s * 1000,
        "expiry_ms": at_ms + 60_000,
    } | changes


@pytest.fixture(scope="module")
def service(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Everything is published at once, so that the tests wait together."""
    dsn = stack.new_database("node")
    with pipeline_rig.pipeline(stack.bootstrap, dsn, tmp_path_factory.mktemp("node")) as one:
        made = Service(one, Challenges(SystemClock()), wanted := requests())
        bounced = wanted["bounced"]
        challenge = made.challenges.make(bounced["intent_id"], expiry_ms=bounced["expiry_ms"])
        bounced["challenge_ref"], made.token = challenge.ref, challenge.token
        bounced["variables"]["link"] = f"https://app.example{PATH}?t={challenge.token}"
        made.at = dict(zip(wanted, made.publish(*wanted.values(), wanted["repeated"]), strict=False))
        yield made


def requests() -> dict[str, dict[str, Any]]:
    """What Node publishes: three that are taken, two that are refused, and one that nobody can read."""
    found = {name: asked("delivered") for name in ("delivered", "repeated", "too far", "elsewhere")}
    found["too far"]["expiry_ms"] += 86_400_000
    found["elsewhere"]["variables"]["link"] = "https://app.example@evil.example/"
    return found | {"bounced": asked("bounce"), "unreadable": asked("delivered", country=None)}


def test_node_comes_to_the_same_as_the_vectors() -> None:
    said = node("check.mjs", str(VECTORS)).splitlines()
    assert len(said) == 6
    assert all(line.endswith("as the vectors say") for line in said)


def test_an_intent_of_node_is_taken_sent_and_completed(service: Service) -> None:
    intent_id = service.id_of("delivered")
    partitions = service.pipeline.settings.partitions
    assert service.at["delivered"]["partition"] == partition_for(intent_id.encode(), partitions)
    service.pipeline.until_said(Phase.EMAIL_DELIVERED, intent_id)
    service.publish(
        {
            "record": "intent_completed",
            "version": 1,
            "intent_id": intent_id,
            "completed_at_ms": int(now().timestamp() * 1000),
            "source": "reset-form",
        }
    )
    service.pipeline.until_said(Reason.COMPLETED, intent_id)
    first, last = service.decisions(intent_id)[0], service.decisions(intent_id)[-1]
    assert (first.reason, first.publisher) == (Reason.INTAKE, NAME)
    assert last.closed is CloseKind.COMPLETED
    assert service.pipeline.sent(intent_id) == (1, 0)


def test_a_bounced_intent_of_node_goes_by_sms_until_a_person_presses_the_button(service: Service) -> None:
    """The page of the sample service completes it, through our own publisher."""
    intent_id, port = service.id_of("bounced"), free_port()
    service.pipeline.until_said(Phase.SMS_DELIVERED, intent_id)
    complete, origin = service.pipeline.complete, f"http://127.0.0.1:{port}"
    with Server(create_app(service.challenges, complete, origin=origin), port), httpx.Client() as browser:
        link = f"{origin}{PATH}?t={service.token}"
        scanned = browser.head(link), browser.get(link)
        assert [answer.status_code for answer in scanned] == [200, 200]
        form = FORM.search(scanned[1].text)
        assert form is not None
        fields = {"t": service.token, "form": form[1]}
        browser.post(f"{origin}{PATH}", data=fields, headers={"origin": origin}).raise_for_status()
    service.pipeline.until_said(Reason.COMPLETED, intent_id)
    assert service.decisions(intent_id)[-1].closed is CloseKind.COMPLETED
    assert service.pipeline.sent(intent_id) == (1, 1)


def test_the_same_request_sealed_again_by_node_is_absorbed(service: Service) -> None:
    intent_id = service.id_of("repeated")
    service.pipeline.until_said(Phase.EMAIL_DELIVERED, intent_id)
    assert service.pipeline.sent(intent_id) == (1, 0)
    assert Reason.CONFLICTING_REQUEST not in {d.reason for d in service.decisions(intent_id)}


def test_a_refusal_is_told_to_node_by_name_with_a_pointer(service: Service) -> None:
    far, elsewhere = service.id_of("too far"), service.id_of("elsewhere")
    service.pipeline.until_said(Reason.OUT_OF_BOUNDS, far)
    service.pipeline.until_said(Reason.INVALID_VARIABLES, elsewhere)
    told = [service.decisions(intent_id)[-1] for intent_id in (far, elsewhere)]
    assert [(d.publisher, d.pointer) for d in told] == [(NAME, "/expiry_ms"), (NAME, "/sealed")]
    assert [service.pipeline.sent(intent_id) for intent_id in (far, elsewhere)] == [(0, 0), (0, 0)]


def test_a_record_nobody_can_read_is_a_dead_letter_that_names_node_and_the_field(service: Service) -> None:
    intent_id, letters = service.id_of("unreadable"), dict[str, DeadLetter]()

    def it_is_told() -> bool:
        found = read_all(service.pipeline.settings.kafka, service.pipeline.names[TopicKind.DEAD_LETTERS])
        every = [DeadLetter.model_validate_json(m.value or b"") for m in found]
        letters.update({letter.by: letter for letter in every if letter.intent_id == intent_id})
        return "worker" in letters

    eventually(it_is_told)
    told = letters["worker"]
    assert (told.reason, told.publisher, told.pointer) == (Reason.INVALID_FIELD, NAME, "/country")


def test_nothing_that_node_sealed_is_readable_on_the_topic(service: Service) -> None:
    names = service.pipeline.names.of([TopicKind.INTENTS, TopicKind.DECISIONS, TopicKind.DEAD_LETTERS])
    held = [m for name in names for m in read_all(service.pipeline.settings.kafka, name)]
    assert sum(isinstance(decode(TopicKind.INTENTS, m.key, m.value), IntentRequested) for m in held) >= 6
    secrets = [
        secret
        for one in service.asked.values()
        for secret in (one["email"], one["phone"], one["variables"]["link"], one["subject"])
    ]
    found = [s for s in [*secrets, service.token] for f in forms(s) for m in held if f in (m.value or b"")]
    assert found == []
