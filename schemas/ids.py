"""Names and instants as types: an intent id is not any string, an instant not any number.

It must not hold destinations (`schemas.destinations`): an id can never contain an address, because
the alphabet has no `@`, `+` or `.` and no upper case (SYSTEM.md §3).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, NewType

from pydantic import Field, StringConstraints

ID_PATTERN = r"^[a-z0-9][a-z0-9_-]{7,63}$"
NAME_PATTERN = r"^[a-z][a-z0-9_]{2,39}$"
VARIABLE_PATTERN = r"^[a-z][a-z0-9_]{0,39}$"
REF_PATTERN = r"^[a-z][a-z0-9_]{2,39}:v[1-9][0-9]{0,4}$"
ACCOUNT_PATTERN = r"^[a-z][a-z0-9-]{2,39}$"
FINGERPRINT_PATTERN = r"^[a-z0-9]{1,16}\.[es]\.[0-9a-f]{32}$"
SUBJECT_PATTERN = r"^[a-z0-9]{1,16}\.[esu]\.[0-9a-f]{32}$"  # u: a hash of what only the service knows
TOKEN_PATTERN = r"^[\x21-\x7e]{1,512}$"  # printable ASCII, no space: provider ids, references
REFERENCE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$"  # no @, + or /: neither an address nor a link fits
PUBLISHER_PATTERN = r"^[a-z][a-z0-9-]{2,39}$"  # the name of a service, such as accounts-web
POINTER_PATTERN = r"^(/[a-z_0-9]{1,40}){1,3}$"
RAW_TOKEN_PATTERN = r"^[A-Za-z0-9_.:-]{0,64}$"  # a provider's word for a state, sanitised and cut
DIGEST_PATTERN = r"^[0-9a-f]{64}$"
LOCALE_PATTERN = r"^[a-z]{2,3}(-[A-Z]{2})?$"
COUNTRY_PATTERN = r"^[A-Z]{2}$"

# 2020-01-01 and 2100-01-01: an instant in seconds or microseconds falls outside, so units are never guessed.
INSTANT_MS_MIN = 1_577_836_800_000
INSTANT_MS_MAX = 4_102_444_800_000

_IntentId = NewType("_IntentId", str)
IntentId = Annotated[_IntentId, StringConstraints(pattern=ID_PATTERN)]
TenantId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
RecordId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_:@./-]{3,159}$")]
Purpose = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
PolicyRef = Annotated[str, StringConstraints(pattern=REF_PATTERN)]
TemplateRef = Annotated[str, StringConstraints(pattern=REF_PATTERN)]
AccountName = Annotated[str, StringConstraints(pattern=ACCOUNT_PATTERN)]
LimitName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
FingerprintText = Annotated[str, StringConstraints(pattern=FINGERPRINT_PATTERN)]
SubjectKey = Annotated[str, StringConstraints(pattern=SUBJECT_PATTERN)]
OpaqueToken = Annotated[str, StringConstraints(pattern=TOKEN_PATTERN)]
Reference = Annotated[str, StringConstraints(pattern=REFERENCE_PATTERN)]
PublisherName = Annotated[str, StringConstraints(pattern=PUBLISHER_PATTERN)]
RawToken = Annotated[str, StringConstraints(pattern=RAW_TOKEN_PATTERN)]
Digest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN)]
Locale = Annotated[str, StringConstraints(pattern=LOCALE_PATTERN)]
Country = Annotated[str, StringConstraints(pattern=COUNTRY_PATTERN)]
Instant = Annotated[int, Field(ge=INSTANT_MS_MIN, lt=INSTANT_MS_MAX, strict=True)]
Offset = Annotated[int, Field(ge=-1, strict=True)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000, strict=True)]
Milliseconds = Annotated[
    int, Field(ge=0, lt=INSTANT_MS_MAX, strict=True)
]  # an instant that may be «never»: 0

_ID = re.compile(ID_PATTERN[1:-1])


class Channel(StrEnum):
    """The two ways to reach a person. There is no third."""

    EMAIL = "email"
    SMS = "sms"


def intent_id(text: str) -> _IntentId:
    """The id as a type; `ValueError` with what to do when it is not one."""
    if not _ID.fullmatch(text):
        raise ValueError(
            "an intent id is 8 to 64 of a-z 0-9 _ - and starts with a letter or digit "
            "(upper case is refused: it would sit in another partition)"
        )
    return _IntentId(text)


def dispatch_key(intent: str, channel: Channel) -> str:
    """The idempotency key of one logical submission; it never changes.

    ASCII letters, digits, `_`, `-` and `.` only: the alphabet every provider with keys accepts (case F08).
    """
    return f"{intent}.{channel.value}"
