"""Do keys turn over without a moment in which nothing fits, and is a destroyed one gone from here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from compose import keyring, keys
from compose.app import run
from compose.keyring import KeyRefused
from compose.output import OK, REFUSED
from schemas.destinations import EmailAddress
from schemas.errors import BindingMismatch, SealBroken, SealKeyShredded, SealKeyUnknown, SettingsRefused
from schemas.sealed import Binding, Payload, SealingKey, UnsealingKeys, seal, unseal

AT_MS = 1_790_000_000_000
ADA = EmailAddress.parse("canary@example.com")
SECRET = Payload(ADA.reveal(), None, {"name": "canary"})


class Crash(BaseException):
    """A process that dies at a fault point."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys.generate(tmp_path)
    return tmp_path


def binding(folder: Path) -> Binding:
    prints = keys.publisher_keys(folder).fingerprints
    return Binding("int-0001-test", "tenant-0001", "x", "x:v1", AT_MS, AT_MS + 1, prints.of(ADA), None)


def sealed(folder: Path) -> str:
    return seal(SECRET, binding(folder), keys.publisher_keys(folder).sealing)


def opened(folder: Path, token: str, bound: Binding) -> Payload:
    return unseal(token, bound, keys.dispatcher_keys(folder).unsealing)


def states(folder: Path) -> dict[str, str]:
    return {key.key_id: key.state for key in keyring.keys_in(folder)}


def private_half(folder: Path, key_id: str) -> str:
    ring = json.loads((folder / keys.DISPATCHER).read_text())["unsealing"]
    return str(next(k["d"] for k in ring if k["kid"] == key_id))


# rotate


def test_after_a_rotation_new_intents_use_the_new_key_and_old_ones_still_open(folder: Path) -> None:
    old, bound = sealed(folder), binding(folder)
    assert keyring.rotate(folder, at_ms=AT_MS) == "s2"
    assert keys.publisher_keys(folder).sealing.key_id == "s2"
    assert opened(folder, old, bound) == opened(folder, sealed(folder), bound) == SECRET
    assert states(folder) == {"s1": "kept", "s2": "current", "k1": "current"}


def test_a_rotated_fingerprint_key_is_used_and_the_old_one_still_matches(folder: Path) -> None:
    before = keys.publisher_keys(folder).fingerprints.of(ADA)
    assert keyring.rotate_fingerprint(folder, at_ms=AT_MS) == "k2"
    for held in (keys.publisher_keys(folder), keys.dispatcher_keys(folder)):
        assert held.fingerprints.of(ADA).startswith("k2.")
        assert before in held.fingerprints.all_of(ADA)
    assert keys.publisher_keys(folder).sealing.key_id == "s1"


def test_the_id_of_a_destroyed_key_never_comes_back(folder: Path) -> None:
    keyring.rotate(folder, at_ms=AT_MS)
    keyring.shred(folder, "s2", at_ms=AT_MS, force=True)
    assert keyring.rotate(folder, at_ms=AT_MS) == "s3"


@pytest.mark.parametrize(
    "point", [f"{f}_{p}" for f in ("dispatcher", "publisher") for p in ("written", "renamed")]
)
@pytest.mark.parametrize(
    "turn", [keyring.rotate, keyring.rotate_fingerprint, partial(keyring.rotate, tenant="tenant-0001")]
)
def test_a_rotation_killed_anywhere_leaves_files_that_fit_each_other(
    folder: Path, point: str, turn: Callable[..., str]
) -> None:
    old, bound = sealed(folder), binding(folder)

    def die(at: str) -> None:
        if at == point:
            raise Crash(at)

    with pytest.raises(Crash):
        turn(folder, at_ms=AT_MS, fault=die)
    assert opened(folder, old, bound) == SECRET
    assert opened(folder, sealed(folder), binding(folder)) == SECRET
    known = keys.dispatcher_keys(folder).fingerprints
    assert known.matches(ADA, keys.publisher_keys(folder).fingerprints.of(ADA))
    turn(folder, at_ms=AT_MS)
    assert opened(folder, sealed(folder), binding(folder)) == SECRET


def test_files_of_before_there_were_instants_are_read_and_rotated(folder: Path) -> None:
    for name in (keys.PUBLISHER, keys.DISPATCHER):
        fields = json.loads((folder / name).read_text())
        fields.pop("created_ms")
        fields.pop("shredded_ms", None)
        fields["fingerprint"].pop("created_ms")
        (folder / name).write_text(json.dumps(fields))
    assert {k.created_ms for k in keyring.keys_in(folder)} == {None}
    keyring.rotate(folder, at_ms=AT_MS)
    keyring.shred(folder, "s1", at_ms=AT_MS + 1)
    found = {k.key_id: (k.created_ms, k.shredded_ms) for k in keyring.keys_in(folder)}
    assert found == {"s1": (None, AT_MS + 1), "s2": (AT_MS, None), "k1": (None, None)}


def test_a_changed_file_is_readable_by_its_owner_only_and_leaves_nothing_beside_it(folder: Path) -> None:
    before = sorted(p.name for p in folder.iterdir())
    keyring.rotate(folder, at_ms=AT_MS)
    keyring.shred(folder, "s1", at_ms=AT_MS)
    assert sorted(p.name for p in folder.iterdir()) == before
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o600}


# a tenant's own key

ACME, OTHER = "tenant-acme", "tenant-other"


def of_tenant(folder: Path, tenant: str) -> Binding:
    return replace(binding(folder), tenant=tenant)


def test_a_tenants_own_key_opens_its_intents_and_no_other_tenants(folder: Path) -> None:
    assert keyring.rotate(folder, at_ms=AT_MS, tenant=ACME) == "s2"
    own, ring = keys.publisher_keys(folder, ACME).sealing, keys.dispatcher_keys(folder).unsealing
    assert (own.key_id, own.tenant) == ("s2", ACME)
    bound = of_tenant(folder, ACME)
    assert unseal(seal(SECRET, bound, own), bound, ring) == SECRET
    with pytest.raises(SealBroken, match=f"{ACME} only"):
        seal(SECRET, of_tenant(folder, OTHER), own)
    stolen = SealingKey(json.loads((folder / keys.tenant_file(ACME)).read_text())["sealing"])
    foreign = of_tenant(folder, OTHER)
    with pytest.raises(BindingMismatch, match="another tenant"):
        unseal(seal(SECRET, foreign, stolen), foreign, ring)


def test_the_others_go_on_sealing_under_the_shared_key(folder: Path) -> None:
    keyring.rotate(folder, at_ms=AT_MS, tenant=ACME)
    assert keys.publisher_keys(folder).sealing.key_id == "s1"
    assert keys.publisher_keys(folder, OTHER).sealing.key_id == "s1"
    keyring.rotate(folder, at_ms=AT_MS)
    assert keys.publisher_keys(folder, ACME).sealing.key_id == "s2"
    assert keys.publisher_keys(folder, OTHER).sealing.key_id == "s3"


def test_shredding_a_tenants_key_leaves_everybody_elses(folder: Path) -> None:
    keyring.rotate(folder, at_ms=AT_MS, tenant=ACME)
    bound, other, others = of_tenant(folder, ACME), sealed(folder), binding(folder)
    token = seal(SECRET, bound, keys.publisher_keys(folder, ACME).sealing)
    keyring.rotate(folder, at_ms=AT_MS, tenant=ACME)
    keyring.shred(folder, "s2", at_ms=AT_MS)
    with pytest.raises(SealKeyShredded):
        opened(folder, token, bound)
    assert opened(folder, other, others) == SECRET
    assert states(folder) == {"s1": "current", "s2": "shredded", "s3": "current", "k1": "current"}


def test_a_tenants_current_key_is_refused_and_named_as_its(folder: Path) -> None:
    keyring.rotate(folder, at_ms=AT_MS, tenant=ACME)
    with pytest.raises(KeyRefused, match="current"):
        keyring.shred(folder, "s2", at_ms=AT_MS)
    assert {k.key_id: k.tenant for k in keyring.keys_in(folder)} == {"s1": None, "s2": ACME, "k1": None}
    (folder / keys.tenant_file(ACME)).unlink()
    assert states(folder)["s2"] == "current"


def test_a_new_fingerprint_key_reaches_the_files_of_all_tenants(folder: Path) -> None:
    keyring.rotate(folder, at_ms=AT_MS, tenant=ACME)
    keyring.rotate_fingerprint(folder, at_ms=AT_MS)
    prints = {keys.publisher_keys(folder, tenant).fingerprints.of(ADA) for tenant in (None, ACME)}
    assert prints == {keys.dispatcher_keys(folder).fingerprints.of(ADA)}
    assert prints.pop().startswith("k2.")


@pytest.mark.parametrize("tenant", ["../letters", "Acme Ltd", "a", ""])
def test_what_is_no_tenant_id_names_no_file(folder: Path, tenant: str) -> None:
    before = sorted(p.name for p in folder.iterdir())
    with pytest.raises(SettingsRefused, match="tenant id"):
        keyring.rotate(folder, at_ms=AT_MS, tenant=tenant)
    assert sorted(p.name for p in folder.iterdir()) == before


@pytest.mark.parametrize("tenants", [{"s1": 7}, ["s1"], "s1"])
def test_a_file_whose_tenants_are_no_ids_is_refused_and_ends_no_intent(folder: Path, tenants: object) -> None:
    fields = json.loads((folder / keys.DISPATCHER).read_text()) | {"tenants": tenants}
    (folder / keys.DISPATCHER).write_text(json.dumps(fields))
    with pytest.raises(SettingsRefused):
        keys.dispatcher_keys(folder)


# shred


def test_a_shredded_key_opens_nothing_and_is_in_no_file_nor_in_what_was_replaced(folder: Path) -> None:
    token, bound, half = sealed(folder), binding(folder), private_half(folder, "s1")
    keyring.rotate(folder, at_ms=AT_MS)
    (folder / f"{keys.DISPATCHER}.new").write_text(half)  # of a writer that was killed
    left = (folder / f"{keys.DISPATCHER}.new").open("rb")
    replaced = (folder / keys.DISPATCHER).open("rb")
    with left, replaced:
        assert keyring.shred(folder, "s1", at_ms=AT_MS) == ["s2"]
        assert set(left.read()) == set(replaced.read()) == {0}
    assert all(half.encode() not in p.read_bytes() for p in folder.iterdir())
    with pytest.raises(SealKeyShredded):
        opened(folder, token, bound)
    ring = json.loads((folder / keys.DISPATCHER).read_text())["unsealing"]
    with pytest.raises(SealKeyUnknown):  # whatever the list of destroyed keys says
        unseal(token, bound, UnsealingKeys(ring))


@pytest.mark.parametrize(("point", "is_there"), [("written", True), ("renamed", False)])
def test_a_shredding_that_is_killed_leaves_the_old_or_the_new_file(
    folder: Path, point: str, is_there: bool
) -> None:
    token, bound = sealed(folder), binding(folder)
    keyring.rotate(folder, at_ms=AT_MS)

    def die(at: str) -> None:
        if at == point:
            raise Crash(at)

    with pytest.raises(Crash):
        keyring.shred(folder, "s1", at_ms=AT_MS, fault=die)
    assert (states(folder)["s1"] == "kept") is is_there
    if is_there:
        assert opened(folder, token, bound) == SECRET
        keyring.shred(folder, "s1", at_ms=AT_MS)
    with pytest.raises(SealKeyShredded):
        opened(folder, token, bound)


@pytest.mark.parametrize("name", [keys.PUBLISHER, "nothing"])
def test_the_current_key_is_refused_also_where_only_the_dispatchers_file_is(folder: Path, name: str) -> None:
    keyring.rotate(folder, at_ms=AT_MS)
    (folder / name).unlink(missing_ok=True)
    before = (folder / keys.DISPATCHER).read_bytes()
    with pytest.raises(KeyRefused, match="current"):
        keyring.shred(folder, "s2", at_ms=AT_MS)
    assert (folder / keys.DISPATCHER).read_bytes() == before
    keyring.shred(folder, "s2", at_ms=AT_MS, force=True)
    assert states(folder)["s2"] == "shredded"


@pytest.mark.parametrize("key_id", ["s9", "k1", "s1"])
def test_a_key_that_is_not_there_is_no_sealing_key_or_is_gone_is_refused(folder: Path, key_id: str) -> None:
    keyring.rotate(folder, at_ms=AT_MS)
    keyring.shred(folder, "s1", at_ms=AT_MS)
    with pytest.raises(KeyRefused):
        keyring.shred(folder, key_id, at_ms=AT_MS)


def test_a_file_that_is_broken_is_refused_and_kept(folder: Path) -> None:
    (folder / keys.DISPATCHER).write_text("{}")
    for change in (keyring.rotate, keyring.rotate_fingerprint):
        with pytest.raises(SettingsRefused):
            change(folder, at_ms=AT_MS)
    assert (folder / keys.DISPATCHER).read_text() == "{}"
    assert keys.publisher_keys(folder).sealing.key_id == "s1"


# the commands


@pytest.fixture
def called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["backstop", "keys", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return call


def test_no_command_prints_a_key(folder: Path, called: Callable[..., tuple[int, str, str]]) -> None:
    place = ("--folder", str(folder))
    held = json.dumps([json.loads((folder / n).read_text()) for n in (keys.PUBLISHER, keys.DISPATCHER)])
    said = "".join(
        str(called(*words, *place))
        for words in (
            ["rotate"],
            ["rotate", "--fingerprint"],
            ["rotate", "--tenant", "tenant-0001"],
            ["list"],
            ["list", "--json"],
            ["shred", "s1", "--yes"],
        )
    )
    held += json.dumps([json.loads((folder / n).read_text()) for n in (keys.PUBLISHER, keys.DISPATCHER)])
    secrets = {part for part in held.split('"') if len(part) >= 40}
    assert len(secrets) >= 6
    assert [s for s in secrets if s in said] == []


def test_shredding_says_what_becomes_of_live_intents_and_asks(
    folder: Path, called: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called("rotate", "--folder", str(folder))
    for typed, code in (("", REFUSED), ("yes\n", REFUSED), ("s1\n", OK)):
        answer = tmp_path / "typed"
        answer.write_text(typed)
        with answer.open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            found, _, err = called("shred", "s1", "--folder", str(folder))
        answer.unlink()
        assert found == code
        assert "key_shredded" in err
    code, out, _ = called("list", "--folder", str(folder), "--json")
    listed = {k["id"]: k for k in json.loads(out)["keys"]}
    assert (code, listed["s1"]["state"], listed["s2"]["state"]) == (OK, "shredded", "current")
    assert listed["s1"]["shredded_at"]
