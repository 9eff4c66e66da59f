"""`backstop template`: make, check, look at, release and retire what people read."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from compose import preview as pages
from compose import releases
from compose import settings as configuration
from compose.clock import SystemClock
from compose.output import DOES_NOT_HOLD, say, show, show_json
from compose.releases import ReleaseRefused
from schemas.policy import Policy
from schemas.templates.lint import Finding, lint
from schemas.templates.registry import Template, read_version, shipped, versions
from sinks.operator.references import live_intents

app = typer.Typer(
    help="Make, check, look at, release and retire template versions.\n\n"
    "A shelf is a folder with <name>/v<n>/ and MANIFEST; the processes read BACKSTOP_TEMPLATES_DIR.\n\n"
    "Example: backstop template lint --shelf templates",
    no_args_is_help=True,
)

Ref = Annotated[str, typer.Argument(help="A version, such as password_reset:v2.")]
Shelf = Annotated[
    Path | None, typer.Option(help="Folder of the catalogue; BACKSTOP_TEMPLATES_DIR when not said.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]
EXPIRY_MS = 900_000  # of a preview: a quarter of an hour from now


def own_shelf(given: Path | None) -> Path:
    return releases.own_shelf(given, configuration.load().templates_dir, "BACKSTOP_TEMPLATES_DIR")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the template, such as password_reset.")],
    shelf: Shelf = None,
    like: Annotated[
        str | None, typer.Option(help="Version to copy; the newest of that name, or a shipped one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the newest version (or another one) as the next version of a name, to be edited.

    Example: backstop template new password_reset --shelf templates --like password_reset:v1
    """
    root = own_shelf(shelf)
    ref = releases.next_place(root, name)
    there = dict(versions(root)) if root.is_dir() else {}
    source = like or next((r for r in reversed(list(there)) if r.partition(":")[0] == name), f"{name}:v1")
    place = root / ref.replace(":", "/")
    if source in there:
        shutil.copytree(Path(str(there[source])), place)
    elif source in shipped():
        with as_file(files("schemas.templates").joinpath("catalog", *source.split(":"))) as folder:
            shutil.copytree(folder, place, ignore=shutil.ignore_patterns("__*"))
    else:
        known = ", ".join(sorted({*there, *shipped()}))
        raise ReleaseRefused(f"{source} is nowhere; known are {known}", code="not_there")
    if as_json:
        show_json({"version": ref, "folder": str(place), "copied_from": source})
        return
    show(f"{ref} in {place}, a copy of {source}")
    say(f"next: edit it, then backstop template lint {ref} --shelf {root}")


@app.command(name="lint")
def lint_command(
    ref: Annotated[str | None, typer.Argument(help="A version; all of the shelf when not said.")] = None,
    shelf: Shelf = None,
    as_json: AsJson = False,
) -> None:
    """Name every mistake by file and rule. Exit 1 when there is one.

    Example: backstop template lint password_reset:v2 --shelf templates
    """
    found = _linted(own_shelf(shelf), ref)
    if as_json:
        show_json({one: [_as_dict(f) for f in mistakes] for one, mistakes in found.items()})
    else:
        for one, mistakes in found.items():
            for finding in mistakes:
                show(f"{one.replace(':', '/')}/{finding.place}: {finding.rule}: {finding.says}")
        count = sum(map(len, found.values()))
        say(f"{len(found)} versions, {count} findings")
    if any(found.values()):
        raise typer.Exit(DOES_NOT_HOLD)


@app.command()
def preview(
    ref: Ref,
    out: Annotated[Path, typer.Option(help="Folder for the files.")],
    shelf: Shelf = None,
    locale: Annotated[str, typer.Option(help="Locale, such as en or fr-CA.")] = "en",
    var: Annotated[list[str] | None, typer.Option(help="A variable, NAME=VALUE; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write both channels to files, and index.html that shows them beside each other.

    Example: backstop template preview password_reset:v1 --out preview --locale fr --var name=Zoé
    """
    template = _anywhere(ref, shelf)
    given = dict(_pair(text) for text in var or ())
    expiry_ms = SystemClock().now_ms() + EXPIRY_MS
    made = pages.write(template, locale, pages.samples(template, given), expiry_ms, out)
    if as_json:
        show_json({"written": [str(path) for path in made]})
        return
    show("\n".join(str(path) for path in made))
    say(f"open {out / 'index.html'}")


@app.command()
def release(ref: Ref, shelf: Shelf = None, as_json: AsJson = False) -> None:
    """Check a version and write its hashes into the manifest; from then on it never changes.

    Example: backstop template release password_reset:v2 --shelf templates
    """
    root = own_shelf(shelf)
    mistakes = _linted(root, ref)[ref]
    if mistakes:
        raise ReleaseRefused(
            f"{ref} has {len(mistakes)} findings, the first in {mistakes[0].place}: {mistakes[0].says}",
            code="findings",
            remedy=f"backstop template lint {ref} names them all; correct them and release it again.",
        )
    paths = releases.release(root, ref)
    if as_json:
        show_json({"released": ref, "files": paths})
        return
    show(f"{ref} is released: {len(paths)} files in {root / 'MANIFEST'}")
    say(
        "next: deploy the catalogue to worker, dispatcher and publishers, then release a policy that names it"
    )


@app.command()
def references(ref: Ref, as_json: AsJson = False) -> None:
    """Who still needs a version: the policies that pin it and the live intents under them.

    Example: backstop template references password_reset:v1
    """
    pinned, live, unknown = _references(ref)
    if as_json:
        show_json({"version": ref, "policies": pinned, "live_intents": live, "of_unknown_policy": unknown})
        return
    show(f"{ref}: pinned by {', '.join(pinned) or 'no policy'}; {live} live intents")
    if unknown:
        say(f"{unknown} more live intents have a policy that is not known here")


@app.command()
def retire(ref: Ref, shelf: Shelf = None, as_json: AsJson = False) -> None:
    """Take a version off the shelf for good, once no policy and no live intent needs it.

    Reads the worker's state on Kafka. Its name stays used up: RETIRED keeps the hashes.

    Example: backstop template retire password_reset:v1 --shelf templates
    """
    root = own_shelf(shelf)
    if not releases.is_released(root, ref):
        raise ReleaseRefused(f"{ref} is not released on this shelf", code="not_released")
    pinned, live, unknown = _references(ref)
    if live or unknown:
        raise ReleaseRefused(
            f"{live} live intents need {ref}"
            + (f", and {unknown} have an unknown policy" if unknown else ""),
            code="referenced",
            remedy="Wait until the last of them is over (its expiry and late evidence), then retire it.",
        )
    if pinned:
        raise ReleaseRefused(
            f"{', '.join(pinned)} pin {ref}: new intents may still come",
            code="pinned",
            remedy="Retire those policies first: backstop policy retire POLICY.",
        )
    paths = releases.retire(root, ref)
    if as_json:
        show_json({"retired": ref, "files": paths})
        return
    show(f"{ref} is retired; {len(paths)} files are gone and its name is used up")


def _references(ref: str) -> tuple[list[str], int, int]:
    settings = configuration.load()
    policies: dict[str, Policy] = configuration.policies(settings)
    pinned = sorted(name for name, policy in policies.items() if policy.template == ref)
    counts = live_intents(settings.kafka, settings.prefix)
    live = sum(counts[name] for name in pinned)
    return pinned, live, sum(n for name, n in counts.items() if name not in policies)


def _linted(root: Path, ref: str | None) -> dict[str, list[Finding]]:
    found = {one: lint(one, folder) for one, folder in versions(root) if ref in (None, one)}
    if ref is not None and ref not in found:
        releases.name_and_version(ref)
        raise ReleaseRefused(f"{ref} is not on this shelf", code="not_there")
    return found


def _anywhere(ref: str, shelf: Path | None) -> Template:
    root = shelf or configuration.load().templates_dir
    for one, folder in versions(root) if root is not None else ():
        if one == ref:
            return read_version((ref, folder))
    return shipped().find(ref)


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise typer.BadParameter("a variable is NAME=VALUE", param_hint="--var")
    return name, value


def _as_dict(finding: Finding) -> dict[str, str]:
    return {"file": finding.place, "rule": finding.rule, "says": finding.says}
