"""Does learning suffer at its own pace, beside a node that is four times as fast?

    python benchmarks/pace_learning.py [--quick]      # 30 minutes of two cores

Base pairs of experiments/drawn (made by scripts/make_drawn_models.py) run in one process: together,
free, and each node by itself with what it writes in a pair. Free, time is a number: a round of the
slow node lasts four times as long as one of the fast node, it sends after two fifths of it, and
each node does what it does at its time. So a run repeats to the bit. Compared are equal numbers of
own rounds, ROUNDS of each node, early and late; and what they earn when the slow one has done
them, "end": by then the fast node has done more rounds, where it does not wait.

After every fourth own round a node samples SAMPLES completions of each of ASKED problems that no
node learns from. It is asked the same in each arm: the problems that it learns from differ between
the arms, for all pairs alike, and so much that their rewards cannot be compared.
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
from statistics import fmean
from unittest.mock import patch

import harness
import torch

from potluck.config import from_tree
from potluck.exchange import memory
from potluck.launch import rounds as launch
from potluck.launch.in_process import run
from potluck.node.loop import Node
from potluck.rollout.base import RandomSampler, RolloutRequest

ROUNDS, SLOWER, WRITING = 20, 4, 0.4
EVERY, ASKED, SAMPLES = 4, 200, 4
KINDS = {"complementary": ("adds", "subtracts"), "size": ("small", "large")}
NAMES, SLOW, ALONE = ("fast one", "slow one"), 1, "alone"
FIGURES = {
    "staleness": "age of others' completions, rounds of their author",
    "joint": "share of them that met own ones",
    "others": "others' completions for each own one",
}
KEPT = Path("runs/pace_learning.jsonl")
ROOT = Path(__file__).parent.parent


def by_time(slow, ends, self, first):
    """Run the nodes by a clock of their own, instead of ``LocalRounds.run``; note what they earn
    in the end, when the fast one has done more rounds."""
    done, events, order = dict.fromkeys([n.name for n in self.nodes], 0), [], itertools.count()
    nodes, open_rounds = {node.name: node for node in self.nodes}, {}
    for name in nodes:
        heapq.heappush(events, (0.0, next(order), name, "take"))
    while done[slow] < ROUNDS:
        now, _, name, what = heapq.heappop(events)
        node, round = nodes[name], done[name]
        lasts = SLOWER if name == slow else 1
        if what == "take":
            open_rounds[name] = node.open(round)
            follows = now + WRITING * lasts, "send"
        elif what == "send":
            open_rounds[name] = node.receive(node.send(open_rounds[name]))
            follows = now + (1 - WRITING) * lasts, "learn"
        else:
            arrived = open_rounds[name]
            node.use(round, node.grade(round, arrived[0]), *arrived)
            done[name] += 1
            follows = now, "take"
        heapq.heappush(events, (follows[0], next(order), name, follows[1]))
    ends.update({name: sampled_reward(node) for name, node in nodes.items()})
    return launch.RunResult(self.folder, ROUNDS, False, {})


def sampled_reward(node):
    """Return the mean reward of completions of problems that are the same in each arm."""
    problems = [node.task.problem(id) for id in node.task.ids("validation")[:ASKED]]
    policy = node.learner.policy
    completions = node.engine.generate(
        [RolloutRequest(problem, SAMPLES) for problem in problems],
        RandomSampler(torch.Generator().manual_seed(0), node.config.sampling.drawing),
        author=node.name,
        progress=lambda done, total: None,
    )
    asked = [problem for problem in problems for _ in range(SAMPLES)]
    texts = [policy.text(completion.token_T) for completion in completions]
    return fmean(node.task.rewards(asked, completions, texts))


def measured(use, found, node, round, *rest):
    """Learn from a round, and measure the node where it is time to."""
    report = use(node, round, *rest)
    if (round + 1) % EVERY == 0 and round < ROUNDS:
        found.setdefault(node.name, []).append(sampled_reward(node))
    return report


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
    rewards, ends = {}, {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        learn_and_measure = partial(measured, Node.use, rewards)
        stack.enter_context(patch.object(Node, "use", lambda *args: learn_and_measure(*args)))
        if slow is not None:
            tree["pace"] = "free"
            stack.enter_context(patch.object(memory, "KEPT_ROUNDS", 1000))
            own_time = partial(by_time, names[slow], ends)
            stack.enter_context(
                patch.object(launch.LocalRounds, "run", lambda *args, **_: own_time(*args))
            )
        run(from_tree(tree), Path(folder) / "run")
        lines = [
            [json.loads(line) for line in file.read_text().splitlines()][:ROUNDS]
            for name in names
            for file in [Path(folder) / "run" / name / "metrics.jsonl"]
        ]
    return [
        {
            "early": fmean(rewards[names[at]][: ROUNDS // EVERY // 2]),
            "late": fmean(rewards[names[at]][ROUNDS // EVERY // 2 :]),
            "end": ends.get(names[at], rewards[names[at]][-1]),
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
            {"together": together, "alone": alone}.items(), ("early", "late", "end")
        ):
            less = [
                fmean(a[when] for a in its) - fmean(b[when] for b in others)
                for its, others in zip(free, other, strict=True)
            ]
            rows.append(harness.mean_row(f"{kind}, {name}: free - {arm}, {when}", less))
        for what, told in FIGURES.items():
            values = [mean(its[what] for its in of_pair) for of_pair in free]
            known = [value for value in values if value is not None]
            rows.append(harness.mean_row(f"{kind}, {name}: {told}", known))
    return rows, {"cells": [[*work, figures] for work, figures in found.items()]}


if __name__ == "__main__":
    harness.run("pace_learning", measure, model="experiments/drawn: .13M to .31M")
