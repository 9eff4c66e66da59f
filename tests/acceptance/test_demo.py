"""The demo as a newcomer runs it: every outcome, four proofs, no secret anywhere, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from compose.local.stack import Stack
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.kafka.consumer import read_all
from tests.canaries import forms, found_in

# In every link, in every address (the plot's name is part of it), in every number.
SECRETS = ("CANARY0001", "app.example/r", "bounced-twice-1@example.com", "7700900012", "CANARY@example.com")
DEMO_S = 300.0
pytestmark = pytest.mark.timeout(420)  # whoever comes first waits for the whole run


def backstop(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command as a shell would start it, without settings of this shell."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BACKSTOP_")}
    return subprocess.Popen(
        [sys.executable, "-m", "compose.cli", *arguments, "--folder", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # A suite that was started in the background ignores Ctrl-C, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@dataclass(frozen=True)
class Ran:
    folder: Path
    run_id: str
    report: dict[str, Any]
    spoken: str
    code: int


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One quiet run, shared by the tests of this module."""
    folder = tmp_path_factory.mktemp("demo") / "stack"
    process = backstop(folder, "demo", "--json")
    out, err = process.communicate(timeout=DEMO_S)
    (run,) = (p for p in folder.iterdir() if p.name.startswith("demo"))
    return Ran(folder, run.name, json.loads(out), err, process.returncode)


def test_every_outcome_is_as_expected_and_all_four_proofs_hold(ran: Ran) -> None:
    assert [p["sentence"] for p in ran.report["proofs"] if not p["holds"]] == []
    assert ran.report["unexpected"] == []
    assert sum(row["intents"] for row in ran.report["outcomes"]) >= 200
    assert (ran.code, ran.report["holds"]) == (0, True)


def test_a_story_is_explained_after_the_stack_has_stopped(ran: Ran) -> None:
    process = backstop(ran.folder, "explain", f"{ran.run_id}-03-000", "--json")
    out, _ = process.communicate(timeout=60)
    story = json.loads(out)
    assert process.returncode == 0
    assert story["chain"].endswith("decisions verified")
    assert set(story["ages_ms"]["at the SMS claim"]) == {
        "since_email_request",
        "since_last_answer",
        "since_sms_claim",
    }
    assert any("conclusive_failure" in line["what"] for line in story["timeline"])


def test_an_unknown_intent_is_said_to_be_one_with_what_to_do(ran: Ran) -> None:
    process = backstop(ran.folder, "explain", "nobody-0001")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "nothing is audited under nobody-0001" in err
    assert "what to do" in err


def test_no_planted_secret_is_in_any_topic_log_table_or_error(ran: Ran) -> None:
    leaks: list[str] = []

    def look(where: str, text: bytes) -> None:
        leaks.extend(f"{where}: {secret}" for secret in found_in(text, SECRETS))

    look("standard error", ran.spoken.encode())
    look("report", json.dumps(ran.report).encode())
    for log in (ran.folder / ran.run_id).glob("*.log"):
        look(log.name, log.read_bytes())
    stack = Stack(ran.folder)
    stack.start()
    try:
        names = TopicNames(f"{ran.run_id}.")
        for topic in (*(names[k] for k in TopicKind), *names.changelogs):
            for message in read_all(stack.bootstrap, topic):
                if message.headers or message.value or message.key:
                    parts = [message.key or b"", message.value or b"", *(v for _, v in message.headers)]
                    if not _is_planted_garbage(names, message.topic, message.key):
                        look(f"{topic}/{message.offset}", b"\n".join(parts))
        for table, text in _tables(stack.dsn):
            look(table, text)
    finally:
        stack.stop()
    assert leaks == []


def _is_planted_garbage(names: TopicNames, topic: str, key: bytes | None) -> bool:
    """The demo itself publishes records with secrets in clear to intents; it must stay there."""
    return topic == names[TopicKind.INTENTS] and (key is None or key.startswith(b"garbage-"))


def _tables(dsn: str) -> Iterator[tuple[str, bytes]]:
    with psycopg.connect(dsn) as connection:
        names = [
            r[0]
            for r in connection.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
            )
        ]
        for name in names:
            rows = connection.execute(f'SELECT row_to_json(t)::text FROM "{name}" t'.encode()).fetchall()
            yield name, "\n".join(r[0] for r in rows).encode()


def test_the_search_itself_finds_a_planted_secret_in_every_form() -> None:
    for secret in SECRETS:
        assert len(set(forms(secret))) >= 3
        for text in (secret.encode(), b64encode(b"xy" + secret.encode() + b"zzz")):
            assert found_in(b"before " + text + b" after", [secret]) == [secret]


def test_ctrl_c_stops_everything_and_leaves_no_process_behind(tmp_path: Path) -> None:
    process = backstop(tmp_path / "stack", "demo")
    assert process.stderr is not None
    for line in process.stderr:
        if "waiting for the processes" in line:
            break
    time.sleep(1.0)  # somewhere in the middle of the processes' start
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 3
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    _, alive = psutil.wait_procs(children, timeout=10)
    assert [p.name() for p in alive] == []
