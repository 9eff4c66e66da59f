"""Postgres stopped under a running pipeline: nothing leaves unclaimed, and everything resumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from schemas.decision import Phase
from schemas.metrics import NOT_SENT
from schemas.reasons import Reason
from tests.conftest import Servers
from tests.integration import pipeline_rig
from tests.integration.guard_rig import messages
from tests.integration.pipeline_rig import Pipeline

SENT = {"due": (1, 0), "new": (0, 0)}


@dataclass(frozen=True, slots=True)
class Outage:
    """`due`: its e-mail was out and its deadline came while Postgres was away. `new`: requested meanwhile.
    `away`: what had been sent (e-mails, texts) when it came back."""

    pipeline: Pipeline
    due: str
    new: str
    away: dict[str, tuple[int, int]]
    held: float


@pytest.fixture(scope="module")
def outage(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outage]:
    dsn = stack.new_database("away")
    with pipeline_rig.pipeline(stack.bootstrap, dsn, tmp_path_factory.mktemp("away")) as one:
        due = one.publish(6.0, to="never", expiry_s=100.0)
        one.eventually(lambda: messages(one.emails(due)) == 1)
        stack.database.stop()
        try:
            new = one.publish(60.0, expiry_s=100.0)
            one.until_said(Reason.GUARD_UNAVAILABLE, due, new)
            away = {"due": one.sent(due), "new": one.sent(new)}
            held = one.metrics("dispatcher")[
                f'{NOT_SENT.name}{{channel="sms",reason="{Reason.GUARD_UNAVAILABLE.value}"}}'
            ]
        finally:
            stack.database.start()
        yield Outage(one, due, new, away, held)


def test_while_postgres_is_away_neither_sms_nor_email_leaves(outage: Outage) -> None:
    assert outage.away == SENT


def test_what_is_held_meanwhile_shows_in_a_metric(outage: Outage) -> None:
    assert outage.held >= 1.0


def test_once_it_is_back_the_sms_that_was_due_goes_out_once(outage: Outage) -> None:
    outage.pipeline.eventually(lambda: messages(outage.pipeline.texts(outage.due)) == 1)
    outage.pipeline.until_read(outage.due)
    assert outage.pipeline.sent(outage.due) == (1, 1)


def test_once_it_is_back_the_email_that_waited_goes_out_and_no_sms_follows(outage: Outage) -> None:
    outage.pipeline.until_said(Phase.EMAIL_DELIVERED, outage.new)
    outage.pipeline.until_read(outage.new)
    assert outage.pipeline.sent(outage.new) == (1, 0)
