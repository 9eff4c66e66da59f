"""Does every refusal of a command say what to do, end with its documented code, and show no trace."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from compose.app import app, run
from compose.commands.publish import instant, now
from compose.output import AWAY, DOES_NOT_HOLD, FAULT, OK, REFUSED, show, waiting_for
from schemas.errors import RecordRefused

BOUNCE = "tests/scenarios/v05-bounce.toml"
SECRET = "hunter2hunter2"
NOWHERE = f"postgresql://somebody:{SECRET}@127.0.0.1:1/backstop"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this shell, and a Kafka address that refuses at once."""
    monkeypatch.setenv("BACKSTOP_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("BACKSTOP_KAFKA", "127.0.0.1:1")
    for name in ("BACKSTOP_POSTGRES", "BACKSTOP_CONFIG", "BACKSTOP_ACCOUNTS_FILE", "BACKSTOP_POLICIES_DIR"):
        monkeypatch.delenv(name, raising=False)


class Called:
    """`backstop <arguments>` in this process: its exit code, what it printed and what it said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["backstop", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        out, err = self._capsys.readouterr()
        return int(ended.value.code or 0), out, err


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Called:
    return Called(monkeypatch, capsys)


REFUSALS = {
    "a missing scenario": (["scenario", "run", "nowhere.toml"], "there is no such file"),
    "a file that is no scenario": (["scenario", "run", "README.md"], "is not TOML"),
    "a folder as a scenario": (["scenario", "run", "tests"], "cannot be read"),
    "keys under a file": (["keys", "generate", "--out", "README.md/keys"], "cannot be written"),
    "a simulator without a token": (["simulator", "--token-file", "nowhere"], "holds no token"),
    "migrating without an address": (["migrate"], "BACKSTOP_POSTGRES is not set"),
    "explaining without an address": (["explain", "reset-7f0c1b52", "--folder", "nowhere"], "is not set"),
    "explaining from a folder that is no stack": (
        ["explain", "reset-7f0c1b52", "--folder", "tests"],
        "is not set",
    ),
    "a folder no file system takes": (["up", "--folder", "x" * 400], "File name too long"),
    "publishing without keys": (["publish", "completion", "reset-7f0c1b52"], "publisher.json"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_wrong_is_named_with_a_remedy_and_no_trace(name: str, called: Called) -> None:
    arguments, sentence = REFUSALS[name]
    code, out, err = called(*arguments)
    assert (code, out) == (REFUSED, "")
    assert sentence in err
    assert "what to do: " in err
    assert "Traceback" not in err


def test_explaining_makes_no_database_where_there_was_none(called: Called, tmp_path: Path) -> None:
    called("explain", "reset-7f0c1b52", "--folder", str(tmp_path))
    assert not (tmp_path / "postgres").exists()


@pytest.mark.parametrize("arguments", [["migrate"], ["explain", "reset-7f0c1b52"]], ids=lambda a: a[0])
def test_a_database_that_is_away_is_code_3_and_its_password_is_not_shown(
    arguments: list[str], called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTOP_POSTGRES", NOWHERE)
    code, _, err = called(*arguments)
    assert code == AWAY
    assert "cannot be reached" in err
    assert SECRET not in err


def test_a_connection_string_that_is_none_is_refused_without_being_quoted(
    called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTOP_POSTGRES", SECRET)
    code, _, err = called("migrate")
    assert code == REFUSED
    assert "not a libpq connection string" in err
    assert SECRET not in err


def test_the_trace_of_a_fault_is_redacted(called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("no mail for ada@example.com")

    monkeypatch.setattr("compose.commands.keys.files.generate", breaks)
    monkeypatch.setattr("compose.app.log.hasHandlers", lambda: False)
    code, _, err = called("keys", "generate")
    assert code == FAULT
    assert "no mail for [address]" in err
    assert "what to do: " in err


def test_keys_that_are_there_are_kept_and_the_remedy_is_another_folder(
    called: Called, tmp_path: Path
) -> None:
    assert called("keys", "generate", "--out", str(tmp_path / "k"))[0] == OK
    before = (tmp_path / "k" / "letters.json").read_bytes()
    code, _, err = called("keys", "generate", "--out", str(tmp_path / "k"))
    assert code == REFUSED
    assert "--out" in err
    assert (tmp_path / "k" / "letters.json").read_bytes() == before


def test_a_port_in_use_is_refused_before_the_simulator_starts(called: Called, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("word")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = called("simulator", "--port", port, "--token-file", str(token))
    assert code == REFUSED
    assert "--port" in err


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("BACKSTOP_CONFIG", "nowhere.toml", "cannot be read as TOML"),
        ("BACKSTOP_POLICIES_DIR", "nowhere", "is not a folder"),
        ("BACKSTOP_PARTITIONS", "many", "valid integer"),
        ("BACKSTOP_NOPE", "1", "no such setting"),
    ],
)
def test_a_wrong_setting_is_named(
    name: str, value: str, sentence: str, called: Called, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called("keys", "generate", "--out", str(tmp_path / "keys"))
    monkeypatch.setenv(name, value)
    code, _, err = called("publish", "completion", "reset-7f0c1b52")
    assert code == REFUSED
    assert sentence in err


def test_an_unknown_name_in_the_settings_file_is_called_one(
    called: Called, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text('kafak = "127.0.0.1:9092"\n')
    monkeypatch.setenv("BACKSTOP_CONFIG", str(tmp_path / "config.toml"))
    code, _, err = called("topics", "acl")
    assert code == REFUSED
    assert "kafak: no such setting" in err


JSON = (["topics", "acl"], ["scenario", "run", BOUNCE], ["keys", "generate"])


@pytest.mark.parametrize("arguments", JSON, ids=lambda a: a[0])
def test_json_is_one_document(
    arguments: list[str], called: Called, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = Path.cwd()
    if arguments[0] == "keys":
        monkeypatch.chdir(tmp_path)
    code, out, _ = called(*arguments, "--json")
    monkeypatch.chdir(root)
    assert code == OK
    assert isinstance(json.loads(out), dict)


def test_doctor_names_each_finding_with_its_remedy_beside_it(
    called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.kafka.admin.CALL_S", 0.2)
    monkeypatch.setenv("BACKSTOP_POSTGRES", NOWHERE)
    code, out, _ = called("doctor")
    lines = out.splitlines()
    failed = [n for n, line in enumerate(lines) if line.startswith("FAIL")]
    assert code == DOES_NOT_HOLD
    assert [lines[n].split(":")[0].split()[1] for n in failed] == ["keys", "Kafka", "topics", "Postgres"]
    assert all(lines[n + 1].startswith("      what to do: ") for n in failed)
    assert "every line above" not in out
    assert "keys: keys:" not in out
    assert SECRET not in out


def test_doctor_says_the_same_as_one_document(called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.kafka.admin.CALL_S", 0.2)
    _, out, _ = called("doctor", "--json")
    assert {f["check"] for f in json.loads(out)["findings"]} >= {"settings", "keys", "Kafka", "Postgres"}


def test_an_instant_without_a_zone_is_refused_in_words_of_the_shell() -> None:
    with pytest.raises(RecordRefused, match="with its zone"):
        instant("2026-12-01T10:00:00", since=now(), name="deadline")


def test_brackets_in_a_result_are_not_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show("accounts[0] and [expect] and [red]")
    assert capsys.readouterr().out == "accounts[0] and [expect] and [red]\n"


def test_a_long_wait_says_what_for_and_a_short_one_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting_for("a short one", silent_s=60.0):
        pass
    with waiting_for("Kafka", silent_s=0.0) as told:
        told.join()
    assert capsys.readouterr().err == "waiting for Kafka …\n"


def groups(command: Any, name: str = "backstop") -> dict[str, str]:
    """Every group of commands below the root with its help."""
    inner = getattr(command, "commands", {})
    found = {name: command.help or ""} if inner else {}
    for child, one in inner.items():
        found |= groups(one, f"{name} {child}")
    return found


def test_every_group_has_an_example_too() -> None:
    texts = groups(typer.main.get_command(app))
    del texts["backstop"]
    assert len(texts) == 9
    assert [name for name, text in texts.items() if "Example: " not in text] == []


def test_the_entry_point_loads_no_command_before_it_can_be_interrupted() -> None:
    program = "import sys, compose.cli; print('compose.app' in sys.modules, 'typer' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False False\n"
