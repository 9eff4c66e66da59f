"""How often each law is tried: the same examples on every run, or new ones for as long as somebody asks.

It must not change what a law says.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = 120  # a law takes 0.2 to 2 s; the folder without the flood under 40 s
EXAMPLES_VARIABLE = "FUZZ_EXAMPLES"  # by hand: that many, and other ones each time

_asked = os.environ.get(EXAMPLES_VARIABLE)

# Derandomized: a change of the code, not of the dice, makes CI fail. What a long run finds goes into the
# corpus.
fuzzed = settings(
    max_examples=int(_asked or EXAMPLES),
    derandomize=_asked is None,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
