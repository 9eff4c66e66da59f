"""Scenario files on the real thing: the same stories, ten times as fast, through real processes.

Each story gets accounts and a policy of its own, and its provider's script becomes a rule of the simulator.
What came of it is read from the decision topic and the provider's ledger and put back on the story's clock,
so that the same verdict is asked as of the virtual play. It must not hold an expectation.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from compose import keys
from compose import settings as configuration
from compose.clock import SystemClock
from compose.releases import put_policies
from compose.scenario.format import LookupKind, ProviderScript, Scenario, Submit, SubmitAnswer, parse
from compose.scenario.play import CAPABILITIES, ZERO_MS, Played, variables_of
from compose.scenario.provider import LedgerLine
from compose.settings import Settings
from schemas.codec import decode
from schemas.decision import Decision
from schemas.errors import RecordRefused
from schemas.ids import Channel
from schemas.policy import Policy
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.kafka import admin
from sinks.kafka.consumer import read_all
from sinks.kafka.producer import Publisher
from sinks.publisher import IntentPublisher, NewIntent
from tests.integration.guard_rig import Rig, eventually, rig
from tests.integration.pipeline_rig import GROUPS, SETTLE_S

SCALE = 10  # a minute is six seconds
ROOM_MS = 10_000  # of the story: one second of reality, in which any machine decides and looks
LATE_EVIDENCE_MS = 4_000  # nobody waits ten minutes for the end of a grace
DEFAULT_EMAIL, DEFAULT_PHONE = "person@example.com", "+447700900123"

_S, _L = SubmitAnswer, LookupKind
_SUBMITS = {
    _S.ACCEPTED: "accept",
    _S.LOST: "lose",
    _S.VANISHED: "vanish",
    _S.THROTTLED: "throttle",
    _S.INVALID: "invalid_recipient",
    _S.SUPPRESSED: "suppressed",
    _S.OPTED_OUT: "opted_out",
    _S.CONTENT: "content_refused",
    _S.CREDENTIALS: "unauthorized",
}
_LOOKUPS = {
    _L.STATUSES: "accept",
    _L.THROTTLED: "throttle",
    _L.UNAVAILABLE: "unavailable",
    _L.MALFORMED: "html",
    _L.NOT_FOUND: "not_found",
    _L.CREDENTIALS: "unauthorized",
}


def stories(folder: Path) -> dict[str, Scenario]:
    """Those that can be told in real time: no process goes down, and nothing happens within `ROOM_MS` of an
    instant that matters."""
    found = {
        file.stem: parse(file.read_text("utf-8"), name=file.name) for file in sorted(folder.glob("*.toml"))
    }
    return {name: story for name, story in found.items() if _why_not(story) is None}


def _why_not(story: Scenario) -> str | None:
    intent = story.intent
    if story.faults or story.controls or intent.again_at:
        return "faults, controls and repeats have tests of their own"
    if story.others:
        return "a second intent has a test of its own (test_supersession)"
    if intent.email != DEFAULT_EMAIL:
        return "the address is part of the story"
    submits = [s for side in (story.email, story.sms) for s in side.submits]
    asked = [a for side in (story.email, story.sms) for a in side.lookups]
    if any(s.answer is SubmitAnswer.UNREACHABLE for s in submits):
        return "a server that answers cannot be unreachable"
    if any(
        "GMT" in (wait or "") for wait in [s.retry_after for s in submits] + [a.retry_after for a in asked]
    ):
        return "a date of the story's clock"
    moments = [m.at for m in (*story.completions, *story.cancellations)]
    moments += [s.at for side in (story.email, story.sms) for s in side.statuses]
    moments += [s.after for s in submits if s.after]
    if any(b.at - a.at < ROOM_MS for side in (story.email, story.sms) for a, b in pairwise(side.statuses)):
        return "a status that nobody may have seen"
    answers = [s.answer for s in story.email.submits]
    if SubmitAnswer.CREDENTIALS in answers and SubmitAnswer.ACCEPTED in answers:
        return "a hold is tried again after 5 s and 10 s, on any clock"
    if SubmitAnswer.VANISHED in answers:
        return "a lease and the second «not found» are no faster"
    if any(m.at < 2 * ROOM_MS for m in (*story.completions, *story.cancellations)):
        return "over before a busy machine has sent anything"
    if story.expect is not None and Reason.POLL_BUDGET_SPENT in story.expect.reasons:
        return "nobody waits for an hour of grace"
    fixed = (intent.deadline, intent.expiry)
    if any(abs(m - f) < ROOM_MS for m in moments for f in fixed):
        return "something happens too close to an instant that matters"
    return None


@dataclass(slots=True)
class Told:
    """A story under way."""

    tag: str  # short enough for the names of accounts and policies
    story: Scenario
    policy: Policy
    begun_ms: int = 0
    refused: str | None = None

    @property
    def intent_id(self) -> str:
        return f"story-{self.tag}"


def play(told: Mapping[str, Scenario], bootstrap: str, dsn: str, folder: Path) -> dict[str, Played]:
    """All of them at once; back when every one is over. Takes their longest life, 90 s and its grace."""
    cast = {
        name: Told(tag := f"s{number:02d}", story, _policy(tag, story))
        for number, (name, story) in enumerate(told.items())
    }
    with rig(bootstrap, dsn, folder, more=lambda where: _write(where, cast)) as one:
        settings = Settings.model_validate(
            {k.removeprefix("BACKSTOP_").lower(): v for k, v in one.environment.items()}
        )
        names = TopicNames(settings.prefix)
        admin.create(settings.kafka, admin.Layout(names, settings.partitions, 1, 1))
        for process in ("worker", "dispatcher", "poller"):
            one.fleet.add(process, process)
        asking = admin.Groups(settings.kafka)
        eventually(lambda: asking.settled([f"{settings.prefix}{g}" for g in GROUPS]), within_s=SETTLE_S)
        _tell_simulator(one, cast)
        raw = Publisher(settings.kafka, client_id="stories")
        _live(cast, _service(settings, names, raw), lambda: _decisions(settings, names))
        assert raw.close() == 0
        return _read(one, settings, names, cast)


def _service(settings: Settings, names: TopicNames, raw: Publisher) -> IntentPublisher:
    held = keys.publisher_keys(settings.keys)
    return IntentPublisher(
        names,
        publisher=raw,
        sealing=held.sealing,
        fingerprints=held.fingerprints,
        policies=configuration.policies(settings),
    )


# before


def _policy(tag: str, story: Scenario) -> Policy:
    """The story's policy on the faster clock, with accounts of its own."""
    fields = story.played_policy.model_dump(mode="json")

    def faster(place: dict[str, Any]) -> None:
        for key, value in place.items():
            if isinstance(value, dict):
                faster(value)
            elif "_ms" in key and isinstance(value, int):
                place[key] = value // SCALE

    faster(fields)
    fields["policy"] = f"{fields['purpose']}__{tag}:v1"
    fields["late_evidence_ms"] = min(fields["late_evidence_ms"], LATE_EVIDENCE_MS)
    for channel in ("email", "sms"):
        fields[channel]["account"] = _account(tag, channel)
        fields[channel]["poll"]["answer_within_ms"] = max(1_500, fields[channel]["poll"]["answer_within_ms"])
    return Policy.model_validate(fields, strict=False)


def _account(tag: str, channel: str) -> str:
    return f"story-{tag}-{channel}"


def _write(folder: Path, cast: Mapping[str, Told]) -> None:
    accounts, token = folder / "accounts.toml", str(folder / "keys" / "simulator.token")
    url = accounts.read_text().split('base_url = "', 1)[1].split('"', 1)[0]
    made = ""
    for one in cast.values():
        for channel, script in (("email", one.story.email), ("sms", one.story.sms)):
            can = CAPABILITIES | script.capabilities
            can["visibility_delay_ms"] //= SCALE
            fields = {
                "name": _account(one.tag, channel),
                "provider": "simulated",
                "channel": channel,
                "base_url": url,
                "credential_file": token,
                "capabilities": can | {"lookups_per_s": 100.0},
            }
            made += f"[[accounts]]\n{_toml(fields)}\n"
        document = one.policy.model_dump(mode="json", exclude_none=True)
        put_policies(folder / "policies", {one.policy.policy: _toml(document)})
    accounts.write_text(made + accounts.read_text())


def _toml(table: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in table.items())


def _value(value: Any) -> str:
    """JSON is TOML but for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def _tell_simulator(one: Rig, cast: Mapping[str, Told]) -> None:
    rules = [
        {"account": _account(told.tag, channel), "plot": _plot(script)}
        for told in cast.values()
        for channel, script in (("email", told.story.email), ("sms", told.story.sms))
    ]
    body = json.dumps({"rules": rules}).encode()
    with urlopen(Request(f"{one.url}/admin/rules", data=body, method="POST"), timeout=10) as answer:
        assert json.load(answer) == {"rules": len(rules)}


def _plot(script: ProviderScript) -> dict[str, Any]:
    return {
        "submits": [_submit(s) for s in script.submits],
        "statuses": [[s.at // SCALE, s.token, s.reason] for s in script.statuses],
        "lookups": [{"answer": _LOOKUPS[a.answer], **_wait(a.retry_after)} for a in script.lookups],
    }


def _submit(step: Submit) -> dict[str, Any]:
    return {
        "answer": _SUBMITS[step.answer],
        "working_ms": (step.after or 0) // SCALE,
        **_wait(step.retry_after),
    }


def _wait(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    if text.strip().isdecimal():
        return {"retry_after_s": int(text) // SCALE}
    return {"retry_after_text": text}


# meanwhile


def _live(
    cast: Mapping[str, Told], service: IntentPublisher, decisions: Callable[[], Mapping[str, list[Decision]]]
) -> None:
    acts: list[tuple[int, Callable[[], object]]] = []
    base_s, base_ms = time.monotonic(), SystemClock().now_ms()
    for number, told in enumerate(cast.values()):
        story = told.story
        told.begun_ms = base_ms
        new = _new(told, number)
        acts.append((story.intent.requested, partial(_request, service, new, told)))
        for moments, say in ((story.completions, service.complete), (story.cancellations, service.cancel)):
            acts += [(m.at, partial(_say_now, say, told.intent_id)) for m in moments]
    for at_ms, act in sorted(acts, key=lambda pair: pair[0]):
        time.sleep(max(0.0, base_s + at_ms / SCALE / 1000 - time.monotonic()))
        act()
    longest_ms = max(t.story.intent.expiry // SCALE + t.policy.late_evidence_ms for t in cast.values())

    def all_are_over() -> bool:
        closed = {i for i, ds in decisions().items() if any(d.closed is not None for d in ds)}
        return all(t.intent_id in closed or t.refused is not None for t in cast.values())

    eventually(all_are_over, within_s=longest_ms / 1000 + 20.0)


def _say_now(say: Callable[..., object], intent_id: str) -> None:
    say(intent_id, at=_at(SystemClock().now_ms()), source="story")


def _request(service: IntentPublisher, new: NewIntent, told: Told) -> None:
    try:
        service.publish(new)
    except RecordRefused as exc:
        told.refused = exc.code


def _new(told: Told, number: int) -> NewIntent:
    intent, begun_ms = told.story.intent, told.begun_ms
    phone = f"+4477009001{number:02d}" if intent.phone == DEFAULT_PHONE else intent.phone
    return NewIntent(
        intent_id=told.intent_id,
        tenant=intent.tenant,
        policy=told.policy.policy,
        locale=intent.locale,
        email=f"person-{told.tag}@example.com",
        phone=phone or None,
        variables=variables_of(told.story),
        challenge_ref="story-challenge",
        requested_at=_at(begun_ms),
        deadline=_at(begun_ms + intent.deadline // SCALE),
        expiry=_at(begun_ms + intent.expiry // SCALE),
        sms_consent_at=_at(begun_ms) if intent.consent else None,
    )


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


# afterwards


def _decisions(settings: Settings, names: TopicNames) -> dict[str, list[Decision]]:
    found: dict[str, list[Decision]] = defaultdict(list)
    for message in read_all(settings.kafka, names[TopicKind.DECISIONS]):
        decision = decode(TopicKind.DECISIONS, message.key, message.value)
        assert isinstance(decision, Decision)
        found[decision.intent_id].append(decision)
    return found


def _read(one: Rig, settings: Settings, names: TopicNames, cast: Mapping[str, Told]) -> dict[str, Played]:
    decided = _decisions(settings, names)
    letters = [m.key for m in read_all(settings.kafka, names[TopicKind.DEAD_LETTERS])]
    found = {}
    for name, told in cast.items():
        played = Played(told.story, refused=told.refused)
        played.decisions = [
            d.model_copy(update={"now_ms": _story_ms(d.now_ms, told)}) for d in decided[told.intent_id]
        ]
        played.ledger = list(_ledger(one, told))
        played.dead_letters = letters.count(told.intent_id.encode())
        found[name] = played
    return found


def _ledger(one: Rig, told: Told) -> Iterator[LedgerLine]:
    for channel in Channel:
        for entry in one.ledger(f"{told.intent_id}.{channel.value}"):
            took = None if entry["replayed"] else entry["took"]
            yield LedgerLine(_story_ms(entry["at_ms"], told), channel, entry["answered"], took)


def _story_ms(at_ms: int, told: Told) -> int:
    return ZERO_MS + (at_ms - told.begun_ms) * SCALE
