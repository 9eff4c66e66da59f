"""Are the libraries under the engine what it takes them for?"""

from __future__ import annotations

import pytest

from streams.engine import group_metadata, selfcheck
from streams.engine.errors import SelfCheckFailed


def test_the_installed_libraries_pass_the_self_check() -> None:
    selfcheck.check_libraries()


def test_our_group_metadata_is_librdkafkas() -> None:
    group_metadata.self_check()


def test_another_layout_of_the_group_metadata_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metadata, "MAGIC", b"CGMDv3:")
    with pytest.raises(SelfCheckFailed, match="unknown layout"):
        group_metadata.self_check()


@pytest.mark.parametrize(("generation", "member"), [(-1, ""), (-1, "m"), (3, "")])
def test_metadata_that_would_commit_unfenced_is_never_made(generation: int, member: str) -> None:
    with pytest.raises(ValueError, match="unfenced"):
        group_metadata.encode("g", generation, member)
