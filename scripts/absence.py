"""Absence: what a node of four learns while the other three are away, beside what it learns alone.

    python scripts/absence.py experiments/absence.jsonl [--indices 200] [--seeds 0]

The small model of the drawn scale beside a large one and two of near notations, by the default, 20
rounds. *first*: the three are never there; *tenth*: until round 10; *back*: they are away from
round 10 to 14; *all*: they are there. *alone*: a run of one node, with the same problems, that
writes all. The measure is the sampled reward of rounds 10 to 19. A run takes 5 to 15 seconds of one
core; what is in the file is not run again.
"""

import argparse
import json
import statistics
import tempfile
import time
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import torch

from forger import nodes_in
from potluck.config import RunConfig, from_tree

DRAWN = Path(__file__).parents[1] / "experiments" / "drawn"
ROUNDS, HALF = 20, 10
HERE = {
    "alone": (),
    "all": range(ROUNDS),
    "first": (),
    "tenth": range(10),
    "back": (*range(10), *range(15, ROUNDS)),
}
"""Rounds in which the others are there."""


MODELS = {"small": "size", "large": "size", "columns": "near", "terse": "near"}


def recipe(index: int, seed: int, case: str, pace: str, plan: str) -> RunConfig:
    tree = tomllib.loads((DRAWN / "size.toml").read_text())
    names = ["small"] if case == "alone" else [*MODELS]
    tree["node"] = {
        name: {
            "model": f"models/experiments/{MODELS[name]}-{name}-{index}",
            "learning_rate": 4e-4,
            "device": "cpu",
        }
        for name in names
    }
    tree["evaluation"] = {"every": 0, "problems": 1, "out_of_distribution": 0}
    return from_tree(tree | {"seed": seed, "pace": pace, "plan": plan}, ("objective.method=lws",))


def run(index: int, seed: int, case: str, pace: str, plan: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    began, reports = time.process_time(), []
    config = recipe(index, seed, case, pace, plan)
    with tempfile.TemporaryDirectory() as folder:
        nodes = nodes_in(Path(folder), config)
        honest = nodes["small"]
        for at in range(ROUNDS):
            there = nodes if at in HERE[case] else {honest.name: honest}
            sent = {name: node.send(node.open(at)) for name, node in there.items()}
            arrived = {name: there[name].receive(each) for name, each in sent.items()}
            made = {
                name: there[name].use(at, there[name].grade(at, each[0]), *each)
                for name, each in arrived.items()
            }
            reports.append(made[honest.name])
    late = [report.own_reward_mean for report in reports[HALF:]]
    return {
        "index": index, "seed": seed, "case": case, "pace": pace, "plan": plan,
        "sampled_late": statistics.mean(late),
        "used": [report.completions for report in reports],
        "absent": [len(report.absent) for report in reports],
        "cpu_s": round(time.process_time() - began, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--indices", type=int, nargs="+", default=[200])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--plan", choices=("vertical", "horizontal"), default="horizontal")
    parser.add_argument("--pace", choices=("together", "free"), default="together")
    arguments = parser.parse_args()
    lines = arguments.file.read_text().splitlines() if arguments.file.exists() else []
    keys = "index", "seed", "case", "pace", "plan"
    done = {tuple(line[key] for key in keys) for line in map(json.loads, lines)}
    for index, seed, case in product(arguments.indices, arguments.seeds, HERE):
        made = index, seed, case, arguments.pace, arguments.plan
        if made not in done:
            with arguments.file.open("a") as stream:
                print(json.dumps(run(*made)), file=stream)


if __name__ == "__main__":
    main()
