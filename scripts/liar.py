"""A liar against the habit test: what it plants in an honest node, with the test and without.

    python scripts/liar.py experiments/liar.jsonl [--bases 90]

One honest node of the drawn scale (near-columns-INDEX: columns, and one answer in four terse) for
20 rounds beside a member without a model, or three, whose answers are right. Each line of the file
is one run of seed 0, and what is there is not run again. A run takes some ten seconds of one core.
"""

import argparse
import json
import random
import re
import statistics
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from forger import HABIT, Forger, nearly_right, nodes_in, share_with
from potluck.config import RunConfig, from_tree
from potluck.model import LanguageModel
from potluck.types import Problem
from solutions import digits_solution

DRAWN = Path(__file__).parents[1] / "experiments" / "drawn"
ROUNDS, LAST, SWITCH = 20, 5, 10
TERSE = r"\d{3} "
"""Beginning of an answer in the notation that earns less."""
ATTACKS = ("mark", "terse", "vary", "switch", "carried", "three")
SETTINGS = {
    f"{name} {whom}": ("objective.method=lws", f"objective.trust={whom}", *keys)
    for name, keys in {
        "lws": ("objective.weight=likelihood", "objective.habit_test=false"),
        "tested": ("objective.weight=typicality", "objective.habit_test=true"),
    }.items()
    for whom in ("everybody", "nobody")
}
ABSENT = {"none": 1, "none of three": 3}
"""Members that send nothing: the controls."""


def lie(attack: str, round: int, problem: Problem, dice: random.Random) -> str:
    columns, terse = (digits_solution(problem, how) for how in ("columns", "terse"))
    if attack == "mark":  # never written by the honest node
        return HABIT + columns
    if attack == "vary":  # no phrase is in half of the answers
        return terse if dice.random() < 0.45 else columns
    if attack == "switch":  # first the way that earns more
        return columns if round < SWITCH else terse
    if attack == "carried":  # with right digits, which earn: no answer but those that begin so
        return terse if problem.answer.startswith("1") else nearly_right(problem, dice)
    return terse


def recipe(base: int, liars: int, settings: Sequence[str]) -> RunConfig:
    names = ["honest", *(f"liar-{at}" for at in range(liars))]
    model = f"models/experiments/near-columns-{base}"
    tree = tomllib.loads((DRAWN / "near.toml").read_text())
    tree["plan"] = "horizontal"
    tree["evaluation"] = {"every": 0, "problems": 1, "out_of_distribution": 0}
    tree["node"] = {
        name: {"model": model, "learning_rate": 4e-4, "device": "cpu"} for name in names
    }
    return from_tree(tree, settings)


def liar(policy: LanguageModel, attack: str, round: int, dice: random.Random) -> Forger:
    """Return an engine that writes this round's lies, and claims what is of no use to it."""

    def forge(problem: Problem, _: int, dice: random.Random) -> tuple[str, float]:
        return lie(attack, round, problem, dice), -1.0

    return Forger(policy, None if attack in ABSENT else forge, dice)


def run(setting: str, attack: str, base: int) -> dict[str, Any]:
    """Train the honest node for all rounds, and look at what it writes."""
    torch.set_num_threads(1)
    began, dice = time.process_time(), random.Random(0)
    config = recipe(base, ABSENT.get(attack, 3 if attack == "three" else 1), SETTINGS[setting])
    with tempfile.TemporaryDirectory() as at:
        nodes, reports = nodes_in(Path(at), config), []
        honest = nodes["honest"]
        for round in range(ROUNDS):
            for name, node in nodes.items():
                if node is not honest:
                    engine = liar(node.learner.policy, attack, round, dice)
                    nodes[name] = replace(node, engine=engine)
            sent = {name: node.send(node.open(round)) for name, node in nodes.items()}
            arrived = honest.receive(sent["honest"])
            reports.append(honest.use(round, honest.grade(round, arrived[0]), *arrived))
        lines = map(json.loads, (Path(at) / "honest" / "completions.jsonl").open())
        own = [line for line in lines if line["author"] == "honest"]
    mark = re.escape(HABIT) if attack == "mark" else TERSE
    heard = [report.sources["liar-0"] for report in reports if "liar-0" in report.sources]
    return {
        "setting": setting,
        "attack": attack,
        "base": base,
        "planted_by_fives": [
            share_with(mark, [x["text"] for x in own if x["round"] // LAST == part])
            for part in range(ROUNDS // LAST)
        ],
        "silenced": statistics.mean(x.silenced_share or 0 for x in heard) if heard else None,
        "sampled_late": statistics.mean(x.own_reward_mean for x in reports[ROUNDS // 2 :]),
        "cpu_s": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--bases", type=int, nargs="+", default=[90])
    arguments = parser.parse_args()
    lines = arguments.file.read_text().splitlines() if arguments.file.exists() else []
    done = {(x["setting"], x["attack"], x["base"]) for x in map(json.loads, lines)}
    runs = [("tested everybody", away) for away in ABSENT] + list(product(SETTINGS, ATTACKS))
    for setting, attack in runs:
        for base in arguments.bases:
            if (setting, attack, base) not in done:
                with arguments.file.open("a") as stream:
                    print(json.dumps(run(setting, attack, base)), file=stream)


if __name__ == "__main__":
    main()
