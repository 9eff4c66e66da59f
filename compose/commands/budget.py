"""`backstop budget`: how much of each limit on SMS is used. It must not change a limit or a count."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Any

import typer

from compose import settings as configuration
from compose import wiring
from compose.output import DOES_NOT_HOLD, show, show_json, waiting_for
from schemas.budget import money
from sinks.operator.budgets import Line, State, lines

app = typer.Typer(
    help="Read what SMS have cost, against its limits.\n\nExample: backstop budget show",
    no_args_is_help=True,
)

SHOWN_MAX = 10  # scopes of one limit, the fullest first; the rest are counted


@app.callback()
def group() -> None: ...


@app.command("show")
def show_budgets(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document with every scope.")] = False,
) -> None:
    """Each limit on SMS in each scope: what is used in its window, of how much, and whether it is open.

    Exit 1 when a limit that holds or refuses is reached, so that a monitor can ask.

    Example: backstop budget show
    """
    settings = configuration.load()
    budgets, prices = configuration.budgets(settings), configuration.prices(settings)
    database = wiring.guard(settings, size_max=1)
    try:
        with waiting_for("Postgres"):
            found = lines(database, budgets, prices)
    finally:
        database.close()
    if as_json:
        show_json({"currency": budgets.currency, "limits": [_as_dict(one) for one in found]})
    else:
        _tell(found, budgets.currency)
    if any(one.state is State.CLOSED for one in found):
        raise typer.Exit(DOES_NOT_HOLD)


def _tell(found: list[Line], currency: str) -> None:
    if not found:
        show("no limit counts anything yet")
    for name, of_limit in groupby(found, key=lambda one: one.limit):
        scopes = list(of_limit)
        show(f"{name} ({scopes[0].kind}, {scopes[0].action.value})")
        for one in scopes[:SHOWN_MAX]:
            show(
                f"  {_state(one):12} {one.percent:4} %  {_amounts(one, currency)}  {one.window}  {one.scope}"
            )
        if len(scopes) > SHOWN_MAX:
            show(f"  and {len(scopes) - SHOWN_MAX} more, none of them fuller")


def _state(one: Line) -> str:
    if one.state is not State.WARNING:
        return one.state.value
    passed = max(share for share in (50, 80, 90) if one.percent >= share)
    return f"over {passed} %"


def _amounts(one: Line, currency: str) -> str:
    if one.kind == "spend":
        return f"{money(one.used, currency)} of {money(one.at_most, currency)}"
    what = "without a completion, closed at" if one.kind == "completion" else "sent, of"
    return f"{one.used} {what} {one.at_most}"


def _as_dict(one: Line) -> dict[str, Any]:
    return {
        "limit": one.limit,
        "kind": one.kind,
        "scope": one.scope,
        "window": one.window,
        "used": f"{one.used.normalize():f}",
        "at_most": f"{one.at_most.normalize():f}",
        "percent": one.percent,
        "action": one.action.value,
        "state": one.state.value,
    }
