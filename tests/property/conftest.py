"""More examples than elsewhere: `property` by default, `--hypothesis-profile=long` for a long run by hand.

It must not change what a law says, only how often it is tried.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

EXAMPLES = 150  # a law takes 2 to 3 s; the folder under a minute
EXAMPLES_LONG = 20_000  # 5 to 10 min a law

for name, count in (("property", EXAMPLES), ("long", EXAMPLES_LONG)):
    settings.register_profile(
        name,
        max_examples=count,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile("property")
