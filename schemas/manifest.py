"""What was released, file by file: the lines of `sha256sum`, so that anyone can check them.

Pure. It must not know what the files mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.resources.abc import Traversable

MANIFEST, RETIRED = "MANIFEST", "RETIRED"


def manifest(files: Mapping[str, bytes]) -> str:
    """One line a file, in order, as `sha256sum --check` reads it."""
    return "".join(f"{sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))


def listed(text: str) -> dict[str, str]:
    """Digest by file name; lines of another form are nobody's file."""
    pairs = (line.split("  ", 1) for line in text.splitlines())
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}


def differences(text: str, files: Mapping[str, bytes]) -> list[str]:
    """Names that are altered, not released, or released and gone; empty when all is as released."""
    released, found = listed(text), listed(manifest(files))
    return sorted(n for n in released.keys() | found.keys() if released.get(n) != found.get(n))


def released_files(root: Traversable) -> dict[str, bytes]:
    """Content by path of everything in the folders below `root`; what lies in `root` itself is ours."""
    return {path: content for path, content in files_under(root) if "/" in path}


def check(root: Traversable) -> str | None:
    """Why what lies under `root` is not what was released; None when it is."""
    try:
        text = root.joinpath(MANIFEST).read_text("utf-8")
    except (OSError, ValueError):
        return f"there is no readable {MANIFEST}"
    changed = differences(text, released_files(root))
    return f"released files differ from the manifest: {', '.join(changed)}" if changed else None


def files_under(folder: Traversable, *, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """(path, content) of every file below, caches of Python left out."""
    for entry in folder.iterdir():
        if entry.name.startswith(("__", ".")):
            continue
        if entry.is_dir():
            yield from files_under(entry, prefix=f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry.read_bytes()
