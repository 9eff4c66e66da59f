"""Released template versions do not change, and each keeps the promises of the catalogue's README.

A new version gets a new folder; then run `python -m tests.tidy.test_templates_released` to write its hashes
(before the first release with `--unreleased`, which also takes changes of what is there).
"""

from __future__ import annotations

import json
import re
import sys
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from jinja2 import Environment, meta, nodes

from schemas.errors import TemplateBroken
from schemas.policy import released as released_policies
from schemas.templates import registry
from schemas.templates.registry import PARTS, Template, hashes, shipped
from schemas.templates.render import TENANT, RenderInput, render_email, render_sms
from schemas.templates.segments import count
from schemas.templates.wording import LANGUAGES, LINK_CHARS_MAX

MANIFEST = Path(__file__).parents[2] / "schemas/templates/MANIFEST"
CATALOGUE = MANIFEST.parent
REFS = sorted(
    f"{path.parent.name}:{path.name}" for path in CATALOGUE.glob("catalog/*/v*")
)  # loads in spite of changes
NAME_CHARS_MAX = 64
SEPTEMBER_MS = 1_790_781_240_000  # 23:14 UTC on 30 September 2026: the longest month name


def full(template: Template, link: str, name: str) -> dict[str, str]:
    return {n: link if v.is_link else name * v.chars_max for n, v in template.variables.items()}


def test_every_released_file_has_the_hash_of_its_release() -> None:
    assert hashes(CATALOGUE) == json.loads(MANIFEST.read_text())


def test_a_catalogue_that_differs_from_its_manifest_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "password_reset/v1/en/sms.txt.j2"
    monkeypatch.setattr(registry, "hashes", lambda root: hashes(root) | {name: "0" * 64})
    with pytest.raises(TemplateBroken, match=re.escape(name)):
        shipped.__wrapped__()


@pytest.mark.parametrize("ref", REFS)
def test_a_version_has_its_fallback_another_locale_all_parts_and_words_for_its_dates(ref: str) -> None:
    template = shipped()[ref]
    assert template.fallback_locale in template.sources
    assert len(template.sources) >= 2
    assert all(set(parts) == set(PARTS) for parts in template.sources.values())
    assert {locale.partition("-")[0] for locale in template.sources} <= LANGUAGES.keys()


@pytest.mark.parametrize("ref", REFS)
def test_a_version_allows_https_origins_only_and_bounds_every_variable(ref: str) -> None:
    template = shipped()[ref]
    assert template.link_origins
    for origin in template.link_origins:
        parts = urlsplit(origin)
        assert origin == f"https://{parts.netloc}".lower()
        assert "@" not in parts.netloc
    for variable in template.variables.values():
        assert variable.chars_max <= (LINK_CHARS_MAX if variable.is_link else NAME_CHARS_MAX)
    assert all(not v.required for v in template.variables.values() if v.name == TENANT)


@pytest.mark.parametrize("ref", REFS)
def test_a_template_uses_known_names_and_no_filter_call_or_attribute(ref: str) -> None:
    """`default()` would hide a missing link, `safe` would undo escaping, `d.items` prints a method (F19)."""
    template = shipped()[ref]
    known = template.variables.keys() | {"sender", "expiry"}
    for parts, part in product(template.sources.values(), PARTS):
        tree = Environment(autoescape=True).parse(parts[part])
        assert meta.find_undeclared_variables(tree) <= known
        assert not list(tree.find_all((nodes.Filter, nodes.Call, nodes.Getattr, nodes.Getitem, nodes.For)))


@pytest.mark.parametrize("ref", REFS)
def test_a_name_stands_in_an_isolate_in_html_and_a_link_in_an_attribute_with_quotes(ref: str) -> None:
    template = shipped()[ref]
    for parts in template.sources.values():
        for name, variable in template.variables.items():
            before, after = ('href="', '"') if variable.is_link else ("<bdi>", "</bdi>")
            shown = parts["html"].count("{{ " + name + " }}")
            assert parts["html"].count(before + "{{ " + name + " }}" + after) == shown


@pytest.mark.parametrize("ref", REFS)
def test_an_sms_is_gsm_and_at_its_worst_fits_its_budget(ref: str) -> None:
    template = shipped()[ref]
    link = f"{template.link_origins[0]}/".ljust(template.sms_link_chars, "a")
    for locale in template.sources:
        given = RenderInput("int-0001-test", locale, SEPTEMBER_MS, full(template, link, "["))
        sms = render_sms(shipped()[ref], given)
        assert (sms.encoding, sms.segments <= template.sms_segments_max) == ("gsm7", True)
        assert count(template.sources[locale]["sms"]).encoding == "gsm7"


@pytest.mark.parametrize("ref", REFS)
def test_every_optional_variable_can_be_left_out_and_every_part_renders(ref: str) -> None:
    template = shipped()[ref]
    values = {
        n: v
        for n, v in full(template, f"{template.link_origins[0]}/r", "<").items()
        if template.variables[n].required
    }
    for locale in template.sources:
        given = RenderInput("int-0001-test", locale, SEPTEMBER_MS, values)
        assert (
            render_email(shipped()[ref], given).locale == render_sms(shipped()[ref], given).locale == locale
        )


def test_every_policy_names_a_version_of_its_own_purpose() -> None:
    for policy in released_policies().values():
        assert shipped()[policy.template].purpose == policy.purpose


if __name__ == "__main__":
    known = json.loads(MANIFEST.read_text())
    found = hashes(CATALOGUE)
    changed = [name for name in known if found.get(name) != known[name]]
    if changed and "--unreleased" not in sys.argv:
        raise SystemExit(f"released files never change: {', '.join(changed)}")
    MANIFEST.write_text(json.dumps(found, indent=1) + "\n")
