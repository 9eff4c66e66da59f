"""Does `backstop budget show` say what the guard would say, in words, as JSON and by its exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compose.app import run
from compose.output import AWAY, DOES_NOT_HOLD, OK, REFUSED
from schemas.budget import parse
from schemas.ids import Channel
from schemas.reasons import Reason
from sinks.dispatcher.claims import PostgresClaims
from sinks.dispatcher.rules import Grant
from sinks.postgres.migrate import migrate
from sinks.postgres.pool import Database
from tests.contract.claims_guard import COST, order

BUDGETS = """
currency = "EUR"

[[spend]]
name = "all_day"
per = []
window = "day"
amount_max = "0.25"
action = "hold"

[[spend]]
name = "british_day"
per = ["country"]
countries = ["GB"]
window = "day"
amount_max = "1"
action = "record"

[[velocity]]
name = "range_day"
per = ["range"]
window = "day"
count_max = 4
action = "hold"

[[velocity]]
name = "instant_day"
per = ["tenant"]
window = "day"
count_max = 8
instant_only = true
action = "hold"

[[completion]]
name = "undone"
per = ["purpose"]
purposes = ["password_reset"]
floor_day = 10
floor_hour = 10
action = "refuse"
"""
Said = tuple[int, str, str]


@pytest.fixture
def budget(
    fresh_dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Said]:
    """`backstop budget …` on a migrated database, with limits of its own."""
    migrate(fresh_dsn)
    (tmp_path / "budgets.toml").write_text(BUDGETS)
    monkeypatch.setenv("BACKSTOP_POSTGRES", fresh_dsn)
    monkeypatch.setenv("BACKSTOP_BUDGETS_FILE", str(tmp_path / "budgets.toml"))

    def call(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["backstop", "budget", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return call


def send(dsn: str, count: int, *, first: int = 0, instant: bool = False) -> None:
    database = Database(dsn)
    claims = PostgresClaims(database, parse(BUDGETS, name="budgets"))
    for number in range(first, first + count):
        asked = order(
            1,
            Channel.SMS,
            intent_id=f"int-{number:04}-test",
            claim_id=f"c-{number}",
            cost=replace(COST, is_instant=instant),
        )
        assert isinstance(claims.claim(asked), Grant)
    claims.write_facts(
        closed=[(f"int-{first:04}-test", Reason.COMPLETED)], suppressed=[], lifted=[], progress={}
    )
    database.close()


def by_limit(text: str) -> dict[str, dict[str, object]]:
    found = json.loads(text)
    assert found["currency"] == "EUR"
    return {f"{one['limit']}/{one['window']}": one for one in found["limits"]}


def test_before_anything_was_sent_the_limit_of_all_is_open(budget: Callable[..., Said]) -> None:
    code, out, _ = budget("show")
    assert code == OK
    assert "all_day (spend, hold)" in out
    assert "open            0 %  0.00 EUR of 0.25 EUR  day  all" in out


def test_each_scope_is_shown_with_what_is_used_and_how_full_it_is(
    budget: Callable[..., Said], fresh_dsn: str
) -> None:
    send(fresh_dsn, 3)
    code, out, _ = budget("show", "--json")
    assert code == OK
    found = by_limit(out)
    assert found["all_day/day"] == {
        "limit": "all_day",
        "kind": "spend",
        "scope": "all",
        "window": "day",
        "used": "0.15",
        "at_most": "0.25",
        "percent": 60,
        "action": "hold",
        "state": "warning",
    }
    assert (found["british_day/day"]["scope"], found["british_day/day"]["percent"]) == ("country=GB", 15)
    assert (found["range_day/day"]["used"], found["range_day/day"]["state"]) == ("3", "warning")
    assert (found["undone/day"]["used"], found["undone/hour"]["at_most"]) == ("2", "10")
    assert "instant_day/day" not in found  # nothing was sent before its deadline
    _, out, _ = budget("show")
    assert "over 50 %      60 %  0.15 EUR of 0.25 EUR  day  all" in out
    assert "2 without a completion, closed at 10  day  purpose=password_reset" in out


def test_a_limit_that_is_reached_is_closed_and_the_exit_code_says_so(
    budget: Callable[..., Said], fresh_dsn: str
) -> None:
    send(fresh_dsn, 4, instant=True)
    code, out, _ = budget("show", "--json")
    assert code == DOES_NOT_HOLD
    found = by_limit(out)
    assert (found["range_day/day"]["state"], found["range_day/day"]["percent"]) == ("closed", 100)
    assert found["instant_day/day"]["used"] == "4"
    assert found["all_day/day"]["state"] == "warning"  # room for one more of the cheapest


def test_a_file_of_limits_that_cannot_be_used_is_refused_by_name(
    budget: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "budgets.toml").write_text(BUDGETS.replace('"hold"', '"shout"', 1))
    code, _, err = budget("show")
    assert code == REFUSED
    assert "budgets_file" in err
    assert "action" in err
    (tmp_path / "budgets.toml").write_text(BUDGETS.replace("EUR", "USD"))
    code, _, err = budget("show")
    assert code == REFUSED
    assert "limits are in USD, prices in EUR" in err
    monkeypatch.setenv("BACKSTOP_BUDGETS_FILE", str(tmp_path / "nowhere.toml"))
    assert budget("show")[0] == REFUSED


def test_a_database_that_is_away_is_said_to_be(
    budget: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTOP_POSTGRES", "postgresql://somebody@127.0.0.1:1/backstop")
    assert budget("show")[0] == AWAY
