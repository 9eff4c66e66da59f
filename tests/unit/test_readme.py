"""Does what the README shows to a service developer run as it stands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer.main

from compose import keys
from compose.app import app
from compose.settings import Settings
from schemas.codec import decode
from schemas.intent import IntentCompleted, IntentRequested
from schemas.policy import released
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.publisher import IntentPublisher

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


class Kept(Publisher):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.taken: list[OutgoingRecord] = []

    def publish(self, records: Sequence[OutgoingRecord]) -> None:
        self.taken += records


def test_the_example_of_a_service_publishes_an_intent_and_completes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys.generate(tmp_path)
    held, kept, names = keys.publisher_keys(tmp_path), Kept(), TopicNames()

    def connect(_settings: Settings) -> IntentPublisher:
        return IntentPublisher(
            names, publisher=kept, sealing=held.sealing, fingerprints=held.fingerprints, policies=released()
        )

    monkeypatch.setattr("compose.commands.publish.publisher", connect)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    read = [decode(TopicKind.INTENTS, one.key, one.value) for one in kept.taken]
    assert [type(record) for record in read] == [IntentRequested, IntentCompleted]


def test_the_commands_of_the_shell_examples_exist_with_their_options() -> None:
    shown = re.findall(r"^\$ (backstop (?:.*\\\n)*.*)$", README, re.MULTILINE)
    assert shown
    for line in shown:
        name, *words = shlex.split(line.replace("\\\n", " "))
        command = typer.main.get_command(app)
        while words and hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(name, words)  # raises on an unknown option or a missing one
