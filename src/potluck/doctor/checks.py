"""The checks of a machine and of a node's credentials: each looks at one thing for a target."""

import os
import platform
import resource
import shutil
import tempfile
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

GIB = 1 << 30
FILES_A_NODE = 16
"""Open files that a connection to another node may take."""
FILES_ANYWAY = 256
DISK_WARN_BYTES = 10 * GIB
SOON = timedelta(days=14)
SKEW_WARN_S = 60.0
MADE = datetime(2026, 1, 1, tzinfo=UTC)
"""This program is not older, so no clock may say less."""
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
        return tuple(self.config.members) if self.config else ()

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


def open_files(target: Target) -> Judged:
    """Check the limit of ``ulimit -n`` for the swarm."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_ANYWAY + FILES_A_NODE * target.nodes
    if limit == resource.RLIM_INFINITY or limit >= wanted:
        return "ok", f"{limit if limit >= 0 else 'any number'}; nodes of the run: {target.nodes}"
    text = f"{limit} at most, and {target.nodes} nodes may need {wanted}; ulimit -n {wanted}"
    return ("FAIL" if limit < wanted // 2 else "warn"), text


def disk(target: Target) -> Judged:
    """Check the run's folder, or the nearest one above it, by writing a file."""
    place = target.folder.absolute()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"potluck" * 1000)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return "FAIL", f"{place} takes no file: {error.strerror or error}; --out names another"
    free_bytes = shutil.disk_usage(place).free
    free = f"{free_bytes / GIB:.1f} GiB free at {place}"
    if free_bytes < DISK_WARN_BYTES:
        return "warn", f"{free}; a node keeps two checkpoints and all its rounds (--out)"
    return "ok", free


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
        known = read_roster(book).get(name) if book else found.public
    except ExchangeError as error:
        return "FAIL", str(error)
    if known is None:
        return "FAIL", f"{book} has no line for {name!r}; add: {roster_line(name, found)}"
    if known != found.public:
        line = f"change its line to: {roster_line(name, found)}"
        return "FAIL", f"{book} has another key for {name!r} than {path}; {line}"
    return "ok", f"{path}, which only its owner can read{', as in the roster' if book else ''}"


def certificates(target: Target) -> Judged:
    """Check that the certificate is this node's, holds, and does not end soon."""
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


def clock(target: Target) -> Judged:
    """Check the clock: training needs none, but certificates and logs do."""
    shown = f"{now():%Y-%m-%d %H:%M:%S} UTC"
    if now() < MADE:
        return "FAIL", f"{shown}, before this program was made; set it (NTP)"
    changed = datetime.fromtimestamp(target.recipe.stat().st_mtime, UTC) if target.recipe else MADE
    if (changed - now()).total_seconds() > SKEW_WARN_S:
        return "warn", f"{shown}, but the recipe is from {changed:%Y-%m-%d %H:%M:%S}; set it (NTP)"
    return "ok", shown


def now() -> datetime:
    return datetime.now(UTC)


OF_MACHINE: dict[str, Callable[[Target], Judged]] = {
    "versions": versions,
    "gpu": accelerator,
    "open files": open_files,
    "disk": disk,
    "clock": clock,
}
OF_NODE: dict[str, Callable[[Target], Judged]] = {
    "roster": roster,
    "key": key,
    "certificates": certificates,
}
