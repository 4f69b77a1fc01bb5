"""Rounds of two nodes while somebody without a key floods them with announcements.

    python benchmarks/flood.py [--seconds 20] [--rate 10000] [--flooders 1] [--json FILE]

Two real nodes (``potluck join``, the starting recipe's models, a closed swarm with a roster, TCP
without TLS), and a program that reaches their ports. The nodes are pinned to all cores but the last
and the program to the last one, so that its own work takes nothing from them, as if the flood came
from another machine. With one core there is nothing to pin. The rate that the program reached is in
the table, and of the nodes' processor time the parts of Zenoh's threads and of the kernel.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import zenoh

from potluck.config import from_tree
from potluck.exchange import Key
from potluck.exchange.protocol.signed import Offer, encode_announcement
from potluck.exchange.zenoh.session import Endpoints, open_session
from potluck.launch import local_swarm

FLOODS = ("garbage", "unknown names", "unknown garbage", "another key", "replayed")
RUN, NAMES, ROUNDS = "flood", ("columns", "terse"), 5_000
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
FLOODER_CORES, NODE_CORES = CORES[-1:], CORES[:-1]
ZENOH = ("acc", "app", "net", "rx-", "tx-")
"""How the names of its threads begin."""
MODELS = {"columns": "builtin:digits-small", "terse": "builtin:digits-terse"}


def pinned(command, cores, **rest):
    def pin():
        if len(CORES) > 1:
            os.sched_setaffinity(0, cores)

    return subprocess.Popen(command, preexec_fn=pin, **rest)


def start(folder):
    """The processes of both nodes, as ``potluck run`` starts them."""
    node = {name: {"model": MODELS[name], "learning_rate": 1e-6} for name in NAMES}
    config = from_tree(
        {
            "name": RUN,
            "rounds": ROUNDS,
            "plan": "vertical",
            "objective": {"method": "f-tis"},
            "problems_per_round": 4,
            "group_size": 4,
            "threads": 1,
            "deadline_s": 20,
            "checkpoint_every": 0,
            "sampling": {"max_new_tokens": 48, "max_total_tokens": 96},
            "evaluation": {"every": 0, "problems": 0, "out_of_distribution": 0},
            "swarm": {"gather_s": 60},
            "node": node,
        }
    )
    local_swarm.prepare_local_swarm(config, folder)
    recipe = folder / local_swarm.LOCAL_SWARM / "recipe.json"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}
    command = [sys.executable, "-m", "potluck", "join", str(recipe), "--out", str(folder), "--as"]
    return {
        name: pinned(
            [*command, name], NODE_CORES, env=env, stdout=(folder / f"{name}.log").open("w")
        )
        for name in NAMES
    }


def rounds(folder, name):
    path = folder / name / "metrics.jsonl"
    return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


def cpu_s(nodes):
    """Seconds of the processor by thread name, outside the kernel; and in the kernel."""
    used = Counter()
    for node in nodes.values():
        for thread in Path(f"/proc/{node.pid}/task").iterdir():
            name, _, fields = (thread / "stat").read_text().partition("(")[2].rpartition(") ")
            user, system = (int(x) / os.sysconf("SC_CLK_TCK") for x in fields.split()[11:13])
            is_main = int(thread.name) == node.pid
            used["Python, main thread" if is_main else name] += user
            used["kernel"] += system
    return used


def messages(kind, session):
    """(key, bytes) of a flood; "replayed" first listens for what the nodes say."""
    if kind == "replayed":
        heard = []
        subscriber = session.declare_subscriber(
            f"{RUN}/ann/*", lambda s: heard.append((str(s.key_expr), s.payload.to_bytes()))
        )
        while {key.rpartition("/")[2] for key, _ in heard} < {*NAMES}:
            time.sleep(0.1)
        subscriber.undeclare()
        return heard
    key, about = Key.new(), {"clock_s": time.time(), "session": bytes(16), "task": bytes(16)}
    offers = [Offer(round, 1000, bytes(16)) for round in range(32)]
    names = [f"s{at}" for at in range(300)] if "unknown" in kind else NAMES
    word = {
        name: os.urandom(900)
        if "garbage" in kind
        else encode_announcement(RUN, name, key, offers, **about)
        for name in names
    }
    return [(f"{RUN}/ann/{name}", word[name]) for name in names]


def flood(kind, rate, addresses):
    """Until it is ended: a client of one node, which sends whether anybody listens or not."""
    ended, sent, begun = [], 0, None
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    with open_session(Endpoints(("tcp/127.0.0.1:0",), tuple(addresses)), run=RUN) as session:
        time.sleep(1)
        say, begun = messages(kind, session), time.monotonic()
        print("begun", flush=True)
        while not ended:
            for _ in range(max(1, rate // 200)):
                session.put(*random.choice(say), congestion_control=zenoh.CongestionControl.DROP)
                sent += 1
            time.sleep(max(0.0, sent / rate - (time.monotonic() - begun)))
        print(sent / (time.monotonic() - begun))


def measure(kind, asked, folder, nodes):
    addresses = json.loads((folder / local_swarm.LOCAL_SWARM / "addresses.json").read_text())
    options = [kind, str(asked.rate // asked.flooders), *addresses.values()]
    command = [sys.executable, __file__, "--flood", *options]
    flooders = [
        pinned(command, FLOODER_CORES, stdout=subprocess.PIPE, text=True)
        for _ in range(asked.flooders if kind != "nothing" else 0)
    ]
    for each in flooders:
        each.stdout.readline()
    time.sleep(2)
    before = {name: len(rounds(folder, name)) for name in NAMES}
    used_before = cpu_s(nodes)
    time.sleep(asked.seconds)
    done = {name: rounds(folder, name)[before[name] :] for name in NAMES}
    used = cpu_s(nodes)
    used.subtract(used_before)
    for each in flooders:
        each.terminate()
    return {
        "flood": kind,
        "sent /s": round(sum(float(each.communicate()[0]) for each in flooders)),
        "rounds": [len(each) for each in done.values()],
        "with somebody missing": sum(bool(m["missing"]) for each in done.values() for m in each),
        **{
            f"{phase} s": statistics.median(m["seconds"][phase] for x in done.values() for m in x)
            for phase in ("wait", "exchange")
        },
        "cpu s a round": used.total() / sum(len(each) for each in done.values()),
        "zenoh": sum(used[name] for name in used if name[:3] in ZENOH) / used.total(),
        "kernel": used["kernel"] / used.total(),
        "cores used": used.total() / asked.seconds,
        "cpu s": {name: round(s, 2) for name, s in used.most_common() if s > 0},
    }


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--seconds", type=float, default=20)
    ask.add_argument("--rate", type=int, default=10_000)
    ask.add_argument("--flooders", type=int, default=1)
    ask.add_argument("--json", type=Path)
    ask.add_argument("--flood", nargs="+")
    asked = ask.parse_args()
    if asked.flood:
        return flood(asked.flood[0], int(asked.flood[1]), asked.flood[2:])
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        nodes = start(folder)
        try:
            while any(len(rounds(folder, name)) < 5 for name in NAMES):
                time.sleep(0.2)
            # Each flood between two calm times: a machine with other work is never the same.
            for kind in ("nothing", *(k for flood in FLOODS for k in (flood, "nothing"))):
                rows.append(measure(kind, asked, folder, nodes))
                print(rows[-1], flush=True)
        finally:
            for node in nodes.values():
                node.kill()
                node.wait()
    columns = ("sent /s", "with somebody missing", "wait s", "cpu s a round", "zenoh", "kernel")
    print("| flood | rounds | of undisturbed | " + " | ".join(columns) + " |\n" + "|---" * 9 + "|")
    for at, row in enumerate(rows):
        beside = [sum(calm["rounds"]) for calm in rows[max(0, at - 1) : at + 2] if calm is not row]
        part = sum(row["rounds"]) / (sum(beside) / len(beside)) if at % 2 else 1.0
        cells = (f"{row[key]:,.4g}" for key in columns)
        print(f"| {row['flood']} | {row['rounds']} | {part:.0%} | " + " | ".join(cells) + " |")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
