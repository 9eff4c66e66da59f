"""Destinations as types whose printed form is useless, with one normaliser each.

The same normal form feeds fingerprint, suppression, consent and sending (case F34). `reveal()` is the
only way out; repr, str, format, pickle and JSON are not. It must not guess: what is not plainly one
address or one number is refused with a code.

    e-mail                              decided
    USER@EXAMPLE.COM                    user@example.com: domain and local part are folded
    Alice@Example.COM                   the same as alice@example.com
    alice+reset@example.com             another person's address: tags are kept, and so are dots
    x@bücher.example                    x@xn--bcher-kva.example
    user@example.com.                   refused: trailing_dot (one spelling for one mailbox)
    user@[192.0.2.1]                    refused: address_literal
    " user@example.com", "user…\\n"      refused: control_or_space, of whatever script
    a@example.com,b@example.com         refused: control_or_space; so ; < > ( ) and quoted local parts
    victim+x<U+037E>other@example.com   refused: changes_when_normalised (it would become a second address)
    user@ｅｘａｍｐｌｅ.com                 refused: changes_when_normalised (NFKC: full width, ligatures, ①)
    NFD accent in the local part        refused: changes_when_normalised
    more than 254 characters            refused: too_long (254, the longest RFC 5321 path, is taken)
    65 characters before @              refused: syntax
    any non-ASCII local part            refused: local_part_not_ascii (providers of seed 003 need ASCII)
    =?utf-8?q?b=40other?=@example.com   refused: encoded_word (RFC 2047; a mailer may read it as another)
    user@exa<U+200B>mple.com            refused: invisible (zero width, bidi, soft hyphen, variation selector)
    user@test, user@example.c, …@127.1  refused: syntax (a top-level domain is two letters or more, or IDNA)
    user@example.test                   taken: reserved for tests, no mailbox can be behind it
    a%b@example.com, a!b@example.com    taken: one local part; nobody routes by % and ! any more

    phone                               decided
    +447700900123                       GB
    +390655501234                       IT, the zero is part of the number
    +490301234567, +4407700900123       refused: trunk_zero
    00447700900123, 07700900123, 4477…  refused: not_e164
    +44 (0)7700 900123, … ext 5         refused: not_e164
    +10000000000                        refused: not_valid; so is every number outside the allocated ranges
    +0123456789, 16 digits              refused: not_e164
    +1 876 …                            JM, by area code, not US (case F18)
    +1 900 …, +881 …, +44 70 …          refused: not_a_person (premium, satellite, forwarding)

The ranges are those of the phonenumbers package (case F18: what it does not know is refused, and a newer
package is how a new area code arrives). Taken besides: the numbers Ofcom reserves for fiction, which examples
and tests need and nobody owns. Refused besides: what the package counts as a plain number of a country and a
person does not have (`_ALSO_NOT_A_PERSON`, `_ALSO_NOT_VALID`).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, NoReturn, Self

import phonenumbers
from email_validator import EmailNotValidError, validate_email
from phonenumbers import PhoneNumberType

from schemas.errors import InvalidDestination

EMAIL_CHARS_MAX = 254  # RFC 5321 path of 256 less the angle brackets
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_FICTION_GB = re.compile(r"\+447700900[0-9]{3}")  # Ofcom, telephone numbers for use in TV and radio drama
# Allocated, and no person's: satellite and caller-pays ranges that hide behind the code of a country, and
# information services.
_ALSO_NOT_A_PERSON = re.compile(
    r"\+(?:1600[0-9]{7}"  # Canadian Numbering Administrator: non-geographic, mostly satellite
    r"|1[0-9]{3}5551212"  # directory assistance of every area
    r"|6114[57][0-9]+"  # ACMA numbering plan: satellite
    r"|62868[0-9]+"  # Indonesia: satellite
    r"|7954[0-9]{7}"  # Russia: satellite
    r"|86(?:1349|1740)[0-9]{7}"  # China: satellite
    r"|7[89]40[0-9]{7})"  # Abkhazia, reached through Russia at prices of its own, in no list of countries
)
_ALSO_NOT_VALID = re.compile(r"\+1[0-9]{3}[2-9]11[0-9]{4}")  # no exchange is called 211 to 911
_REFUSED_CHARS = re.compile(r"[;,<>()\[\]\\\"]")
_SPACES = frozenset({"Cc", "Zs", "Zl", "Zp"})  # categories: control characters and spaces of any script
_FULL_STOPS = (".", "\u3002")  # IDNA reads the ideographic one as a dot; NFKC turns the others into these
_TOP_LEVEL = re.compile(r"[a-z]{2,63}|xn--[a-z0-9-]+")
# Default_Ignorable_Code_Point (Unicode 15) besides the format characters, which have a category (Cf).
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_ENCODED_WORD = "=?"
_NO_COUNTRY = "001"  # what phonenumbers calls satellite and other world-wide numbers
_NOT_A_PERSON = {
    PhoneNumberType.PREMIUM_RATE,
    PhoneNumberType.SHARED_COST,
    PhoneNumberType.TOLL_FREE,
    PhoneNumberType.PERSONAL_NUMBER,
    PhoneNumberType.PAGER,
    PhoneNumberType.UAN,
    PhoneNumberType.VOICEMAIL,
}


class _Destination:
    """A normalised destination. Equality and hash go by the normal form."""

    __slots__ = ("_normal",)
    _normal: str

    def __init__(self, normal: str) -> None:
        object.__setattr__(self, "_normal", normal)

    def reveal(self) -> str:
        """The normal form; only sealing, fingerprinting and submission need it."""
        return self._normal

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden)"

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._normal == self._normal

    def __hash__(self) -> int:
        return hash((type(self), self._normal))

    def __setattr__(self, _name: str, _value: Any) -> NoReturn:
        raise AttributeError("a destination does not change")

    def __delattr__(self, _name: str) -> NoReturn:
        raise AttributeError("a destination does not change")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a destination is not pickled: it would be written out in clear")


class EmailAddress(_Destination):
    """One e-mail address: ASCII local part folded to lower case, domain in IDNA form."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidDestination` whose code is in the table above; the text is not quoted."""
        if len(text) > EMAIL_CHARS_MAX:
            _refuse("an address has at most 254 characters", "too_long")
        if text.rpartition("@")[2].startswith("["):
            _refuse("an address in brackets is not a mailbox we write to", "address_literal")
        if _REFUSED_CHARS.search(text) or any(unicodedata.category(c) in _SPACES for c in text):
            _refuse("spaces, control characters, quotes, commas and brackets are refused", "control_or_space")
        if _INVISIBLE.search(text) or any(unicodedata.category(c) == "Cf" for c in text):
            _refuse("characters that nobody sees are refused", "invisible")
        if unicodedata.normalize("NFKC", text) != text:
            _refuse("this address changes when it is normalised", "changes_when_normalised")
        if _ENCODED_WORD in text:
            _refuse("an encoded word may be read as another address", "encoded_word")
        if text.endswith(_FULL_STOPS):
            _refuse("the domain ends with a dot", "trailing_dot")
        if not text.rpartition("@")[0].isascii():
            _refuse("the part before @ must be ASCII", "local_part_not_ascii")
        normal = _normal_email(text)
        if normal is None:
            _refuse("this is not one e-mail address", "syntax")
        return cls(normal)


class PhoneNumber(_Destination):
    """One number in E.164 form that reaches one person, with its country."""

    __slots__ = ("_country",)
    _country: str

    def __init__(self, normal: str, country: str) -> None:
        super().__init__(normal)
        object.__setattr__(self, "_country", country)

    @property
    def country(self) -> str:
        """ISO 3166-1 alpha-2, by the longest prefix: +1 876 is JM."""
        return self._country

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidDestination` whose code is in the table above; the text is not quoted."""
        if not _E164.fullmatch(text):
            _refuse("a number is + and 7 to 15 digits (E.164), nothing else", "not_e164")
        number = _number(text)
        if number is None:
            _refuse("no country has this number", "unknown_country")
        if phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164) != text:
            _refuse("a trunk zero stands after the country code", "trunk_zero")
        if _FICTION_GB.fullmatch(text):
            return cls(text, "GB")
        country: str | None = phonenumbers.region_code_for_number(number)
        if country is None or not phonenumbers.is_valid_number(number):
            _refuse("no country has allocated this number", "not_valid")
        if _ALSO_NOT_VALID.fullmatch(text):
            _refuse("no country has allocated this number", "not_valid")
        kind = phonenumbers.number_type(number)
        if country == _NO_COUNTRY or kind in _NOT_A_PERSON or _ALSO_NOT_A_PERSON.fullmatch(text):
            _refuse("premium, shared, satellite and forwarding numbers are refused", "not_a_person")
        return cls(text, country)


def _normal_email(text: str) -> str | None:
    """The library's words about a bad address quote it, so they end here."""
    try:
        found = validate_email(
            text,
            strict=True,  # 64 characters before @ (RFC 5321); it also measures the IDNA form
            check_deliverability=False,
            allow_smtputf8=False,
            test_environment=True,
        )
    except (EmailNotValidError, UnicodeError):
        return None
    _, dot, top_level = found.ascii_domain.rpartition(".")
    if not dot or not _TOP_LEVEL.fullmatch(top_level):
        return None
    return f"{found.local_part.lower()}@{found.ascii_domain}"


def _number(text: str) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(text, None)
    except phonenumbers.NumberParseException:
        return None


def _refuse(sentence: str, code: str) -> NoReturn:
    raise InvalidDestination(sentence, code=code)
