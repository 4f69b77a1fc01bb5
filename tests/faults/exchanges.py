"""Nodes of ``peer.py`` in processes, started and ended by a test, and what they tell."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from faults.peer import Plan

ENOUGH_S = 240.0
"""Reached only where something hangs."""
DEADLINE_S = 60.0
"""Of a round. Who is known to be gone is not waited for, so hardly any round takes it."""
TESTS = Path(__file__).parents[1]
BELOW_EPHEMERAL = range(10_000, 32_000)
"""Ports that no outgoing connection takes by itself."""
Event = dict[str, Any]


def free_ports(count: int) -> list[int]:
    """Ports of loopback where nobody listens, all different."""
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            try:
                one.bind(("127.0.0.1", random.choice(BELOW_EPHEMERAL)))
            except OSError:
                continue
            found.append(one.getsockname()[1])
        return found


def address(port: int) -> str:
    return f"tcp/127.0.0.1:{port}"


def meshed(names: Sequence[str], folder: Path, **changes: Any) -> dict[str, Plan]:
    """Plans of nodes of which each calls all before it."""
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    return {
        name: Plan(
            name,
            tuple(names),
            address(ports[name]),
            tuple(address(ports[other]) for other in names[: names.index(name)]),
            str(folder / name),
            **changes,
        )
        for name in names
    }


@dataclass
class Peers:
    """One process, and the nodes that live in it."""

    names: tuple[str, ...]
    process: "subprocess.Popen[str]"

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


class Swarm:
    """All processes of a test. Leaving its ``with`` block ends each of them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._stopped_at = float("inf")
        self._changed = threading.Condition()
        self._started: list[Peers] = []
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> "Swarm":
        return self

    def __exit__(self, *_: object) -> None:
        for peers in self._started:
            if peers.process.poll() is None:
                peers.process.kill()
            peers.process.wait()
            with suppress(BrokenPipeError):
                peers.process.stdin.close()
        for reader in self._readers:
            reader.join()

    def start(self, *plans: Plan, clock_off_s: float = 0.0) -> Peers:
        """One process for all of ``plans``."""
        process = subprocess.Popen(
            [sys.executable, str(TESTS / "faults" / "peer.py"),
             json.dumps([asdict(plan) for plan in plans]), str(clock_off_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}"},
        )  # fmt: skip
        peers = Peers(tuple(plan.name for plan in plans), process)
        self._started.append(peers)
        for read in (self._read_events, self._read_complaints):
            thread = threading.Thread(target=read, args=(peers,), daemon=True)
            thread.start()
            self._readers.append(thread)
        return peers

    def start_all(self, plans: dict[str, Plan]) -> dict[str, Peers]:
        """A process for each."""
        return {name: self.start(plan) for name, plan in plans.items()}

    def wait_for(self, what: str, holds: Callable[[], object], within_s: float = ENOUGH_S) -> None:
        """Until ``holds()`` is true of the events so far."""
        end = time.monotonic() + within_s
        with self._changed:
            while not holds():
                broken = [e for e in self.events if e["event"] in ("failed", "complaint")]
                left = end - time.monotonic()
                if broken or left <= 0:
                    told = broken or self.events[-12:]
                    raise AssertionError(f"{what}: not within {within_s} s; {told}")
                self._changed.wait(left)

    def stop(self) -> None:
        """Asks all to end, and waits for it; they end well or this raises."""
        self._stopped_at = min(self._stopped_at, time.monotonic())
        asked = [p for p in self._started if p.process.poll() is None]
        for peers in asked:
            peers.process.stdin.close()
        for peers in asked:
            assert peers.process.wait(ENOUGH_S) == 0, (peers.names, self.events[-5:])

    def of(self, name: str, event: str) -> list[Event]:
        return [e for e in list(self.events) if (e["name"], e["event"]) == (name, event)]

    def rounds(self, name: str) -> dict[int, Event]:
        """What ``name`` had of each round when it closed it, until the first was told to stop."""
        return {e["round"]: e for e in self.of(name, "round") if e["t"] < self._stopped_at}

    def last_round(self, name: str, event: str = "round") -> int:
        """-1: none yet."""
        return max((e["round"] for e in self.of(name, event)), default=-1)

    def got(self, name: str) -> set[tuple[str, int]]:
        """Every (author, round) that came to ``name``, in time or late."""
        return set(_arrivals(self.of(name, "round")))

    def sent(self, name: str) -> set[tuple[str, int]]:
        return {(name, e["round"]) for e in self.of(name, "sent")}

    def _read_events(self, peers: Peers) -> None:
        with peers.process.stdout as lines:
            for line in lines:
                self._add(json.loads(line))

    def _read_complaints(self, peers: Peers) -> None:
        with peers.process.stderr as lines:
            said = lines.read()
        if peers.process.wait() > 0:
            self._add({"name": peers.names[0], "event": "complaint", "said": said[-2000:]})

    def _add(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()


def all_closed(swarm: Swarm, names: Iterable[str], round: int) -> Callable[[], bool]:
    return lambda: all(swarm.last_round(name) >= round for name in names)


def require_nothing_lost(swarm: Swarm, names: str, others: str = "") -> None:
    """Among ``names`` every batch came in time, whole and once; ``others`` may be missing."""
    for name in names:
        rounds = swarm.rounds(name)
        assert sorted(rounds) == list(range(len(rounds)))
        for event in rounds.values():
            assert set(event["came"]) >= set(names), event
            assert set(event["missing"]) <= set(others), event
            assert not event["wrong"], event
            assert not event["refused"], event
            assert event["seconds"] < DEADLINE_S, event
        require_each_once(swarm, name)


def require_each_once(swarm: Swarm, name: str) -> None:
    arrivals = _arrivals(swarm.of(name, "round"))
    assert len(arrivals) == len(set(arrivals))


def _arrivals(rounds: Iterable[Event]) -> list[tuple[str, int]]:
    came = [(author, e["round"]) for e in rounds for author in e["came"]]
    return came + [
        (author, int(then)) for e in rounds for then, late in e["late"].items() for author in late
    ]
