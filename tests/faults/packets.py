"""A bad network below TCP: machines of one node each, and a switch between them that drops,
doubles and reorders IP packets.

    node a (10.77.0.1) -- tun -- Switch -- tun -- node b (10.77.0.2)

A machine is a network namespace of Linux, made by a thread that stays in it. Wants the rights of
root, or ``unshare -rn`` before the command; no traffic control of the kernel (``tc netem``), which
many machines have not got. Nothing leaves this machine.
"""

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
SET_INTERFACE, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
PORT, PACKET_BYTES = 7447, 1 << 16
IPV4, SOURCE, TARGET = 4, 15, 19
"""Version of the protocol; offsets of the last byte of both addresses, which is a machine's number.
"""


@dataclass(frozen=True, slots=True)
class Losses:
    """What happens to what passes, each part by itself."""

    dropped: float = 0.0
    doubled: float = 0.0
    delayed: float = 0.0
    delay_s: float = 0.02
    """At most: what left later overtakes what is delayed."""

    def fates(self, dice: random.Random, counts: Counter[str]) -> list[float]:
        """Return the delay of each copy that is to arrive; none if it is lost. Count it."""
        counts["passed"] += 1
        if dice.random() < self.dropped:
            counts["dropped"] += 1
            return []
        delays_s = []
        for _ in range(1 + (dice.random() < self.doubled)):
            is_late = dice.random() < self.delayed
            counts["delayed"] += is_late
            delays_s.append(is_late * dice.uniform(0, self.delay_s))
        counts["doubled"] += len(delays_s) - 1
        return delays_s


class Machine:
    """A namespace with one address. What ``call`` runs lives in it, processes too; another process
    enters it at ``namespace``."""

    def __init__(self, number: int) -> None:
        self.address = f"10.77.0.{number}"
        self._thread = ThreadPoolExecutor(max_workers=1)
        try:
            self.tun = self._thread.submit(self._enter).result()
        except OSError:
            self._thread.shutdown()
            raise

    def call(self, work, *given, **named):
        return self._thread.submit(work, *given, **named).result()

    def close(self) -> None:
        os.close(self.tun)
        self._thread.shutdown()

    def _enter(self) -> int:
        if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "no network of its own for a thread: wants root")
        self.namespace = f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, SET_INTERFACE, struct.pack("16sH14x", b"tun0", TUN_WITHOUT_HEADER))
        for words in ("link set lo up", f"addr add {self.address}/24 dev tun0", "link set tun0 up"):
            subprocess.run(["ip", *words.split()], check=True)
        return tun


def enter(namespace: str) -> None:
    """Let this thread, and those that it starts, live on another machine."""
    with open(namespace, "rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


class Switch:
    """All machines of a test, and the thread that carries their packets. Use it in ``with``."""

    def __init__(self, names, losses=Losses(), *, seed=0) -> None:
        self.losses = losses
        """May be replaced at any time."""
        self.cut: frozenset[frozenset[str]] = frozenset()
        """Pairs of names between which nothing passes; may be replaced at any time."""
        self.counts: Counter[str] = Counter()
        self._names, self._dice, self._over = tuple(names), random.Random(seed), threading.Event()
        self.machines: dict[str, Machine] = {}
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def __enter__(self):
        try:
            for number, name in enumerate(self._names, start=1):
                self.machines[name] = Machine(number)
        except OSError:
            self._close()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._close()

    def endpoint(self, name: str) -> str:
        return f"tcp/{self.machines[name].address}:{PORT}"

    def part(self, *sides) -> None:
        """Let nothing pass between names of different ``sides``."""
        pairs = itertools.combinations(sides, 2)
        self.cut = frozenset(frozenset(two) for a, b in pairs for two in itertools.product(a, b))

    def heal(self) -> None:
        self.cut = frozenset()

    def _close(self) -> None:
        for machine in self.machines.values():
            machine.close()

    def _carry(self) -> None:
        tuns = [self.machines[name].tun for name in self._names]
        held: list[tuple[float, int, int, bytes]] = []
        numbers = itertools.count()
        while not self._over.is_set():
            pause_s = 0.1 if not held else max(0.0, min(0.1, held[0][0] - time.monotonic()))
            for tun in select.select(tuns, [], [], pause_s)[0]:
                packet = os.read(tun, PACKET_BYTES)
                for delay_s in self._fates(packet):
                    to = tuns[packet[TARGET] - 1]
                    heapq.heappush(held, (time.monotonic() + delay_s, next(numbers), to, packet))
            while held and held[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(held)
                try:
                    os.write(to, packet)
                except OSError:  # the queue of a machine is full: one more packet is lost
                    self.counts["dropped"] += 1

    def _fates(self, packet: bytes) -> list[float]:
        """Return the delay of each copy of a packet that is to arrive; none if it is lost."""
        if packet[0] >> 4 != IPV4 or not 1 <= packet[TARGET] <= len(self._names):
            return []
        both = frozenset(self._names[packet[at] - 1] for at in (SOURCE, TARGET))
        if both in self.cut:
            self.counts["cut"] += 1
            return []
        return self.losses.fates(self._dice, self.counts)
