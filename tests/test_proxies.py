"""Which proxy a URL is asked through: as httpx, which asks, has it."""

import os

import httpx2
import pytest

from potluck.proxies import named_proxies, proxy_remark

URLS = (
    "http://127.0.0.1:8000/v1",
    "http://127.0.0.1/v1",
    "http://localhost/v1",
    "http://[::1]:80/v1",
    "http://10.1.2.3/v1",
    "https://api.x.org/v1",
    "https://x.org/v1",
    "https://x.org:443/v1",
    "https://api.x.org:8443/v1",
    "http://notx.org",
)
NO_PROXY = (
    "",
    "*",
    "a,*",
    "127.0.0.1",
    "127.0.0.0/8",
    "127.0.0.1:8000",
    "all://127.0.0.1",
    "10.0.0.0/8, localhost",
    "localhost",
    "::1",
    "[::1]",
    "::/0",
    "x.org",
    "X.ORG",
    ".x.org",
    "*.x.org",
    "api.x.org",
    "x.org:443",
    "x.org:8443",
    "http://x.org",
    "https://x.org",
    "org",
    "127.0.0.1/99",
    "an entry of words",
)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("no_proxy", NO_PROXY)
def test_a_proxy_is_told_of_where_httpx_asks_one_and_nowhere_else(monkeypatch, no_proxy):
    monkeypatch.setenv("no_proxy", no_proxy)
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        client = httpx2.AsyncClient()
        for url in URLS:
            is_direct = client._transport_for_url(httpx2.URL(url)) is client._transport
            assert bool(proxy_remark(url)) != is_direct, (name, url)
        monkeypatch.delenv(name)


def test_the_remark_names_the_proxy_its_variable_and_the_host_and_no_password(monkeypatch):
    assert proxy_remark("http://127.0.0.1:8000/v1") == named_proxies() == ""
    monkeypatch.setenv("all_proxy", "http://me:secret@gate.example:3128")
    monkeypatch.setenv("HTTPS_PROXY", "me:secret@gate.example")
    assert proxy_remark("http://127.0.0.1:8000/v1") == (
        ", asked through the proxy http://gate.example:3128 of all_proxy: add 127.0.0.1 to "
        "no_proxy to ask it directly"
    )
    assert "through the proxy gate.example of HTTPS_PROXY: add x.org" in proxy_remark(
        "https://X.org"
    )
    assert named_proxies() == "gate.example of HTTPS_PROXY, http://gate.example:3128 of all_proxy"
    assert proxy_remark("http://[") == ""


@pytest.mark.parametrize("password", ["se/cret", "se#cret", "se?cret", "se://cret", "se@cret", "%"])
def test_no_part_of_a_password_is_told_whatever_signs_it_has(monkeypatch, password):
    monkeypatch.setenv("all_proxy", f"http://me:{password}@gate.example:3128")
    monkeypatch.setenv("http_proxy", f"me:{password}@gate.example:3128")
    told = named_proxies() + proxy_remark("http://127.0.0.1:8000/v1")
    assert "gate.example:3128" in told
    for part in ("me:", "se", "cret", "%"):
        assert part not in told.replace("these", "").replace("me.example", "")
