"""The page behind the link: looking changes nothing, and only a person who presses the button completes.

Mail scanners ask for a link with HEAD and GET, prefetch it, and some send a POST (case F39). So a completion
is a POST of the form that this page gave, with its token, from this origin, with the cookie of that browser:

    GET, HEAD /r?t=TOKEN     the page with the button; nothing on this side changes
    POST /r                  t=TOKEN&form=FORM      completes, once; again: says that it is done

It must not take its own origin from a request (case F40), log a token, or answer to another host's name. What
it cannot tell from a person: a sandbox that runs a whole browser and presses buttons.
"""

from __future__ import annotations

import hmac
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.resources import files
from urllib.parse import parse_qsl, urlsplit

from jinja2 import Environment, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from compose.clock import entropy
from compose.sample.challenges import Challenges, Found
from schemas.errors import BackstopError

PATH = "/r"
COOKIE = "backstop_form"
BODY_BYTES_MAX = 4_096  # two tokens of 43 characters and their names
NONCE_BYTES = 16
_FORM = "application/x-www-form-urlencoded"
_CODES = {Found.OPEN: 200, Found.DONE: 200, Found.EXPIRED: 410, Found.UNKNOWN: 404}
_HEADERS = {
    "cache-control": "no-store",
    # not no-referrer: a browser would then send the form with `Origin: null`
    "referrer-policy": "same-origin",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-robots-tag": "noindex, nofollow",
}

log = logging.getLogger(__name__)


def create_app(challenges: Challenges, complete: Callable[[str], object], *, origin: str) -> Starlette:
    """`origin`: where this page is, such as `https://app.example`; `complete` publishes by intent id."""
    page = _Page(challenges, complete, origin)
    return Starlette(
        routes=[
            Route(PATH, page.show, methods=["GET"]),
            Route(PATH, page.press, methods=["POST"]),
        ]
    )


class _Page:
    def __init__(self, challenges: Challenges, complete: Callable[[str], object], origin: str) -> None:
        self._challenges, self._complete, self._origin = challenges, complete, origin
        self._host, self._is_https = urlsplit(origin).netloc, origin.startswith("https:")
        self._key = entropy(32)  # of the form tokens; a restart asks people to open the link again
        self._template = Environment(undefined=StrictUndefined, autoescape=True).from_string(
            files("compose").joinpath("pages", "sample.html.j2").read_text("utf-8")
        )

    async def show(self, request: Request) -> Response:
        """GET and HEAD."""
        if request.headers.get("host") != self._host:
            return self._say("elsewhere", 400)
        token = request.query_params.get("t", "")
        state = self._challenges.look(token)
        if request.method == "HEAD" or state is not Found.OPEN:
            return self._say(state.value, _CODES[state])
        nonce = request.cookies.get(COOKIE) or urlsafe_b64encode(entropy(NONCE_BYTES)).decode().rstrip("=")
        response = self._say(state.value, 200, token=token, form=self._form_token(nonce, token))
        response.set_cookie(COOKIE, nonce, path=PATH, httponly=True, samesite="strict", secure=self._is_https)
        return response

    async def press(self, request: Request) -> Response:
        """POST."""
        refused = self._refused(request.headers)
        if refused:
            return self._say("refused", refused)
        body = await _body(request)
        if body is None:
            return self._say("refused", 413)
        token, form = _fields(body)
        nonce = request.cookies.get(COOKIE, "")
        if not nonce or not hmac.compare_digest(form.encode(), self._form_token(nonce, token).encode()):
            return self._say("refused", 403)
        try:
            state = await run_in_threadpool(self._challenges.use, token, self._complete)
        except BackstopError as exc:
            log.warning("a completion was not taken: %s", type(exc).__name__)
            return self._say("away", 503)
        return self._say("thanks" if state is Found.OPEN else state.value, _CODES[state])

    def _refused(self, headers: Mapping[str, str]) -> int:
        """The code with which a POST is refused before its body is read; 0 when it is not."""
        if headers.get("host") != self._host:
            return 400
        if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
            return 415
        origin = headers.get("origin")
        is_ours = headers.get("sec-fetch-site") == "same-origin" if origin is None else origin == self._origin
        return 0 if is_ours and headers.get("sec-fetch-site", "same-origin") == "same-origin" else 403

    def _form_token(self, nonce: str, token: str) -> str:
        """Only who got the page for this token, with this cookie, has it."""
        text = f"{nonce}\x00{token}".encode(errors="replace")
        return hmac.new(self._key, text, sha256).hexdigest()

    def _say(self, what: str, code: int, *, token: str = "", form: str = "") -> Response:
        text = self._template.render(what=what, token=token, form=form, path=PATH)
        return HTMLResponse(text, code, headers=_HEADERS)


async def _body(request: Request) -> bytes | None:
    """The body, or None when it is too long."""
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > BODY_BYTES_MAX:
            return None
    return bytes(read)


def _fields(body: bytes) -> tuple[str, str]:
    """The token and the form token; empty texts when the form does not hold exactly these two."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=4)
    except ValueError:
        return "", ""
    found = dict(pairs)
    return (found["t"], found["form"]) if len(pairs) == 2 and found.keys() == {"t", "form"} else ("", "")
