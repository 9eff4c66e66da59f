"""The house keeps its own rules: one name per process, small modules, no sealed thing said twice."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import typer.main

from compose.app import app
from compose.settings import Settings

ROOT = Path(__file__).parents[2]
PROCESSES = {"worker", "dispatcher", "poller", "auditor", "simulator"}
LINES_MAX = 400


def modules() -> list[Path]:
    return [p for f in ("schemas", "streams", "sinks", "compose") for p in (ROOT / f).rglob("*.py")]


def commands() -> dict[str, str]:
    """Every command with its help, groups spelled out."""
    found: dict[str, str] = {}

    def walk(command: object, name: str) -> None:
        for child, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{name} {child}".strip())
        if not hasattr(command, "commands"):
            found[name] = getattr(command, "help", "") or ""

    walk(typer.main.get_command(app), "")
    return found


def test_a_process_has_one_name_as_command_container_and_heading() -> None:
    readme = (ROOT / "README.md").read_text()
    headings = set(re.findall(r"^### (\w+)$", readme, re.MULTILINE))
    services = set(
        re.findall(
            r"^  (\w+):\n    <<: \*backstop", (ROOT / "compose/compose.yaml").read_text(), re.MULTILINE
        )
    )
    assert headings == PROCESSES
    assert set(commands()) >= PROCESSES
    assert services - {"topics", "migrate"} == PROCESSES


def test_every_command_has_help_with_an_example() -> None:
    without = [name for name, text in commands().items() if "Example: " not in text]
    assert without == []


def test_every_command_is_in_the_readme() -> None:
    table = (ROOT / "README.md").read_text().split("## Commands")[1].split("### worker")[0]
    missing = [name for name in commands() if name.split()[0] not in table]
    assert missing == []


def test_every_setting_is_explained_above_its_line() -> None:
    text = (ROOT / "compose/settings.py").read_text().split("\n")
    bare = []
    for name in Settings.model_fields:
        at = next(n for n, line in enumerate(text) if line.startswith(f"    {name}:"))
        block = at
        while text[block - 1].startswith("    ") and not text[block - 1].strip().startswith("#"):
            block -= 1
        if not text[block - 1].strip().startswith("#"):
            bare.append(name)
    assert bare == []


def test_no_module_is_over_its_size() -> None:
    assert [str(p) for p in modules() if len(p.read_text().splitlines()) > LINES_MAX] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [str(p) for p in modules() if not p.read_text().startswith('"""')] == []


def test_no_committed_file_names_a_machines_path_or_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wrong = re.compile(
        rb"(^|[^.\w])/(work|root|farm)/|(?<!emit-)index-url|https?://[^\s\"']*/(simple|maven2)/"
    )
    named = [
        name
        for name in listed.split()
        if name != "tests/tidy/test_house.py" and wrong.search((ROOT / name).read_bytes())
    ]
    assert named == []


def test_every_test_that_is_said_to_show_a_case_is_there() -> None:
    table = (ROOT / "tests/README.md").read_text().split("## Where a case")[1]
    named = re.findall(r"`([a-z_]+/[\w./-]+\.(?:py|toml))(?:::(\w+))?`", table)
    assert len(named) > 30
    for file, test in named:
        found = ROOT / "tests" / file
        assert found.is_file(), file
        assert re.search(rf"\bdef {test}\(", found.read_text()) or not test, f"{file}::{test}"
