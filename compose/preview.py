"""Both channels of a template version as files, and a page that shows them beside each other.

It must not send anything or read a clock: the expiry is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from schemas.templates.registry import Template
from schemas.templates.render import RenderInput, facts, render_email, render_sms

SAMPLES = {"name": "Ada", "tenant_name": "Acme", "project": "engine", "branch": "main"}


def samples(template: Template, given: Mapping[str, str]) -> dict[str, str]:
    """A value for every variable; `given` ones win."""
    link = f"{template.link_origins[0]}/r?t=preview"
    found = {n: link if v.is_link else SAMPLES.get(n, n) for n, v in template.variables.items()}
    return {n: value[: template.variables[n].chars_max] for n, value in found.items()} | dict(given)


def write(
    template: Template, locale: str, values: Mapping[str, str], expiry_ms: int, out: Path
) -> list[Path]:
    """subject.txt, text.txt, body.html, sms.txt and index.html in `out`. Raises `TemplateError` before it
    writes."""
    given = RenderInput("preview-0001", locale, expiry_ms, values)
    email, sms, said = render_email(template, given), render_sms(template, given), facts(template, given)
    page = Environment(undefined=StrictUndefined, autoescape=True).from_string(
        files("compose").joinpath("pages", "preview.html.j2").read_text("utf-8")
    )
    parts = {
        "subject.txt": email.subject,
        "text.txt": email.text,
        "body.html": email.html,
        "sms.txt": sms.text,
        "index.html": page.render(
            ref=template.ref,
            locale=said.locale,
            facts=said,
            email=email,
            sms=sms,
            budget=template.sms_segments_max,
        ),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in parts.items():
        (out / name).write_text(text, "utf-8")
    return [out / name for name in parts]
