"""The ledger of the simulated provider: one line for every request, and what anyone may conclude from it.

It must not hold an address, a number, a link or a body: keyed hashes only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from hashlib import blake2b
from typing import Any

HASH_BYTES = 16  # 128 bits: no two of 10^9 bodies share one
# 2 × 200 000 lines of about 0.6 kB are 240 MB; the largest test of ours makes 20 000 submissions.
SUBMISSIONS_MAX = 200_000
LOOKUP_LINES_MAX = 200_000

_OPEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_BARE = re.compile(r"[0-9.:_-]+")
PHONE_DIGITS_MIN = 7  # the shortest number that E.164 gives a person


class Route(StrEnum):
    """Which call a line is about."""

    SUBMIT = "submit"
    LOOK_UP = "look_up"
    SEARCH = "search"
    BATCH = "batch"
    SUPPRESSIONS = "suppressions"


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. `took`: the message that exists because of it, or whose answer it replayed.

    `reference` and `key` stand in clear when they look like ids, else as `hidden-…`. `found`: the message
    a look-up was about. `plot`: of a message that was taken, so that a restart remembers its fate.
    """

    at_ms: int
    account: str
    route: str
    answered: str
    code: int
    reference: str = ""
    key: str | None = None
    took: str | None = None
    replayed: bool = False
    found: str | None = None
    recipient_hash: str = ""
    body_hash: str = ""
    not_after_ms: int | None = None
    plot: Mapping[str, Any] | None = None


_FIELDS = frozenset(f.name for f in fields(Entry))


class Hasher:
    """Keyed hashes of what must not be shown. The key is made of the seed: fit for a simulator only."""

    def __init__(self, seed: int) -> None:
        self._key = blake2b(f"simulator/{seed}".encode(), digest_size=32).digest()

    def __call__(self, value: str | bytes) -> str:
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return blake2b(raw, key=self._key, digest_size=HASH_BYTES).hexdigest()

    def shown(self, text: str) -> str:
        """`text` when it can only be an id, else its hash: a caller may have put an address there."""
        is_number = _BARE.fullmatch(text) is not None and sum(c.isdigit() for c in text) >= PHONE_DIGITS_MIN
        if _OPEN.fullmatch(text) and not is_number:
            return text
        return f"hidden-{self(text)[:16]}" if text else ""


class Ledger:
    """Lines in the order of arrival."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.lookups_not_kept = 0
        self._submissions = 0
        self._lookups = 0

    @property
    def is_full(self) -> bool:
        """No more submissions can be recorded, so none may be taken."""
        return self._submissions >= SUBMISSIONS_MAX

    def add(self, entry: Entry) -> bool:
        """Keep the line; False for a look-up beyond the limit, which is counted only."""
        if entry.route == Route.SUBMIT:
            self._submissions += 1
        elif self._lookups >= LOOKUP_LINES_MAX:
            self.lookups_not_kept += 1
            return False
        else:
            self._lookups += 1
        self.entries.append(entry)
        return True

    def duplicates(self) -> list[str]:
        """References under which more than one message was taken, within one account."""
        made = Counter((e.account, e.reference) for e in self.entries if is_new(e))
        return sorted({reference for (_, reference), count in made.items() if count > 1})

    def summary(self) -> dict[str, Any]:
        """Per account: requests by answer, messages, replays, duplicates, and those after their own limit."""
        accounts: dict[str, dict[str, Any]] = {}
        for entry in self.entries:
            one = accounts.setdefault(entry.account, _blank())
            if entry.route == Route.SUBMIT:
                one["submissions"][entry.answered] += 1
            else:
                one["lookups"][entry.answered] += 1
            one["messages"] += is_new(entry)
            one["replayed"] += entry.replayed
            one["late"] += (
                is_new(entry) and entry.not_after_ms is not None and entry.at_ms >= entry.not_after_ms
            )
        return {
            "accounts": accounts,
            "duplicates": self.duplicates(),
            "lookups_not_kept": self.lookups_not_kept,
        }

    def lines(self) -> list[dict[str, Any]]:
        """Every line as plain data, without the plots."""
        return [line(e) for e in self.entries]


def _blank() -> dict[str, Any]:
    return {"submissions": Counter(), "lookups": Counter(), "messages": 0, "replayed": 0, "late": 0}


def is_new(entry: Entry) -> bool:
    """A message exists because of this line."""
    return entry.took is not None and not entry.replayed


def line(entry: Entry) -> dict[str, Any]:
    """As it is shown."""
    return {name: value for name, value in asdict(entry).items() if name != "plot"}


def stored(entry: Entry) -> dict[str, Any]:
    """As it is kept in a file: what is shown, and the plot."""
    return asdict(entry)


def restored(lines: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Entries from stored lines. `ValueError` for a line that is none."""
    try:
        return [Entry(**{k: v for k, v in one.items() if k in _FIELDS}) for one in lines]
    except (TypeError, AttributeError):
        raise ValueError("a line of the ledger file is not a ledger entry; move the file away") from None
