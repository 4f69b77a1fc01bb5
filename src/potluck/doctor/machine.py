"""The machine: versions, cores, memory, files, disk, and how its TCP copes with loss."""

from collections.abc import Mapping

from potluck.doctor.finding import Finding

PYTHON = (3, 11)
GIB = 1 << 30
FILES_A_NODE = 16
"""Open files that a connection to another node may take: links, and what comes over them."""
FILES_ANYWAY = 256
DISK_FAIL_BYTES, DISK_WARN_BYTES = GIB // 4, 10 * GIB
MEMORY_A_NODE_BYTES = GIB
"""Torch and a model of some million weights; larger ones: potluck run RECIPE --check."""


def python(version: tuple[int, ...]) -> Finding:
    """
    >>> python((3, 10, 2)).verdict
    'FAIL'
    """
    shown, wanted = ".".join(map(str, version)), ".".join(map(str, PYTHON))
    if version < PYTHON:
        return Finding("python", "FAIL", f"{shown}; potluck needs {wanted} or newer")
    return Finding("python", "ok", shown)


def versions(found: Mapping[str, str | None], protocol: Mapping[str, int]) -> Finding:
    """Of libraries (None: not here), and of what goes over the line."""
    absent = [name for name, version in found.items() if version is None]
    if absent:
        return Finding(
            "versions", "FAIL", f"{', '.join(absent)} not installed; pip install potluck brings all"
        )
    here = ", ".join(f"{name} {version}" for name, version in found.items())
    spoken = ", ".join(f"{name} {version}" for name, version in protocol.items())
    return Finding("versions", "ok", f"{here}; all nodes need the same: {spoken}")


def cores(count: int, nodes: int, threads: int) -> Finding:
    """Args:
    nodes: that run on this machine.
    threads: of each; 0: cores are divided.
    """
    if nodes > count:
        return Finding(
            "cores", "warn", f"{count} for {nodes} nodes; they take turns, so rounds take longer"
        )
    if threads * nodes > count:
        return Finding(
            "cores", "warn", f"{count}, but threads = {threads} for each of {nodes}; lower threads"
        )
    return Finding("cores", "ok", f"{count} for {nodes} {'node' if nodes == 1 else 'nodes'}")


def memory(available_bytes: int | None, nodes: int) -> Finding:
    if available_bytes is None:
        return Finding("memory", "warn", "this system does not tell how much is free")
    shown, wanted = f"{available_bytes / GIB:.1f} GiB free", MEMORY_A_NODE_BYTES * nodes
    if available_bytes < wanted:
        return Finding(
            "memory", "warn", f"{shown}; {nodes} nodes take {wanted / GIB:.0f} GiB before any model"
        )
    return Finding("memory", "ok", f"{shown}; potluck run RECIPE --check tells what models take")


def available_memory(meminfo: str) -> int | None:
    """Bytes, from what Linux has in /proc/meminfo.

    >>> available_memory("MemTotal: 8 kB\\nMemAvailable:  2 kB\\n")
    2048
    """
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable" and rest.split()[:1] and rest.split()[0].isdecimal():
            return int(rest.split()[0]) * 1024
    return None


def open_files(limit: int, nodes: int) -> Finding:
    """Args:
    limit: what ``ulimit -n`` says; below 0: none.
    nodes: of the whole swarm.
    """
    wanted = FILES_ANYWAY + FILES_A_NODE * nodes
    if 0 <= limit < wanted:
        return Finding(
            "open files",
            "FAIL" if limit < wanted // 2 else "warn",
            f"{limit} at most, and {nodes} nodes may need {wanted}; ulimit -n {wanted}",
        )
    return Finding(
        "open files",
        "ok",
        f"{'any number' if limit < 0 else limit} for {nodes} {'node' if nodes == 1 else 'nodes'}",
    )


def congestion(current: str | None, available: str) -> Finding:
    """Args:
    current: tcp_congestion_control of this system; None: it does not tell.
    available: all that its kernel has loaded.
    """
    name = "tcp congestion"
    if current is None:
        return Finding(name, "warn", "this system does not tell; bbr copes best with loss")
    if current == "bbr":
        return Finding(name, "ok", "bbr")
    load = "" if "bbr" in available.split() else "modprobe tcp_bbr && "
    return Finding(
        name,
        "warn",
        f"{current}; in one machine or cluster that is well. Over the internet it slows down with "
        f"each loss, bbr does not: {load}sysctl -w net.ipv4.tcp_congestion_control=bbr (as root)",
    )


def disk(place: str, free_bytes: int, complaint: str | None) -> Finding:
    """Args:
    place: the run's folder, or the nearest one above that is there.
    complaint: of the system, when a file was written there; None: it worked.
    """
    if complaint is not None:
        return Finding("disk", "FAIL", f"{place} takes no file: {complaint}; --out names another")
    free = f"{free_bytes / GIB:.1f} GiB free at {place}"
    if free_bytes < DISK_FAIL_BYTES:
        return Finding("disk", "FAIL", f"{free}; make room, or name another place with --out")
    if free_bytes < DISK_WARN_BYTES:
        return Finding("disk", "warn", f"{free}; a node keeps two checkpoints and all its rounds")
    return Finding("disk", "ok", free)
