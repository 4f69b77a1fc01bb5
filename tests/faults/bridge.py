"""A bad network above Zenoh: each node reaches the others through a bridge alone, which drops,
doubles and reorders whole announcements and answers.

    node a -- session -- Bridge -- session -- node b

TCP gives Zenoh every byte once and in order, so a relay of bytes can do none of this.
"""

import heapq
import itertools
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import zenoh

from faults.exchanges import address, free_ports
from faults.packets import Losses
from faults.peer import Plan, open_session

ANSWER_S, PAUSE_S, WORKERS = 5.0, 0.05, 16


class Bridge:
    """Stands between nodes that listen on ``ports`` and call nobody. Use it in a ``with`` block."""

    def __init__(self, ports: dict[str, int], losses: Losses, *, seed: int = 0) -> None:
        self.losses = losses
        self.counts: dict[str, Counter[str]] = {"announcements": Counter(), "answers": Counter()}
        self._ports, self._dice, self._over = ports, random.Random(seed), threading.Event()
        self._sessions: dict[str, zenoh.Session] = {}
        self._tokens: dict[str, list[zenoh.LivelinessToken]] = {}
        self._due: list[tuple[float, int, str, str, bytes]] = []
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._pool = ThreadPoolExecutor(WORKERS)
        self._thread = threading.Thread(target=self._deliver, daemon=True)

    def __enter__(self) -> "Bridge":
        with ExitStack() as stack:
            for name, port in self._ports.items():
                own = Plan("bridge", (), address(free_ports(1)[0]), (address(port),), "")
                self._sessions[name] = stack.enter_context(open_session(own))
            self._all = stack.pop_all()
        remote = zenoh.Locality.REMOTE
        for name, session in self._sessions.items():
            session.declare_subscriber(f"run/ann/{name}", self._heard, allowed_origin=remote)
            session.liveliness().declare_subscriber(f"run/live/{name}", self._seen, history=True)
            for other in self._sessions.keys() - {name}:
                session.declare_queryable(f"run/q/{other}/*", self._asked)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._pool.shutdown(cancel_futures=True)
        self._all.close()

    def _others(self, name: str) -> dict[str, zenoh.Session]:
        return {other: its for other, its in self._sessions.items() if other != name}

    def _heard(self, sample: zenoh.Sample) -> None:
        key, said = str(sample.key_expr), sample.payload.to_bytes()
        with self._lock:
            for other in self._others(key.rpartition("/")[2]):
                for delay_s in self.losses.fates(self._dice, self.counts["announcements"]):
                    due_s = time.monotonic() + delay_s
                    heapq.heappush(self._due, (due_s, next(self._numbers), other, key, said))

    def _deliver(self) -> None:
        """Put what is due, until the end."""
        while not self._over.wait(PAUSE_S):
            with self._lock:
                now_s, due = time.monotonic(), []
                while self._due and self._due[0][0] <= now_s:
                    due.append(heapq.heappop(self._due)[2:])
            for other, key, said in due:
                with suppress(zenoh.ZError):
                    self._sessions[other].put(key, said)

    def _seen(self, sample: zenoh.Sample) -> None:
        """Show a node's presence to the others, or take it away."""
        key = str(sample.key_expr)
        with self._lock:
            gone = self._tokens.pop(key, [])
            if sample.kind == zenoh.SampleKind.PUT:
                others = self._others(key.rpartition("/")[2]).values()
                self._tokens[key] = [it.liveliness().declare_token(key) for it in others]
        for token in gone:
            token.undeclare()

    def _asked(self, query: zenoh.Query) -> None:
        with suppress(RuntimeError):  # the bridge is closed
            self._pool.submit(self._ask, query)

    def _ask(self, query: zenoh.Query) -> None:
        """Ask the node itself, and pass its answers on."""
        key, payload = str(query.key_expr), query.payload
        asked = self._sessions[key.split("/")[-2]]
        with query, suppress(zenoh.ZError):
            for answer in asked.get(key, payload=payload, timeout=ANSWER_S):
                if answer.ok is None:
                    continue
                with self._lock:
                    delays_s = self.losses.fates(self._dice, self.counts["answers"])
                for delay_s in sorted(delays_s):
                    self._over.wait(delay_s)
                    query.reply(key, answer.ok.payload)
