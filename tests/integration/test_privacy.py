"""Is what was sealed nowhere else, at DEBUG, while every layer raises and the provider goes wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from schemas.record import TopicKind
from tests.acceptance.crash.points import POINTS
from tests.acceptance.crash.process import RAISE, struck
from tests.canaries import found_in
from tests.conftest import Servers
from tests.integration import pipeline_rig
from tests.integration.guard_rig import eventually
from tests.integration.pipeline_rig import Pipeline

pytestmark = [pytest.mark.proof, pytest.mark.timeout(300)]

NAME, TOKEN = "Canaria Birdsong", "t0psecretcanary7"
VARIABLES = {"link": f"https://app.example/r?t={TOKEN}", "name": NAME}
PLOTS = ("delivered", "never", "bounce", "invalid", "html", "error", "badtext", "lost", "unauthorised")
MANY, EVERY = 99, 10  # numbers of the rig; looks of `eventually`, half a second
PROCESSES = ("worker", "dispatcher", "poller", "auditor")


@dataclass(frozen=True, slots=True)
class Case:
    pipeline: Pipeline
    raised: dict[str, set[str]]
    places: dict[str, bytes]


@pytest.fixture(scope="module")
def case(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    dsn = stack.new_database("privacy")
    folder = tmp_path_factory.mktemp("privacy")
    with pipeline_rig.pipeline(stack.bootstrap, dsn, folder, {"BACKSTOP_LOG_LEVEL": "DEBUG"}) as one:
        for process in PROCESSES:
            _instead(one, process, folder)
        plots, turns = itertools.cycle(PLOTS), itertools.count()

        def every_layer_has_raised() -> bool:
            one.rig.fleet.tend()
            # What raises next needs something to do, in whichever life it is.
            if next(turns) % EVERY == 0 and len(one.given) < MANY:
                one.publish(4.0, to=next(plots), expiry_s=110.0, variables=VARIABLES)
            return all(_raised(folder, process) == POINTS[process] for process in PROCESSES)

        eventually(every_layer_has_raised, within_s=120.0)
        eventually(lambda: _is_audited(one), within_s=60.0)
        yield Case(one, {process: _raised(folder, process) for process in PROCESSES}, one.kept())


def _instead(one: Pipeline, process: str, folder: Path) -> None:
    """The test build in place of the product's: it raises once at each of its boundaries, life after life."""
    fleet = one.rig.fleet
    if process in fleet.members:
        fleet.kill(process)
    plan = [part for point in sorted(POINTS[process]) for part in ("--at", f"{point}:1:{RAISE}")]
    mark = str(folder / f"{process}.mark")
    fleet.add(process, process, "--mark", mark, *plan, module="tests.acceptance.crash.process")


def _raised(folder: Path, process: str) -> set[str]:
    return {one["point"] for one in struck(folder / f"{process}.mark")}


def _is_audited(one: Pipeline) -> bool:
    """Whether the audit has an attempt of somebody on each plot."""
    one.rig.fleet.tend()
    with psycopg.connect(one.rig.dsn) as connection:
        query = "SELECT DISTINCT intent_id FROM audit WHERE record = 'attempt'"
        seen = {intent for (intent,) in connection.execute(query)}
    return {one.given[i].email.partition("+")[0] for i in seen if i in one.given} == set(PLOTS)


def test_every_boundary_of_every_process_has_raised(case: Case) -> None:
    assert case.raised == {process: set(POINTS[process]) for process in PROCESSES}
    logs = b"".join(held for place, held in case.places.items() if place.endswith(".log"))
    assert logs.count(b"RaisedOnPurpose") >= sum(map(len, case.raised.values()))


def test_nothing_sealed_is_in_any_topic_table_or_log(case: Case) -> None:
    one, places = case.pipeline, case.places
    assert places["audit"], "the search found something to search"
    assert places["claims"]
    assert places[one.names[TopicKind.DISPATCHES_URGENT]]
    secrets = [NAME, TOKEN, "app.example/r"]
    for given in one.given.values():
        secrets += [given.email, given.email.partition("@")[0], str(given.phone), str(given.phone)[1:]]
    found = {place: found_in(held, secrets) for place, held in places.items()}
    assert {place: secrets for place, secrets in found.items() if secrets} == {}
