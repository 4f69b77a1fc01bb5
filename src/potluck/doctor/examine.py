"""The checks in their order, and the places where they look."""

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from potluck.builder.consent import BUCKET, notes_on_reach
from potluck.config import LOCAL_SWARM, RunConfig, SwarmConfig
from potluck.doctor import credentials, machine, network
from potluck.doctor.machine import Finding
from potluck.exchange import ExchangeError, transport
from potluck.exchange.keys.keys import read_roster
from potluck.exchange.protocol.announcement import ANNOUNCEMENT_VERSION
from potluck.exchange.wire.codec import TEXT_VERSION, VERSION
from potluck.exchange.zenoh.session import Endpoints, Tls
from potluck.files import available_cores, seen_accelerator

LIBRARIES = ("potluck", "torch", "transformers", "eclipse-zenoh", "msgspec", "cryptography")
FOR_DEVELOPERS = {"bench", "dev", "docs"}
"""Extras of which a user needs none."""
OF_EXTRA = re.compile(r"(?P<name>[\w.-]+).*; *extra == ['\"](?P<extra>\w+)['\"]")
"""A requirement of an extra, as the metadata of a package has it."""


@dataclass(frozen=True)
class Target:
    """A run or a node that is to be started here, as far as it was said."""

    config: RunConfig | None
    name: str
    """Name of the node that joins; empty: all of them run here, or it was not said."""
    folder: Path
    recipe: Path | None = None
    said_listen: tuple[str, ...] = ()
    """Addresses of the command line, instead of the recipe's."""
    said_connect: tuple[str, ...] = ()

    @property
    def swarm(self) -> SwarmConfig:
        return self.config.swarm if self.config else SwarmConfig()

    @property
    def listen(self) -> tuple[str, ...]:
        return self.said_listen or self.swarm.listen

    @property
    def connect(self) -> tuple[str, ...]:
        return self.said_connect or self.swarm.connect

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the nodes that the plan counts on."""
        nodes = self.config.node.items() if self.config else ()
        return tuple(name for name, node in nodes if not node.stranger)

    @property
    def nodes(self) -> int:
        return len(self.config.node) if self.config else 1

    @property
    def tls(self) -> Tls | None:
        tls = self.swarm.tls
        return Tls(Path(tls.folder), self.name, self.members) if tls and self.name else None

    @property
    def roster(self) -> Path | None:
        return Path(self.swarm.roster) if self.swarm.roster else None


def examine(target: Target) -> Iterator[Finding]:
    """Yield the finding of every check as soon as it is made."""
    yield from _machine(target)
    for note in notes_on_reach(target.config) if target.config else ():
        yield Finding("recipe", "warn" if "--allow-key" in note else "ok", note)
    if target.config and target.name:
        yield from _credentials(target)
    changed = datetime.fromtimestamp(target.recipe.stat().st_mtime, UTC) if target.recipe else None
    yield Finding("clock", *credentials.clock(datetime.now(UTC), changed))
    if target.listen or target.connect or (target.config and target.name):
        yield from _network(target)


def _machine(target: Target) -> Iterator[Finding]:
    here = 1 if target.name else target.nodes
    spoken = {
        "completions": f"{VERSION} and {TEXT_VERSION}",
        "announcements": str(ANNOUNCEMENT_VERSION),
    }
    found = {"python": platform.python_version()} | {name: _version(name) for name in LIBRARIES}
    yield Finding("versions", *machine.versions(found, spoken))
    yield Finding("extras", *machine.extras(_extras()))
    yield Finding("gpu", *machine.accelerator(seen_accelerator(), found["torch"] or ""))
    yield Finding(
        "cores",
        *machine.cores(available_cores(), here, target.config.threads if target.config else 0),
    )
    yield Finding(
        "memory", *machine.memory(machine.available_memory(_read("/proc/meminfo") or ""), here)
    )
    yield Finding("open files", *machine.open_files(_open_files(), target.nodes))
    tcp = "/proc/sys/net/ipv4/tcp_"
    current, available = (_read(f"{tcp}{key}congestion_control") for key in ("", "available_"))
    yield Finding("tcp congestion", *machine.congestion(current, available or ""))
    place = target.folder.absolute()
    while not place.exists():
        place = place.parent
    room = machine.disk(str(place), shutil.disk_usage(place).free, _write_test(place))
    yield Finding("disk", *room)


def _credentials(target: Target) -> Iterator[Finding]:
    swarm = target.swarm
    secret = Path(swarm.key) if swarm.key else target.folder / LOCAL_SWARM / f"{target.name}.key"
    yield Finding("roster", *credentials.roster(target.roster, target.members))
    known = target.roster if target.name in target.members else None
    yield Finding("key", *credentials.key(secret, target.name, known))
    folder = Path(swarm.tls.folder) if swarm.tls else None
    yield Finding("certificates", *credentials.certificates(folder, target.name, datetime.now(UTC)))


def _network(target: Target) -> Iterator[Finding]:
    config, line = target.config, transport(target.swarm.transport)
    if config:
        with_tls = config.swarm.tls is not None
    else:  # only addresses were given: each may be of its own kind
        with_tls = any(each.startswith("tls/") for each in (*target.listen, *target.connect))
    misspelt = [
        network.spelling(line, "listen", target.listen, tls=with_tls, listen=True),
        network.spelling(line, "connect", target.connect, tls=with_tls, listen=False),
    ]
    if any(misspelt):
        yield from (Finding("addresses", *found) for found in misspelt if found)
        return
    if config and target.swarm.transport == "zenoh":
        names = list(config.node)
        before = names.index(target.name) if target.name in names else 0
        yield Finding(
            "meeting", *network.meeting(target.listen, target.connect, target.nodes, before)
        )
    for address in target.listen:
        tried = network.listening(address, line.try_endpoint(address, listen=True))
        yield Finding("listen", *tried)
    there = []
    for address in target.connect:
        if BUCKET.match(address) and address not in target.said_connect:
            text = f"{address} is tried, with your account, by potluck doctor --connect {address}"
            yield Finding("connect", "ok", text)
            there.append(address)
            continue
        verdict, text = network.reaching(address, line.try_endpoint(address, listen=False))
        yield Finding("connect", verdict, text)
        there += [address] if verdict == "ok" else []
    if target.connect and not there:  # more than a warning
        yield Finding("connect", "FAIL", "none of the addresses answers: it would train alone")
    elif there and config and target.swarm.transport == "zenoh" and (target.tls or not with_tls):
        # As a client, whatever it will be: a look needs no address of its own.
        seen_from, keys = Endpoints((), tuple(there), target.tls), dict[str, bytes]()
        with suppress(ExchangeError):  # as credentials.roster has said
            keys = read_roster(target.roster) if target.roster else {}
        run, me, members = config.name, target.name, target.members
        yield from network.peers(seen_from, run, me, members=members, keys=keys)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return "from its source" if name == "potluck" else None


def _extras() -> dict[str, bool]:
    """Tell of each extra of a user whether all that it brings is installed."""
    brought: dict[str, list[str]] = {}
    with suppress(PackageNotFoundError):  # run from its source
        for found in map(OF_EXTRA.fullmatch, requires("potluck") or ()):
            if found and found["extra"] not in FOR_DEVELOPERS:
                brought.setdefault(found["extra"], []).append(found["name"])
    return {extra: all(map(_version, brought[extra])) for extra in sorted(brought)}


def _open_files() -> int:
    try:
        import resource
    except ImportError:  # not on every system
        return -1
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if limit == resource.RLIM_INFINITY else limit


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _write_test(place: Path) -> str | None:
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"potluck" * 1000)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return None
