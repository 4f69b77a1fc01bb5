"""What the announcements of a large swarm cost one of its nodes: cores, bytes, memory.

    python benchmarks/large_swarm.py [--nodes 64 256 1000 4000] [--seconds 20] [--picture FILE]

The node is a real one, without a model, in a process of its own. All others are played by this
process over one connection: each announces 32 rounds as often as nodes of so large a swarm do,
answers questions, and serves the batches of two tokens that the node fetches from its cohort. A
round takes ten seconds. Cores are processor time by the clock, all threads, Zenoh's too.
"""

import argparse
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from potluck.exchange import Agreement, Key, Limits, Membership, Provenance, encode
from potluck.exchange.keys.keys import BATCH, KnownKeys
from potluck.exchange.protocol.peers import announcement_pause_s
from potluck.exchange.protocol.rules import InStep
from potluck.exchange.protocol.signed import encode_announcement, encode_answer, offer_of
from potluck.exchange.zenoh.exchange import ZenohExchange
from potluck.exchange.zenoh.session import Endpoints, open_session
from potluck.schedule import cohort
from potluck.types import Completion, Sampling

RUN, KEPT, ROUND_S, TASK = "large", 32, 10.0, bytes(16)
BEFORE_CORES = {64: 0.0005, 128: 0.10, 256: 0.65, 1000: 29.0}
"""Hearing alone, at commit b8c7f74: the time of one announcement times their rate."""


def key_of(name):
    return Key(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


def terms(name):
    provenance = Provenance(bytes(16), bytes(16), TASK, Sampling())
    return Agreement(RUN, name, provenance, Limits(), lambda id: bytes(8))


def node(names, pipe):
    """The node that is measured, the first of ``names``: says what it used whenever asked."""
    me, members = names[0], frozenset(names)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        own = Membership(
            agreement=terms(me),
            key=key_of(me),
            known_keys=KnownKeys(
                {n: key_of(n).public for n in names}, members, False, place / "pins.toml"
            ),
            folder=place,
            members=members,
            partners=lambda round, live: cohort(
                live, members=members, me=me, run=RUN, round=round, size=32
            ),
            codec="exact",
            rule=InStep(max_staleness=1, kept_rounds=KEPT),
            kept_rounds=KEPT,
            quarantine_s=60.0,
        )
        session = open_session(Endpoints((pipe.recv(),)), run=RUN)
        before_mb = rss_mb()
        exchange = ZenohExchange(session, own)
        pipe.send("open")
        for round in iter(pipe.recv, None):
            if round >= 0:
                exchange.send(round, [])
            peers = exchange.status().peers.values()
            known = sum(peer.heard_s is not None for peer in peers)
            came = sum(len(peer.rounds) for peer in peers)
            pipe.send((time.process_time(), rss_mb() - before_mb, known, came, hearing_s()))
        exchange.close()
        session.close()


def rss_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def hearing_s():
    """Processor time of the thread that hears, which the rest of the node is not part of."""
    (thread,) = [t for t in threading.enumerate() if t.name.endswith("hear the others")]
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return sum(map(int, stat.rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


class Others:
    """All nodes but the measured one."""

    def __init__(self, session, names, round):
        self.session, self.names, self.round = session, names, round
        self.keys, self.signed, self.asked = {n: key_of(n) for n in names}, {}, 0
        self.order, self.bytes = itertools.cycle(random.sample(names, len(names))), 0
        self.served = session.declare_queryable(f"{RUN}/q/**", self.serve)
        live = session.liveliness()
        self.tokens = [live.declare_token(f"{RUN}/live/{name}") for name in names]

    def batch(self, name, round):
        if (name, round) not in self.signed:
            tokens, logps = np.array([1, 2], np.int32), np.array([-0.5, -0.5], np.float32)
            one = Completion("p", name, 0, tokens, logps, "stop")
            data = encode(terms(name).message(round, (one,)))
            self.signed[name, round] = self.keys[name].sign(BATCH, data)
        return self.signed[name, round]

    def said(self, name):
        offers = [offer_of(r, self.batch(name, r)) for r in self.rounds()]
        about = {"session": name.encode().ljust(16), "task": TASK, "clock_s": time.time()}
        return encode_announcement(RUN, name, self.keys[name], offers, **about)

    def rounds(self):
        return range(self.round - KEPT + 1, self.round + 1)

    def serve(self, query):
        name, what = str(query.key_expr).split("/")[-2:]
        if what == "hello":
            self.asked += 1
            answer = encode_answer(self.keys[name], query.payload.to_bytes(), self.said(name))
        else:
            answer = self.batch(name, int(what))
        query.reply(query.key_expr, answer)

    def speak(self, seconds, every_s):
        """All say what they have at their usual pace, for as long as this."""
        begun, count = time.monotonic(), 0
        while (passed_s := time.monotonic() - begun) < seconds:
            while count < passed_s / every_s * len(self.names):
                said = self.said(name := next(self.order))
                self.session.put(f"{RUN}/ann/{name}", said)
                self.bytes, count = self.bytes + len(said), count + 1
            time.sleep(0.005)
        return count / seconds


def measure(count, seconds):
    names = [f"n{at:04d}" for at in range(count)]
    every_s = announcement_pause_s(count)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=node, args=(names, theirs))
    process.start()
    address = f"tcp/127.0.0.1:{random.randrange(10_000, 30_000)}"
    ours.send(address)
    ours.recv()

    def state(round=-1):
        ours.send(round)
        return ours.recv()

    with open_session(Endpoints(("tcp/127.0.0.1:0",), (address,)), run=RUN) as session:
        others, begun = Others(session, names[1:], KEPT), time.monotonic()
        first_s = state(KEPT)[0]
        while (now := state())[2] < count - 1:
            others.speak(1.0, every_s)
        met_s, met_cpu_s, asked = time.monotonic() - begun, now[0] - first_s, others.asked
        met, others.bytes, spoken, begun = state(), 0, [], time.monotonic()
        for _ in range(max(1, round(seconds / ROUND_S))):
            others.round += 1
            state(others.round)
            spoken.append(others.speak(ROUND_S, every_s))
        took_s, end = time.monotonic() - begun, state()
    ours.send(None)
    process.join()
    return {
        "nodes": count,
        "pause s": every_s,
        "heard /s": sum(spoken) / len(spoken),
        "kB/s in": others.bytes / took_s / 1e3,
        "cores": (end[0] - met[0]) / took_s,
        "of that hearing": (end[4] - met[4]) / took_s,
        "MB": end[1],
        "questions": asked,
        "all known after s": met_s,
        "with cpu s": met_cpu_s,
        "batches": end[3],
        "cores before": BEFORE_CORES.get(count),
    }


def draw(rows, path):
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    nodes = [row["nodes"] for row in rows]
    left.loglog(list(BEFORE_CORES), list(BEFORE_CORES.values()), "o--", label="hearing, before")
    left.loglog(nodes, [row["of that hearing"] for row in rows], "o-", label="hearing, now")
    left.loglog(nodes, [row["cores"] for row in rows], "s-", label="all of the node, now")
    left.axhline(0.05, color="gray", lw=0.8)
    left.set(title="cores of one node")
    left.legend()
    middle.semilogx(nodes, [row["kB/s in"] for row in rows], "o-")
    middle.set(title="announcements that it hears, kB/s", ylim=0)
    right.semilogx(nodes, [row["MB"] for row in rows], "o-")
    right.set(title="memory that it adds, MB", ylim=0)
    for axes in (left, middle, right):
        axes.set(xlabel="nodes", xticks=nodes, xticklabels=nodes)
        axes.minorticks_off()
    figure.savefig(path, dpi=110)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--nodes", type=int, nargs="+", default=[64, 256, 1000, 4000])
    ask.add_argument("--seconds", type=float, default=20)
    ask.add_argument("--picture", type=Path)
    ask.add_argument("--json", type=Path)
    asked = ask.parse_args()
    rows = []
    for count in asked.nodes:
        rows.append(measure(count, asked.seconds))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print("| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|")
    for row in rows:
        print("| " + " | ".join("" if x is None else f"{x:,.3g}" for x in row.values()) + " |")
    if asked.picture:
        draw(rows, asked.picture)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
