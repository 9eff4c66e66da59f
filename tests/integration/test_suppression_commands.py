"""Does the list do what an operator asks, on the real topic and guard, and keep no address on the way."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from compose import keys
from compose.app import run
from compose.output import DOES_NOT_HOLD, OK, REFUSED
from schemas.attempt import AttemptState
from schemas.ids import Channel
from schemas.intent import IntentRequested
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.topics import TOPICS, TopicNames
from sinks.postgres.migrate import migrate
from tests import builders, canaries
from tests.conftest import Servers
from tests.integration.conftest import MakeTopics
from tests.integration.dispatcher_rig import KINDS, Rig
from tests.orders import EMAIL, PHONE, PRINTS, PUBLIC

S = Channel.SMS
WHY = ("--why", "ticket 4711")
Said = tuple[int, str, str]


@pytest.fixture
def rig(stack: Servers, prefix: str, make_topics: MakeTopics, fresh_dsn: str) -> Iterator[Rig]:
    make_topics(*(TOPICS[kind].name("") for kind in KINDS))
    migrate(fresh_dsn)
    made = Rig(stack.bootstrap, TopicNames(prefix), fresh_dsn)
    try:
        made.start_facts()
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def suppression(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Said]:
    """`backstop suppression …` of the deployment of the rig; `typed` on standard input."""
    prints = {"current": "k1", "keys": {"k1": b64encode(b"1" * 32).decode()}}
    keys.write(tmp_path / keys.PUBLISHER, {"sealing": PUBLIC, "fingerprint": prints})
    for name, value in (
        ("KEYS", str(tmp_path)),
        ("KAFKA", rig.bootstrap),
        ("PREFIX", rig.names.prefix),
        ("POSTGRES", rig.dsn),
    ):
        monkeypatch.setenv(f"BACKSTOP_{name}", value)

    def call(*arguments: str, typed: str = "") -> Said:
        source = tmp_path / "typed"
        source.write_text(typed)
        monkeypatch.setattr(sys, "argv", ["backstop", "suppression", *arguments])
        with source.open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            with pytest.raises(SystemExit) as ended:
                run()
        source.unlink()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return call


def refused(rig: Rig, name: str, channel: Channel = Channel.EMAIL) -> bool:
    """Whether an order to the person of `tests.orders` is refused as suppressed; else it was sent."""
    found = rig.answer(rig.order(channel=channel, intent_id=f"int-{name}-test"))
    assert found.state is AttemptState.ACCEPTED or found.reason is Reason.SUPPRESSED
    return found.reason is Reason.SUPPRESSED


def entries(said: Said) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said[1])["entries"]
    return found


def test_who_was_put_on_the_list_by_hand_gets_nothing_on_that_channel_until_taken_off(
    rig: Rig, suppression: Callable[..., Said]
) -> None:
    """Case F34: in whatever spelling it was typed."""
    code, out, _ = suppression("add", *WHY, typed="Canary@EXAMPLE.com\n")
    assert (code, "the guard has it" in out) == (OK, True)
    assert refused(rig, "first")
    assert not refused(rig, "other", S)
    (one,) = entries(suppression("check", "--json", *WHY, typed="canary@Example.COM"))
    assert (one["suppressed"], one["reason"], one["why"]) == (True, "suppressed_by_hand", "ticket 4711")
    code, _, _ = suppression("remove", "--reason", "listed_by_mistake", *WHY, typed="canary@example.com")
    assert code == OK
    assert not refused(rig, "later")


@pytest.mark.parametrize("other", ["canary+tag@example.com", "canary@example.org", "anary@example.com"])
def test_another_persons_address_does_not_match(
    rig: Rig, suppression: Callable[..., Said], other: str
) -> None:
    assert suppression("add", *WHY, typed=other)[0] == OK
    assert not refused(rig, "first")


@pytest.mark.parametrize(
    "text", ["c\u0131nary@example.com", " canary@example.com", "canary@example.com.", ""]
)
def test_what_is_not_plainly_one_address_is_refused_and_not_quoted(
    suppression: Callable[..., Said], text: str
) -> None:
    code, out, err = suppression("add", *WHY, typed=text)
    assert (code, out) == (REFUSED, "")
    assert "nary" not in err


def test_after_a_stop_only_a_later_consent_is_a_way_back(rig: Rig, suppression: Callable[..., Said]) -> None:
    """Case F36, and a STOP that was told on the telephone."""
    number = PHONE.reveal()
    assert suppression("add", "--reason", "opted_out", *WHY, typed=number)[0] == OK
    assert refused(rig, "stop1", S)
    code, _, err = suppression("remove", "--reason", "listed_by_mistake", *WHY, typed=number)
    assert (code, "later consent" in err) == (REFUSED, True)
    assert refused(rig, "stop2", S)
    rig.publish(TopicKind.INTENTS, consenting(rig, "agreed", later=False))
    assert refused(rig, "stop3", S)
    rig.publish(TopicKind.INTENTS, consenting(rig, "again", later=True))
    assert not refused(rig, "open1", S)
    code, out, _ = suppression("check", *WHY, typed=number)
    assert (code, "sms: not suppressed" in out, "is later" in out) == (OK, True, True)
    assert suppression("add", "--reason", "opted_out", *WHY, typed=number)[0] == OK
    assert refused(rig, "stop4", S)
    assert suppression("remove", "--reason", "consent_given", *WHY, typed=number)[0] == OK
    assert not refused(rig, "open2", S)


def consenting(rig: Rig, name: str, *, later: bool) -> IntentRequested:
    """A request whose person agreed before, or after, everything so far."""
    now_ms = rig.clock.now_ms()
    one = builders.request(intent_id=f"int-{name}-0001")
    assert one.sms_consent is not None
    at_ms = now_ms if later else rig.t0 - 1
    consent = one.sms_consent.model_copy(update={"granted_at_ms": at_ms})
    return one.model_copy(
        update={"sms_fingerprint": PRINTS.of(PHONE), "sms_consent": consent, "requested_at_ms": now_ms}
    )


def test_a_file_with_a_rejected_line_is_not_partly_applied(
    rig: Rig, suppression: Callable[..., Said], tmp_path: Path
) -> None:
    file = tmp_path / "list.csv"
    file.write_text(
        "destination,reason\ncanary@example.com,permanent_bounce\nnobody,complaint\n+447700900123,moon\nx@y.org\n"
    )
    code, _, err = suppression("import", str(file), *WHY)
    assert code == REFUSED
    assert [line[:7] for line in err.splitlines()[:3]] == ["line 3:", "line 4:", "line 5:"]
    assert rig.read(TopicKind.SUPPRESSIONS) == []
    code, out, _ = suppression("import", str(file), "--skip-rejected", *WHY)
    assert (code, "1 published, 3 rejected" in out) == (DOES_NOT_HOLD, True)
    rig.until(lambda: bool(entries(suppression("check", "--json", *WHY, typed="canary@example.com"))))
    assert refused(rig, "first")


def test_what_is_exported_is_imported_again_with_its_instants(
    rig: Rig, suppression: Callable[..., Said], tmp_path: Path
) -> None:
    number, out = PHONE.reveal(), tmp_path / "out.csv"
    assert suppression("add", "--reason", "opted_out", *WHY, typed=number)[0] == OK
    assert suppression("add", "--reason", "complaint", *WHY, typed=number)[0] == OK
    before = entries(suppression("list", "--json", *WHY))
    assert suppression("export", "--out", str(out), *WHY)[0] == OK
    assert number not in out.read_text()
    with rig.database.transaction() as cursor:  # as in a database of nothing
        cursor.execute(b"DELETE FROM suppressions")
    assert suppression("import", str(out), "--why", "moved here")[0] == OK
    rig.until(lambda: len(entries(suppression("list", "--json", *WHY))) == 1)
    rig.until(lambda: entries(suppression("list", "--json", *WHY))[0]["reason"] == "complaint")
    (after,) = entries(suppression("list", "--json", *WHY))
    same = ("fingerprint", "reason", "since", "opted_out_at")
    assert [after[name] for name in same] == [before[0][name] for name in same]


def test_no_address_or_number_is_kept_and_every_reading_is(
    rig: Rig, suppression: Callable[..., Said]
) -> None:
    typed = (EMAIL.reveal(), PHONE.reveal())
    said = [suppression("add", *WHY, typed=one) for one in typed]
    said += [suppression("check", *WHY, typed=one) for one in typed]
    said += [suppression("list", *WHY)]
    said += [suppression("remove", "--reason", "consent_given", *WHY, typed=one) for one in typed]
    said += [suppression("add", "--why", f"asked by {EMAIL.reveal()}", typed=PHONE.reveal())]
    assert [code for code, _, _ in said] == [OK] * 7 + [REFUSED]
    with psycopg.connect(rig.dsn) as connection:
        tables = ["suppressions", "consents", "access_log"]
        rows = {t: connection.execute(f"SELECT x::text FROM {t} AS x".encode()).fetchall() for t in tables}
    looked = [r for (r,) in rows["access_log"] if PRINTS.of(EMAIL) in r and "ticket 4711" in r]
    assert len(looked) >= 2
    kept = str(rows) + str(said)
    kept += "".join(str(m.key) + str(m.value) for m in rig.read(TopicKind.SUPPRESSIONS))
    assert canaries.found_in(kept.encode(), typed) == []


def test_without_a_dispatcher_it_is_said_that_the_guard_has_not_read_it(
    rig: Rig, suppression: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compose.commands.suppression.SEEN_S", 0.1)
    monkeypatch.setattr("sinks.operator.suppressions.find", lambda *_, **__: [])
    code, out, err = suppression("add", *WHY, typed=EMAIL.reveal())
    assert code == OK
    assert "the guard has it" not in out
    assert "does a dispatcher run?" in err
