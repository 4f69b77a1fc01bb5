"""Who may read the page, and who may not; without a network."""

import asyncio
from urllib.parse import parse_qs, urlsplit

import pytest

from potluck.show.web.guard import HEADERS, PART_BYTES, Guard, choose_token
from potluck.show.web.server import shown_address
from potluck.types import PotluckError

TOKEN = "a-token-of-many-characters"
WHOLE = bytes(range(256)) * 2_000


def asked(path="/", *, token=TOKEN, method="GET", query="", host="127.0.0.1:8420", **headers):
    """Return the messages of the guard's answer."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": WHOLE})

    async def send(message):
        sent.append(message)

    named = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    pairs = [(name.encode(), value.encode()) for name, value in named.items() if value is not None]
    scope = {"type": "http", "method": method, "path": path, "headers": pairs}
    guard = Guard(app, host="node.example", port=8420, token=token)
    asyncio.run(guard({**scope, "query_string": query.encode()}, None, send))
    assert set(HEADERS) <= set(sent[0]["headers"])
    return sent


def ask(*words, **named):
    """Return (status, headers) of the guard's answer."""
    first, *_ = asked(*words, **named)
    return first["status"], dict(first["headers"])


def test_a_visit_with_the_token_gets_a_cookie_and_an_address_without_it():
    status, headers = ask(query=f"token={TOKEN}")
    assert (status, headers[b"location"]) == (303, b"/")
    assert ask("/api/run", query=f"token={TOKEN}")[0] == 401
    cookie = headers[b"set-cookie"].decode()
    assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.lower().split("; "))
    assert ask("/api/run", cookie=cookie.partition(";")[0])[0] == 200


@pytest.mark.parametrize(
    "query, cookie",
    [
        ("", None),
        ("token=", None),
        (f"token={TOKEN[:-1]}", None),
        (f"token={TOKEN}x", None),
        ("", f"potluck_8420={TOKEN[:-1]}"),
        ("", f"potluck_8421={TOKEN}"),
        ("", "potluck_8420=\xff"),
        ("token=%00%ff", ";;=\x00"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/run", "/nothing"])
def test_a_wrong_token_or_none_is_refused(path, query, cookie):
    assert ask(path, query=query, cookie=cookie)[0] == 401


@pytest.mark.parametrize(
    "host, status",
    [
        ("127.0.0.1:8420", 200),
        ("192.168.0.7", 200),
        ("[::1]:8420", 200),
        ("localhost:8420", 200),
        ("[::1]", 200),
        ("NODE.example.:8420", 200),
        ("evil.example:8420", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        (None, 421),
        ("[::1", 421),
        ("[::1]evil.example", 421),
        ("[::1%evil.example]", 421),
        ("localhost:1@evil.example", 421),
        ("[evil]", 421),
    ],
)
def test_the_host_must_be_an_address_or_the_name_that_was_given(host, status):
    assert ask(host=host, token="")[0] == status


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_to_the_page_and_ask_for_nothing(site):
    fetch = {"sec_fetch_site": site, "sec_fetch_mode": "cors", "sec_fetch_dest": "empty"}
    visit = {"sec_fetch_site": site, "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    frame = {**visit, "sec_fetch_dest": "iframe"}
    assert ask("/api/run", token="", **fetch)[0] == 403
    assert ask("/api/run", token="", **visit)[0] == 403
    assert ask("/", token="", **frame)[0] == 403
    assert ask("/", token="", **visit)[0] == 200


@pytest.mark.parametrize(
    "origin, status",
    [
        ("http://127.0.0.1:8420", 200),
        ("https://127.0.0.1:8420", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
def test_another_origin_is_refused_by_browsers_that_do_not_tell_the_site(origin, status):
    assert ask("/api/run", token="", origin=origin)[0] == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(method):
    assert ask("/api/run", token="", method=method)[0] == 405


def test_an_address_for_others_needs_a_token(monkeypatch):
    monkeypatch.delenv("POTLUCK_WEB_TOKEN", raising=False)
    assert choose_token("127.0.0.1", make=False) == ""
    for host in ("0.0.0.0", "::", "192.168.0.7", "node.example"):
        with pytest.raises(PotluckError, match="--web-token"):
            choose_token(host, make=False)
        assert len(choose_token(host, make=True)) >= 32
    made = {choose_token("0.0.0.0", make=True) for _ in range(5)}
    assert len(made) == 5


def test_a_token_of_the_environment_counts_and_must_not_be_short(monkeypatch):
    monkeypatch.setenv("POTLUCK_WEB_TOKEN", TOKEN)
    assert choose_token("::", make=False) == TOKEN
    for short in ("x", 15 * "x", 20 * "ä"):
        monkeypatch.setenv("POTLUCK_WEB_TOKEN", short)
        with pytest.raises(PotluckError, match="POTLUCK_WEB_TOKEN has"):
            choose_token("::", make=True)


def test_a_token_of_ones_own_works_as_it_is_shown():
    token = "a+b%41&c#d=e f/gh"
    shown = urlsplit(shown_address("127.0.0.1", 80, token))
    assert parse_qs(shown.query) == {"token": [token]}


def test_no_more_than_a_part_of_an_answer_waits_for_a_slow_reader():
    _, *parts = asked(token="")
    assert b"".join(part["body"] for part in parts) == WHOLE
    assert max(len(part["body"]) for part in parts) == PART_BYTES
    assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
