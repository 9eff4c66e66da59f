"""Released documents on disk: template versions and policies, in folders with a manifest.

A shelf is a folder with `<name>/v<n>…`, `MANIFEST` (what was released) and `RETIRED` (what was, and may not
come back under its name). Released files never change; only a release adds to the manifest, and only a
retirement takes from it. It must not judge content: the lints of `schemas` do.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from schemas.errors import BackstopError
from schemas.manifest import MANIFEST, RETIRED, differences, listed, manifest, released_files

_REF = re.compile(r"([a-z][a-z0-9_]{2,39}):v([1-9][0-9]{0,4})")


class ReleaseRefused(BackstopError):
    """A document cannot be made, released or retired like this; nothing was changed."""

    remedy = "Correct what is named and try again; released versions never change, a new version always may."


def own_shelf(given: Path | None, configured: Path | None, setting: str) -> Path:
    """The deployment's own folder. Raises `ReleaseRefused`: what ships is nobody's to change."""
    shelf = given or configured
    if shelf is None:
        raise ReleaseRefused(
            "no shelf: what ships with Backstop is not yours to change",
            code="no_shelf",
            remedy=f"Name a folder of your own with --shelf, and with {setting} for the processes.",
        )
    return shelf


def name_and_version(ref: str) -> tuple[str, int]:
    """`password_reset:v2` → (`password_reset`, 2). Raises `ReleaseRefused`."""
    found = _REF.fullmatch(ref)
    if found is None:
        raise ReleaseRefused("a version is named like password_reset:v2", code="reference")
    return found[1], int(found[2])


def versions_of(root: Path, name: str) -> list[int]:
    """The versions of a name on this shelf, retired ones too, in order."""
    there = (
        {p.name.removesuffix(".toml") for p in (root / name).glob("v*")} if (root / name).is_dir() else set()
    )
    retired = {
        path.split("/")[1].removesuffix(".toml") for path in _retired(root) if path.startswith(f"{name}/")
    }
    return sorted(int(v[1:]) for v in there | retired if v[1:].isdecimal())


def is_released(root: Path, ref: str) -> bool:
    return any(_belongs(path, ref) for path in _listed(root))


def next_place(root: Path, name: str) -> str:
    """The reference a new version of `name` gets. Raises `ReleaseRefused` while one waits for its release."""
    known = versions_of(root, name)
    for number in known:
        ref = f"{name}:v{number}"
        if not is_released(root, ref) and not is_retired(root, ref):
            raise ReleaseRefused(f"{ref} is there and not released yet: edit that one", code="unreleased")
    ref = f"{name}:v{known[-1] + 1 if known else 1}"
    name_and_version(ref)
    return ref


def is_retired(root: Path, ref: str) -> bool:
    return any(_belongs(path, ref) for path in _retired(root))


def release(root: Path, ref: str) -> list[str]:
    """Write the hashes of this version into the manifest; the paths. Raises `ReleaseRefused`."""
    name_and_version(ref)
    found, before = released_files(root), _listed(root)
    mine = {path: content for path, content in found.items() if _belongs(path, ref)}
    if not mine:
        raise ReleaseRefused(f"{ref} is not on this shelf", code="not_there")
    if is_retired(root, ref):
        raise ReleaseRefused(f"{ref} was retired; its name is used up, make the next version", code="retired")
    if is_released(root, ref):
        raise ReleaseRefused(f"{ref} is released already", code="released")
    others = {path: content for path, content in found.items() if path in before}
    changed = differences(_text(root, MANIFEST), others)
    if changed:
        raise ReleaseRefused(f"released files were changed: {', '.join(changed)}", code="changed")
    _write(root / MANIFEST, manifest(others | mine))
    return sorted(mine)


def retire(root: Path, ref: str) -> list[str]:
    """Take a released version off the shelf for good; the paths. Its hashes stay in `RETIRED`, so that the
    name can never mean something else. Raises `ReleaseRefused`."""
    name_and_version(ref)
    before = _listed(root)
    mine = {path: digest for path, digest in before.items() if _belongs(path, ref)}
    if not mine:
        raise ReleaseRefused(f"{ref} is not released on this shelf", code="not_released")
    kept = {
        path: content for path, content in released_files(root).items() if path in before.keys() - mine.keys()
    }
    gone = "".join(f"{digest}  {path}\n" for path, digest in sorted({**_retired(root), **mine}.items()))
    _write(root / RETIRED, gone)  # first: a name that is on both lists is refused, one on none is free
    _write(root / MANIFEST, manifest(kept))
    name, number = name_and_version(ref)
    place = root / name / f"v{number}"
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.with_suffix(".toml").unlink()
    return sorted(mine)


def put_policies(root: Path, texts: Mapping[str, str]) -> None:
    """Policies of a shelf that is made by a program (the demo, tests), written and released together."""
    for ref, text in texts.items():
        name, number = name_and_version(ref)
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / f"v{number}.toml").write_text(text, "utf-8")
    _write(root / MANIFEST, manifest(released_files(root)))


def _belongs(path: str, ref: str) -> bool:
    place = ref.replace(":", "/")
    return path.startswith(f"{place}/") or path == f"{place}.toml"


def _listed(root: Path) -> dict[str, str]:
    return listed(_text(root, MANIFEST))


def _retired(root: Path) -> dict[str, str]:
    return listed(_text(root, RETIRED))


def _text(root: Path, name: str) -> str:
    path = root / name
    return path.read_text("utf-8") if path.exists() else ""


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)
