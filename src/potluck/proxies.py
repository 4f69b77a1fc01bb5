"""Which proxy of the environment a URL is asked through, by the rules of httpx: for messages."""

import ipaddress
import os
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies


def proxy_remark(url: str) -> str:
    """Say that ``url`` is asked through a proxy, and the way out; "" where it is not. What stands
    before the host of a proxy, a password perhaps, is not said."""
    with suppress(ValueError):
        asked, proxies = urlsplit(url), getproxies()
        scheme = next((each for each in (asked.scheme, "all") if proxies.get(each)), "")
        if not scheme or _is_left_out(asked, proxies.get("no", "")):
            return ""
        return (
            f", asked through the proxy {_shown(proxies[scheme])} of {_variable(scheme)}: add "
            f"{asked.hostname} to no_proxy to ask it directly"
        )
    return ""


def named_proxies() -> str:
    """List the proxies that are set, and by what, without passwords."""
    proxies = getproxies()
    found = [each for each in ("http", "https", "all") if proxies.get(each)]
    return ", ".join(f"{_shown(proxies[each])} of {_variable(each)}" for each in found)


def _variable(scheme: str) -> str:
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    return next((name for name in names if os.environ.get(name)), "this system's settings")


def _shown(proxy: str) -> str:
    """Write a proxy without its user and password."""
    if "@" not in proxy:
        return proxy
    scheme, mark, _ = proxy.partition("://")
    host = proxy.rpartition("@")[2]
    return f"{scheme}{mark}{host}" if mark and scheme.isalnum() else host


def _is_left_out(asked: SplitResult, no_proxy: str) -> bool:
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return "*" in entries or any(_matches(asked, entry) for entry in entries if entry)


def _matches(asked: SplitResult, entry: str) -> bool:
    """Tell whether an entry of no_proxy names the host: an address, a network, or the end of a
    name, with a port or without."""
    host = asked.hostname or ""
    scheme, _, name = entry.rpartition("://")
    if scheme not in ("", "all", asked.scheme):
        return False
    with suppress(ValueError):
        network = ipaddress.ip_network(name.strip("[]"), strict=False)
        with suppress(ValueError):
            return ipaddress.ip_address(host) in network
        return False
    before, _, port = name.rpartition(":")
    if port.isdigit() and before:
        # As httpx has it, a URL with the usual port has none.
        usual = {"http": 80, "https": 443}.get(asked.scheme)
        if asked.port == usual or int(port) != asked.port:
            return False
        name = before.strip("[]")
    if name.startswith((".", "*.")):
        return host.endswith(name.removeprefix("*"))
    is_whole = bool(scheme) or name == "localhost"
    return host == name or (not is_whole and host.endswith(f".{name}"))
