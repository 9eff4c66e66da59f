"""What an SMS segment costs, by country: released tables, each in force from an instant on.

A released file never changes; a new price is a new version with a later `valid_from`. It must not guess: a
country without a price gets no SMS (case F18: +1 is 25 countries at different prices).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated

from pydantic import AwareDatetime, ConfigDict, Field, ValidationError

from schemas.errors import PriceTableError
from schemas.ids import Country, TemplateRef
from schemas.manifest import check, released_files
from schemas.record import Model
from schemas.written import NotToml, toml

PER_SEGMENT_MAX = Decimal(5)  # the dearest mobile number of any list price is below one unit
DECIMALS_MAX = 6
Money = Annotated[Decimal, Field(gt=0, decimal_places=DECIMALS_MAX)]
Currency = Annotated[str, Field(pattern="^[A-Z]{3}$")]


class PriceTable(Model):
    """One version: `per_segment` in whole units of `currency` (ISO 4217), in force from `valid_from` on."""

    model_config = ConfigDict(extra="forbid")

    table: TemplateRef
    currency: Currency
    valid_from: AwareDatetime
    per_segment: Annotated[dict[Country, Annotated[Money, Field(le=PER_SEGMENT_MAX)]], Field(min_length=1)]

    @property
    def from_ms(self) -> int:
        return round(self.valid_from.timestamp() * 1000)


class Prices:
    """Tables of one currency by the instant from which they hold."""

    def __init__(self, tables: Iterable[PriceTable]) -> None:
        """Raises `PriceTableError`: none, two currencies, or two from the same instant."""
        self._tables = sorted(tables, key=lambda t: t.from_ms)
        if not self._tables:
            raise PriceTableError("there is no price table", code="none")
        if len({t.currency for t in self._tables}) > 1:
            raise PriceTableError(
                "price tables have one currency; budgets are counted in it", code="currency"
            )
        if len({t.from_ms for t in self._tables}) < len(self._tables):
            raise PriceTableError("two price tables hold from the same instant", code="duplicate")

    @property
    def currency(self) -> str:
        return self._tables[0].currency

    def per_segment(self, country: str, now_ms: int) -> Decimal | None:
        """What a segment costs there now; None: nobody said, so nothing is sent."""
        table = self._table(now_ms)
        return None if table is None else table.per_segment.get(country)

    def least(self, now_ms: int, country: str | None = None) -> Decimal:
        """The cheapest segment there, or anywhere; nothing when nobody said."""
        table = self._table(now_ms)
        found = {} if table is None else table.per_segment
        return found.get(country, Decimal(0)) if country else min(found.values(), default=Decimal(0))

    def _table(self, now_ms: int) -> PriceTable | None:
        there = [t for t in self._tables if t.from_ms <= now_ms]
        return there[-1] if there else None


def parse(text: str, *, name: str) -> PriceTable:
    """One table from TOML; prices are text, so that no binary fraction comes in. Raises `PriceTableError`."""
    try:
        given = toml(text)
    except NotToml as exc:
        raise PriceTableError(f"price table {name} is not TOML: {exc}", code="malformed") from None
    listed = given.get("per_segment")
    floats = [c for c, p in listed.items() if not isinstance(p, str)] if isinstance(listed, dict) else []
    if floats:
        raise PriceTableError(
            f'price table {name}: write prices as text ("0.05"): {", ".join(sorted(floats)[:9])}',
            code="not_text",
        )
    try:
        return PriceTable.model_validate(given, strict=False)
    except ValidationError as exc:
        wrong = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors(include_input=False)
        )
        raise PriceTableError(f"price table {name}: {wrong}", code="invalid_field") from None


def read(root: Traversable) -> list[PriceTable]:
    """The tables in a folder with `<name>/v<n>.toml` and `MANIFEST`. Raises `PriceTableError`."""
    wrong = check(root)
    if wrong is not None:
        raise PriceTableError(f"prices: {wrong}", code="manifest")
    found = []
    for path, content in sorted(released_files(root).items()):
        try:
            table = parse(content.decode("utf-8"), name=path)
        except UnicodeDecodeError:
            raise PriceTableError(f"price table {path} is not text (UTF-8)", code="malformed") from None
        if table.table != path.removesuffix(".toml").replace("/", ":"):
            raise PriceTableError(f"{path} calls itself {table.table}", code="misnamed")
        found.append(table)
    return found


@cache
def released() -> Sequence[PriceTable]:
    """The tables that ship with this version."""
    return tuple(read(files("schemas.prices")))
