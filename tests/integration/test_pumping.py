"""SMS pumping and races for the last unit of a budget (F16, F38), by two dispatchers as processes.

After them every process has counted something: does it reach its metrics?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from compose.clock import SystemClock
from compose.simulator.plots import plot_for
from compose.simulator.script import Answer
from schemas.decision import Phase
from schemas.ids import Channel
from schemas.metrics import (
    ATTEMPTS,
    DECISIONS,
    INPUTS,
    LIMIT_MET,
    LOOKUPS,
    PARKED,
    PENDING_S,
    ROWS,
    Metric,
)
from schemas.reasons import Reason
from sinks.dispatcher.spend import DAY_MS
from tests.conftest import Servers
from tests.integration import pipeline_rig
from tests.integration.pipeline_rig import Pipeline, said

pytestmark = pytest.mark.timeout(400)

DISPATCHERS = ("dispatcher", "dispatcher-1")
SIMULATOR_SEED = 1  # what the command takes when nobody says otherwise
PUMPED, FLOOR = 300, 30
RACERS, RACES = 16, 5
SOON_S = 100.0  # and no intent ends before; ten on an idle machine
LIFE_S = 115.0
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
        one.rig.fleet.add("auditor", "auditor")
        yield one


@pytest.fixture(scope="module")
def answered(pipeline: Pipeline) -> str:
    """An intent whose provider was asked what became of its e-mail."""
    intent_id = pipeline.publish(20.0, phone=AMERICAN[-1])
    pipeline.until_said(Phase.EMAIL_DELIVERED, intent_id, within_s=SOON_S)
    return intent_id


def taken(numbers: Iterable[str]) -> Iterator[str]:
    """Those of which the simulator takes a text: neither magic ones that it refuses, nor drawn so."""
    for number in numbers:
        plot = plot_for(number, seed=SIMULATOR_SEED)
        if plot.submits[0].answer is Answer.ACCEPT and not any(s.after_ms == 0 for s in plot.statuses):
            yield number


BRITISH = list(taken(f"+447700900{n:03}" for n in range(1_000)))
AMERICAN = list(taken(f"+120255501{n:02}" for n in range(100)))


def met(one: Pipeline, limit: str) -> float:
    """How often this limit had no room, as a scraper of all dispatchers sees it."""
    return sum(one.metrics(name)[f'{LIMIT_MET.name}{{limit="{limit}"}}'] for name in DISPATCHERS)


def total(one: Pipeline, process: str, series: str) -> float:
    """The sum over all labels of what a process counts under this beginning."""
    return sum(value for name, value in one.metrics(process).items() if name.startswith(series))


def texted(one: Pipeline, intent_ids: Sequence[str]) -> list[str]:
    """Who of them got a text: one line each a message."""
    references = {f"{i}.sms" for i in intent_ids}
    took = {e["took"]: e["reference"] for e in one.rig.ledger() if e["took"] is not None}
    return [reference for reference in took.values() if reference in references]


def test_300_intents_to_one_country_without_completions_get_thirty_texts_and_the_alert_is_there_at_once(
    pipeline: Pipeline,
) -> None:
    assert met(pipeline, "unfinished") == 0.0
    pumped = [pipeline.publish(45.0, expiry_s=LIFE_S, to="invalid", phone=BRITISH[n]) for n in range(PUMPED)]

    def held() -> set[str]:
        return {i for i, story in pipeline.stories().items() if Reason.BREAKER_OPEN in said(story)}

    pipeline.eventually(lambda: bool(held()), within_s=SOON_S)
    assert met(pipeline, "unfinished") > 0.0, "counted before anybody can read that it was held"

    def each_is_decided() -> bool:
        return len(held() & set(pumped)) + len(texted(pipeline, pumped)) >= PUMPED

    pipeline.eventually(each_is_decided, within_s=SOON_S)
    elsewhere = [pipeline.publish(45.0, expiry_s=LIFE_S, to="invalid", phone=AMERICAN[n]) for n in range(5)]
    pipeline.eventually(lambda: len(texted(pipeline, elsewhere)) == len(elsewhere), within_s=SOON_S)
    assert len(texted(pipeline, pumped)) == FLOOR
    assert len(held() & set(pumped)) >= PUMPED - FLOOR
    assert met(pipeline, "unfinished") >= PUMPED - FLOOR


def test_of_the_orders_that_race_for_the_last_unit_of_a_tenants_budget_one_is_sent(
    pipeline: Pipeline,
) -> None:
    def race(tenants: Sequence[str]) -> None:
        entries = {
            tenant: [
                pipeline.publish(45.0, expiry_s=LIFE_S, to="invalid", tenant=tenant, phone=AMERICAN[n])
                for n in range(RACERS)
            ]
            for tenant in tenants
        }

        def each_is_decided() -> bool:
            held = {i for i, s in pipeline.stories().items() if Reason.SPEND_EXHAUSTED in said(s)}
            return all(
                len(held & set(ids)) + len(texted(pipeline, ids)) >= RACERS for ids in entries.values()
            )

        pipeline.eventually(each_is_decided, within_s=SOON_S)
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
        assert total(pipeline, name, of_texts) > 0


@pytest.mark.parametrize(
    ("process", "metric"),
    [("worker", INPUTS), ("worker", DECISIONS), ("poller", LOOKUPS), ("auditor", ROWS)],
)
def test_what_a_process_counts_reaches_its_metrics(
    pipeline: Pipeline, answered: str, process: str, metric: Metric
) -> None:
    """How much it is, is exact where nothing else runs: in the unit tests of who counts."""
    assert answered
    pipeline.eventually(lambda: total(pipeline, process, metric.name) > 0)


def test_at_rest_nothing_is_parked_and_no_work_waits(pipeline: Pipeline, answered: str) -> None:
    assert answered

    def is_at_rest() -> bool:
        found = pipeline.metrics("worker")
        return (found[PARKED.name], found[PENDING_S.name]) == (0.0, 0.0)

    pipeline.eventually(is_at_rest)


@pytest.mark.parametrize("process", ["worker", *DISPATCHERS, "poller", "auditor"])
def test_a_process_that_works_says_that_it_is_ready(pipeline: Pipeline, process: str) -> None:
    pipeline.eventually(lambda: pipeline.is_ready(process))
