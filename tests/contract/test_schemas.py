"""The committed contract is what the code says; regenerate with `python -m tests.contract.regenerate`."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from schemas.asyncapi import documents, records
from schemas.decision import Decision
from schemas.manifest import MANIFEST, check, manifest
from schemas.record import Record
from schemas.rows import encode, row_of
from schemas.topics import TOPICS
from tests.builders import request, started
from tests.contract import regenerate

RELEASED = Path(__file__).resolve().parents[2] / "schemas" / "released"
POLICIES = RELEASED.parent / "policies"
REMEDY = "run `python -m tests.contract.regenerate`, or give the record a new version"


@pytest.mark.parametrize("name", sorted(documents()))
def test_a_committed_document_is_what_the_code_says(name: str) -> None:
    assert (RELEASED / name).read_text("utf-8") == documents()[name], REMEDY


def test_nothing_else_lies_in_the_released_folder() -> None:
    here = {p.name for p in RELEASED.iterdir() if p.is_file() and p.suffix != ".py"}
    assert here == set(documents())


def test_every_line_of_the_manifest_holds() -> None:
    for line in (RELEASED / MANIFEST).read_text("utf-8").splitlines():
        digest, name = line.split("  ")
        assert sha256((RELEASED / name).read_bytes()).hexdigest() == digest, name


def test_a_released_policy_file_is_unchanged() -> None:
    assert check(POLICIES) is None, "a released policy never changes: release a new version"


def test_a_changed_byte_changes_the_manifest() -> None:
    assert manifest({"a": b"x"}) != manifest({"a": b"y"})


def test_generation_is_deterministic() -> None:
    assert documents() == documents()


def test_regenerating_refuses_to_change_what_was_released(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(regenerate, "SCHEMAS", tmp_path)
    (tmp_path / "policies").mkdir()
    assert regenerate.main([]) == 0
    one = tmp_path / "released" / "tick.v1.json"
    one.write_text("{}", "utf-8")
    assert regenerate.main([]) == 1
    assert "new version" in capsys.readouterr().out
    assert one.read_text("utf-8") == "{}"


@pytest.mark.parametrize("label", sorted(records()))
def test_a_schema_wants_name_and_version_and_forbids_no_new_field(label: str) -> None:
    schema = json.loads(documents()[f"{label}.json"])
    assert schema["required"][:2] == ["record", "version"]
    assert "additionalProperties" not in schema
    assert schema["properties"]["record"]["const"] == label.split(".", maxsplit=1)[0]


def test_the_document_names_every_topic_record_writer_and_reader() -> None:
    document = json.loads(documents()["asyncapi.json"])
    assert set(document["channels"]) == {kind.value for kind in TOPICS}
    assert set(document["components"]["messages"]) == set(records())
    said = set(document["operations"])
    for kind, topic in TOPICS.items():
        assert {f"{w}.send.{kind.value}" for w in topic.writers} <= said
        assert {f"{r}.receive.{kind.value}" for r in topic.readers} <= said


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        here = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return here + [r for v in node.values() for r in _references(v)]
    return [r for v in node for r in _references(v)] if isinstance(node, list) else []


def test_every_reference_in_the_document_leads_somewhere() -> None:
    document = json.loads(documents()["asyncapi.json"])
    for reference in _references(document):
        if reference.startswith("./"):
            assert reference[2:] in documents()
            continue
        place = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def test_a_row_has_the_bytes_of_the_record() -> None:
    game = started()
    game.until(60_000)
    assert len(game.decisions) == 2
    for step in game.steps:
        record = Decision.model_validate_json(step.decision_bytes)
        row = row_of(Decision)(**{n: getattr(record, n) for n in Decision.model_fields})
        assert encode(row) == step.decision_bytes
        assert record.to_bytes() == step.decision_bytes


def test_every_record_is_frozen_and_on_a_topic() -> None:
    assert all(issubclass(r, Record) and r.model_config["frozen"] for r in records().values())
    assert type(request()) in records().values()
