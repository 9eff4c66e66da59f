"""Does `backstop publish intent` put into the record what was typed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from compose import keys
from compose.app import run
from compose.commands import publish
from compose.output import OK, REFUSED
from schemas.intent import IntentRequested
from sinks.kafka.producer import OutgoingRecord

Said = tuple[int, str]
AGREED, AGREED_MS = "2026-11-30T10:00:00Z", 1_796_032_800_000
VERIFIED, VERIFIED_MS = "2026-11-30T12:00:00+01:00", 1_796_036_400_000
INTENT = (
    "publish", "intent", "--policy", "password_reset:v1", "--email", "ada@example.com", "--var", "name=Ada",
    "--var", "link=https://app.example/r?t=1", "--phone", "+447700900012",
)  # fmt: skip


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[OutgoingRecord]:
    """What would have gone to Kafka."""
    kept: list[OutgoingRecord] = []

    class Kept:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def publish(self, records: Sequence[OutgoingRecord]) -> None:
            kept.extend(records)

    keys.generate(tmp_path / "keys")
    monkeypatch.setenv("BACKSTOP_KEYS", str(tmp_path / "keys"))
    for name in ("BACKSTOP_CONFIG", "BACKSTOP_POLICIES_DIR", "BACKSTOP_TEMPLATES_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(publish, "Publisher", Kept)
    return kept


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def call(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["backstop", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        return int(ended.value.code or 0), capsys.readouterr().err

    return call


def only(sent: list[OutgoingRecord]) -> IntentRequested:
    (one,) = sent
    return IntentRequested.model_validate_json(one.value or b"")


def test_consent_and_number_have_the_instants_that_were_typed(
    sent: list[OutgoingRecord], called: Callable[..., Said]
) -> None:
    """A policy may demand an age of both."""
    assert called(*INTENT, "--consent-at", AGREED, "--phone-verified-at", VERIFIED)[0] == OK
    record = only(sent)
    assert record.sms_consent is not None
    assert (record.sms_consent.granted_at_ms, record.phone_verified_at_ms) == (AGREED_MS, VERIFIED_MS)


def test_without_them_there_is_no_consent_and_the_number_is_not_known(
    sent: list[OutgoingRecord], called: Callable[..., Said]
) -> None:
    assert called(*INTENT)[0] == OK
    assert (only(sent).sms_consent, only(sent).phone_verified_at_ms) == (None, None)


def test_consent_just_now_is_that_of_the_request(
    sent: list[OutgoingRecord], called: Callable[..., Said]
) -> None:
    assert called(*INTENT, "--consent")[0] == OK
    consent = only(sent).sms_consent
    assert consent is not None
    assert consent.granted_at_ms == only(sent).requested_at_ms


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--consent", "--consent-at", AGREED), "not both"),
        (("--consent-at", "2m"), "consent_at is an instant"),
        (("--phone-verified-at", "2026-11-30T10:00:00"), "phone_verified_at is"),
    ],
    ids=["both", "a span", "no zone"],
)
def test_what_is_no_instant_of_the_past_is_refused_by_name(
    sent: list[OutgoingRecord], called: Callable[..., Said], options: tuple[str, ...], told: str
) -> None:
    code, err = called(*INTENT, *options)
    assert (code, sent) == (REFUSED, [])
    assert told in err
