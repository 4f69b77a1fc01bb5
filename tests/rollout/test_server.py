"""Common parts of engines behind a server: requests, and waiting for environments beside them."""

import asyncio
import socket
import threading

import httpx2
import pytest

from potluck.rollout.base import RolloutError
from potluck.rollout.server import Address, Client, CutOff, Ears, TooLong

BROKEN = "HTTP/1.1 {} x\r\nContent-Length: 500\r\n\r\nhalf"


def asked(answer, **limits):
    """Ask a server that answers with these bytes once, and hangs up."""

    def serve():
        caller, _ = listener.accept()
        with caller:
            caller.recv(2**16)
            caller.sendall(answer.encode())

    async def ask():
        root = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with Client(Address(root), root, proxies=False) as client:
            return await client.send("GET", "/", **limits)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return asyncio.run(ask())
        finally:
            thread.join()


@pytest.mark.parametrize("status", [401, 429, 503])
def test_an_error_keeps_its_status_where_its_page_breaks_off_or_has_no_end(status):
    for limits in ({}, {"limit_bytes": 2}):
        found, _, raw = asked(BROKEN.format(status), **limits)
        assert (found, raw) == (status, b"half")


def test_an_answer_that_breaks_off_or_is_too_long_is_none():
    with pytest.raises(CutOff):
        asked(BROKEN.format(200))
    with pytest.raises(TooLong):
        asked(BROKEN.format(200), limit_bytes=2)


@pytest.mark.parametrize("url", ["http://1.2.3.400:8000", "http://a\x7fb"])
def test_a_url_that_no_request_can_have_is_named(url):
    with pytest.raises(RolloutError, match=r"url is 'http.*; expected https://HOST or http"):
        Client(Address(url), url, proxies=False)


def test_the_reason_of_an_error_is_the_one_below_that_is_no_cancelling():
    address = Address("http://h")
    assert "no connection within 10 s" in address.reason(httpx2.ConnectTimeout("late"))
    error = ValueError("above")
    error.__context__ = OSError("below")
    error.__context__.__context__ = asyncio.CancelledError("scope 7f")
    assert address.reason(error) == "OSError: below"
    below, above = OSError("one"), OSError("other")
    below.__context__, above.__context__ = above, below
    assert address.reason(below) == "OSError: other"


def test_one_looks_for_all_that_wait_for_their_environment():
    looks, waiting = [], range(100)

    def look(wait_s):
        looks.append(wait_s)
        return [(episode, -episode) for episode in waiting] if len(looks) == 3 else []

    async def hear():
        ears = Ears(look)
        return await asyncio.gather(*map(ears.hear, waiting))

    assert asyncio.run(hear()) == [-episode for episode in waiting]
    assert looks == [0.0] * 3
