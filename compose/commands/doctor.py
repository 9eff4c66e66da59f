"""`backstop doctor`: what keeps this deployment from running, each line with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from compose import keys, wiring
from compose import settings as configuration
from compose.output import DOES_NOT_HOLD, show, show_json, waiting_for
from compose.settings import Settings
from schemas.errors import BackstopError, PreflightFailed, SettingsRefused
from schemas.templates.registry import shipped
from sinks.kafka import admin
from sinks.postgres.migrate import differences, migrate
from streams.engine.selfcheck import check_libraries


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `remedy` is empty when it is well."""

    check: str
    is_well: bool
    says: str
    remedy: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document for machines.")] = False,
) -> None:
    """Check settings, keys, policies, templates, prices, budgets, libraries and accounts, Kafka and Postgres.

    Exit 1 when something is not well.

    Example: backstop doctor
    """
    found: list[Finding] = []
    with waiting_for("the systems that are asked"):
        for finding in _findings():
            found.append(finding)
            if not as_json:  # each as soon as it is known: a system that is away takes its time to be
                _tell(finding)
    if as_json:
        show_json({"findings": [asdict(f) for f in found]})
    if not all(f.is_well for f in found):
        raise typer.Exit(DOES_NOT_HOLD)


def _tell(finding: Finding) -> None:
    show(f"{'ok  ' if finding.is_well else 'FAIL'}  {finding.check}: {finding.says}")
    if not finding.is_well:
        show(f"      what to do: {finding.remedy}")


def _findings() -> Iterator[Finding]:
    settings: Settings | None = None
    try:
        settings = configuration.load()
        yield Finding("settings", True, f"prefix {settings.prefix}, {settings.partitions} partitions")
    except BackstopError as exc:
        yield _failed("settings", exc)
    yield _checked("libraries", _libraries)
    own = settings
    yield _checked(
        "templates",
        lambda: (
            f"{len(shipped() if own is None else configuration.templates(own))} versions, all as released"
        ),
    )
    if settings is None:
        return
    known = settings
    yield _checked("policies", lambda: f"{len(configuration.policies(known))} versions")
    yield _checked("prices", lambda: f"in {configuration.prices(known).currency}")
    yield _checked("budgets", lambda: f"{len(list(configuration.budgets(known).all()))} limits")
    yield _checked("accounts", lambda: ", ".join(wiring.provider_accounts(known)) or "none configured")
    yield _checked("keys", lambda: (keys.letter_key(known.keys), f"readable in {known.keys}")[1])
    kafka = _checked("Kafka", lambda: "; ".join(admin.warnings(known.kafka)) or "answers")
    yield kafka
    if kafka.is_well:
        wanted = wiring.layout(known)
        yield _differing("topics", lambda: admin.verify(known.kafka, wanted), "backstop topics create")
    else:
        yield Finding("topics", False, "not checked: Kafka is away", "Bring Kafka back first.")
    yield _differing("Postgres", lambda: differences(wiring.database_dsn(known)), "backstop migrate")


def _libraries() -> str:
    check_libraries()
    return "as pinned"


def _checked(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except BackstopError as exc:
        return _failed(name, exc)
    except Exception as exc:  # noqa: BLE001  a check that cannot be made is a finding
        return Finding(name, False, f"cannot be checked ({type(exc).__name__})", BackstopError.remedy)


def _differing(name: str, check: Callable[[], list[str]], remedy: str) -> Finding:
    try:
        found = check()
    except BackstopError as exc:
        return _failed(name, exc)
    except Exception as exc:  # noqa: BLE001
        says = f"cannot be reached ({type(exc).__name__})"
        return Finding(name, False, says, "Check that it runs at the configured address.")
    return Finding(name, not found, "; ".join(found) or "as wanted", "" if not found else f"Run `{remedy}`.")


def _failed(name: str, exc: BackstopError) -> Finding:
    if isinstance(exc, SettingsRefused):
        says = "; ".join(_without(name, problem) for problem in exc.problems)
        return Finding(name, False, says, _ALONE.get(exc.remedy, exc.remedy))
    if isinstance(exc, PreflightFailed):
        return Finding(name, False, "; ".join(exc.differences), exc.remedy)
    return Finding(name, False, _without(name, str(exc)), exc.remedy)


def _without(name: str, sentence: str) -> str:
    """The sentence without the check's own name in front, which is printed beside it."""
    before, colon, after = sentence.partition(": ")
    return after if colon and before.lower() == name.lower() else sentence


# Said beside one finding, the general remedy would point at lines that are not there.
_ALONE = {SettingsRefused.remedy: "Correct what is named here."}


def migrate_database(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document for machines.")] = False,
) -> None:
    """Apply the database migrations that are missing; forward only.

    Example: BACKSTOP_POSTGRES=postgresql:///backstop backstop migrate
    """
    dsn = wiring.database_dsn(configuration.load())
    with waiting_for("Postgres"):
        applied = migrate(dsn)
    if as_json:
        show_json({"applied": applied})
    else:
        show("\n".join(applied) if applied else "the database is up to date")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(doctor)
    app.command(name="migrate")(migrate_database)
