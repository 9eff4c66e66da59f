"""The whole pipeline as processes: what is ours to mend brings no early SMS, what is over stays over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from compose.app import app
from compose.releases import ReleaseRefused
from schemas.control import ControlAction
from schemas.decision import CloseKind, Decision, Phase
from schemas.ids import Channel
from schemas.reasons import Reason
from sinks.operator.references import live_intents
from tests.conftest import Servers
from tests.integration import pipeline_rig
from tests.integration.guard_rig import EMAIL, EMAIL_KEYED, POLICY, eventually, messages
from tests.integration.pipeline_rig import (
    BRIEF_POLICY,
    KEYED_POLICY,
    PATIENT_POLICY,
    SPARE,
    SPARE_POLICY,
    Life,
    Pipeline,
)

# The machine tries a hold again after 5 s, then 10 s later. Mended at 4 to 15 s, an e-mail is out by 15 s and
# seen delivered by 17 s; the rest is room for a busy machine.
SOON_S, LATER_S = 4.0, 32.0


@pytest.fixture(scope="module")
def pipeline(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    dsn = stack.new_database("pipe")
    with pipeline_rig.pipeline(stack.bootstrap, dsn, tmp_path_factory.mktemp("pipeline")) as one:
        yield one


# what is ours to mend


@dataclass(frozen=True, slots=True)
class Trouble:
    """Intents whose e-mail was held for a while: of some the deadline came meanwhile. `held`: how many
    e-mails and when texts had been sent when the trouble was over."""

    soon: Sequence[str]
    later: Sequence[str]
    held: Mapping[str, tuple[int, Sequence[Mapping[str, Any]]]]


@pytest.fixture(scope="module")
def trouble(pipeline: Pipeline) -> Trouble:
    """An operator pauses one account while the provider refuses our credentials at another; both mended."""
    accounts = ((POLICY, Reason.CONTROL_PAUSED), (KEYED_POLICY, Reason.CREDENTIALS_REFUSED))
    pipeline.control(EMAIL, ControlAction.PAUSE)
    pipeline.rig.tell(f"credentials/{EMAIL_KEYED}/break")
    try:
        soon = [pipeline.publish(SOON_S, policy=policy) for policy, _ in accounts]
        later = [pipeline.publish(LATER_S, policy=policy) for policy, _ in accounts]
        for at, (_, because) in enumerate(accounts):
            pipeline.until_said(because, later[at])
        eventually(lambda: all(pipeline.texts(i) for i in soon))  # past its deadline the ladder goes on
        held = {i: (messages(pipeline.emails(i)), pipeline.texts(i)) for i in [*soon, *later]}
    finally:
        pipeline.control(EMAIL, ControlAction.RESUME)
        pipeline.rig.tell(f"credentials/{EMAIL_KEYED}/mend")
    return Trouble(soon, later, held)


def test_while_email_is_in_trouble_of_ours_nobody_gets_one_nor_an_sms_before_the_deadline(
    pipeline: Pipeline, trouble: Trouble
) -> None:
    assert [trouble.held[i] for i in trouble.later] == [(0, [])] * 2
    for intent_id in trouble.soon:
        emails, (text,) = trouble.held[intent_id]
        assert emails == 0
        assert text["at_ms"] >= pipeline.asked[intent_id].deadline_ms


def test_what_was_held_goes_out_by_email_once_mended(pipeline: Pipeline, trouble: Trouble) -> None:
    pipeline.until_said(Phase.EMAIL_DELIVERED, *trouble.later)


def test_credentials_refused_to_look_ups_bring_no_sms_before_the_deadline(pipeline: Pipeline) -> None:
    """The e-mail is out and arrives; from then on nobody lets us look."""
    blind = pipeline.publish(6.0, to="slow+3s", policy=SPARE_POLICY)
    eventually(lambda: messages(pipeline.emails(blind)) == 1)
    pipeline.rig.tell(f"credentials/{SPARE}/break")
    pipeline.until_said(Reason.CREDENTIALS_REFUSED, blind)
    eventually(lambda: bool(pipeline.texts(blind)))
    (text,) = pipeline.texts(blind)
    assert text["at_ms"] >= pipeline.asked[blind].deadline_ms


# what is over


@dataclass(frozen=True, slots=True)
class Repeated:
    """An intent that was over when its request came again: what was sent (e-mails, texts) before that and
    since, and the decisions since."""

    before: tuple[int, int]
    after: tuple[int, int]
    new: Sequence[Decision]


COMPLETED = ("completed", "completed-resealed", "completed-reused")
FORGOTTEN = ("forgotten", "forgotten-reused", "forgotten-reused-with-consent")


@pytest.fixture(scope="module")
def repeated(pipeline: Pipeline) -> Mapping[str, Repeated]:
    """Lives that ended in every way, remembered or forgotten, and then their requests once more."""
    # First bytes leave until 3 s before the expiry (window 1 s, call 1.5 s, skew 0.5 s): 15 s of room.
    brief: Life = {"deadline_s": 1.0, "expiry_s": 18.0, "policy": BRIEF_POLICY}
    lives: dict[str, Life] = {
        **{case: {"deadline_s": 15.0, "expiry_s": 60.0, "policy": POLICY} for case in COMPLETED},
        "expired": brief | {"policy": PATIENT_POLICY, "consents": False},
        "forgotten": brief,
        "forgotten-reused": brief,
        "forgotten-reused-with-consent": brief | {"consents": False},
    }
    over = {case: pipeline.publish(**life, to="never") for case, life in lives.items()}

    def every_email_went_out() -> bool:
        return all(pipeline.emails(i) for i in over.values())

    eventually(every_email_went_out)
    pipeline.complete(*[over[case] for case in COMPLETED])
    pipeline.until_said(Reason.COMPLETED, *[over[case] for case in COMPLETED])
    pipeline.until_said(Reason.EXPIRED, over["expired"])
    pipeline.until_forgotten(*[over[case] for case in FORGOTTEN])
    stories = pipeline.stories()
    before = {case: (pipeline.sent(i), len(stories[i])) for case, i in over.items()}
    for case, intent_id in over.items():
        if "reused" in case:
            pipeline.use_id_again(intent_id, deadline_s=1.0)
        elif "resealed" in case:
            pipeline.seal_again(intent_id)
        else:
            pipeline.publish_again(intent_id)
    pipeline.until_read(*over.values())
    pipeline.until_past_deadline(*over.values())
    stories = pipeline.stories()
    return {
        case: Repeated(sent, pipeline.sent(over[case]), stories[over[case]][decided:])
        for case, (sent, decided) in before.items()
    }


@pytest.mark.parametrize(
    ("case", "sent"),
    [
        *[(case, (1, 0)) for case in COMPLETED],
        ("expired", (1, 0)),
        ("forgotten", (1, 1)),
        ("forgotten-reused", (1, 1)),
        ("forgotten-reused-with-consent", (1, 0)),
    ],
)
def test_a_request_published_again_once_its_intent_is_over_sends_nothing(
    repeated: Mapping[str, Repeated], case: str, sent: tuple[int, int]
) -> None:
    assert repeated[case].before == sent
    assert repeated[case].after == sent


@pytest.mark.parametrize("case", ["completed", "completed-resealed", "expired"])
def test_the_same_request_again_is_absorbed_while_its_intent_is_remembered(
    repeated: Mapping[str, Repeated], case: str
) -> None:
    assert repeated[case].new == []


def test_another_request_under_an_id_that_is_remembered_is_refused_as_a_conflict(
    repeated: Mapping[str, Repeated],
) -> None:
    (decision,) = repeated["completed-reused"].new
    assert (decision.reason, decision.closed) == (Reason.CONFLICTING_REQUEST, CloseKind.COMPLETED)
    assert decision.orders == ()


def test_the_same_request_again_after_it_was_forgotten_is_expired_at_intake(
    repeated: Mapping[str, Repeated],
) -> None:
    (decision,) = repeated["forgotten"].new
    assert (decision.reason, decision.closed) == (Reason.EXPIRED_AT_INTAKE, CloseKind.EXPIRED)
    assert decision.orders == ()


@pytest.mark.parametrize("case", ["forgotten-reused", "forgotten-reused-with-consent"])
def test_another_request_under_an_id_that_was_forgotten_is_refused_on_both_channels_by_its_claims(
    repeated: Mapping[str, Repeated], case: str
) -> None:
    """The worker cannot know; the rows of the first life stand in the database."""
    refused = [
        d.evidence.channel
        for d in repeated[case].new
        if d.evidence is not None and d.evidence.reason is Reason.CONFLICTING_REQUEST
    ]
    assert refused == [Channel.EMAIL, Channel.SMS]
    assert repeated[case].new[-1].next_phase is Phase.EXHAUSTED


# what was in trouble, at its deadline: last, as the tests between take most of the wait


def test_whoever_got_the_held_email_in_time_gets_no_sms_and_whoever_got_the_sms_gets_no_email(
    pipeline: Pipeline, trouble: Trouble
) -> None:
    pipeline.until_said(Phase.EMAIL_DELIVERED, *trouble.later)
    pipeline.until_past_deadline(*trouble.later)
    for intent_id in trouble.later:
        assert (messages(pipeline.emails(intent_id)), pipeline.texts(intent_id)) == (1, [])
    for intent_id in trouble.soon:
        assert (messages(pipeline.emails(intent_id)), len(pipeline.texts(intent_id))) == (0, 1)


# who still needs what


def test_what_live_intents_need_is_counted_and_not_retired_until_they_are_over(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def live() -> int:
        return live_intents(pipeline.settings.kafka, pipeline.settings.prefix)[SPARE_POLICY]

    one = pipeline.publish(30.0, policy=SPARE_POLICY)
    eventually(lambda: live() >= 1)
    for name, value in pipeline.rig.environment.items():
        monkeypatch.setenv(name, value)
    answer = CliRunner().invoke(app, ["template", "references", "password_reset:v1", "--json"])
    told = json.loads(answer.stdout)
    assert SPARE_POLICY in told["policies"]
    assert told["live_intents"] >= 1
    with pytest.raises(ReleaseRefused, match="live intents need"):
        CliRunner().invoke(app, ["policy", "retire", SPARE_POLICY], catch_exceptions=False)
    pipeline.complete(one)
    eventually(lambda: live() == 0, within_s=70.0)  # others of this policy end by their expiry of 60 s
