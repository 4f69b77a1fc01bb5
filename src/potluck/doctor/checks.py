"""The checks of a machine and of a node's credentials: each looks at one thing for a target."""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from potluck.config import LOCAL_SWARM, RunConfig, SwarmConfig
from potluck.exchange import ExchangeError, Key
from potluck.exchange.keys.keys import (
    CERTIFIES,
    certificate_files,
    check_certificate,
    read_roster,
    roster_line,
)
from potluck.exchange.protocol.signed import ANNOUNCEMENT_VERSION
from potluck.exchange.wire.codec import VERSIONS
from potluck.exchange.zenoh.session import Tls
from potluck.files import seen_accelerator

Verdict = Literal["ok", "warn", "FAIL"]
"""``warn``: it works, but could work better, or could not be looked at."""
Judged = tuple[Verdict, str]
"""Verdict on a thing and its state; unless it is well, also the way out."""

SOON = timedelta(days=14)
LIBRARIES = ("potluck", "torch", "transformers", "eclipse-zenoh", "msgspec", "cryptography")


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    verdict: Verdict
    text: str


@dataclass(frozen=True)
class Target:
    """A run or a node that is to be started here, as far as it was said."""

    config: RunConfig | None
    name: str
    """Name of the node that joins; empty: all of them run here, or it was not said."""
    folder: Path
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
        return tuple(self.config.members) if self.config else ()

    @property
    def tls(self) -> Tls | None:
        tls = self.swarm.tls
        return Tls(Path(tls.folder), self.name, self.members) if tls and self.name else None

    @property
    def roster(self) -> Path | None:
        return Path(self.swarm.roster) if self.swarm.roster else None


def versions(target: Target) -> Judged:
    """Check that libraries are installed, and tell the versions of what nodes exchange."""
    found = {name: _version(name) for name in LIBRARIES}
    if absent := ", ".join(name for name, its in found.items() if not its):
        return "FAIL", f"{absent} not installed; pip install potluck brings all"
    here = ", ".join(f"{name} {its}" for name, its in found.items())
    return "ok", (
        f"python {platform.python_version()}, {here}; format versions, the same on all nodes: "
        f"completions {VERSIONS}, announcements {ANNOUNCEMENT_VERSION}"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "from its source" if name == "potluck" else ""


def accelerator(target: Target) -> Judged:
    """Check an accelerator, of which there is only a driver to be seen, against torch's version."""
    seen, torch = seen_accelerator(), _version("torch")
    if seen and torch.endswith("+cpu"):
        return "warn", f"{seen}, but torch {torch} is for CPUs; install one for it: docs/install.md"
    return "ok", f"{seen}, for torch {torch}" if seen else "none: models run on the CPU"


def roster(target: Target) -> Judged:
    if not (path := target.roster):
        return "warn", "none: a name's first key is believed; fine among friends"
    try:
        found = read_roster(path)
    except ExchangeError as error:
        return "FAIL", str(error)
    if absent := ", ".join(name for name in target.members if name not in found):
        return "FAIL", f"{path} has no key for {absent}; ask for what potluck keys prints"
    return "ok", f"{path}: {len(found)} names"


def key(target: Target) -> Judged:
    """Check that the secret is there, the owner's alone, and a member's as the roster has it."""
    name, own = target.name, target.swarm.key
    path = Path(own) if own else target.folder / LOCAL_SWARM / f"{name}.key"
    book = target.roster if name in target.members else None
    if not path.exists():
        if not book:
            return "ok", f"none at {path} yet; joining makes one"
        return "FAIL", (
            f"there is no {path}, and a roster names keys: potluck keys {name} makes one, "
            f"[swarm] key names it, and its line goes into {book}"
        )
    try:
        found = Key.load(path)
        listed = read_roster(book) if book else {name: found.public}
    except ExchangeError as error:
        return "FAIL", str(error)
    known = listed.get(name)
    owner = next((other for other, public in listed.items() if public == found.public), name)
    if owner != name:
        # It is somebody's identity: the roster is right, and the name or the file is not.
        return "FAIL", (
            f"{path} is the key of {owner!r} in {book}: --as {owner}, or --set "
            f"swarm.key={path.with_name(f'{name}.key')}"
        )
    if known is None:
        return "FAIL", f"{book} has no line for {name!r}; add: {roster_line(name, found)}"
    if known != found.public:
        return "FAIL", (
            f"{book} has another key for {name!r} than {path}. If {name!r} is another machine, "
            f"take another name; if it is this one and has a new key, ask all owners to change its "
            f"line to: {roster_line(name, found)}"
        )
    return "ok", f"{path}, which only its owner can read{', as in the roster' if book else ''}"


def certificates(target: Target) -> Judged:
    """Check that the certificate is this node's, holds, and does not end soon."""
    if not target.tls and target.swarm.transport == "folder":
        return "ok", "not used: the nodes meet in a folder, which has rights of its own"
    if not target.tls:
        return "warn", "no [swarm.tls]: any node may connect; fine in a network of yours"
    try:
        end = check_certificate(target.tls.folder, target.name)
    except ExchangeError as error:
        return "FAIL", str(error)
    _, path, _ = certificate_files(target.tls.folder, target.name)
    if end - now() < SOON:
        return "warn", (
            f"{path} ends on {end:%Y-%m-%d}; make a new one in time: remove the folder "
            f"{target.name} where ca.key is; {CERTIFIES}"
        )
    return "ok", f"{path} holds to {end:%Y-%m-%d}"


def now() -> datetime:
    return datetime.now(UTC)


OF_MACHINE: dict[str, Callable[[Target], Judged]] = {"versions": versions, "gpu": accelerator}
OF_NODE: dict[str, Callable[[Target], Judged]] = {
    "roster": roster,
    "key": key,
    "certificates": certificates,
}
