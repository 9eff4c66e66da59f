"""Does only a person complete: over real HTTP, whatever scanners, prefetchers and other sites send (F39)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from compose.clock import Clock, SystemClock
from compose.commands.demo import free_port
from compose.sample.challenges import CHALLENGES_MAX, Challenges, Made
from compose.sample.page import BODY_BYTES_MAX, COOKIE, PATH, create_app
from compose.simulator.server import Server
from schemas.codec import decode
from schemas.intent import IntentCompleted
from schemas.record import TopicKind
from sinks.kafka.producer import PublishFailed
from tests.unit.test_publisher_intents import Kept, publisher

INTENT = "int-0001-test"
EXPIRY_MS = 4_000_000_000_000
FORM = re.compile(r'name="form" value="([0-9a-f]{64})"')
NOW = datetime(2026, 12, 3, tzinfo=UTC)


class Later(SystemClock):
    """After every expiry."""

    def now_ms(self) -> int:
        return EXPIRY_MS


@dataclass
class Page:
    """The page, what it has published, and the link that a message carries."""

    url: str
    kept: Kept
    made: Made
    challenges: Challenges
    fails: list[Exception]

    @property
    def link(self) -> str:
        return f"{self.url}{PATH}?t={self.made.token}"

    @property
    def completed(self) -> list[str]:
        found = [decode(TopicKind.INTENTS, r.key, r.value) for r in self.kept.taken]
        assert all(isinstance(r, IntentCompleted) for r in found)
        return [r.intent_id for r in found if isinstance(r, IntentCompleted)]


@pytest.fixture
def page() -> Iterator[Page]:
    yield from serve(SystemClock())


def serve(clock: Clock) -> Iterator[Page]:
    kept, challenges, fails, port = Kept(), Challenges(clock), [], free_port()  # type: ignore[var-annotated]
    service = publisher(kept)

    def complete(intent_id: str) -> None:
        if fails:
            raise fails.pop()
        service.complete(intent_id, at=NOW, source="sample-page")

    app = create_app(challenges, complete, origin=f"http://127.0.0.1:{port}")
    with Server(app, port) as url:
        yield Page(url, kept, challenges.make(INTENT, expiry_ms=EXPIRY_MS), challenges, fails)


class Person:
    """A browser: keeps cookies, sends what browsers send with a form of the same site."""

    def __init__(self, page: Page) -> None:
        self.page, self.client = page, httpx.Client(timeout=10)
        self.form = ""

    def looks(self) -> httpx.Response:
        found = self.client.get(self.page.link)
        form = FORM.search(found.text)
        self.form = "" if form is None else form[1]
        return found

    def presses(self, **changes: Any) -> httpx.Response:
        fields = {"t": self.page.made.token, "form": self.form} | changes.pop("fields", {})
        headers = {"origin": self.page.url, "sec-fetch-site": "same-origin"} | changes.pop("headers", {})
        sent = {name: value for name, value in headers.items() if value is not None}
        return self.client.post(f"{self.page.url}{PATH}", data=fields, headers=sent, **changes)


@pytest.fixture
def person(page: Page) -> Person:
    return Person(page)


SCANNERS: dict[str, dict[str, str]] = {
    "a scanner": {},
    "a scanner without a name": {"user-agent": ""},
    "a prefetching browser": {"purpose": "prefetch", "sec-purpose": "prefetch;prerender"},
    "a chat that makes a preview": {"user-agent": "Linkbot/1.0", "accept": "image/*"},
}


@pytest.mark.parametrize("name", SCANNERS)
@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_looking_at_the_link_changes_nothing(page: Page, method: str, name: str) -> None:
    answers = [httpx.request(method, page.link, headers=SCANNERS[name]) for _ in range(3)]
    assert {a.status_code for a in answers} == {200}
    assert page.completed == []
    person = Person(page)
    assert "press the button" in person.looks().text
    assert "It is done" in person.presses().text
    assert page.completed == [INTENT]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_request_with_another_method_completes_nothing(page: Page, method: str) -> None:
    assert httpx.request(method, page.link).status_code in (403, 405, 415)
    assert page.completed == []


def test_head_gives_the_headers_of_the_page_and_no_body(page: Page) -> None:
    found = httpx.head(page.link)
    assert (found.status_code, found.content) == (200, b"")
    assert "set-cookie" not in found.headers


def test_a_press_completes_once_and_the_second_says_that_it_is_done(page: Page, person: Person) -> None:
    person.looks()
    first, second = person.presses(), person.presses()
    assert (first.status_code, second.status_code) == (200, 200)
    assert "Thank you" in first.text
    assert "Already done" in second.text
    assert "Already done" in Person(page).looks().text
    assert page.completed == [INTENT]


def test_two_presses_at_once_complete_once(page: Page) -> None:
    people = [Person(page) for _ in range(6)]
    for one in people:
        one.looks()
    with ThreadPoolExecutor(6) as pool:
        answers = [f.result().text for f in [pool.submit(one.presses) for one in people]]
    assert sum("Thank you" in text for text in answers) == 1
    assert sum("Already done" in text for text in answers) == 5
    assert page.completed == [INTENT]


NOT_A_PRESS: dict[str, tuple[dict[str, Any], int]] = {
    "without a form token": ({"fields": {"form": ""}}, 403),
    "with a made-up form token": ({"fields": {"form": "0" * 64}}, 403),
    "with half a surrogate pair": ({"fields": {"form": "é"}}, 403),
    "with another link's token": ({"fields": {"t": "A" * 43}}, 403),
    "with a field too many": ({"fields": {"next": "/"}}, 403),
    "from another site": ({"headers": {"origin": "https://evil.example"}}, 403),
    "from the same host on another port": ({"headers": {"origin": "http://127.0.0.1:1"}}, 403),
    "from a page that has no origin": ({"headers": {"origin": "null"}}, 403),
    "from another site, says the browser": ({"headers": {"sec-fetch-site": "cross-site"}}, 403),
    "from a subdomain, says the browser": ({"headers": {"sec-fetch-site": "same-site"}}, 403),
    "from who knows where": ({"headers": {"origin": None, "sec-fetch-site": None}}, 403),
    "under another host's name": ({"headers": {"host": "evil.example"}}, 400),
    "as text": ({"headers": {"content-type": "text/plain"}}, 415),
    "as JSON": ({"headers": {"content-type": "application/json"}}, 415),
    "too long": ({"fields": {"form": "a" * BODY_BYTES_MAX}}, 413),
}


@pytest.mark.parametrize("name", NOT_A_PRESS)
def test_what_no_press_of_the_button_sends_completes_nothing(page: Page, person: Person, name: str) -> None:
    changes, code = NOT_A_PRESS[name]
    person.looks()
    assert person.presses(**{k: dict(v) for k, v in changes.items()}).status_code == code
    assert page.completed == []
    assert person.presses().status_code == 200
    assert page.completed == [INTENT]


def test_a_form_token_is_worth_nothing_without_the_cookie_of_its_browser(page: Page, person: Person) -> None:
    """A scanner that read the page and sends its form on, or another site that made somebody post it."""
    person.looks()
    stolen = Person(page)
    stolen.form = person.form
    assert stolen.presses().status_code == 403
    stolen.client.cookies.set(COOKIE, "another", domain="127.0.0.1", path=PATH)
    assert stolen.presses().status_code == 403
    assert page.completed == []


def test_an_old_browser_that_says_only_the_origin_may_press(page: Page, person: Person) -> None:
    person.looks()
    assert person.presses(headers={"sec-fetch-site": None}).status_code == 200
    assert page.completed == [INTENT]


def test_the_cookie_is_for_this_page_only_and_no_script_reads_it(person: Person) -> None:
    said = person.looks().headers["set-cookie"].lower()
    assert all(word in said for word in ("httponly", "samesite=strict", f"path={PATH}"))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_nothing_keeps_or_frames_the_page_or_hands_its_link_on(page: Page, method: str) -> None:
    found = httpx.request(method, page.link).headers
    assert found["cache-control"] == "no-store"
    assert found["referrer-policy"] == "same-origin"
    assert "frame-ancestors 'none'" in found["content-security-policy"]
    assert "form-action 'self'" in found["content-security-policy"]


@pytest.mark.parametrize("token", ["", "x", "A" * 43, "<script>", "%00", "A" * 5000])
def test_a_link_nobody_was_sent_is_unknown(page: Page, token: str) -> None:
    found = httpx.get(f"{page.url}{PATH}", params={"t": token})
    assert found.status_code == 404
    assert "<script>" not in found.text


def test_the_page_answers_under_its_own_name_only(page: Page) -> None:
    found = httpx.get(page.link, headers={"host": "evil.example"})
    assert found.status_code == 400
    assert page.made.token not in found.text


def test_after_the_expiry_the_page_says_that_it_is_too_late() -> None:
    for page in serve(Later()):
        person = Person(page)
        assert person.looks().status_code == 410
        assert person.presses().status_code == 403, "it never had a form"
        assert page.completed == []


def test_a_completion_that_kafka_did_not_take_may_be_pressed_again(page: Page, person: Person) -> None:
    person.looks()
    page.fails.append(PublishFailed("1 of 1 records not taken", code="not_taken"))
    assert person.presses().status_code == 503
    assert page.completed == []
    assert "Thank you" in person.presses().text
    assert page.completed == [INTENT]


def test_the_token_is_not_kept_nor_printed(page: Page) -> None:
    assert page.made.token not in repr(page.made) + repr(vars(page.challenges))
    assert page.made.ref not in page.link


def test_old_challenges_make_room_for_new_ones() -> None:
    challenges = Challenges(SystemClock())
    first = challenges.make(INTENT, expiry_ms=EXPIRY_MS)
    assert challenges.look(first.token) == "open"
    for _ in range(CHALLENGES_MAX):
        challenges.make(INTENT, expiry_ms=EXPIRY_MS)
    assert challenges.look(first.token) == "unknown"
