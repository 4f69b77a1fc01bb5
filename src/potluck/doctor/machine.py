"""The machine: versions, cores, memory, files, disk, and how its TCP copes with loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "FAIL"]
"""``warn``: it works, but could work better, or could not be looked at."""

GIB = 1 << 30
FILES_A_NODE = 16
"""Open files that a connection to another node may take."""
FILES_ANYWAY = 256
DISK_FAIL_BYTES, DISK_WARN_BYTES = GIB // 4, 10 * GIB
MEMORY_A_NODE_BYTES = GIB
"""Torch and a model of some million weights; larger ones: potluck run RECIPE --check."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    name: str
    verdict: Verdict
    text: str
    """State of the thing; unless it is well, also the way out."""


def versions(found: Mapping[str, str | None], protocol: Mapping[str, str]) -> Finding:
    """Check the versions of libraries (None: not installed) and of what nodes exchange."""
    if absent := ", ".join(name for name, version in found.items() if version is None):
        text = f"{absent} not installed; pip install potluck brings all"
        return Finding("versions", "FAIL", text)
    here = ", ".join(f"{name} {version}" for name, version in found.items())
    spoken = ", ".join(f"{name} {version}" for name, version in protocol.items())
    return Finding("versions", "ok", f"{here}; format versions, the same on all nodes: {spoken}")


def cores(count: int, nodes: int, threads: int) -> Finding:
    """Check the cores for ``nodes`` on this machine, of ``threads`` each (0: a part of them)."""
    if nodes > count:
        text = f"{count} for {nodes} nodes; they take turns, so rounds take longer"
        return Finding("cores", "warn", text)
    if threads * nodes > count:
        text = f"{count}, but threads = {threads} for each of {nodes}; lower threads"
        return Finding("cores", "warn", text)
    return Finding("cores", "ok", f"{count} for {_nodes(nodes)}")


def _nodes(count: int) -> str:
    return f"{count} {'node' if count == 1 else 'nodes'}"


def memory(available_bytes: int | None, nodes: int) -> Finding:
    """Check the free memory (None: not known) for ``nodes`` on this machine."""
    if available_bytes is None:
        return Finding("memory", "warn", "this system does not tell how much is free")
    shown, wanted = f"{available_bytes / GIB:.1f} GiB free", MEMORY_A_NODE_BYTES * nodes
    if available_bytes < wanted:
        text = f"{shown}; {nodes} nodes take {wanted / GIB:.0f} GiB before any model"
        return Finding("memory", "warn", text)
    text = f"{shown}; potluck run RECIPE --check estimates what a run needs"
    return Finding("memory", "ok", text)


def available_memory(meminfo: str) -> int | None:
    """Return bytes from the text of Linux's /proc/meminfo.

    >>> available_memory("MemTotal: 8 kB\\nMemAvailable:  2 kB\\n")
    2048
    """
    for line in meminfo.splitlines():
        match line.split():
            case ["MemAvailable:", count, *_] if count.isdecimal():
                return int(count) * 1024
    return None


def open_files(limit: int, nodes: int) -> Finding:
    """Check the limit of ``ulimit -n`` (below 0: none) for a swarm of ``nodes``."""
    wanted = FILES_ANYWAY + FILES_A_NODE * nodes
    if 0 <= limit < wanted:
        text = f"{limit} at most, and {nodes} nodes may need {wanted}; ulimit -n {wanted}"
        return Finding("open files", "FAIL" if limit < wanted // 2 else "warn", text)
    shown = "any number" if limit < 0 else limit
    return Finding("open files", "ok", f"{shown} for {_nodes(nodes)}")


def congestion(current: str | None, available: str) -> Finding:
    """Check tcp_congestion_control (None: not known) against those that the kernel has loaded."""
    name = "tcp congestion"
    if current is None:
        return Finding(name, "warn", "this system does not tell; bbr copes best with loss")
    if current == "bbr":
        return Finding(name, "ok", "bbr")
    load = "" if "bbr" in available.split() else "modprobe tcp_bbr && "
    text = (
        f"{current}; in one machine or cluster that is well. Over the internet it slows down with "
        f"each loss, bbr does not: {load}sysctl -w net.ipv4.tcp_congestion_control=bbr (as root)"
    )
    return Finding(name, "warn", text)


def disk(place: str, free_bytes: int, complaint: str | None) -> Finding:
    """Check a folder's free space, and the system's ``complaint`` when a file was written there."""
    if complaint is not None:
        return Finding("disk", "FAIL", f"{place} takes no file: {complaint}; --out names another")
    free = f"{free_bytes / GIB:.1f} GiB free at {place}"
    if free_bytes < DISK_FAIL_BYTES:
        return Finding("disk", "FAIL", f"{free}; make room, or name another place with --out")
    if free_bytes < DISK_WARN_BYTES:
        return Finding("disk", "warn", f"{free}; a node keeps two checkpoints and all its rounds")
    return Finding("disk", "ok", free)
