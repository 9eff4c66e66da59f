"""The suppression list as CSV: what a file says, line by line, and what is written of the list. Pure.

    in     destination or fingerprint; optionally reason (default suppressed_by_hand) and since (RFC 3339)
    out    fingerprint, reason, since, operator: it can be read in again

It must not quote a line: a rejected one is named by its number and a reason.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO

from schemas.destinations import EmailAddress, PhoneNumber
from schemas.errors import BackstopError, InvalidDestination
from schemas.fingerprints import FingerprintKeys
from schemas.ids import FINGERPRINT_PATTERN, INSTANT_MS_MAX, INSTANT_MS_MIN
from schemas.reasons import Reason, reason_of
from sinks.operator.suppressions import LISTED, Entry

LINES_COUNT_MAX = 100_000  # a minute of publishing
HEADER = ("fingerprint", "reason", "since", "operator")
_KNOWN = frozenset({*HEADER, "destination"})
_FINGERPRINT = re.compile(FINGERPRINT_PATTERN[1:-1])


class NotAList(BackstopError):
    """The file as a whole cannot be read as a list."""

    remedy = (
        "The first line names the columns: destination or fingerprint, and reason, since if you have them."
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One destination of a file. `at_ms`: since when; None: the file does not say."""

    number: int
    fingerprint: str
    reason: Reason
    at_ms: int | None


@dataclass(frozen=True, slots=True)
class Rejected:
    number: int
    why: str


@dataclass(slots=True)
class Parsed:
    lines: list[Line] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


def destination(text: str) -> EmailAddress | PhoneNumber:
    """An address if there is an @ in it, else a number. Raises `InvalidDestination`, which quotes nothing."""
    return EmailAddress.parse(text) if "@" in text else PhoneNumber.parse(text)


def parse(text: str, keys: FingerprintKeys, *, key_ids: Iterable[str], now_ms: int) -> Parsed:
    """Every line of it, taken or rejected. Raises `NotAList`."""
    known, found = frozenset(key_ids), Parsed()
    reader = csv.reader(StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        _check_header(names)
        for cells in reader:
            if not cells:
                continue
            if len(found.lines) + len(found.rejected) >= LINES_COUNT_MAX:
                raise NotAList(f"more than {LINES_COUNT_MAX} lines: give it in parts", code="not_a_list")
            line = _line(reader.line_num, names, cells, keys, known, now_ms)
            (found.lines if isinstance(line, Line) else found.rejected).append(line)  # type: ignore[arg-type]
    except csv.Error:
        raise NotAList(f"line {reader.line_num} is not CSV", code="not_a_list") from None
    return found


def written(entries: Iterable[Entry]) -> Iterator[Sequence[str]]:
    """The rows of what stands; a STOP beside another reason is a row of its own."""
    for one in entries:
        stops_ms = one.opted_out_ms if one.is_opted_out else None
        if one.reason != Reason.OPTED_OUT.value:
            yield one.fingerprint, one.reason, utc(one.since_ms), one.operator or ""
        if stops_ms is not None:
            yield one.fingerprint, Reason.OPTED_OUT.value, utc(stops_ms), ""


def utc(at_ms: int) -> str:
    """An instant as text, to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_header(names: Sequence[str]) -> None:
    problem = None
    if ("destination" in names) == ("fingerprint" in names):
        problem = "the first line must name one of the columns destination and fingerprint"
    elif len(set(names)) != len(names) or not set(names) <= _KNOWN:
        problem = f"the first line names a column twice, or one that is not among {', '.join(sorted(_KNOWN))}"
    if problem is not None:
        raise NotAList(problem, code="not_a_list")


def _line(
    number: int,
    names: Sequence[str],
    cells: Sequence[str],
    keys: FingerprintKeys,
    known: frozenset[str],
    now_ms: int,
) -> Line | Rejected:
    if len(cells) != len(names):
        return Rejected(number, f"{len(cells)} columns instead of {len(names)}")
    row = dict(zip(names, cells, strict=True))
    fingerprint, why = _hashed(row, keys, known)
    if fingerprint is None:
        return Rejected(number, why)
    reason = _reason(row.get("reason", ""))
    if reason is None:
        return Rejected(number, f"reason is not one of {', '.join(r.value for r in LISTED)}")
    try:
        at_ms = _instant(row.get("since", ""), now_ms)
    except (ValueError, OverflowError):
        return Rejected(number, "since is not an instant with its zone, of 2020 or later and not to come")
    return Line(number, fingerprint, reason, at_ms)


def _hashed(row: Mapping[str, str], keys: FingerprintKeys, known: frozenset[str]) -> tuple[str | None, str]:
    """The fingerprint, or None and why not."""
    if "destination" in row:
        try:
            return keys.of(destination(row["destination"])), ""
        except InvalidDestination as exc:
            return None, f"not one address or number: {exc.code}"
    given = row["fingerprint"]
    if not _FINGERPRINT.fullmatch(given):
        return None, "not a fingerprint"
    if given.partition(".")[0] not in known:
        return None, "made under a fingerprint key that is not here: it would match nobody"
    return given, ""


def _reason(text: str) -> Reason | None:
    try:
        found = reason_of(text or Reason.SUPPRESSED_BY_HAND.value)
    except KeyError:
        return None
    return found if found in LISTED else None


def _instant(text: str, now_ms: int) -> int | None:
    """Raises `ValueError`."""
    if not text:
        return None
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError
    at_ms = round(found.timestamp() * 1000)
    if not INSTANT_MS_MIN <= at_ms <= min(now_ms, INSTANT_MS_MAX - 1):
        raise ValueError
    return at_ms
