"""Access to the page: a token, the Host header, and no scripts of other sites.

A browser lets any site send requests to this machine. One that resolves its own name to 127.0.0.1
(DNS rebinding) would even read the answers, so a Host header must be an address, localhost, or the
name that was given. Sites that only send requests are told apart by Sec-Fetch-Site and Origin.
"""

import hmac
import ipaddress
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from potluck.types import PotluckError

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_VARIABLE = "POTLUCK_WEB_TOKEN"
SHORTEST_TOKEN = 16
"""Fewest characters of a token that a user has chosen."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class WebAddressError(PotluckError):
    """An address or a token with which the page cannot be served."""


def is_loopback(host: str) -> bool:
    """Tell if only this machine reaches the address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def choose_token(host: str, *, make: bool, environment: Mapping[str, str] = os.environ) -> str:
    """Return the token that a visitor needs, "" for none; raise WebAddressError if ``host`` needs
    one and there is none."""
    given = environment.get(TOKEN_VARIABLE, "")
    if given and (len(given) < SHORTEST_TOKEN or not given.isascii() or not given.isprintable()):
        raise WebAddressError(
            f"{TOKEN_VARIABLE} has {len(given)} characters; a token needs {SHORTEST_TOKEN} or more "
            f"of ASCII, or leave it out: --web-token makes one"
        )
    if given or make:
        return given or secrets.token_urlsafe(24)
    if not is_loopback(host):
        raise WebAddressError(
            f"the page at {host}: other machines reach that address, so it needs --web-token; "
            f"without an address the page is for this machine alone"
        )
    return ""


class Guard:
    """Passes on to ``app`` the requests of visitors that may read; ASGI."""

    def __init__(self, app: App, *, host: str, port: int, token: str = "") -> None:
        self._app, self._host, self._token = app, host, token
        self._cookie = f"potluck_{port}"  # cookies of one host are shared by its ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if complaint := self._complaint(scope, headers):
            await _answer(send, *complaint)
            return
        if self._token:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if given and scope["path"] == "/" and self._is_token(given):
                await _answer(send, 303, "", (b"location", b"/"), (b"set-cookie", self._set()))
                return
            if not self._is_token(self._cookie_of(headers)):
                line = "a token is needed: open the address that the terminal shows, with ?token="
                await _answer(send, 401, line)
                return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _complaint(self, scope: Scope, headers: Mapping[bytes, str]) -> tuple[int, str] | None:
        """Return status and line for a request that is refused, else None."""
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "the page only shows: GET"
        name = _host_of(headers.get(b"host", ""))
        if not self._is_here(name):
            return 421, f"this is not {name[:80]!r}: open the address that the terminal shows"
        site = headers.get(b"sec-fetch-site", "none")
        if site not in ("none", "same-origin"):
            is_visit = (
                scope["path"] == "/"
                and headers.get(b"sec-fetch-mode") == "navigate"
                and headers.get(b"sec-fetch-dest") == "document"
            )
            if not is_visit:
                return 403, "another site asked for this; only the page itself may"
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin).netloc != headers.get(b"host", ""):
            return 403, "another site asked for this; only the page itself may"
        return None

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

    def _cookie_of(self, headers: Mapping[bytes, str]) -> str:
        try:
            found = SimpleCookie(headers.get(b"cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    def _set(self) -> bytes:
        value = SimpleCookie({self._cookie: self._token})[self._cookie].OutputString()
        return f"{value}; HttpOnly; SameSite=Strict; Path=/".encode()


def _host_of(header: str) -> str:
    """Return the name in a Host header, without its port.

    >>> _host_of("127.0.0.1:8420"), _host_of("[::1]:8420"), _host_of("[::1]"), _host_of("A.org.:80")
    ('127.0.0.1', '::1', '::1', 'a.org')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower().removesuffix(".")


async def _answer(send: Send, status: int, text: str, *more: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": text}).encode()
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", b"application/json")
    headers = [kind, length, *HEADERS, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
