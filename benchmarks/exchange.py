"""What a round of the exchange costs over fetching its bytes: all-gather of 350 KB from each node.

    bare     each node asks each other at once (``session.get``), and has its bytes
    ours     each node writes its batch, signs it, hashes it and announces it; each other hears of
             it, asks for it, hashes it, verifies the signature, unpacks and validates it
    unread   ours without writing, unpacking and validating: what the protocol costs by itself

All of one size of swarm take turns in one run, in the same processes over the same sessions. A
turn lasts from the first node's start to the last one's end; all nodes share this machine.

    python benchmarks/exchange.py [--quick]
"""

import json
import socket
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import harness
from harness import Row

NODE = Path(__file__).with_name("exchange_node.py")
MODEL = "no model: batches of 64 completions with Zipf ids of 151,936, 350 KB each when sealed"


def measure(quick: bool) -> tuple[list[Row], object]:
    rows, raw = [], {}
    for count in (2,) if quick else (2, 4, 8):
        with Swarm(count) as swarm:
            # The first rounds after a start are those of everybody's first threads and pages.
            for what in ("bare", "ours", "unread"):
                swarm.turn(what)
            seconds = harness.take_turns(
                {what: lambda what=what: swarm.turn(what) for what in ("bare", "ours", "unread")},
                2 if quick else 15,
                f"{count} nodes",
            )
            size_bytes = swarm.size_bytes
        most = 2.0 if count == 8 else None
        for what, at_most in (("ours", most), ("unread", None)):
            title = f"{what} / bare, {count} nodes"
            rows.append(Row(title, *harness.ratio(seconds[what], seconds["bare"]), at_most=at_most))
        for what, taken in seconds.items():
            ms = [1e3 * one for one in taken]
            title = f"{what}, {count} nodes"
            rows.append(Row(title, statistics.median(ms), min(ms), max(ms), unit=" ms"))
        raw[f"{count} nodes"] = {"size_bytes": size_bytes, "seconds": seconds}
    return rows, raw


class Swarm:
    """Nodes in processes of their own that all know each other; ends them in the end."""

    def __init__(self, count: int) -> None:
        self._names = [f"n{at}" for at in range(count)]
        self._stack = ExitStack()

    def __enter__(self) -> "Swarm":
        with self._stack as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            addresses = dict(zip(self._names, free_addresses(len(self._names)), strict=True))
            self._nodes = [self._start(name, addresses, folder) for name in self._names]
            self.size_bytes = [self._answer(node)["size_bytes"] for node in self._nodes]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def turn(self, what: str) -> float:
        """Seconds from the first that began to the last that had everything."""
        for node in self._nodes:
            node.stdin.write(what + "\n")
            node.stdin.flush()
        told = [self._answer(node) for node in self._nodes]
        return max(one["end_s"] for one in told) - min(one["start_s"] for one in told)

    def _start(self, name: str, addresses: dict[str, str], folder: Path) -> "subprocess.Popen[str]":
        plan = {
            "name": name,
            "members": self._names,
            "listen": addresses[name],
            "connect": [at for other, at in addresses.items() if other != name],
            "folder": str(folder / name),
        }
        node = subprocess.Popen(
            [sys.executable, str(NODE), json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(_end, node)
        return node

    def _answer(self, node: "subprocess.Popen[str]") -> dict[str, float]:
        line = node.stdout.readline()
        if not line:
            raise SystemExit(f"a node ended with code {node.wait()}; its words are above")
        return json.loads(line)


def _end(node: "subprocess.Popen[str]") -> None:
    node.stdin.close()
    try:
        node.wait(10)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()
    node.stdout.close()


def free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [f"tcp/127.0.0.1:{one.getsockname()[1]}" for one in held]


if __name__ == "__main__":
    harness.run("exchange", measure, model=MODEL)
