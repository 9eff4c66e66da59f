"""A file replaced in one step, readable by its owner only: whoever reads it sees the old one or the new one.

It must not leave what was replaced: with `wipe` the old bytes are overwritten where they lay. What a file
system, a snapshot or a backup keeps of them elsewhere is out of its reach, and the caller has to say so.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SUFFIX = ".new"  # of what is written and not yet in place; a name of its own, so that a next start finds it

Fault = Callable[[str], None]


def no_fault(_point: str) -> None:
    """What every command runs with."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One writer at a time per folder; the kernel lets go when it dies."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def replace(path: Path, text: str, *, wipe: bool = False, fault: Fault = no_fault) -> None:
    """Write `text` in place of what `path` holds: new file, fsync, rename, fsync of the folder. Mode 0600.

    `fault` is for crash tests: called by name before and after the step that counts. Raises `OSError`.
    """
    path = path.resolve()  # of a link, the file it leads to
    made = path.with_name(path.name + SUFFIX)
    old = os.open(path, os.O_WRONLY) if wipe else None
    try:
        _written(made, text)
        fault("written")
        made.replace(path)
        fault("renamed")
        _synced(path.parent)
        if old is not None:
            _wiped(old)
    finally:
        with suppress(OSError):
            _cleared(made)
        if old is not None:
            os.close(old)


def _written(made: Path, text: str) -> None:
    _cleared(made)
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _cleared(made: Path) -> None:
    """What a writer that was killed left there: its bytes, then its name."""
    with suppress(FileNotFoundError):
        left = os.open(made, os.O_WRONLY)
        try:
            _wiped(left)
        finally:
            os.close(left)
        made.unlink()


def _synced(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _wiped(old: int) -> None:
    """Zeros over every byte of a file that nobody reads any more."""
    os.pwrite(old, bytes(os.fstat(old).st_size), 0)
    os.fsync(old)
