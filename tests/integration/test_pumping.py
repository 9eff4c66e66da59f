"""SMS pumping and races for the last unit of a budget (F16, F38), by two dispatchers as processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from compose.clock import SystemClock
from schemas.ids import Channel
from schemas.metrics import ATTEMPTS, LIMIT_MET
from schemas.reasons import Reason
from sinks.dispatcher.spend import DAY_MS
from tests.conftest import Servers
from tests.integration import pipeline_rig
from tests.integration.guard_rig import eventually
from tests.integration.pipeline_rig import Pipeline, said

DISPATCHERS = ("dispatcher", "dispatcher-1")
PUMPED, FLOOR = 300, 30
RACERS, RACES = 16, 5
ONE_US_TEXT = Decimal("0.02")
# The last 24 hours have the same floor as the hour, so that a full hour that ends meanwhile changes nothing.
BUDGETS = f"""
currency = "EUR"

[[completion]]
name = "unfinished"
per = ["country", "purpose"]
purposes = ["password_reset"]
countries = ["GB"]
floor_day = {FLOOR}
floor_hour = {FLOOR}
action = "hold"

[[spend]]
name = "one_text"
per = ["tenant"]
tenants = {[f"racer-{n:04}" for n in range(2 * RACES)]}
window = "day"
amount_max = "{ONE_US_TEXT}"
action = "hold"
"""


@pytest.fixture(scope="module")
def pipeline(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    folder = tmp_path_factory.mktemp("pumping")
    file: Path = folder / "limits.toml"
    file.write_text(BUDGETS)
    changes = {"BACKSTOP_BUDGETS_FILE": str(file)}
    dsn = stack.new_database("pump")
    with pipeline_rig.pipeline(stack.bootstrap, dsn, folder, changes, dispatchers=DISPATCHERS) as one:
        yield one


def british(number: int) -> str:
    return f"+447700900{number:03}"


def american(number: int) -> str:
    return f"+120255501{number:02}"


def met(one: Pipeline, limit: str) -> float:
    """How often this limit had no room, as a scraper of all dispatchers sees it."""
    return sum(one.metrics(name)[f'{LIMIT_MET.name}{{limit="{limit}"}}'] for name in DISPATCHERS)


def texted(one: Pipeline, intent_ids: Sequence[str]) -> list[str]:
    """Who of them got a text: one line each a message."""
    references = {f"{i}.sms" for i in intent_ids}
    took = {e["took"]: e["reference"] for e in one.rig.ledger() if e["took"] is not None}
    return [reference for reference in took.values() if reference in references]


def test_300_intents_to_one_country_without_completions_get_thirty_texts_and_the_alert_is_there_at_once(
    pipeline: Pipeline,
) -> None:
    assert met(pipeline, "unfinished") == 0.0
    pumped = [pipeline.publish(45.0, to="invalid", phone=british(n)) for n in range(PUMPED)]

    def held() -> set[str]:
        return {i for i, story in pipeline.stories().items() if Reason.BREAKER_OPEN in said(story)}

    eventually(lambda: bool(held()), within_s=60.0)
    assert met(pipeline, "unfinished") > 0.0, "counted before anybody can read that it was held"

    def each_is_decided() -> bool:
        return len(held() & set(pumped)) + len(texted(pipeline, pumped)) >= PUMPED

    eventually(each_is_decided, within_s=60.0)
    elsewhere = [pipeline.publish(20.0, to="invalid", phone=american(n)) for n in range(5)]
    eventually(lambda: len(texted(pipeline, elsewhere)) == len(elsewhere), within_s=60.0)
    assert len(texted(pipeline, pumped)) == FLOOR
    assert len(held() & set(pumped)) >= PUMPED - FLOOR
    assert met(pipeline, "unfinished") >= PUMPED - FLOOR


def test_of_the_orders_that_race_for_the_last_unit_of_a_tenants_budget_one_is_sent(
    pipeline: Pipeline,
) -> None:
    def race(tenants: Sequence[str]) -> None:
        entries = {
            tenant: [
                pipeline.publish(45.0, to="invalid", tenant=tenant, phone=american(n)) for n in range(RACERS)
            ]
            for tenant in tenants
        }

        def each_is_decided() -> bool:
            held = {i for i, s in pipeline.stories().items() if Reason.SPEND_EXHAUSTED in said(s)}
            return all(
                len(held & set(ids)) + len(texted(pipeline, ids)) >= RACERS for ids in entries.values()
            )

        eventually(each_is_decided, within_s=60.0)
        assert {tenant: len(texted(pipeline, ids)) for tenant, ids in entries.items()} == dict.fromkeys(
            tenants, 1
        )
        spent = pipeline.rig.rows(
            "SELECT scope, sum(amount) AS spent FROM sms_spend WHERE scope = ANY(%s) GROUP BY scope",
            [f"tenant={tenant}" for tenant in tenants],
        )
        assert [row["spent"] for row in spent] == [ONE_US_TEXT] * len(tenants)

    names = [f"racer-{n:04}" for n in range(2 * RACES)]
    day = SystemClock().now_ms() // DAY_MS
    try:
        race(names[:RACES])
    except AssertionError:
        if SystemClock().now_ms() // DAY_MS == day:
            raise
        race(names[RACES:])  # midnight came, and with it a new budget
    assert met(pipeline, "one_text") >= RACES * (RACERS - 1)


def test_both_dispatchers_took_part(pipeline: Pipeline) -> None:
    of_texts = f'{ATTEMPTS.name}{{channel="{Channel.SMS.value}"'
    for name in DISPATCHERS:
        assert sum(v for series, v in pipeline.metrics(name).items() if series.startswith(of_texts)) > 0
