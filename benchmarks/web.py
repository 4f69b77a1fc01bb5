"""Measure the page's server: a large run from the request to the last byte, and rounds with it.

A run of 64 nodes, 500 rounds and 8 authors each is written and asked for once. Then a run trains
while a server of its own comes and goes: nobody looks, one page is open, 200 readers never read.
The states take turns every few rounds, and what is reported is the ratio of the medians of the
rounds' durations, as ``metrics.jsonl`` has them, each block over the blocks without a server beside
it. Rounds that were under way at a change are left out.

    python benchmarks/web.py [--quick]
"""

import json
import os
import random
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import harness
from harness import Row

from potluck import STARTING_RECIPE
from potluck.cli.watching import page_of
from potluck.reports import AuthorReport, RoundReport

NODES, ROUNDS, AUTHORS, READERS = 64, 500, 8, 200
BLOCK = 20
"""Rounds between two changes, those that the change falls into included."""
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def measure(quick: bool) -> tuple[list[Row], object]:
    with tempfile.TemporaryDirectory() as folder:
        rounds = 50 if quick else ROUNDS
        loads = [load(Path(folder) / "large", rounds) for _ in range(3)]
        blocks = train(Path(folder) / "run", turns=2 if quick else 6)
    rows = []
    for what, unit, at, most in (("loads in", " s", 0, 2.0), ("takes", " MB", 1, 150.0)):
        values = [each[at] for each in loads]
        middle = statistics.median(values)
        row = Row(f"{NODES} nodes x {rounds} rounds {what}", middle, min(values), max(values), unit)
        rows.append(Row(**{**asdict(row), "at_most": most}))
    for state in ("nobody looks", "a page is open", f"{READERS} slow readers"):
        ratios = ratios_of(blocks, state)
        middle = statistics.median(ratios)
        rows.append(Row(f"round, {state}", middle, min(ratios), max(ratios), at_most=1.02))
    return rows, {"loads": loads, "blocks": blocks}


def load(folder: Path, rounds: int) -> tuple[float, float]:
    """Return (seconds, MB): a new server's answer to the first request, its largest size."""
    if not folder.exists():
        write_run(folder, rounds)
    with page_of(folder) as address:
        start_s = time.perf_counter()
        with OPENER.open(f"{address}api/run?run=") as answer:
            answer.read()
        seconds = time.perf_counter() - start_s
        (server,) = servers_of(os.getpid())
        peak = Path(f"/proc/{server}/status").read_text().partition("VmHWM:")[2]
        return seconds, int(peak.split()[0]) / 1024


def servers_of(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            is_child = int(stat.read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and b"--of-run" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


def write_run(folder: Path, rounds: int) -> None:
    """Write a run as large as the page must bear; every number has its full length."""
    dice = random.Random(0)
    names = [f"node-{at:02d}" for at in range(NODES)]
    folder.mkdir(parents=True)
    node = {name: {"model": "builtin:digits-small"} for name in names}
    (folder / "recipe.json").write_text(json.dumps({"name": "r", "rounds": rounds, "node": node}))
    whole = {"completions", "tokens", "with_advantage", "rows_trained", "tested_habit", "habit"}
    shares = [name for name in asdict(AuthorReport()) if name not in whole]
    for at, name in enumerate(names):
        authors = [names[(at + step) % NODES] for step in range(AUTHORS)]
        (folder / name).mkdir()
        with (folder / name / "metrics.jsonl").open("w") as file:
            for round in range(rounds):
                sources = {
                    author: AuthorReport(8, 400, **{share: dice.random() for share in shares})
                    for author in authors
                }
                seconds = {phase: dice.random() for phase in ("write", "wait", "exchange", "learn")}
                measured = ("reward_mean", "own_reward_mean", "loss", "gradient_norm")
                numbers = {each: dice.random() for each in measured}
                report = RoundReport(round, **numbers, seconds=seconds, sources=sources)
                file.write(json.dumps(asdict(report)) + "\n")


def train(folder: Path, turns: int) -> list[tuple[str, list[float]]]:
    """Return (state, seconds of each round) of each block of a run."""
    fixed = ["rounds=100000", "node.small.learning_rate=1e-12", "node.large.learning_rate=1e-12"]
    # Short rounds: what a server costs shows most in them.
    fixed += ["problems_per_round=8", "group_size=4"]
    fixed += ["evaluation.every=0", "evaluation.problems=0", "evaluation.out_of_distribution=0"]
    sets = [word for each in (*fixed, "checkpoint_every=100000") for word in ("--set", each)]
    command = [sys.executable, "-m", "potluck", "run", str(STARTING_RECIPE), "--one-process"]
    process = subprocess.Popen(
        [*command, *sets, "--out", str(folder), "--display", "none"], stdout=subprocess.DEVNULL
    )
    blocks = []
    try:
        wait_for(folder, 3, process)
        states = ["none", "nobody looks", "none", "a page is open"]
        states += ["none", f"{READERS} slow readers"]
        for state in [*(states * turns), "none"]:
            with ExitStack() as stack:
                if state != "none":
                    address = stack.enter_context(page_of(folder))
                    readers = {"a page is open": 1, f"{READERS} slow readers": READERS}
                    is_slow = state != "a page is open"
                    stack.enter_context(reading(address, readers.get(state, 0), is_slow=is_slow))
                first = len(seconds_of(folder)) + 1
                wait_for(folder, first + BLOCK - 1, process)
                blocks.append((state, seconds_of(folder)[first : first + BLOCK - 1]))
    finally:
        process.kill()
        process.wait()
    return blocks


def seconds_of(folder: Path) -> list[float]:
    """Return the duration of each round: the node that was slower."""
    files = [each / "metrics.jsonl" for each in (folder / "small", folder / "large")]
    nodes = [
        [sum(json.loads(line)["seconds"].values()) for line in file.read_text().split("\n")[:-1]]
        for file in files
        if file.exists()
    ]
    return [sum(both) for both in zip(*nodes, strict=False)] if len(nodes) == len(files) else []


def wait_for(folder: Path, rounds: int, process: subprocess.Popen[bytes]) -> None:
    while len(seconds_of(folder)) < rounds:
        if process.poll() is not None:
            raise SystemExit(f"the run ended with code {process.returncode}")
        time.sleep(0.2)


@contextmanager
def reading(address: str, count: int, *, is_slow: bool) -> Iterator[None]:
    """Hold ``count`` streams open; one that is dropped asks again."""
    ended = threading.Event()
    thread = threading.Thread(target=_read, args=(address, count, is_slow, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _read(address: str, count: int, is_slow: bool, ended: threading.Event) -> None:
    lines: dict[int, socket.socket] = {}
    poll = select.poll()
    events = select.POLLHUP | select.POLLERR | (0 if is_slow else select.POLLIN)
    while not ended.wait(0.1):
        while len(lines) < count:
            one = _ask(address)
            lines[one.fileno()] = one
            poll.register(one, events)
        for number, event in poll.poll(0):
            if event & (select.POLLHUP | select.POLLERR) or not lines[number].recv(1 << 16):
                poll.unregister(number)
                lines.pop(number).close()
    for one in lines.values():
        one.close()


def _ask(address: str) -> socket.socket:
    place = urlsplit(address)
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect((str(place.hostname), place.port or 80))
    one.sendall(f"GET /api/events?run= HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    return one


def ratios_of(blocks: list[tuple[str, list[float]]], state: str) -> list[float]:
    """Return each block's median over that of the two blocks without a server around it."""
    found = []
    for at, (its, seconds) in enumerate(blocks):
        if its == state:
            beside = [*blocks[at - 1][1], *blocks[at + 1][1]]
            found.append(statistics.median(seconds) / statistics.median(beside))
    return found


if __name__ == "__main__":
    harness.run("web", measure)
