"""Templates and policies through the command line: made, checked, looked at, released, and then for ever."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from compose import releases
from compose.app import app
from compose.releases import ReleaseRefused
from compose.settings import Settings, policies, templates
from schemas.errors import SettingsRefused, TemplateBroken

RESET, OWN = "password_reset:v1", "password_reset__short:v1"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKSTOP_TEMPLATES_DIR", "BACKSTOP_POLICIES_DIR", "BACKSTOP_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def told(*arguments: str | Path, code: int = 0) -> Any:
    """What a command says to machines."""
    found = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    if found.exception is not None and not isinstance(found.exception, SystemExit | typer.Exit):
        raise found.exception
    assert found.exit_code == code, found.output
    return json.loads(found.stdout)


def made(shelf: Path, name: str = "welcome") -> Path:
    """A version of our own, a copy of a shipped one."""
    answer = told("template", "new", name, "--shelf", shelf, "--like", RESET)
    return Path(answer["folder"])


def test_a_new_version_is_a_copy_that_the_lint_likes(tmp_path: Path) -> None:
    folder = made(tmp_path)
    assert (folder / "en" / "sms.txt.j2").is_file()
    assert told("template", "lint", "--shelf", tmp_path) == {"welcome:v1": []}


def test_a_version_with_a_finding_is_named_and_not_released(tmp_path: Path) -> None:
    sms = made(tmp_path) / "en" / "sms.txt.j2"
    sms.write_text(sms.read_text("utf-8").replace("{{ expiry }}", "soon"), "utf-8")
    (finding,) = told("template", "lint", "welcome:v1", "--shelf", tmp_path, code=1)["welcome:v1"]
    assert (finding["file"], finding["rule"]) == ("en/sms.txt.j2", "expiry_missing")
    with pytest.raises(ReleaseRefused, match="findings"):
        told("template", "release", "welcome:v1", "--shelf", tmp_path)
    assert not (tmp_path / "MANIFEST").exists()


def test_what_is_released_is_used_and_neither_a_command_nor_a_hand_can_change_it(tmp_path: Path) -> None:
    folder, settings = made(tmp_path), Settings(templates_dir=tmp_path)
    with pytest.raises(TemplateBroken):  # nothing is released here yet
        templates(settings)
    told("template", "release", "welcome:v1", "--shelf", tmp_path)
    assert {"welcome:v1", RESET} <= templates(settings).keys()
    with pytest.raises(ReleaseRefused, match="released already"):
        told("template", "release", "welcome:v1", "--shelf", tmp_path)
    assert told("template", "new", "welcome", "--shelf", tmp_path)["version"] == "welcome:v2"
    with pytest.raises(ReleaseRefused, match="not released yet"):
        told("template", "new", "welcome", "--shelf", tmp_path)
    file = folder / "en" / "subject.txt.j2"
    before = file.read_text("utf-8")
    file.write_text(before.replace("password", "pass word"), "utf-8")
    with pytest.raises(TemplateBroken, match=r"welcome/v1/en/subject\.txt\.j2"):
        templates(settings)
    with pytest.raises(ReleaseRefused, match="were changed"):
        told("template", "release", "welcome:v2", "--shelf", tmp_path)


def test_an_unreleased_version_on_the_shelf_stops_the_start(tmp_path: Path) -> None:
    made(tmp_path)
    told("template", "release", "welcome:v1", "--shelf", tmp_path)
    told("template", "new", "welcome", "--shelf", tmp_path)
    with pytest.raises(TemplateBroken, match="welcome/v2/"):
        templates(Settings(templates_dir=tmp_path))


def test_a_preview_shows_both_channels_of_one_input(tmp_path: Path) -> None:
    out = tmp_path / "out"
    told("template", "preview", RESET, "--out", out, "--locale", "fr", "--var", "name=<b>Zoé</b>")
    page, mail, sms = ((out / n).read_text("utf-8") for n in ("index.html", "body.html", "sms.txt"))
    assert "https://app.example/r?t=preview" in sms
    assert "https://app.example/r?t=preview" in mail
    assert sms.splitlines()[0] in page.replace("&#39;", "'")
    assert "<b>Zoé" not in page + mail
    assert "script" not in page


def test_without_a_shelf_of_ones_own_nothing_is_changed() -> None:
    with pytest.raises(ReleaseRefused, match="no shelf"):
        told("template", "new", "welcome")
    with pytest.raises(ReleaseRefused, match="no shelf"):
        told("policy", "new", "password_reset__short")


@pytest.mark.parametrize("name", ["Welcome", "../evil", "a", "x" * 50])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReleaseRefused, match="named like"):
        told("template", "new", name, "--shelf", tmp_path, "--like", RESET)
    assert not list(tmp_path.iterdir())


def test_a_policy_is_made_compared_checked_released_and_then_fixed(tmp_path: Path) -> None:
    file = Path(told("policy", "new", "password_reset__short", "--shelf", tmp_path)["file"])
    file.write_text(file.read_text("utf-8").replace("deadline_ms_max = 600_000", "deadline_ms_max = 60_000"))
    apart = told("policy", "diff", RESET, OWN, "--shelf", tmp_path, code=1)
    assert apart["bounds.deadline_ms_max"] == {"first": 600_000, "second": 60_000}
    assert set(apart) == {"policy", "bounds.deadline_ms_max"}
    remarks = told("policy", "lint", OWN, "--shelf", tmp_path)[OWN]
    assert not any(remark["is_mistake"] for remark in remarks)
    told("policy", "release", OWN, "--shelf", tmp_path)
    settings = Settings(policies_dir=tmp_path)
    assert OWN in policies(settings)
    file.write_text(file.read_text("utf-8").replace("60_000", "61_000"))
    with pytest.raises(SettingsRefused, match="password_reset__short"):
        policies(settings)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("look_wait_ms = 3_000", "look_wait_ms = 20_000", "last_look_before_the_request"),
        ("expiry_ms_max = 3_600_000", "expiry_ms_max = 620_000", "no_room_for_sms"),
        ("answers_max = 20", "answers_max = 5", "look_ups_run_out"),
        ("initial_ms = 5_000", "initial_ms = 900_000", "schedule_upside_down"),
        ('template = "password_reset:v1"', 'template = "password_reset:v9"', "template_unknown"),
        ('template = "password_reset:v1"', 'template = "build_failure:v1"', "purpose_differs"),
        ('countries = ["GB", "IE", "FR", "DE", "NL", "US"]', "countries = []", "sms_to_nowhere"),
        ("allowed = true", "allowed = true\nconsent_age_ms_min = 59_999", "age_too_short"),
        ("allowed = true", "allowed = true\nconsent_age_ms_min = 31_536_000_001", "age_too_long"),
        ("allowed = true", "allowed = true\nphone_age_ms_min = 31_536_000_001", "age_too_long"),
        ("allowed = true", "allowed = false\nphone_age_ms_min = 86_400_000", "age_of_nothing"),
    ],
)
def test_numbers_that_cannot_be_meant_are_named_and_not_released(
    tmp_path: Path, field: str, value: str, rule: str
) -> None:
    file = Path(told("policy", "new", "password_reset__short", "--shelf", tmp_path)["file"])
    text = file.read_text("utf-8")
    assert field in text
    file.write_text(text.replace(field, value, 1))
    remarks = told("policy", "lint", OWN, "--shelf", tmp_path, code=1)[OWN]
    assert rule in {remark["rule"] for remark in remarks if remark["is_mistake"]}
    with pytest.raises(ReleaseRefused):
        told("policy", "release", OWN, "--shelf", tmp_path)


def test_a_retired_version_is_gone_and_its_name_is_used_up(tmp_path: Path) -> None:
    """The commands also ask the cluster who still needs it: tests/integration/test_pipeline.py."""
    folder = made(tmp_path)
    told("template", "release", "welcome:v1", "--shelf", tmp_path)
    gone = releases.retire(tmp_path, "welcome:v1")
    assert "welcome/v1/en/sms.txt.j2" in gone
    assert not folder.exists()
    assert not releases.is_released(tmp_path, "welcome:v1")
    assert templates(Settings(templates_dir=tmp_path)).keys() == templates(Settings()).keys()
    assert told("template", "new", "welcome", "--shelf", tmp_path, "--like", RESET)["version"] == "welcome:v2"
    (tmp_path / "welcome" / "v2").rename(tmp_path / "welcome" / "v1")  # by hand, under the old name
    with pytest.raises(ReleaseRefused, match="retired"):
        told("template", "release", "welcome:v1", "--shelf", tmp_path)


def test_what_was_never_released_cannot_be_retired(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ReleaseRefused, match="not released"):
        told("template", "retire", "welcome:v1", "--shelf", tmp_path)


def test_the_figures_of_a_policy_are_its_own(tmp_path: Path) -> None:
    file = Path(told("policy", "new", "password_reset__short", "--shelf", tmp_path)["file"])
    says = {r["rule"]: r["says"] for r in told("policy", "lint", OWN, "--shelf", tmp_path)[OWN]}
    assert says["look_ups"] == "deadline 600 s: 12 look-ups of the e-mail before it, and the last look"
    assert says["latest_sms"].startswith("8 s after the deadline (look_wait_ms 3 s + claim_hold_ms_max 5 s)")
    file.write_text(file.read_text("utf-8").replace("look_wait_ms = 3_000", "look_wait_ms = 4_000"))
    says = {r["rule"]: r["says"] for r in told("policy", "lint", OWN, "--shelf", tmp_path)[OWN]}
    assert says["latest_sms"].startswith("9 s after the deadline")


def test_the_ages_a_policy_demands_are_shown_and_compared(tmp_path: Path) -> None:
    file = Path(told("policy", "new", "password_reset__short", "--shelf", tmp_path)["file"])
    ages = "consent_age_ms_min = 60_000\nphone_age_ms_min = 31_536_000_000"  # the bounds themselves are meant
    file.write_text(file.read_text("utf-8").replace("allowed = true", f"allowed = true\n{ages}", 1))
    says = [r["says"] for r in told("policy", "lint", OWN, "--shelf", tmp_path)[OWN] if r["rule"] == "age"]
    assert says == [
        "no SMS unless the person agreed 60 s = 0.000694444 d before the request, or earlier",
        "no SMS unless the number was known to be theirs 31536000 s = 365 d before the request, or earlier",
    ]
    apart = told("policy", "diff", "password_reset:v1", OWN, "--shelf", tmp_path, code=1)
    assert apart["sms.consent_age_ms_min"] == {"first": 0, "second": 60_000}
    assert apart["sms.phone_age_ms_min"] == {"first": 0, "second": 31_536_000_000}


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"backstop {version('backstop')}\n"
