"""All checks in their order, and where they look."""

import datetime
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from potluck.config import HERE, RunConfig
from potluck.doctor import line, machine, papers, peers
from potluck.doctor.finding import Finding
from potluck.exchange import ExchangeError
from potluck.exchange.announcement import ANNOUNCEMENT_VERSION
from potluck.exchange.identity import read_roster
from potluck.exchange.session import Line, Tls
from potluck.exchange.wire import VERSION

LIBRARIES = ("potluck", "torch", "transformers", "eclipse-zenoh", "msgspec", "cryptography")


@dataclass(frozen=True)
class Patient:
    """What is to be run here, as far as it was said."""

    config: RunConfig | None
    name: str
    """Of the node that joins; empty: all of them run here, or it was not said."""
    folder: Path
    recipe: Path | None
    listen: tuple[str, ...]
    connect: tuple[str, ...]

    @classmethod
    def of(
        cls,
        config: RunConfig | None,
        name: str,
        folder: Path,
        *,
        recipe: Path | None = None,
        listen: tuple[str, ...] = (),
        connect: tuple[str, ...] = (),
    ) -> "Patient":
        """What was said on the command line goes before what stands in the recipe."""
        swarm = config.swarm if config else None
        return cls(
            config,
            name,
            folder,
            recipe,
            listen or (swarm.listen if swarm else ()),
            connect or (swarm.connect if swarm else ()),
        )

    @property
    def members(self) -> tuple[str, ...]:
        """Who is counted on."""
        nodes = self.config.node.items() if self.config else ()
        return tuple(name for name, node in nodes if not node.stranger)

    @property
    def nodes(self) -> int:
        return len(self.config.node) if self.config else 1

    @property
    def tls(self) -> Tls | None:
        if not (self.config and self.config.swarm.tls and self.name):
            return None
        return Tls(Path(self.config.swarm.tls.folder), self.name, self.members)

    @property
    def roster(self) -> Path | None:
        named = self.config.swarm.roster if self.config else None
        return Path(named) if named else None


def examine(patient: Patient) -> Iterator[Finding]:
    """Every check, each as soon as it is done."""
    yield from _machine(patient)
    if patient.config and patient.name:
        yield from _papers(patient.config, patient)
    yield papers.clock(datetime.datetime.now(datetime.UTC), _changed(patient.recipe))
    if patient.listen or patient.connect or (patient.config and patient.name):
        yield from _line(patient)


def _machine(patient: Patient) -> Iterator[Finding]:
    here = 1 if patient.name else patient.nodes
    yield machine.python(sys.version_info[:3])
    yield machine.versions(
        {name: _version(name) for name in LIBRARIES},
        {"messages": VERSION, "announcements": ANNOUNCEMENT_VERSION},
    )
    yield machine.cores(_cores(), here, patient.config.threads if patient.config else 0)
    yield machine.memory(machine.available_memory(_read("/proc/meminfo") or ""), here)
    yield machine.open_files(_open_files(), patient.nodes)
    yield machine.congestion(
        _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        _read("/proc/sys/net/ipv4/tcp_available_congestion_control") or "",
    )
    place = patient.folder.absolute()
    while not place.exists():
        place = place.parent
    yield machine.disk(str(place), shutil.disk_usage(place).free, _write_test(place))


def _papers(config: RunConfig, patient: Patient) -> Iterator[Finding]:
    swarm, now = config.swarm, datetime.datetime.now(datetime.UTC)
    secret = Path(swarm.key) if swarm.key else patient.folder / HERE / f"{patient.name}.key"
    yield papers.roster(patient.roster, patient.members)
    known = patient.roster if patient.name in patient.members else None
    yield papers.key(secret, patient.name, known)
    yield papers.certificates(Path(swarm.tls.folder) if swarm.tls else None, patient.name, now)


def _line(patient: Patient) -> Iterator[Finding]:
    with_tls = bool(patient.config and patient.config.swarm.tls)
    if patient.config is None:  # only addresses were given: each may be of its own kind
        with_tls = any(each.startswith("tls/") for each in (*patient.listen, *patient.connect))
    misspelt = [
        line.spelling("listen", patient.listen, tls=with_tls, listen=True),
        line.spelling("connect", patient.connect, tls=with_tls, listen=False),
    ]
    if any(misspelt):
        yield from filter(None, misspelt)
        return
    if patient.config:
        yield line.meeting(patient.listen, patient.connect, patient.nodes)
    for address in patient.listen:
        yield line.listening(address, line.try_listen(address))
    answers = [line.reaching(address, line.try_connect(address)) for address in patient.connect]
    yield from answers
    if nobody := line.reachable(answers):
        yield nobody
    elif answers and patient.config and (patient.tls or not with_tls):
        # As a client, whatever it will be: a look needs no address of its own.
        well = zip(patient.connect, answers, strict=True)
        there = tuple(address for address, answer in well if answer.verdict == "ok")
        seen_from = Line((), there, patient.tls)
        yield from peers.findings(
            seen_from,
            patient.config.name,
            patient.name,
            members=patient.members,
            keys=_keys(patient.roster),
        )


def _keys(roster: Path | None) -> dict[str, bytes]:
    try:
        return read_roster(roster) if roster else {}
    except ExchangeError:  # as papers.roster has said
        return {}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return "from its source" if name == "potluck" else None


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


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


def _changed(recipe: Path | None) -> datetime.datetime | None:
    if recipe is None:
        return None
    return datetime.datetime.fromtimestamp(recipe.stat().st_mtime, datetime.UTC)
