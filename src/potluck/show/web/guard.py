"""Access to the page: a token, the Host header, no scripts of other sites.

A browser lets any site send requests to this machine. One that resolves its own name to 127.0.0.1
(DNS rebinding) would even read the answers, so a Host header must be an address, localhost, or the
name that was given; starlette's TrustedHostMiddleware knows lists of names, and not "any address".
Sites that only send requests are told apart by Sec-Fetch-Site and Origin.
"""

import hmac
import ipaddress
import os
import re
import secrets

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from potluck.files import is_loopback
from potluck.types import PotluckError

TOKEN_VARIABLE = "POTLUCK_WEB_TOKEN"
SHORTEST_TOKEN = 16
"""Fewest characters of a token that a user has chosen."""
HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([\w.-]+))(?::\d+)?", re.ASCII)
"""Host header: an address of version 6 or a name, and a port."""
PART_BYTES = 1 << 16
"""Most of a message that waits here for a slow reader; the whole is there once for all."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


def choose_token(host: str, *, make: bool) -> str:
    """Return the token that a visitor needs, "" for none; raise PotluckError if the one that is
    given is no token, or other machines reach ``host`` and there is none."""
    given = os.environ.get(TOKEN_VARIABLE, "")
    if given and (len(given) < SHORTEST_TOKEN or not given.isascii() or not given.isprintable()):
        raise PotluckError(
            f"{TOKEN_VARIABLE} has {len(given)} characters; a token needs {SHORTEST_TOKEN} or more "
            f"of ASCII, or leave it out: --web-token makes one"
        )
    if given or make:
        return given or secrets.token_urlsafe(24)
    if not is_loopback(host):
        raise PotluckError(
            f"the page at {host}: other machines reach that address, so it needs --web-token; "
            f"without an address the page is for this machine alone"
        )
    return ""


class Guard:
    """Middleware that lets in visitors that may read."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, token: str = "") -> None:
        self._app, self._host, self._token = app, host, token
        self._cookie = f"potluck_{port}"  # cookies of one host are shared by its ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_parts(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            while len(body := message.get("body", b"")) > PART_BYTES:
                await send({**message, "body": body[:PART_BYTES], "more_body": True})
                message = {**message, "body": memoryview(body)[PART_BYTES:]}
            await send(message)

        request = Request(scope)
        answer = self._refusal(request) or self._admission(request) or self._app
        await answer(scope, receive, send_in_parts)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that no visitor may make, else None."""
        ask = request.headers
        if request.method not in ("GET", "HEAD"):
            return error(405, "the page only shows: GET")
        name = _host_of(ask.get("host", ""))
        if not self._is_here(name):
            text = f"this is not {name[:80]!r}: open the address that the terminal shows"
            return error(421, text)
        fetch = [ask.get(f"sec-fetch-{each}") for each in ("mode", "dest")]
        is_visit = request.scope["path"] == "/" and fetch == ["navigate", "document"]
        is_own = ask.get("sec-fetch-site", "none") in ("none", "same-origin")
        origin = ask.get("origin")
        own = (None, *(f"{scheme}://{ask.get('host', '')}" for scheme in ("http", "https")))
        if origin not in own or not (is_own or is_visit):
            return error(403, "another site asked for this; only the page itself may")
        return None

    def _admission(self, request: Request) -> Response | None:
        """Return the answer to a visitor that has no cookie of the token yet, else None."""
        if not self._token or self._is_token(request.cookies.get(self._cookie, "")):
            return None
        given = request.query_params.get("token", "")
        if request.scope["path"] != "/" or not self._is_token(given):
            text = "a token is needed: open the address that the terminal shows, with ?token="
            return error(401, text)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return answer

    def _is_here(self, name: str) -> bool:
        if self._token:  # Its cookie belongs to the name under which the page was opened.
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in ("localhost", self._host.lower())
        return True

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)


def _host_of(header: str) -> str:
    """Return the name in a Host header, without its port; "" if the whole is no such header."""
    found = HOST.fullmatch(header)
    return (found[1] or found[2]).lower().removesuffix(".") if found else ""
