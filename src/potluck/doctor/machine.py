"""The machine: versions, cores, memory, files, disk, and how its TCP copes with loss."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "FAIL"]
"""``warn``: it works, but could work better, or could not be looked at."""
Judged = tuple[Verdict, str]
"""Verdict and text of a finding; ``examine`` has the names of the checks."""

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


def versions(found: Mapping[str, str | None], protocol: Mapping[str, str]) -> Judged:
    """Check the versions of libraries (None: not installed) and of what nodes exchange."""
    if absent := ", ".join(name for name, version in found.items() if version is None):
        return "FAIL", f"{absent} not installed; pip install potluck brings all"
    here, spoken = (", ".join(f"{k} {v}" for k, v in each.items()) for each in (found, protocol))
    return "ok", f"{here}; format versions, the same on all nodes: {spoken}"


def accelerator(seen: str, torch: str) -> Judged:
    """Check an accelerator, of which there is only a driver to be seen, against torch's version."""
    if seen and torch.endswith("+cpu"):
        return "warn", f"{seen}, but torch {torch} is for CPUs; install one for it: docs/install.md"
    return "ok", f"{seen}, for torch {torch}" if seen else "none: models run on the CPU"


def extras(found: Mapping[str, bool]) -> Judged:
    """Tell which extras are installed, and how the others would be."""
    absent = [name for name, is_here in found.items() if not is_here]
    here = ", ".join(name for name in found if name not in absent) or "none"
    way = f"; not {', '.join(absent)}: pip install 'potluck[{absent[0]}]'" if absent else ""
    return "ok", f"{here}{way}"


def cores(count: int, nodes: int, threads: int) -> Judged:
    """Check the cores for ``nodes`` on this machine, of ``threads`` each (0: a part of them)."""
    if nodes > count:
        return "warn", f"{count} for {nodes} nodes; they take turns, so rounds take longer"
    if threads * nodes > count:
        return "warn", f"{count}, but threads = {threads} for each of {nodes}; lower threads"
    return "ok", f"{count} for {_nodes(nodes)}"


def _nodes(count: int) -> str:
    return f"{count} {'node' if count == 1 else 'nodes'}"


def memory(available_bytes: int | None, nodes: int) -> Judged:
    """Check the free memory (None: not known) for ``nodes`` on this machine."""
    if available_bytes is None:
        return "warn", "this system does not tell how much is free"
    shown, wanted = f"{available_bytes / GIB:.1f} GiB free", MEMORY_A_NODE_BYTES * nodes
    if available_bytes < wanted:
        return "warn", f"{shown}; {nodes} nodes take {wanted / GIB:.0f} GiB before any model"
    return "ok", f"{shown}; potluck run RECIPE --check estimates what a run needs"


def available_memory(meminfo: str) -> int | None:
    """Read the bytes from the text of Linux's /proc/meminfo.

    >>> available_memory("MemTotal: 8 kB\\nMemAvailable:  2 kB\\n")
    2048
    """
    found = re.search(r"^MemAvailable:\s+([0-9]+)\b", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def open_files(limit: int, nodes: int) -> Judged:
    """Check the limit of ``ulimit -n`` (below 0: none) for a swarm of ``nodes``."""
    wanted = FILES_ANYWAY + FILES_A_NODE * nodes
    if not 0 <= limit < wanted:
        return "ok", f"{'any number' if limit < 0 else limit} for {_nodes(nodes)}"
    text = f"{limit} at most, and {nodes} nodes may need {wanted}; ulimit -n {wanted}"
    return ("FAIL" if limit < wanted // 2 else "warn"), text


def congestion(current: str | None, available: str) -> Judged:
    """Check tcp_congestion_control (None: not known) against those that the kernel has loaded."""
    if current is None:
        return "warn", "this system does not tell; bbr copes best with loss"
    if current == "bbr":
        return "ok", "bbr"
    load = "" if "bbr" in available.split() else "modprobe tcp_bbr && "
    return "warn", (
        f"{current}; in one machine or cluster that is well. Over the internet it slows down with "
        f"each loss, bbr does not: {load}sysctl -w net.ipv4.tcp_congestion_control=bbr (as root)"
    )


def disk(place: str, free_bytes: int, complaint: str | None) -> Judged:
    """Check a folder's free space, and the system's ``complaint`` when a file was written there."""
    if complaint is not None:
        return "FAIL", f"{place} takes no file: {complaint}; --out names another"
    free = f"{free_bytes / GIB:.1f} GiB free at {place}"
    if free_bytes < DISK_FAIL_BYTES:
        return "FAIL", f"{free}; make room, or name another place with --out"
    if free_bytes < DISK_WARN_BYTES:
        return "warn", f"{free}; a node keeps two checkpoints and all its rounds"
    return "ok", free
