"""The files of one demo run: keys, accounts, policies with short clocks, settings as an environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compose import keys
from compose.clock import random_id
from compose.releases import put_policies

# Short clocks, so that a whole life fits into a minute: SMS after 18 s, all over after 36 s.
POLICY = """
policy = "{name}"
purpose = "{purpose}"
urgency = "{urgency}"
template = "{template}"
fresh_ms = 2_000
look_wait_ms = 1_000
claim_hold_ms_max = 3_000
late_evidence_ms = {late_evidence_ms}
undispatched_email = "skip_email"
bounce_after_delivered = "fallback"
[bounds]
deadline_ms_min = 1_000
deadline_ms_max = 60_000
expiry_ms_max = 120_000
min_useful_window_ms = 3_000
[email]
account = "{account}"
resubmit_after_ms = 400
[email.poll]
initial_ms = 400
interval_ms_max = 2_000
answers_max = 30
answer_within_ms = 4_000
[sms]
account = "simulated-sms"
allowed = true
countries = ["GB", "US"]
resubmit_after_ms = 400
[sms.poll]
initial_ms = 400
interval_ms_max = 2_000
answers_max = 30
answer_within_ms = 4_000
"""

ACCOUNTS = """
[[accounts]]
name = "simulated-email"
provider = "simulated"
channel = "email"
base_url = "{url}"
credential_file = "{token}"
[accounts.capabilities]
lookup_by_message_id = true
lookup_by_reference = true
lookup_batch_max = 50
visibility_delay_ms = 300
lookups_per_s = 200.0

[[accounts]]
name = "simulated-email-keyed"
provider = "simulated"
channel = "email"
base_url = "{url}"
credential_file = "{token}"
[accounts.capabilities]
idempotent_submit = true
idempotency_window_ms = 82_800_000
lookup_by_message_id = true
lookups_per_s = 200.0

[[accounts]]
name = "simulated-sms"
provider = "simulated"
channel = "sms"
base_url = "{url}"
credential_file = "{token}"
[accounts.capabilities]
lookup_by_message_id = true
lookup_by_reference = true
visibility_delay_ms = 300
lookups_per_s = 200.0
"""

# A run sends what a day of a small service sends, all of it to one range: the numbers reserved for fiction.
BUDGETS = """
currency = "EUR"

[[spend]]
name = "all_day"
per = []
window = "day"
amount_max = "100"
action = "hold"
"""

_POLICIES = (
    ("password_reset__demo", "password_reset", "urgent", "password_reset:v1", "simulated-email"),
    ("password_reset__keyed", "password_reset", "urgent", "password_reset:v1", "simulated-email-keyed"),
    ("signup_verification__demo", "signup_verification", "urgent", "signup_verify:v1", "simulated-email"),
    ("build_failure__demo", "build_failure", "bulk", "build_failure:v1", "simulated-email"),
)


def write(folder: Path, *, simulator_url: str, late_evidence_ms: int = 4_000) -> None:
    """Everything a run needs, in one folder; keys that are there stay."""
    token = folder / "keys" / "simulator.token"
    if not token.exists():
        keys.generate(folder / "keys")
        token.touch(mode=0o600)
        token.write_text(random_id())
    (folder / "accounts.toml").write_text(ACCOUNTS.format(url=simulator_url, token=token))
    (folder / "budgets.toml").write_text(BUDGETS)
    texts = {}
    for name, purpose, urgency, template, account in _POLICIES:
        texts[f"{name}:v1"] = POLICY.format(
            name=f"{name}:v1",
            purpose=purpose,
            urgency=urgency,
            template=template,
            account=account,
            late_evidence_ms=late_evidence_ms,
        )
    put_policies(folder / "policies", texts)


def environment(folder: Path, *, kafka: str, postgres: str, prefix: str) -> Mapping[str, str]:
    """The settings of every process of the run."""
    return {
        "BACKSTOP_KAFKA": kafka,
        "BACKSTOP_POSTGRES": postgres,
        "BACKSTOP_PREFIX": prefix,
        "BACKSTOP_PARTITIONS": "4",
        "BACKSTOP_REPLICATION": "1",
        "BACKSTOP_MIN_INSYNC": "1",
        "BACKSTOP_KEYS": str(folder / "keys"),
        "BACKSTOP_ACCOUNTS_FILE": str(folder / "accounts.toml"),
        "BACKSTOP_BUDGETS_FILE": str(folder / "budgets.toml"),
        "BACKSTOP_POLICIES_DIR": str(folder / "policies"),
        "BACKSTOP_SESSION_TIMEOUT_MS": "3000",
        "BACKSTOP_TRANSACTION_TIMEOUT_MS": "5000",
        "BACKSTOP_TICK_INTERVAL_MS": "100",
        "BACKSTOP_CALL_TIMEOUT_MS": "1500",
        "BACKSTOP_LEASE_MS": "2500",
        "BACKSTOP_CLOCK_SKEW_MS_MAX": "500",
        "BACKSTOP_LOG_JSON": "true",
    }
