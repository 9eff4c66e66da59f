"""Settings: read once, checked whole, refused with a list of all that is wrong.

The only place that reads the environment. A setting may tune a process; none of them can switch off a
guarantee (exactly-once transactions, acknowledgements, the claim, read_committed): those are code.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.accounts import Account
from schemas.budget import Budgets
from schemas.budget import parse as parse_budgets
from schemas.budget import shipped as shipped_budgets
from schemas.errors import BudgetsRefused, PolicyError, PriceTableError, SettingsRefused
from schemas.policy import Policy, released, table
from schemas.policy import read as read_policies
from schemas.price import Prices
from schemas.price import read as read_prices
from schemas.price import released as released_prices
from schemas.record import Model
from schemas.templates.registry import Catalogue, shipped
from schemas.templates.registry import read as read_catalogue
from schemas.topics import PARTITIONS, PREFIX
from schemas.written import NotToml, shown, toml
from sinks.providers import registry

ENV_PREFIX = "BACKSTOP_"
CONFIG_VARIABLE = "BACKSTOP_CONFIG"
REPLAY_PREFIX = "replay."
PREFIX_CHARS_MAX = 64  # with the longest name behind it a topic stays under 120, what coordinates hold
_PREFIX = re.compile(rf"[A-Za-z0-9._-]{{1,{PREFIX_CHARS_MAX}}}")  # the characters of a topic's name


LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def _on_loopback(host: str) -> str:
    if host not in LOOPBACK:
        raise ValueError("health is served on loopback only; put a proxy in front of it")
    return host


class ProviderAccount(Model):
    """One `[[accounts]]` table: the account, where it is (empty: the provider's own address), the file that
    holds its credential, and `[accounts.options]` of its provider."""

    account: Account
    base_url: str
    credential_file: Path | None
    options: dict[str, Any] = Field(default_factory=dict)


class Settings(BaseSettings):
    """Every setting, its unit and its default. Environment: `BACKSTOP_` + the name in upper case.

    A TOML file named by `BACKSTOP_CONFIG` gives the same names; the environment wins over it.
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    # Where Kafka is, `host:port,host:port`.
    kafka: str = "127.0.0.1:9092"
    # Prefix of all topics; also of the consumer groups. Nothing is dispatched from `replay.`.
    prefix: str = PREFIX
    # Partitions of the co-partitioned topics: fixed for the life of the topics (case F48).
    partitions: Annotated[int, Field(ge=1, le=1024)] = PARTITIONS
    replication: Annotated[int, Field(ge=1, le=9)] = 3
    min_insync: Annotated[int, Field(ge=1, le=9)] = 2
    # libpq connection string of the claim and audit database.
    postgres: SecretStr = SecretStr("")
    # Folder with the keys `backstop keys generate` writes.
    keys: Path = Path("keys")
    # TOML file with `[[accounts]]`.
    accounts_file: Path | None = None
    # Folder of policies beside the shipped ones: `<name>/v<n>.toml` and `MANIFEST`.
    policies_dir: Path | None = None
    # Folder of template versions beside the shipped ones: `<name>/v<n>/` and `MANIFEST`.
    templates_dir: Path | None = None
    # Folder of price tables instead of the shipped one: `<name>/v<n>.toml` and `MANIFEST`.
    prices_dir: Path | None = None
    # TOML file of limits on SMS instead of the shipped ones; in the currency of the prices.
    budgets_file: Path | None = None

    # The worker's slot names its transactional id: one live process per slot.
    worker_slot: str = Field(default_factory=lambda: f"{socket.gethostname()}-0")
    # How long a stopped worker keeps its partitions (ms).
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=300_000)] = 30_000
    # How long a transaction of a dead worker may block readers (ms).
    transaction_timeout_ms: Annotated[int, Field(ge=2_000, le=900_000)] = 10_000
    # How often due intents are looked for (ms).
    tick_interval_ms: Annotated[int, Field(ge=20, le=10_000)] = 1_000

    # A provider call may take this long (ms); the lease of a claim is longer.
    call_timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = 10_000
    lease_ms: Annotated[int, Field(ge=300, le=600_000)] = 30_000
    # Largest difference tolerated between our clock, the database and the log (ms).
    clock_skew_ms_max: Annotated[int, Field(ge=10, le=60_000)] = 2_000
    # Submissions in flight per dispatcher process.
    dispatcher_concurrency: Annotated[int, Field(ge=1, le=256)] = 16
    # How long an SMS claim may wait until everybody's completions are read (ms).
    completions_wait_ms: Annotated[int, Field(ge=50, le=60_000)] = 2_000
    # Look-ups in flight per poller process.
    poller_concurrency: Annotated[int, Field(ge=1, le=256)] = 8

    # Liveness, readiness and metrics of this process; 0 chooses a free port and logs it.
    health_host: Annotated[str, AfterValidator(_on_loopback)] = "127.0.0.1"
    health_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    log_level: Annotated[str, Field(pattern="^(DEBUG|INFO|WARNING|ERROR)$")] = "INFO"
    log_json: bool = False

    @field_validator("prefix")
    @classmethod
    def _prefix_is_a_name(cls, prefix: str) -> str:
        if not _PREFIX.fullmatch(prefix) or not prefix.strip("."):
            raise ValueError(f"a prefix is 1 to {PREFIX_CHARS_MAX} of a-z A-Z 0-9 . - _, and not only dots")
        return prefix

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.min_insync > self.replication:
            raise ValueError("min_insync cannot be larger than replication")
        if self.lease_ms < self.call_timeout_ms + self.clock_skew_ms_max:
            raise ValueError("lease_ms must be at least call_timeout_ms + clock_skew_ms_max")
        if self.transaction_timeout_ms > self.session_timeout_ms * 10:
            raise ValueError("transaction_timeout_ms is out of proportion to session_timeout_ms")
        return self


def load(overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process. Raises `SettingsRefused` with every problem, values not quoted."""
    known, problems = set(Settings.model_fields), []
    config = os.environ.get(CONFIG_VARIABLE)
    in_file, unreadable = _toml_file(Path(config)) if config else ({}, None)
    if unreadable is not None:
        problems.append(f"{CONFIG_VARIABLE}: {unreadable}")
    # A name that is no setting never reaches `Settings`: its own options (`_env_file`) are names too.
    problems += [f"{name}: no such setting" for name in in_file if name not in known]
    given = {name: value for name, value in in_file.items() if name in known}
    for name in os.environ:
        if (
            name.upper().startswith(ENV_PREFIX) and name != CONFIG_VARIABLE
        ):  # in any case, as pydantic reads it
            field = name[len(ENV_PREFIX) :].lower()
            if field not in known:
                problems.append(f"{name}: no such setting")
            given.pop(field, None)  # the environment wins over the file
    given.update(overrides or {})
    try:
        settings = Settings(**given)
    except ValidationError as exc:
        problems += [
            f"{'.'.join(map(str, e['loc'])) or 'settings'}: {_said(e['type'], e['msg'])}"
            for e in exc.errors(include_input=False, include_url=False)
        ]
        raise SettingsRefused(problems) from None
    if problems:
        raise SettingsRefused(problems)
    return settings


def _toml_file(path: Path) -> tuple[dict[str, Any], str | None]:
    """The table of a file, or an empty one and why it cannot be read."""
    try:
        return toml(path.read_text("utf-8")), None
    except NotToml as exc:
        return {}, f"{path} is not TOML: {exc}"
    except (OSError, ValueError) as exc:  # not there, not UTF-8, not a path
        return {}, f"{path} cannot be read as TOML ({type(exc).__name__})"


def _said(kind: str, message: str) -> str:
    return "no such setting" if kind == "extra_forbidden" else message.removeprefix("Value error, ")


def accounts(settings: Settings) -> dict[str, ProviderAccount]:
    """The provider accounts by name. Raises `SettingsRefused`."""
    path = settings.accounts_file
    if path is None:
        return {}
    found_in_file, unreadable = _toml_file(path)
    tables = found_in_file.get("accounts", [])
    if unreadable is None and not (isinstance(tables, list) and all(isinstance(t, dict) for t in tables)):
        unreadable = f"{path}: accounts are tables, [[accounts]]"
    if unreadable is not None:
        raise SettingsRefused([f"accounts_file: {unreadable}"])
    problems: list[str] = []
    found: dict[str, ProviderAccount] = {}
    for number, entry in enumerate(tables):
        try:
            made = _account(entry)
        except ValidationError as exc:
            wrong = ", ".join(".".join(map(str, e["loc"])) for e in exc.errors(include_input=False))
            problems.append(f"accounts[{number}]: missing or wrong: {wrong}")
            continue
        except SettingsRefused as exc:
            problems += [f"accounts[{number}]: {problem}" for problem in exc.problems]
            continue
        except ValueError:  # a number that JSON has no room for
            problems.append(f"accounts[{number}]: a number has too many digits")
            continue
        if made.account.name in found:
            problems.append(f"accounts[{number}]: {made.account.name} is listed twice")
        found[made.account.name] = made
    if problems:
        raise SettingsRefused(problems)
    return found


_PLACE = ("base_url", "credential_file", "options")


def _account(entry: Mapping[str, Any]) -> ProviderAccount:
    """Read as JSON, where an enum is its text and a number not a text; a date is nothing we have."""
    place = {name: entry.get(name) for name in _PLACE}
    fields = {name: value for name, value in entry.items() if name not in _PLACE}
    provider = fields.get("provider")
    if isinstance(provider, str):
        fields["channel"] = registry.channel_of(provider, fields.get("channel"))
    said = fields.setdefault("capabilities", {})
    account = Account.model_validate_json(json.dumps(fields, default=lambda _date: None))
    held = registry.capabilities(account, frozenset(said))
    registry.options_of(account, place["options"] or {})
    file = place["credential_file"]
    return ProviderAccount(
        account=account.model_copy(update={"capabilities": held}),
        base_url=place["base_url"] or "",
        credential_file=Path(file) if isinstance(file, str) else file,
        options=place["options"] or {},
    )


def templates(settings: Settings) -> Catalogue:
    """The shipped versions and those of `templates_dir`. Raises `SettingsRefused`, `TemplateBroken`."""
    if settings.templates_dir is None:
        return shipped()
    _check_folder("templates_dir", settings.templates_dir)
    return shipped().beside(read_catalogue(settings.templates_dir))


def _check_folder(name: str, path: Path) -> None:
    """Raises `SettingsRefused`. A name can be one that no file system takes."""
    try:
        is_there = path.is_dir()
    except (OSError, ValueError):
        is_there = False
    if not is_there:
        raise SettingsRefused([f"{name}: {shown(str(path))} is not a folder"])


def policies(settings: Settings) -> dict[str, Policy]:
    """The released policies and those of `policies_dir`. Raises `SettingsRefused`."""
    found = list(released().values())
    if settings.policies_dir is not None:
        _check_folder("policies_dir", settings.policies_dir)
        try:
            found += read_policies(settings.policies_dir)
        except (OSError, PolicyError) as exc:
            raise SettingsRefused([f"policies_dir: {exc}"]) from None
    try:
        return table(found)
    except PolicyError as exc:
        raise SettingsRefused([f"policies_dir: {exc}"]) from None


def prices(settings: Settings) -> Prices:
    """The price tables of `prices_dir`, else the shipped ones. Raises `SettingsRefused`."""
    if settings.prices_dir is None:
        return Prices(released_prices())
    _check_folder("prices_dir", settings.prices_dir)
    try:
        return Prices(read_prices(settings.prices_dir))
    except (OSError, PriceTableError) as exc:
        raise SettingsRefused([f"prices_dir: {exc}"]) from None


def budgets(settings: Settings) -> Budgets:
    """The limits of `budgets_file`, else the shipped ones. Raises `SettingsRefused`."""
    found, path = shipped_budgets(), settings.budgets_file
    if path is not None:
        try:
            found = parse_budgets(path.read_text("utf-8"), name=shown(str(path)))
        except (OSError, ValueError) as exc:  # not there, not UTF-8, not a path
            raise SettingsRefused([f"budgets_file: cannot be read ({type(exc).__name__})"]) from None
        except BudgetsRefused as exc:
            raise SettingsRefused([f"budgets_file: {exc}"]) from None
    priced_in = prices(settings).currency
    if found.currency != priced_in:
        raise SettingsRefused([f"budgets_file: limits are in {found.currency}, prices in {priced_in}"])
    return found
