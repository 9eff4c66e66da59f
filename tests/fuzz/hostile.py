"""What strangers send: bytes, JSON and text that are nearly right, and the many ways in which they are not.

It must not hold a law.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.records import CANARY

CANARIES = st.just(CANARY)
# The strings that have taken readers down elsewhere: cases F03, F19, F23, F28, F34, F40 and their kin.
ODD_TEXTS = st.sampled_from(
    [
        "",
        " ",
        "\x00",
        "a\x00b",
        "\ud83d",
        "\ud83d\ude00",
        "\u202eevil",
        "\ufeff",
        "line\nbreak",
        "\x1b[2J",
        "None",
        "null",
        "NaN",
        "1e999",
        "7" * 5_000,
        "{{ 7*7 }}",
        "{% for x in y %}",
        "%s%n",
        "../../etc",
        "<b>&'\"",
        "+4\uff14\uff17",
        "victim+x\u037eother@example.com",
        "a" * 70_000,
    ]
)
TEXTS = st.text(max_size=40) | ODD_TEXTS | CANARIES
NUMBERS = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, 1, -1, True, 1.0, 10**18, 2**63, -(2**63) - 1, 10**400, 1e308, float("inf"), 1.5])
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
BYTES = (
    st.binary(max_size=300)
    | TEXTS.map(lambda t: t.encode("utf-8", "surrogatepass"))
    | st.builds(
        lambda depth, opening: opening * depth, st.integers(1, 20_000), st.sampled_from([b"[", b'{"a":'])
    )
)


def as_json(value: Any) -> bytes:
    """As lenient writers do: NaN, half a surrogate pair and huge integers included."""
    return json.dumps(value, ensure_ascii=True).encode() if _is_short(value) else b"9" * 5_000


def _is_short(value: Any) -> bool:
    """Python refuses to print an integer of more than 4300 digits; a hostile writer does not."""
    return not (isinstance(value, int) and abs(value) > 10**4000)


@st.composite
def spoiled(draw: st.DrawFn, valid: bytes) -> bytes:
    """Valid bytes after one to three accidents: flipped, cut, doubled, inserted, swapped."""
    found = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(found) - 1)))
        upto = draw(st.integers(at, min(len(found), at + 40)))
        match draw(st.sampled_from(["flip", "cut", "double", "insert", "truncate", "number"])):
            case "flip" if found:
                found[at] = draw(st.integers(0, 255))
            case "cut":
                del found[at:upto]
            case "double":
                found[at:at] = found[at:upto]
            case "insert":
                found[at:at] = draw(BYTES)
            case "truncate":
                del found[at:]
            case "number":
                found[at:upto] = str(draw(st.sampled_from([-1, 0, 2**63, 1e300]))).encode()
    return bytes(found)


@st.composite
def changed(draw: st.DrawFn, valid: dict[str, Any]) -> Any:
    """A JSON object with one to three places, at any depth, replaced, added or removed."""
    found: dict[str, Any] = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = found
        while True:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                place = place[key]
                continue
            match draw(st.sampled_from(["replace", "remove", "add"])):
                case "replace":
                    place[key] = draw(JSON)
                case "remove":
                    del place[key]
                case "add" if isinstance(place, dict):
                    place[draw(TEXTS)] = draw(JSON)
            break
    return found
