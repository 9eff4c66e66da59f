"""The lint of template versions: each planted mistake is found by its rule, and what is released has none."""

from __future__ import annotations

import shutil
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from schemas.templates.lint import lint
from schemas.templates.registry import versions

SHIPPED = Path(str(files("schemas.templates").joinpath("catalog")))
FAULTS = sorted((Path(__file__).parents[1] / "faulty" / "templates").glob("*.toml"))
BASE = "password_reset:v1"


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """A version without a mistake, to make one in."""
    return Path(shutil.copytree(SHIPPED / "password_reset" / "v1", tmp_path / "v1"))


@pytest.mark.parametrize(("ref", "folder"), list(versions(SHIPPED)), ids=lambda given: str(given))
def test_what_ships_has_no_finding(ref: str, folder: Path) -> None:
    assert lint(ref, folder) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.stem)
def test_a_planted_mistake_is_found_by_its_rule_and_its_file(version: Path, fault: Path) -> None:
    told = tomllib.loads(fault.read_text("utf-8"))
    file = version / told["file"]
    if told.get("delete"):
        file.unlink()
    else:
        before = file.read_text("utf-8")
        assert told["find"] in before
        file.write_text(before.replace(told["find"], told["replace"]), "utf-8")
    found = lint(BASE, version)
    assert told["rule"] in {one.rule for one in found}
    places = {one.place for one in found if one.rule == told["rule"]}
    assert places & {told["file"], told["file"].split("/")[0], "fr-CA"}


def test_a_finding_quotes_no_value_and_says_where(version: Path) -> None:
    (version / "en" / "sms.txt.j2").write_text("{{ sender", "utf-8")
    assert [(one.place, one.rule) for one in lint(BASE, version)] == [("en/sms.txt.j2", "syntax")]


@pytest.mark.parametrize("text", ["", "purpose = 7", "a = [[[", "\x00", "says = {}"])
def test_a_broken_document_is_a_finding_and_never_a_trace(version: Path, text: str) -> None:
    (version / "template.toml").write_text(text, "utf-8")
    assert {one.place for one in lint(BASE, version)} == {"template.toml"}
    assert lint(BASE, version)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"properties": 3}', '{"properties": {"a": 3}}', "[" * 100_000]
)
def test_a_broken_contract_is_a_finding_and_never_a_trace(version: Path, text: str) -> None:
    (version / "variables.schema.json").write_text(text, "utf-8")
    assert "variables.schema.json" in {one.place for one in lint(BASE, version)}
