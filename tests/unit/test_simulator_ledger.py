"""The ledger tells who was served how, in words that say nothing about anybody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compose.simulator.behaviour import Model, Reply, Request
from compose.simulator.ledger import Hasher, stored
from compose.simulator.ledger_file import LedgerFile
from schemas.accounts import Account, Capabilities
from schemas.ids import Channel

T0 = 1_790_000_000_000
CAPS = Capabilities(
    idempotent_submit=True,
    idempotency_window_ms=60_000,
    lookup_by_message_id=True,
    lookup_by_reference=True,
)
PRIVATE = ("canary", "example.com", "7700900023", "app.example")


def model() -> Model:
    account = Account(name="keyed", provider="simulated", channel=Channel.EMAIL, capabilities=CAPS)
    return Model({"keyed": account}, seed=7)


def post(
    one: Model, to: str, at: int = 0, *, reference: str = "int-0001.email", key: str | None = None
) -> Reply:
    body = b'{"text":"https://app.example/r?t=canary"}'
    request = Request("keyed", reference, to, body, key or reference, not_after_ms=T0 + 1_000)
    return one.submit(request, T0 + at)


def history() -> Model:
    one = model()
    post(one, "lost+canary@example.com")
    post(one, "lost+canary@example.com", 100)
    post(one, "throttle+canary@example.com", 200, reference="int-0002.email")
    post(one, "busy+canary@example.com", 900, reference="int-0003.email")
    post(one, "delivered@example.com", 1_000, reference="canary@example.com", key="k-late")
    post(one, "+447700900023", 300, reference="+447700900023", key="447700900023")
    one.look_up("keyed", str(one.ledger[0].took), T0 + 300)
    one.look_up("keyed", "canary@example.com", T0 + 301)
    one.search("keyed", "canary+x@example.com", T0 + 302)
    return one


def test_the_ledger_holds_no_address_number_link_or_body() -> None:
    one = history()
    shown = json.dumps([one.lines(), one.transitions(T0 + 9_000), one.book.summary(), one.duplicates()])
    kept = json.dumps([stored(e) for e in one.ledger])
    for text in (shown, kept, repr(one.ledger), repr(list(one._messages.values()))):
        assert not [word for word in PRIVATE if word in text]


def test_the_printed_form_of_a_request_shows_no_content() -> None:
    request = Request("keyed", "int-0001.email", "canary@example.com", b"canary")
    assert "canary" not in repr(request)


def test_references_and_keys_that_can_only_be_ids_stand_in_clear() -> None:
    hasher = Hasher(1)
    for clear in ("int-0001.email", "7f0c1b52-3d0e-4a77-9c0b-0f4f6f8b2a11", "k_1", "123456"):
        assert hasher.shown(clear) == clear
    for hidden in ("a@example.com", "+447700900023", "447700900023", "0770-0900-023", "x" * 129, "é", "a b"):
        assert hasher.shown(hidden).startswith("hidden-")
        assert hidden not in hasher.shown(hidden)
    assert hasher.shown("") == ""


def test_hashes_tell_equal_from_other_and_depend_on_the_seed() -> None:
    one = history()
    assert one.ledger[0].recipient_hash == one.ledger[1].recipient_hash != one.ledger[2].recipient_hash
    assert Hasher(1)("a") != Hasher(2)("a")


def test_the_summary_counts_requests_messages_replays_and_late_ones() -> None:
    summary = history().book.summary()
    one = summary["accounts"]["keyed"]
    assert one["submissions"] == {"lose": 2, "replayed": 1, "throttle": 1, "accept": 2}
    assert (one["messages"], one["replayed"], one["late"]) == (4, 1, 1)
    assert one["lookups"] == {"answered": 2, "not_found": 1}
    assert summary["duplicates"] == []


def test_a_second_message_under_one_reference_is_a_duplicate_and_a_replay_is_none() -> None:
    one = model()
    post(one, "lost@example.com")
    post(one, "lost@example.com", 100)
    assert one.duplicates() == []
    post(one, "lost@example.com", 200, key="another")
    assert one.duplicates() == ["int-0001.email"]


def test_look_ups_beyond_the_limit_are_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compose.simulator.ledger.LOOKUP_LINES_MAX", 2)
    one = model()
    for number in range(5):
        one.look_up("keyed", f"m-{number}", T0)
    post(one, "delivered@example.com")
    assert len(one.ledger) == 3
    assert one.book.summary()["lookups_not_kept"] == 3


def test_a_restart_remembers_messages_keys_counts_and_fates() -> None:
    before, after = history(), model()
    after.restore(json.loads(json.dumps([stored(e) for e in before.ledger])))
    assert after.lines() == before.lines()
    assert after.transitions(T0 + 9_000) == before.transitions(T0 + 9_000)
    for one in (before, after):
        replies = [
            post(one, "lost+canary@example.com", 2_000),
            post(one, "busy+canary@example.com", 2_000, reference="int-0003.email"),
            post(one, "throttle+canary@example.com", 2_000, reference="int-0002.email"),
            post(one, "throttle+canary@example.com", 2_001, reference="int-0002.email"),
            post(one, "+447700900023", 2_002, reference="+447700900023", key="447700900023"),
        ]
        assert [(r.code, r.body.get("code")) for r in replies] == [
            (202, None),
            (409, "in_progress"),
            (429, "throttle"),
            (202, None),
            (202, None),
        ]
    assert after.lines() == before.lines()
    assert after.duplicates() == []


def test_a_file_keeps_whole_lines_and_cuts_off_one_that_was_being_written(tmp_path: Path) -> None:
    path, before = tmp_path / "deep" / "ledger.jsonl", history()
    with LedgerFile(path) as file:
        assert file.read() == []
        for entry in before.ledger[:3]:
            file.append(entry)
    with path.open("ab") as torn:
        torn.write(b'{"at_ms": 17')
    with LedgerFile(path) as file:
        assert len(file.read()) == 3
        file.append(before.ledger[3])
    with LedgerFile(path) as file:
        assert file.read() == json.loads(json.dumps([stored(e) for e in before.ledger[:4]]))
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("line", [{"at_ms": 1}, ["x"], {"unknown": 1}])
def test_a_file_that_is_no_ledger_is_refused(line: object) -> None:
    with pytest.raises(ValueError, match="not a ledger entry"):
        model().restore([line])  # type: ignore[list-item]
