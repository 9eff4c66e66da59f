"""Prices: released, dated, written as text, and never guessed."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from compose import settings as configuration
from compose.settings import Settings
from schemas.budget import shipped
from schemas.destinations import PhoneNumber
from schemas.errors import PriceTableError, SettingsRefused
from schemas.manifest import manifest, released_files
from schemas.policy import released as released_policies
from schemas.price import Prices, PriceTable, parse, read, released

DAY_MS = 86_400_000
FROM_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
TABLE = """
table = "sms:v1"
currency = "EUR"
valid_from = 2026-01-01T00:00:00Z
[per_segment]
GB = "0.05"
"""


def later(text: str = TABLE, *, day: str = "2026-02-01") -> PriceTable:
    return parse(text.replace("2026-01-01", day).replace(":v1", ":v2").replace("0.05", "0.07"), name="later")


def test_a_price_holds_from_its_instant_until_the_next_table() -> None:
    prices = Prices([later(), parse(TABLE, name="first")])
    change_ms = FROM_MS + 31 * DAY_MS
    assert prices.per_segment("GB", FROM_MS - 1) is None
    assert prices.per_segment("GB", FROM_MS) == Decimal("0.05")
    assert prices.per_segment("GB", change_ms - 1) == Decimal("0.05")
    assert prices.per_segment("GB", change_ms) == Decimal("0.07")


@pytest.mark.parametrize("number", ["+18765550123", "+16135550123", "+12025550123"])
def test_plus_one_is_priced_by_the_country_of_its_area_code(number: str) -> None:
    """Case F18: Jamaica has no price, Canada and the United States have one each."""
    country = PhoneNumber.parse(number).country
    found = Prices(released()).per_segment(country, FROM_MS)
    assert (found is None) == (country == "JM")


def test_every_country_a_released_policy_texts_has_a_price() -> None:
    prices = Prices(released())
    wanted = {c for p in released_policies().values() for c in p.sms.countries}
    assert [c for c in sorted(wanted) if prices.per_segment(c, FROM_MS) is None] == []


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        (('"0.05"', "0.05"), "not_text", "GB"),
        (('"0.05"', '"0"'), "invalid_field", "GB"),
        (('"0.05"', '"-1"'), "invalid_field", "GB"),
        (('"0.05"', '"5.01"'), "invalid_field", "GB"),
        (('"0.05"', '"0.0000001"'), "invalid_field", "GB"),
        (('"0.05"', '"NaN"'), "invalid_field", "GB"),
        (("GB", "gb"), "invalid_field", "gb"),
        (("EUR", "euro"), "invalid_field", "currency"),
        (("2026-01-01T00:00:00Z", "2026-01-01T00:00:00"), "invalid_field", "valid_from"),
        (('GB = "0.05"', ""), "invalid_field", "per_segment"),
        (("currency", "curency"), "invalid_field", "curency"),
        (("[per_segment]", "[per_segment"), "malformed", "TOML"),
    ],
)
def test_a_table_that_does_not_hold_together_is_refused(
    changed: tuple[str, str], code: str, said: str
) -> None:
    with pytest.raises(PriceTableError, match=said) as found:
        parse(TABLE.replace(*changed), name="prices")
    assert found.value.code == code


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ([], "none"),
        ([parse(TABLE, name="a"), later(TABLE.replace("EUR", "USD"))], "currency"),
        ([parse(TABLE, name="a"), later(day="2026-01-01")], "duplicate"),
    ],
)
def test_tables_that_contradict_each_other_are_refused(tables: list[PriceTable], code: str) -> None:
    with pytest.raises(PriceTableError) as found:
        Prices(tables)
    assert found.value.code == code


def test_a_folder_of_prices_replaces_the_shipped_ones_and_must_be_in_the_currency_of_the_limits(
    tmp_path: Path,
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "v1.toml").write_text(TABLE.replace("sms:", "own:").replace("GB", "FR"))
    (tmp_path / "MANIFEST").write_text(manifest(released_files(tmp_path)))
    settings = Settings(prices_dir=tmp_path)
    assert configuration.prices(settings).per_segment("GB", FROM_MS) is None
    assert configuration.prices(settings).per_segment("FR", FROM_MS) == Decimal("0.05")
    assert configuration.budgets(settings) == shipped()
    table = (tmp_path / "own" / "v1.toml").read_text()
    (tmp_path / "own" / "v1.toml").write_text(table.replace("EUR", "USD"))
    with pytest.raises(SettingsRefused, match="manifest"):
        configuration.prices(settings)
    (tmp_path / "MANIFEST").write_text(manifest(released_files(tmp_path)))
    with pytest.raises(SettingsRefused, match="limits are in EUR, prices in USD"):
        configuration.budgets(settings)


def test_a_table_altered_after_its_release_or_misnamed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sms").mkdir()
    table = tmp_path / "sms" / "v1.toml"
    table.write_text(TABLE)
    (tmp_path / "MANIFEST").write_text(manifest(released_files(tmp_path)))
    assert [t.table for t in read(tmp_path)] == ["sms:v1"]
    table.write_text(TABLE.replace("0.05", "0.01"))
    with pytest.raises(PriceTableError, match=r"sms/v1\.toml"):
        read(tmp_path)
    table.rename(tmp_path / "sms" / "v2.toml")
    (tmp_path / "MANIFEST").write_text(manifest(released_files(tmp_path)))
    with pytest.raises(PriceTableError, match="calls itself"):
        read(tmp_path)
