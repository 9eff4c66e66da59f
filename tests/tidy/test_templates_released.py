"""Released template versions do not change. A new version gets a new folder; then run
`python -m tests.tidy.test_templates_released` to write its hashes."""

from __future__ import annotations

import json
from pathlib import Path

from schemas.templates.registry import PARTS, hashes, load

MANIFEST = Path(__file__).parents[2] / "schemas/templates/MANIFEST"


def test_every_released_file_has_the_hash_of_its_release() -> None:
    assert hashes() == json.loads(MANIFEST.read_text())


def test_every_version_has_its_fallback_locale_and_all_parts() -> None:
    for template in load().values():
        assert template.fallback_locale in template.sources
        assert all(set(parts) == set(PARTS) for parts in template.sources.values())
        assert template.link_origins


if __name__ == "__main__":
    known = json.loads(MANIFEST.read_text())
    found = hashes()
    changed = [name for name in known if found.get(name) != known[name]]
    if changed:
        raise SystemExit(f"released files never change: {', '.join(changed)}")
    MANIFEST.write_text(json.dumps(found, indent=1) + "\n")
