"""One decision per row for e-mail and phone, the same wherever an address or a number comes in or goes out.

The first rows of each table are those of VECTORS.md, in its order; the others are of the same kinds.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest

from schemas.attempt import AttemptState
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.errors import InvalidDestination, InvariantBroken, RecordRefused
from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.sealed import Binding, Payload, SealingKey, UnsealingKeys, seal, unseal
from sinks.operator import suppression_csv
from sinks.providers.base import recipient
from sinks.providers.simulated import request_bytes
from tests import orders
from tests.builders import T0
from tests.dispatcher_bench import Bench, priced_everywhere
from tests.unit import test_publisher_intents as services
from tests.unit.test_provider_simulated import MAIL

LABEL = "a" * 61
FULL_254 = "a" * 64 + f"@{LABEL}.{LABEL}.{LABEL}.abc"

Rows = Mapping[str, tuple[str, str]]

# What is taken: name, text, normal form. What is refused: name, text, code.
EMAIL_TAKEN: Rows = {
    "VECTORS upper case": ("USER@EXAMPLE.COM", "user@example.com"),
    "mixed case": ("Alice@Example.COM", "alice@example.com"),
    "a tag": ("alice+reset@example.com", "alice+reset@example.com"),
    "dots are kept": ("a.li.ce@example.com", "a.li.ce@example.com"),
    "IDN": ("x@b\u00fccher.example", "x@xn--bcher-kva.example"),
    "IDN in its ASCII form": ("x@xn--bcher-kva.example", "x@xn--bcher-kva.example"),
    "IDN in capitals": ("x@B\u00dcCHER.example", "x@xn--bcher-kva.example"),
    "IDN in ASCII capitals": ("x@XN--BCHER-KVA.example", "x@xn--bcher-kva.example"),
    "sharp s": ("x@stra\u00dfe.example", "x@xn--strae-oqa.example"),
    "two s": ("x@strasse.example", "x@strasse.example"),
    "Cyrillic look-alike": ("x@\u0430pple.example", "x@xn--pple-43d.example"),
    "dotless i": ("x@\u0131stanbul.example", "x@xn--stanbul-qfb.example"),
    "dotted capital I": ("x@\u0130stanbul.example", "x@xn--istanbul-o0e.example"),
    "right to left": ("x@\u05d0\u05d1.example", "x@xn--4dbc.example"),
    "IDN top level": ("x@example.\u4e2d\u56fd", "x@example.xn--fiqs8s"),
    "ideographic dot": ("user@example\u3002com", "user@example.com"),
    "percent": ("user%other@example.com", "user%other@example.com"),
    "atext": ("a!b=c{d}|e`f$g#h*i/j'k@example.com", "a!b=c{d}|e`f$g#h*i/j'k@example.com"),
    "leading hyphen": ("-x@example.com", "-x@example.com"),
    "reserved for tests": ("user@example.test", "user@example.test"),
    "a label of 63": ("x@" + "a" * 63 + ".example", "x@" + "a" * 63 + ".example"),
    "64 before @": ("a" * 64 + "@example.com", "a" * 64 + "@example.com"),
    "254 characters": (FULL_254, FULL_254),
}
EMAIL_REFUSED: Rows = {
    "VECTORS trailing dot": ("user@example.com.", "trailing_dot"),
    "VECTORS address literal": ("user@[192.0.2.1]", "address_literal"),
    "VECTORS newline": ("user@example.com\n", "control_or_space"),
    "VECTORS Greek question mark": ("victim+x\u037eother@example.com", "changes_when_normalised"),
    "VECTORS 255": (FULL_254 + "d", "too_long"),
    "VECTORS NFD accent": ("jose\u0301@example.com", "changes_when_normalised"),
    "ideographic trailing dot": ("user@example.com\u3002", "trailing_dot"),
    "two trailing dots": ("user@example.com..", "trailing_dot"),
    "IPv6 literal": ("user@[IPv6:::1]", "address_literal"),
    "bare IPv4": ("user@192.0.2.1", "syntax"),
    "short IPv4": ("user@127.1", "syntax"),
    "hexadecimal top level": ("user@example.0x7f", "syntax"),
    "one-letter top level": ("user@example.c", "syntax"),
    "leading space": (" alice@example.com", "control_or_space"),
    "tab": ("us\ter@example.com", "control_or_space"),
    "NUL": ("user\x00@example.com", "control_or_space"),
    "NEL": ("user@example.com\x85", "control_or_space"),
    "line separator": ("user@example.com\u2028", "control_or_space"),
    "no-break space": ("user\u00a0@example.com", "control_or_space"),
    "ideographic space": ("user@example.com\u3000", "control_or_space"),
    "a header behind it": ("x@example.com\r\nBcc: y@example.com", "control_or_space"),
    "comma list": ("a@example.com,b@example.com", "control_or_space"),
    "semicolon list": ("a@example.com;b@example.com", "control_or_space"),
    "newline list": ("a@example.com\nb@example.com", "control_or_space"),
    "space list": ("a@example.com b@example.com", "control_or_space"),
    "full-width semicolon": ("a@example.com\uff1bb@example.com", "changes_when_normalised"),
    "full-width comma": ("a@example.com\uff0cb@example.com", "changes_when_normalised"),
    "full-width at": ("victim\uff20b.example@example.com", "changes_when_normalised"),
    "full-width domain": ("user@\uff45xample.com", "changes_when_normalised"),
    "full-width dot": ("user@example\uff0ecom", "changes_when_normalised"),
    "ligature": ("user@\ufb01nance.example", "changes_when_normalised"),
    "circled digit": ("user@\u2460.example", "changes_when_normalised"),
    "Kelvin sign": ("user@\u212aelvin.example", "changes_when_normalised"),
    "NFD domain": ("user@e\u0301.example", "changes_when_normalised"),
    "quoted local part": ('"quoted local"@example.com', "control_or_space"),
    "quoted without need": ('"x"@example.com', "control_or_space"),
    "comment before @": ("x(c)@example.com", "control_or_space"),
    "comment after @": ("x@(c)example.com", "control_or_space"),
    "name and brackets": ("Alice <alice@example.com>", "control_or_space"),
    "source route": ("@a.example,@b.example:x@example.com", "control_or_space"),
    "group": ("undisclosed:x@example.com;", "control_or_space"),
    "backslash": ("x\\@y@example.com", "control_or_space"),
    "mailto": ("mailto:user@example.com", "syntax"),
    "query": ("user@example.com?bcc=x@other.example", "syntax"),
    "port": ("user@example.com:25", "syntax"),
    "encoded word": ("=?utf-8?q?a=40evil.example?=@example.com", "encoded_word"),
    "accent before @": ("jos\u00e9@example.com", "local_part_not_ascii"),
    "dotless i before @": ("al\u0131ce@example.com", "local_part_not_ascii"),
    "zero width space": ("user@exam\u200bple.com", "invisible"),
    "zero width joiner": ("us\u200der@example.com", "invisible"),
    "joiner an IDN may have": ("x@\u0915\u094d\u200d\u0937.example", "invisible"),
    "soft hyphen": ("user@exam\u00adple.com", "invisible"),
    "byte order mark": ("\ufeffuser@example.com", "invisible"),
    "override": ("user@exa\u202emple.com", "invisible"),
    "isolate": ("\u2066user@example.com", "invisible"),
    "word joiner": ("user@example\u2060.com", "invisible"),
    "tag character": ("user@exa\U000e0041mple.com", "invisible"),
    "grapheme joiner": ("user@exa\u034fmple.com", "invisible"),
    "variation selector": ("user@example\ufe0f.com", "invisible"),
    "Hangul filler": ("us\u3164er@example.com", "invisible"),
    "mixed direction": ("user@\u05d0bc.example", "syntax"),
    "emoji domain": ("user@\U0001f600.example", "syntax"),
    "broken A-label": ("x@xn--a.example", "syntax"),
    "private use": ("x@\ue000.example", "syntax"),
    "65 before @": ("a" * 65 + "@example.com", "syntax"),
    "300 before @": ("a" * 300 + "@example.com", "too_long"),
    "a label of 64": ("x@" + "a" * 64 + ".example", "syntax"),
    "long in IDNA form": ("a" * 63 + "@" + "\u00fc." * 60 + "example", "syntax"),
    "two dots before @": ("a..b@example.com", "syntax"),
    "leading dot": (".a@example.com", "syntax"),
    "two @": ("a@b@example.com", "syntax"),
    "two dots in the domain": ("a@example..com", "syntax"),
    "hyphen first": ("user@-example.com", "syntax"),
    "underscore": ("user@exam_ple.com", "syntax"),
    "host alone": ("user@localhost", "syntax"),
    "top level alone": ("user@com", "syntax"),
    "onion": ("user@example.onion", "syntax"),
    "invalid": ("user@example.invalid", "syntax"),
    "nothing before @": ("@example.com", "syntax"),
}
PHONE_TAKEN: Rows = {
    "VECTORS +447700900123": ("+447700900123", "GB"),
    "VECTORS +390655501234": ("+390655501234", "IT"),
    "US": ("+12025550123", "US"),
    "JM": ("+18765550123", "JM"),
    "JM new area": ("+16585550123", "JM"),
    "DO": ("+18095550123", "DO"),
    "CA": ("+16135550123", "CA"),
    "PR": ("+17875550123", "PR"),
    "VI": ("+13405550123", "VI"),
    "KZ": ("+77011234567", "KZ"),
    "RU": ("+79991234567", "RU"),
    "IM": ("+447624000000", "IM"),
    "GG": ("+447781123456", "GG"),
    "JE": ("+447797123456", "JE"),
    "IT mobile, no zero": ("+393331234567", "IT"),
    "VA in Rome": ("+390669812345", "VA"),
    "SM": ("+3780549886377", "SM"),
    "FR": ("+33612345678", "FR"),
    "SJ": ("+4779123456", "SJ"),
    "AX": ("+358181234567", "AX"),
}
PHONE_REFUSED: Rows = {
    "VECTORS +490301234567": ("+490301234567", "trunk_zero"),
    "VECTORS +4407700900123": ("+4407700900123", "trunk_zero"),
    "VECTORS 00447700900123": ("00447700900123", "not_e164"),
    "VECTORS 07700900123": ("07700900123", "not_e164"),
    "VECTORS 447700900123": ("447700900123", "not_e164"),
    "VECTORS (0)": ("+44 (0)7700 900123", "not_e164"),
    "VECTORS extension": ("+44 7700 900123 ext 5", "not_e164"),
    "VECTORS +10000000000": ("+10000000000", "not_valid"),
    "VECTORS +0123456789": ("+0123456789", "not_e164"),
    "VECTORS 16 digits": ("+1234567890123456", "not_e164"),
    "newline": ("+447700900123\n", "not_e164"),
    "full-width digits": ("+4\uff14\uff17\uff17\uff10\uff10900123", "not_e164"),
    "Arabic digits": ("+44\u0667\u0667\u0660\u0660900123", "not_e164"),
    "full-width plus": ("\uff0b447700900123", "not_e164"),
    "bidi mark": ("\u202d+447700900123", "not_e164"),
    "zero width": ("+447700900123\u200b", "not_e164"),
    "no-break space": ("+44\u00a07700900123", "not_e164"),
    "hyphens": ("+44-7700-900123", "not_e164"),
    "tel": ("tel:+447700900123", "not_e164"),
    "tel extension": ("+447700900123;ext=5", "not_e164"),
    "two numbers": ("+447700900123,+447700900124", "not_e164"),
    "two plus": ("++447700900123", "not_e164"),
    "short code": ("12345", "not_e164"),
    "short code with plus": ("+44116", "not_e164"),
    "trunk zero FR": ("+330612345678", "trunk_zero"),
    "trunk zero IL": ("+9720501234567", "trunk_zero"),
    "IT without its zero": ("+39655501234", "not_valid"),
    "a digit too many": ("+4477009001234", "not_valid"),
    "a digit too few": ("+44770090012", "not_valid"),
    "unknown area code": ("+19995550123", "not_valid"),
    "unallocated area code": ("+13335550123", "not_valid"),
    "an exchange called 911": ("+12029115555", "not_valid"),
    "unallocated exchange MS": ("+16645550123", "not_valid"),
    "unallocated RU": ("+73999999999", "not_valid"),
    "Mexican 1 of before 2019": ("+5215512345678", "not_valid"),
    "unknown country": ("+99912345678", "unknown_country"),
    "KZ future code": ("+997712345678", "unknown_country"),
    "VA unused code": ("+3790669812345", "unknown_country"),
    "premium +1 900": ("+19005550123", "not_a_person"),
    "toll free +1 800": ("+18005550123", "not_a_person"),
    "personal +1 500": ("+15005550006", "not_a_person"),
    "Canadian 600": ("+16005550123", "not_a_person"),
    "Canadian 622": ("+16225550123", "not_a_person"),
    "directory assistance": ("+12125551212", "not_a_person"),
    "forwarding +44 70": ("+447012345678", "not_a_person"),
    "shared cost +44 845": ("+448451234567", "not_a_person"),
    "business +44 300": ("+443001234567", "not_a_person"),
    "premium +44 90": ("+449012345678", "not_a_person"),
    "toll free +44 800": ("+448001111111", "not_a_person"),
    "premium +39 899": ("+39899123456", "not_a_person"),
    "shared cost +49 180": ("+491805123456", "not_a_person"),
    "toll free +7 800": ("+78001234567", "not_a_person"),
    "premium +7 809": ("+78091234567", "not_a_person"),
    "Abkhazia +7 940": ("+79401234567", "not_a_person"),
    "satellite +7 954": ("+79541234567", "not_a_person"),
    "satellite +61 147": ("+61147123456", "not_a_person"),
    "satellite +62 868": ("+628681234567", "not_a_person"),
    "satellite +86 1740": ("+8617401234567", "not_a_person"),
    "satellite +870": ("+870773123456", "not_a_person"),
    "satellite +881": ("+881612345678", "not_a_person"),
    "satellite +882": ("+88213300655", "not_a_person"),
    "world-wide +883": ("+883510012345678", "not_a_person"),
    "world-wide +878": ("+878101234567890", "not_a_person"),
    "toll free +800": ("+80012345678", "not_a_person"),
    "shared cost +808": ("+80812345678", "not_a_person"),
    "premium +979": ("+979123456789", "not_a_person"),
    "relief +888": ("+8881234567890", "not_valid"),
}


class Refused(Exception):
    """A place said no; the code is the argument."""


def intake(kind: str, text: str) -> str:
    """What the publisher library seals."""
    try:
        made = services.publisher().plan(services.new(**{kind: text}))
    except RecordRefused as exc:
        assert exc.pointer == f"/{kind}"  # noqa: PT017
        raise Refused(exc.code) from None
    binding = Binding(
        made.intent_id,
        made.tenant,
        made.purpose,
        made.policy,
        made.deadline_ms,
        made.expiry_ms,
        made.email_fingerprint,
        made.sms_fingerprint,
    )
    payload = unseal(made.sealed, binding, UnsealingKeys([services.PRIVATE]))
    return payload.email if kind == "email" else payload.phone or ""


def suppression(kind: str, text: str) -> str:
    """What a line of an imported list stands for, told by its fingerprint."""
    file = StringIO()
    csv.writer(file).writerows([["destination"], [text]])
    found = suppression_csv.parse(file.getvalue(), orders.PRINTS, key_ids=["k1"], now_ms=T0)
    if found.rejected:
        raise Refused(found.rejected[0].why.rpartition(": ")[2])
    (line,) = found.lines
    normal = NORMAL[kind][text]
    assert line.fingerprint == orders.PRINTS.of(_unchecked(kind, normal))
    return normal


def dispatcher(kind: str, text: str) -> str:
    """What is submitted when the envelope of a publisher without our library holds this text."""
    taken = NORMAL[kind].get(text, text)
    email = _unchecked("email", taken) if kind == "email" else orders.EMAIL
    phone = _unchecked("phone", taken) if kind == "phone" else orders.PHONE
    prints: dict[str, Any] = {
        "email_fingerprint": orders.PRINTS.of(email),
        "sms_fingerprint": orders.PRINTS.of(phone),
        "country": PhoneNumber.parse(taken).country if taken in COUNTRIES else "GB",
    }
    channel = Channel.EMAIL if kind == "email" else Channel.SMS
    plain = orders.order(channel=channel)
    binding = Binding(
        plain.intent_id,
        plain.tenant,
        plain.purpose,
        plain.policy,
        plain.deadline_ms,
        plain.expiry_ms,
        prints["email_fingerprint"],
        prints["sms_fingerprint"],
    )
    to = {"email": orders.EMAIL.reveal(), "phone": orders.PHONE.reveal(), kind: text}
    sealed = seal(Payload(to["email"], to["phone"], orders.VARIABLES), binding, SealingKey(orders.PUBLIC))
    bench = Bench()
    bench.prices = priced_everywhere()
    found = bench.attempt(channel=channel, sealed=sealed, **prints)
    sent = [*bench.mail.submitted, *bench.text.submitted]
    if found.state is AttemptState.REFUSED:
        assert (found.reason, sent) == (Reason.INVALID_RECIPIENT, [])
        raise Refused(_code(kind, text))
    (one,) = sent
    return one.to.reveal()


def adapter(kind: str, text: str) -> str:
    """What an adapter writes into a request when the text was never parsed: as it is, or nothing."""
    channel = Channel.EMAIL if kind == "email" else Channel.SMS
    try:
        body = request_bytes(replace(MAIL, to=_unchecked(kind, text)), channel)
    except InvariantBroken as exc:
        assert text not in str(exc)  # noqa: PT017
        raise Refused(_code(kind, text)) from None
    sent: str = json.loads(body)["to"]
    return sent


def _unchecked(kind: str, text: str) -> EmailAddress | PhoneNumber:
    return EmailAddress(text) if kind == "email" else PhoneNumber(text, "GB")


def _code(kind: str, text: str) -> str:
    """The normaliser's own word, where the place keeps none."""
    with pytest.raises(InvalidDestination) as refused:
        (EmailAddress if kind == "email" else PhoneNumber).parse(text)
    return refused.value.code


NORMAL: dict[str, dict[str, str]] = {
    "email": dict(EMAIL_TAKEN.values()),
    "phone": {text: text for text, _ in PHONE_TAKEN.values()},
}
COUNTRIES = dict(PHONE_TAKEN.values())
PLACES: list[Callable[[str, str], str]] = [intake, suppression, dispatcher]


def rows(table: Rows) -> Any:
    return pytest.mark.parametrize(("text", "decided"), table.values(), ids=table.keys())


@rows(EMAIL_TAKEN)
def test_an_address_that_is_taken_has_one_normal_form_everywhere(text: str, decided: str) -> None:
    assert EmailAddress.parse(text).reveal() == decided
    assert [place("email", text) for place in PLACES] == [decided] * len(PLACES)
    assert adapter("email", decided) == decided


@rows(EMAIL_REFUSED)
def test_an_address_that_is_refused_is_refused_everywhere(text: str, decided: str) -> None:
    assert _code("email", text) == decided
    for place in (*PLACES, adapter):
        with pytest.raises(Refused, match=decided):
            place("email", text)


@rows(PHONE_TAKEN)
def test_a_number_that_is_taken_has_its_country_everywhere(text: str, decided: str) -> None:
    number = PhoneNumber.parse(text)
    assert (number.reveal(), number.country) == (text, decided)
    assert services.publisher().plan(services.new(phone=text)).country == decided
    assert [place("phone", text) for place in (*PLACES, adapter)] == [text] * (len(PLACES) + 1)


@rows(PHONE_REFUSED)
def test_a_number_that_is_refused_is_refused_everywhere(text: str, decided: str) -> None:
    assert _code("phone", text) == decided
    for place in (*PLACES, adapter):
        with pytest.raises(Refused, match=decided):
            place("phone", text)


def test_an_address_in_another_spelling_never_leaves_an_adapter() -> None:
    for text, normal in EMAIL_TAKEN.values():
        if text != normal:
            with pytest.raises(InvariantBroken):
                recipient(replace(MAIL, to=EmailAddress(text)), Channel.EMAIL)


def test_a_number_never_leaves_the_adapter_of_the_other_channel() -> None:
    for to, channel in ((orders.PHONE, Channel.EMAIL), (orders.EMAIL, Channel.SMS)):
        with pytest.raises(InvariantBroken):
            recipient(replace(MAIL, to=to), channel)
