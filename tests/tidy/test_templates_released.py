"""What is released does not change: templates and policies have the hashes of their release."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from schemas.errors import PolicyError, TemplateBroken
from schemas.manifest import check
from schemas.policy import read as read_policies
from schemas.policy import released as released_policies
from schemas.policy_lint import lint as lint_policy
from schemas.templates.lint import lint
from schemas.templates.registry import read, shipped, versions

TEMPLATES = Path(str(files("schemas.templates").joinpath("catalog")))
POLICIES = Path(str(files("schemas.policies")))


@pytest.mark.parametrize("root", [TEMPLATES, POLICIES], ids=["templates", "policies"])
def test_every_released_file_has_the_hash_of_its_release(root: Path) -> None:
    assert check(root) is None


def test_a_catalogue_with_an_edited_an_added_or_a_missing_file_is_not_used(tmp_path: Path) -> None:
    for number, change in enumerate((_edited, _added, _missing)):
        root = Path(shutil.copytree(TEMPLATES, tmp_path / str(number)))
        change(root / "password_reset" / "v1" / "en")
        with pytest.raises(TemplateBroken, match="password_reset/v1/en/"):
            read(root)


def test_policies_with_an_edited_file_are_not_used(tmp_path: Path) -> None:
    root = Path(shutil.copytree(POLICIES, tmp_path / "policies"))
    _edited(root / "password_reset", "v1.toml")
    with pytest.raises(PolicyError, match=r"password_reset/v1\.toml"):
        read_policies(root)


def _edited(folder: Path, name: str = "sms.txt.j2") -> None:
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n")


def _added(folder: Path) -> None:
    (folder / "more.txt.j2").touch()


def _missing(folder: Path) -> None:
    (folder / "sms.txt.j2").unlink()


@pytest.mark.parametrize(("ref", "folder"), list(versions(TEMPLATES)), ids=lambda given: str(given)[-20:])
def test_what_is_released_has_no_finding(ref: str, folder: Path) -> None:
    assert lint(ref, folder) == []


@pytest.mark.parametrize("ref", sorted(shipped()))
def test_a_released_version_speaks_two_languages_at_least(ref: str) -> None:
    assert len(shipped()[ref].sources) >= 2


def test_every_policy_names_a_version_of_its_own_purpose() -> None:
    for policy in released_policies().values():
        assert shipped()[policy.template].purpose == policy.purpose


def test_no_shipped_policy_has_numbers_that_cannot_be_meant() -> None:
    for policy in released_policies().values():
        assert [r for r in lint_policy(policy, shipped().get(policy.template)) if r.is_mistake] == []
