"""`backstop policy`: make, check, compare, release and retire what may be sent, when and to whom."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from compose import releases
from compose import settings as configuration
from compose.output import DOES_NOT_HOLD, say, show, show_json
from compose.releases import ReleaseRefused
from schemas.manifest import released_files
from schemas.policy import Policy, named, parse, released
from schemas.policy_lint import Remark, lint
from sinks.operator.references import live_intents

app = typer.Typer(
    help="Make, check, compare, release and retire policies.\n\n"
    "A shelf is a folder with <name>/v<n>.toml and MANIFEST; the processes read BACKSTOP_POLICIES_DIR.\n\n"
    "Example: backstop policy lint --shelf policies",
    no_args_is_help=True,
)

Ref = Annotated[str, typer.Argument(help="A policy, such as password_reset:v2.")]
Shelf = Annotated[
    Path | None, typer.Option(help="Folder of the policies; BACKSTOP_POLICIES_DIR when not said.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]


def own_shelf(given: Path | None) -> Path:
    return releases.own_shelf(given, configuration.load().policies_dir, "BACKSTOP_POLICIES_DIR")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Purpose, or purpose__variant, such as password_reset__short.")],
    shelf: Shelf = None,
    like: Annotated[str | None, typer.Option(help="Policy to copy; the newest of that name.")] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the newest version (or another one) as the next version of a name, to be edited.

    Example: backstop policy new password_reset__short --shelf policies --like password_reset:v1
    """
    root = own_shelf(shelf)
    ref = releases.next_place(root, name)
    own = [f"{name}:v{number}" for number in releases.versions_of(root, name)]
    source = like or (own[-1] if own else f"{name.partition('__')[0]}:v1")
    text = _text(source, root)
    place = root / f"{ref.replace(':', '/')}.toml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text.replace(f'policy = "{source}"', f'policy = "{ref}"', 1), "utf-8")
    if as_json:
        show_json({"policy": ref, "file": str(place), "copied_from": source})
        return
    show(f"{ref} in {place}, a copy of {source}")
    say(f"next: edit it, then backstop policy lint {ref} --shelf {root}")


@app.command(name="lint")
def lint_command(
    ref: Annotated[str | None, typer.Argument(help="A policy; all of the shelf when not said.")] = None,
    shelf: Shelf = None,
    as_json: AsJson = False,
) -> None:
    """Check the numbers against each other and show what they come to. Exit 1 when one cannot be meant.

    Example: backstop policy lint password_reset__short:v1 --shelf policies
    """
    found = _linted(own_shelf(shelf), ref)
    if as_json:
        show_json({one: [_as_dict(r) for r in remarks] for one, remarks in found.items()})
    else:
        for one, remarks in found.items():
            show(one)
            for remark in remarks:
                show(f"  {'WRONG ' if remark.is_mistake else ''}{remark.rule}: {remark.says}")
    if any(r.is_mistake for remarks in found.values() for r in remarks):
        raise typer.Exit(DOES_NOT_HOLD)


@app.command()
def diff(first: Ref, second: Ref, shelf: Shelf = None, as_json: AsJson = False) -> None:
    """Name every field in which two policies differ. Exit 1 when they do, as diff does.

    Example: backstop policy diff password_reset:v1 password_reset__short:v1 --shelf policies
    """
    root = shelf or configuration.load().policies_dir
    one, other = (_fields(parse(_text(ref, root), name=ref)) for ref in (first, second))
    apart = {
        key: (one.get(key), other.get(key)) for key in {**one, **other} if one.get(key) != other.get(key)
    }
    if as_json:
        show_json({key: {"first": a, "second": b} for key, (a, b) in apart.items()})
    else:
        show("\n".join(f"{key}: {a} -> {b}" for key, (a, b) in apart.items()) or "no difference")
    if apart:
        raise typer.Exit(DOES_NOT_HOLD)


@app.command()
def release(ref: Ref, shelf: Shelf = None, as_json: AsJson = False) -> None:
    """Check a policy and write its hash into the manifest; from then on it never changes.

    Example: backstop policy release password_reset__short:v1 --shelf policies
    """
    root = own_shelf(shelf)
    mistakes = [remark for remark in _linted(root, ref)[ref] if remark.is_mistake]
    if mistakes:
        raise ReleaseRefused(
            f"{ref}: {mistakes[0].rule}: {mistakes[0].says}",
            code="findings",
            remedy=f"backstop policy lint {ref} names all that is wrong; correct it and release it again.",
        )
    if ref in released():
        raise ReleaseRefused(f"{ref} ships with Backstop; take a variant, name__variant", code="shipped")
    paths = releases.release(root, ref)
    if as_json:
        show_json({"released": ref, "files": paths})
        return
    show(f"{ref} is released in {root / 'MANIFEST'}")
    say("next: deploy it to worker and publishers; intents may name it once every worker knows it")


@app.command()
def retire(ref: Ref, shelf: Shelf = None, as_json: AsJson = False) -> None:
    """Take a policy off the shelf for good, once no live intent needs it. Its name stays used up.

    Example: backstop policy retire password_reset__short:v1 --shelf policies
    """
    root, settings = own_shelf(shelf), configuration.load()
    if not releases.is_released(root, ref):
        raise ReleaseRefused(f"{ref} is not released on this shelf", code="not_released")
    live = live_intents(settings.kafka, settings.prefix)[ref]
    if live:
        raise ReleaseRefused(
            f"{live} live intents need {ref}",
            code="referenced",
            remedy="Stop publishing under it and wait until the last of them is over, then retire it.",
        )
    paths = releases.retire(root, ref)
    if as_json:
        show_json({"retired": ref, "files": paths})
        return
    show(f"{ref} is retired and its name is used up")


def _linted(root: Path, ref: str | None) -> dict[str, list[Remark]]:
    if ref is not None:
        releases.name_and_version(ref)
    templates = configuration.templates(configuration.load())
    found = {}
    for path, content in sorted(released_files(root).items()):
        one = path.removesuffix(".toml").replace("/", ":")
        if ref in (None, one):
            policy = named(path, content)
            found[one] = lint(policy, templates.get(policy.template))
    if ref is not None and ref not in found:
        raise ReleaseRefused(f"{ref} is not on this shelf", code="not_there")
    return found


def _text(ref: str, root: Path | None) -> str:
    name, number = releases.name_and_version(ref)
    if root is not None and (root / name / f"v{number}.toml").is_file():
        return (root / name / f"v{number}.toml").read_text("utf-8")
    if ref in released():
        return files("schemas.policies").joinpath(name, f"v{number}.toml").read_text("utf-8")
    raise ReleaseRefused(f"{ref} is nowhere; shipped are {', '.join(released())}", code="not_there")


def _fields(policy: Policy) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def walk(place: dict[str, Any], before: str) -> None:
        for key, value in place.items():
            if isinstance(value, dict):
                walk(value, f"{before}{key}.")
            else:
                found[before + key] = value

    walk(policy.model_dump(mode="json"), "")
    return found


def _as_dict(remark: Remark) -> dict[str, Any]:
    return {"rule": remark.rule, "says": remark.says, "is_mistake": remark.is_mistake}
