"""Is the publisher contract what the code does: page and vectors as committed, and every vector true."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from schemas.codec import decode
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.errors import BindingMismatch
from schemas.fingerprints import FingerprintKeys
from schemas.intent import IntentRequested
from schemas.partitions import partition_for
from schemas.publishers import vectors
from schemas.publishers.page import RECORDS, page
from schemas.publishers.refusals import POINTERS
from schemas.publishers.words import MEANINGS
from schemas.reasons import ReasonClass
from schemas.record import TopicKind
from schemas.sealed import UnsealingKeys, unseal
from tests.contract.regenerate import publishing

STALE = "run python -m tests.contract.regenerate and look at what changes for publishers"


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    (path,) = (p for p in publishing() if p.name == "vectors.json")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def test_the_page_and_the_vectors_are_up_to_date() -> None:
    stale = [p.name for p, text in publishing().items() if p.read_text("utf-8") != text]
    assert stale == [], STALE


def test_a_committed_envelope_is_kept_and_a_spoilt_one_is_made_anew(committed: dict[str, Any]) -> None:
    kept = json.loads(vectors.document(json.dumps(committed)))
    assert kept["sealing"]["sealed"] == committed["sealing"]["sealed"]
    spoilt = committed | {"sealing": committed["sealing"] | {"sealed": "a.b.c.d.e"}}
    anew = json.loads(vectors.document(json.dumps(spoilt)))["sealing"]["sealed"]
    assert unseal(anew, vectors.binding(), UnsealingKeys([vectors.private_jwk()])) == vectors.PAYLOAD


def test_our_code_opens_the_envelope_of_the_vectors_for_its_intent_only(
    committed: dict[str, Any],
) -> None:
    sealing = committed["sealing"]
    keys = UnsealingKeys([sealing["private_jwk"]])
    opened = unseal(sealing["sealed"], vectors.binding(), keys)
    assert [opened.email, opened.phone, opened.variables] == list(sealing["payload"].values())
    other = replace(vectors.binding(), tenant="tenant-0002")
    with pytest.raises(BindingMismatch):
        unseal(sealing["sealed"], other, keys)


def test_a_reader_takes_every_record_of_the_vectors_in_its_canonical_form(committed: dict[str, Any]) -> None:
    names = set()
    for one in committed["records"]:
        value = one["canonical"].encode()
        record = decode(TopicKind.INTENTS, one["key"].encode(), value)
        assert isinstance(record, RECORDS)
        assert record.to_bytes() == value
        names.add(type(record))
    assert names == set(RECORDS)


def test_the_whole_request_of_the_vectors_leaves_no_field_out(committed: dict[str, Any]) -> None:
    assert json.loads(committed["records"][0]["canonical"]).keys() == IntentRequested.model_fields.keys()


def test_every_vector_of_partitions_fingerprints_and_destinations_is_true(committed: dict[str, Any]) -> None:
    for one in committed["partitions"]:
        assert {n: partition_for(one["key"].encode(), int(n)) for n in one["of"]} == one["of"]
    prints = committed["fingerprints"]
    keys = FingerprintKeys(prints["key_id"], {prints["key_id"]: b64decode(prints["key_base64"])})
    kinds: dict[str, Any] = {"e": EmailAddress, "s": PhoneNumber}
    for one in prints["destinations"]:
        assert keys.of(kinds[one["letter"]].parse(one["normal"])) == one["fingerprint"]
    for one in prints["subjects"]:
        assert keys.of_subject(one["tenant"], one["subject"]) == one["fingerprint"]
    for channel, kind in (("email", EmailAddress), ("phone", PhoneNumber)):
        assert {"normal", "refused"} <= {k for one in committed["destinations"][channel] for k in one}
        for one in committed["destinations"][channel]:
            assert "refused" in one or kind.parse(one["given"]).reveal() == one["normal"]


def test_the_vectors_show_a_link_that_is_taken_and_many_that_are_not(committed: dict[str, Any]) -> None:
    faults = [one["fault"] for one in committed["links"]["cases"]]
    assert faults.count(None) == 1
    assert len(set(faults)) > 8


def test_the_page_says_what_every_field_means_and_nothing_about_others() -> None:
    fields = {name for record in RECORDS for name in record.model_fields}
    assert MEANINGS.keys() == fields


def test_the_page_names_every_reason_of_a_refusal_with_its_pointer() -> None:
    text = page()
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    for reason, pointer in POINTERS.items():
        assert f"`{pointer}`" in rows[reason.value]
        assert reason.reason_class in (ReasonClass.INTENT, ReasonClass.OURS)
    fields = IntentRequested.model_fields
    assert {pointer.removeprefix("/") for pointer in POINTERS.values()} <= fields.keys()


def test_the_keys_of_the_vectors_are_made_from_their_names_and_open_nothing_else() -> None:
    assert vectors.private_jwk()["kid"] == vectors.KEY_ID
    assert "d" not in json.loads(vectors.document())["sealing"]["public_jwk"]
