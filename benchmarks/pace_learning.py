"""Does learning suffer at its own pace, beside a node that is four times as fast?

    python benchmarks/pace_learning.py [--quick]      # 20 minutes of two cores

Base pairs of experiments/drawn (made by scripts/make_drawn_models.py) run in one process: together,
free, and each node by itself with what it writes in a pair. Free, time is a number: a round of the
slow node lasts four times as long as one of the fast node, it sends after two fifths of it, and
each node does what it does at its time. So a run repeats to the bit. Compared are equal numbers of
own rounds, ROUNDS of each node; the fast node goes on until the slow one has done them.
"""

import heapq
import itertools
import json
import os
import tempfile
import tomllib
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from unittest.mock import patch

import harness
from scipy.stats import t

from potluck.config import from_tree
from potluck.exchange import memory
from potluck.launch import rounds as launch
from potluck.launch.in_process import run

ROUNDS, SLOWER, WRITING = 20, 4, 0.4
KINDS = {"complementary": ("adds", "subtracts"), "size": ("small", "large")}
NAMES, SLOW, ALONE = ("fast one", "slow one"), 1, "alone"
FIGURES = {
    "staleness": "age of others' completions, rounds of their author",
    "joint": "share of them that met own ones",
    "others": "others' completions for each own one",
}
KEPT = Path("runs/pace_learning.jsonl")
ROOT = Path(__file__).parent.parent


def by_time(slow, self, folder, first):
    """Run the nodes by a clock of their own, instead of ``_Rounds.run``."""
    done, events, order = dict.fromkeys([n.name for n in self.nodes], 0), [], itertools.count()
    nodes, open_rounds = {node.name: node for node in self.nodes}, {}
    for name in nodes:
        heapq.heappush(events, (0.0, next(order), name, "take"))
    while done[slow] < ROUNDS:
        now, _, name, what = heapq.heappop(events)
        node, round = nodes[name], done[name]
        lasts = SLOWER if name == slow else 1
        if what == "take":
            taken = node.selector.choose(round, node.exchange.take())
            open_rounds[name] = taken, node.selector.draw(round, taken)
            follows = now + WRITING * lasts, "send"
        elif what == "send":
            taken, shares = open_rounds[name]
            spent = node.generate_and_send(round, shares)
            arrived = node.exchange.finish(round, taken)
            open_rounds[name] = arrived, spent, node.record.keep_round(round, arrived)
            follows = now + (1 - WRITING) * lasts, "learn"
        else:
            node.use(round, *open_rounds[name])
            done[name] += 1
            follows = now, "take"
        heapq.heappush(events, (follows[0], next(order), name, follows[1]))
    return launch.RunResult(folder, ROUNDS, False, {})


def arm(kind, pair, seed, slow):
    """Rewards and ages of one run, by node; ``slow`` is None together, and "alone" by itself."""
    if slow == "alone":
        return [arm_of(kind, [f"{name}-{pair}"], seed, None)[0] for name in KINDS[kind]]
    return arm_of(kind, [f"{name}-{pair}" for name in KINDS[kind]], seed, slow)


def arm_of(kind, names, seed, slow):
    tree = tomllib.loads((ROOT / "experiments" / "drawn" / f"{kind}.toml").read_text())
    tree["problems_per_round"] //= 3 - len(names)
    tree |= {"seed": seed, "rounds": ROUNDS, "plan": "horizontal"}
    tree |= {"node": {name: tree["node"][name] for name in names}}
    tree |= {"evaluation": {"every": 0, "problems": 0, "out_of_distribution": 0}}
    tree["objective"] |= {"method": "lws"}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if slow is not None:
            tree["pace"] = "free"
            stack.enter_context(patch.object(memory, "KEPT_ROUNDS", 1000))
            own_time = partial(by_time, names[slow])
            stack.enter_context(patch.object(launch._Rounds, "run", lambda *args: own_time(*args)))
        run(from_tree(tree), Path(folder) / "run")
        lines = [
            [json.loads(line) for line in file.read_text().splitlines()][:ROUNDS]
            for name in names
            for file in [Path(folder) / "run" / name / "metrics.jsonl"]
        ]
    return [
        {
            "early": fmean(row["own_reward_mean"] for row in rows[: ROUNDS // 2]),
            "late": fmean(row["own_reward_mean"] for row in rows[ROUNDS // 2 :]),
            "staleness": mean(row["staleness"] for row in rows),
            "joint": mean(row["joint_share"] for row in rows),
            "others": sum(
                its["completions"]
                for row, name in itertools.product(rows, names)
                if name != names[at] and (its := row["sources"].get(name))
            )
            / sum(row["sources"][names[at]]["completions"] for row in rows),
        }
        for at, rows in enumerate(lines)
    ]


def mean(values):
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def kept():
    """What an earlier command has measured: it takes long, so one that was broken off goes on."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return {tuple(work): figures for work, figures in map(json.loads, lines)}


def cell(work):
    kind, pair, seed, slow = work
    return work, arm(kind, pair, seed, slow)


def row(what, values, unit=""):
    """Mean over the pairs and its 95 % interval by Student's t; of one value the value alone."""
    at, count = fmean(values), len(values)
    half = t.ppf(0.975, count - 1) * stdev(values) / count**0.5 if count > 1 else 0.0
    return harness.Row(what, at, at - half, at + half, unit)


def measure(quick):
    pairs, seeds, kinds = (2, 1, ["complementary"]) if quick else (8, 2, list(KINDS))
    works = list(itertools.product(kinds, range(pairs), range(seeds), (None, SLOW, ALONE)))
    found = {} if quick else kept()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for work, figures in pool.map(cell, [work for work in works if work not in found]):
            found[work] = figures
            KEPT.parent.mkdir(exist_ok=True)
            with KEPT.open("a") as file:
                file.write(json.dumps([work, figures]) + "\n")
    rows = []
    for kind, (at, name) in itertools.product(kinds, enumerate(NAMES)):
        free, together, alone = (
            [[found[kind, pair, seed, slow][at] for seed in range(seeds)] for pair in range(pairs)]
            for slow in (SLOW, None, ALONE)
        )
        for (arm, other), when in itertools.product(
            {"together": together, "alone": alone}.items(), ("early", "late")
        ):
            less = [
                fmean(a[when] for a in its) - fmean(b[when] for b in others)
                for its, others in zip(free, other, strict=True)
            ]
            rows.append(row(f"{kind}, {name}: free - {arm}, {when}", less))
        for what, told in FIGURES.items():
            values = [mean(its[what] for its in of_pair) for of_pair in free]
            rows.append(row(f"{kind}, {name}: {told}", [v for v in values if v is not None]))
    return rows, {"cells": [[*work, figures] for work, figures in found.items()]}


if __name__ == "__main__":
    harness.run("pace_learning", measure, model="experiments/drawn: .13M to .31M")
