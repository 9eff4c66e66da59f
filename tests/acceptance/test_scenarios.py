"""Every story in tests/scenarios, through the command: each ends as its file says, laws hold in all."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from compose.commands import scenario
from schemas.errors import RecordRefused

FOLDER = Path(__file__).parents[1] / "scenarios"
FILES = sorted(FOLDER.glob("*.toml"))
NAMES = [f.stem for f in FILES]
STORIES = pytest.mark.parametrize("file", FILES, ids=NAMES)
SECRETS = ("person@example.com", "+447700900123", "app.example", "t=scenario")

APP = typer.Typer()
APP.add_typer(scenario.app, name="scenario")


def told(file: Path, *options: str) -> tuple[int, str]:
    found = CliRunner().invoke(APP, ["scenario", "run", str(file), *options])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.output


@cache
def document(file: Path) -> dict[str, Any]:
    code, output = told(file, "--json")
    found: dict[str, Any] = json.loads(output)
    assert found["holds"] == (code == 0)
    return found


def altered(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "story.toml"
    file.write_text(text, "utf-8")
    return file


@STORIES
def test_a_story_ends_as_its_file_expects(file: Path) -> None:
    found = document(file)
    assert [e for e in found["expectations"] if not e["holds"]] == []
    assert found["expectations"], "a story in this folder says what it expects"


@STORIES
def test_each_channel_takes_at_most_one_message_unless_a_policy_risked_two(file: Path) -> None:
    found = document(file)
    risked = any("risk_duplicate" in (d["reason"], *d["notes"]) for d in found["decisions"])
    assert not risked or found["when_unsure"] == "risk_duplicate"
    for channel, times in found["messages"].items():
        assert len(times) <= (2 if risked else 1), channel


@STORIES
def test_nothing_is_submitted_after_expiry_or_after_the_end(file: Path) -> None:
    found = document(file)
    ends = [d["at_ms"] for d in found["decisions"] if d["closed"]]
    for call in found["ledger"]:
        assert call["at_ms"] < found["expiry_ms"]
        assert all(call["at_ms"] < end for end in ends)


@STORIES
def test_no_sms_is_claimed_early_without_a_conclusive_failure(file: Path) -> None:
    found = document(file)
    said = {r for d in found["decisions"] for r in (d["reason"], *d["notes"])}
    at_ms = found["sms_claimed_at_ms"]
    assert at_ms is None or at_ms >= found["deadline_ms"] or "conclusive_failure" in said


@STORIES
def test_an_sms_leaves_only_after_it_was_claimed(file: Path) -> None:
    found = document(file)
    for at_ms in found["messages"]["sms"]:
        assert found["sms_claimed_at_ms"] is not None
        assert at_ms >= found["sms_claimed_at_ms"]


@STORIES
def test_a_story_told_twice_is_the_same_to_the_byte_and_names_nobody(file: Path) -> None:
    for options in ((), ("--json",)):
        first, again = told(file, *options), told(file, *options)
        assert first == again
        assert not [s for s in SECRETS if s in first[1]]


def test_a_story_that_ends_otherwise_ends_with_exit_code_one(tmp_path: Path) -> None:
    text = (FOLDER / "v01-delivered.toml").read_text("utf-8").replace("sms = 0", "sms = 1")
    code, output = told(altered(tmp_path, text))
    assert code == 1
    assert "✗ sms: wanted 1, found 0" in output
    assert "does not hold: 1 of 7" in output


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('until = "20"', "/until"),
        ('until = "20 minutes"', "/until"),
        ("until = 20", "/until"),
        ('unti = "20m"', "/unti"),
        ('policy = "password_reset:v99"', "/policy"),
        ('changes = { "email.nothing" = 1 }', "email.nothing"),
        ('[email]\nsubmits = [{ answer = "acepted" }]', "/email/submits/0/answer"),
        ("[email]\nsubmits = []", "/email/submits"),
        ('[email]\nstatuses = [{ at = "3s" }]', "/email/statuses/0/token"),
        ("[email]\ncapabilities = { telepathy = true }", "/email/capabilities"),
        ('[[controls]]\nat = "1s"\npause = "planet:earth"', "/controls/0"),
        ('[[controls]]\nat = "1s"', "/controls/0"),
        ('[[faults]]\nprocess = "worker"\nfrom = "9s"\nuntil = "3s"', "/faults/0"),
        ('[[faults]]\nprocess = "printer"\nfrom = "1s"\nuntil = "3s"', "/faults/0/process"),
        ('[expect]\nreasons = ["because"]', "/expect/reasons/0"),
        ("[expect", "line 2"),
    ],
)
def test_a_wrong_file_is_refused_naming_the_place(tmp_path: Path, line: str, place: str) -> None:
    with pytest.raises(RecordRefused) as refused:
        told(altered(tmp_path, f'title = "wrong"\n{line}\n'))
    assert "story.toml" in str(refused.value)
    assert place in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordRefused, match="cannot be read"):
        told(tmp_path / "nowhere.toml")
