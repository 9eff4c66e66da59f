"""What an operator types: a destination, which is hashed at once, a name, a word that confirms.

It must not keep or print an address or a number: not in a log, a table, a record or an error.
"""

from __future__ import annotations

import getpass
import re
import sys
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from compose import keys
from compose.output import say
from compose.settings import Settings
from schemas.errors import FileRefused, RecordRefused
from schemas.instruction import OperatorName
from sinks.operator.suppression_csv import destination
from sinks.operator.text import OperatorTextRefused

FILE_BYTES_MAX = 16_000_000  # 100 000 lines of 160 bytes
LINE_CHARS_MAX = 400


def prints_of(settings: Settings, given: str | None, file: Path | None) -> tuple[str, ...]:
    """The fingerprints of what was typed, under every live key; the current one first.

    Raises `RecordRefused`, `FileRefused`, `InvalidDestination` or `SettingsRefused`.
    """
    if given is not None and file is not None:
        raise RecordRefused("give the destination once: --destination or --file", pointer="/destination")
    held = keys.publisher_keys(settings.keys)
    if given is not None:
        text = given
    elif file is not None:
        text = text_of(file)
    else:
        if sys.stdin.isatty():
            say("type one address, or one number in E.164 form:")
        text = sys.stdin.readline(LINE_CHARS_MAX)
    return held.fingerprints.all_of(destination(text.rstrip("\r\n")))


def text_of(file: Path) -> str:
    """Raises `FileRefused`."""
    try:
        with file.open("rb") as opened:
            read = opened.read(FILE_BYTES_MAX + 1)
        text = read.decode("utf-8")
    except UnicodeDecodeError:
        raise FileRefused(f"{file} is not text (UTF-8)", code="file") from None
    if len(read) > FILE_BYTES_MAX:
        raise FileRefused(f"{file} has more than {FILE_BYTES_MAX} bytes: give it in parts", code="file")
    return text


def operator_name(given: str | None) -> str:
    """As records take it: an account here may be written otherwise. Raises `OperatorTextRefused`."""
    name = given if given is not None else re.sub(r"[^a-z0-9._-]", "-", getpass.getuser().lower())[:40]
    try:
        return TypeAdapter(OperatorName).validate_python(name)
    except ValidationError:
        raise OperatorTextRefused(
            "operator is not 2 to 40 of a-z, 0-9, . _ and -", code="operator_text"
        ) from None


def is_confirmed(word: str, what_for: str) -> bool:
    """Whether the word was typed. An end of input is a no, Ctrl-C stops the command."""
    say(f"type {word} {what_for}:")
    return sys.stdin.readline().strip() == word
