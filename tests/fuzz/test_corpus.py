"""The whole corpus, every time: each entry has the outcome that is written beside it."""

from __future__ import annotations

import pytest

from tests.fuzz.corpus import TARGETS, Entry, entries, outcomes

ENTRIES = list(entries())


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_an_entry_of_the_corpus_has_the_outcome_written_beside_it(entry: Entry) -> None:
    assert TARGETS[entry.target](entry.data) == outcomes(entry.target)[entry.name]


@pytest.mark.parametrize("target", TARGETS)
def test_every_outcome_belongs_to_an_entry_and_every_target_has_both_kinds(target: str) -> None:
    written = outcomes(target)
    assert written.keys() == {e.name for e in ENTRIES if e.target == target}
    assert len(set(written.values())) > 1, "a target whose outcome never changes proves nothing"
