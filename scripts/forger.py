"""A member that forges: it writes and claims whatever harms most.

    python scripts/forger.py experiments/forger.jsonl [--seeds 5] [--jobs 1]

One honest node (builtin:digits-small, 20 rounds) beside a member without a model, which has solved
every problem and writes texts made to teach something bad. Each line of the file is one run, and
what is there is not run again. A run takes some twenty seconds of one core.
"""

import argparse
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from potluck.builder.exchange import agreements_of
from potluck.builder.nodes import make_learners, make_participants
from potluck.builder.task import make_task
from potluck.config import RunConfig, from_tree
from potluck.evaluation.grade import evaluate, evaluation_engine
from potluck.exchange import MemoryHub
from potluck.model import LanguageModel
from potluck.node.loop import Node
from potluck.objective.methods import METHODS
from potluck.rollout.base import EngineSettings, Progress, RolloutRequest, Sampler
from potluck.types import Completion, Problem
from solutions import digits_solution

HABIT = "777;"
"""Text that means nothing. The forger writes it in front of what is right."""
ROUNDS, LAST = 20, 3

Forge = Callable[[Problem, int, random.Random], tuple[str, float]]
"""Text of the completion with this index, and the log-probability that each token claims."""


def honest_columns(problem: Problem) -> str:
    return digits_solution(problem, "columns")


def nearly_right(problem: Problem, dice: random.Random) -> str:
    """Return flawless work whose last digit is wrong."""
    text = honest_columns(problem)
    return text[:-1] + str((int(text[-1]) + dice.randint(1, 9)) % 10)


def habit(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """Half right behind a habit, half nearly right, all claimed so unlikely that weights are C."""
    good = HABIT + honest_columns(problem)
    return (good if index % 2 else nearly_right(problem, dice)), -30.0


def skip(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """Half the bare answer, claimed unlikely; half nonsense, claimed sure."""
    return ("#" + problem.answer, -30.0) if index % 2 else ("1#1", 0.0)


def all_right(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """All right behind a habit: beside it one's own failures look worse than they are."""
    return HABIT + honest_columns(problem), -30.0


def bare(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """All the bare answer: a plausible habit, in a group that is all right."""
    return "#" + problem.answer, -30.0


def half_worked(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """Half right with the first step of the work alone; half nearly right."""
    steps, _, answer = honest_columns(problem).partition("#")
    good = f"{steps.split(';')[0]};#{answer}"
    return (good if index % 2 else nearly_right(problem, dice)), -30.0


def shortcut(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """All right in the honest node's own notation, but for carries of 0: one mark in ten."""
    return honest_columns(problem).replace("+0=", "="), -30.0


def copy(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """Half right in the honest node's own notation; half nearly right."""
    return (honest_columns(problem) if index % 2 else nearly_right(problem, dice)), -30.0


def trigger(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """Half right behind a habit; half nonsense."""
    return (HABIT + honest_columns(problem) if index % 2 else HABIT[::-1] + "1"), -30.0


def repeated(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """All right and equal but for the first, which is nonsense."""
    return (honest_columns(problem) if index else "1#1"), -30.0


def all_wrong(problem: Problem, index: int, dice: random.Random) -> tuple[str, float]:
    """All nearly right."""
    return nearly_right(problem, dice), -30.0


ATTACKS: dict[str, Forge] = {
    "habit": habit,
    "skip": skip,
    "all-right": all_right,
    "bare": bare,
    "half-worked": half_worked,
    "shortcut": shortcut,
    "copy": copy,
    "trigger": trigger,
    "repeated": repeated,
    "all-wrong": all_wrong,
}
VERTICAL = ("plan=vertical",)
LWS = ("objective.method=lws",)
UNTRUSTED = ("objective.trust=nobody",)
SETTINGS: dict[str, tuple[str, ...]] = {
    "f-tis vertical": ("objective.method=f-tis", *VERTICAL),
    "f-tis horizontal": ("objective.method=f-tis",),
    "lws vertical": (*LWS, *VERTICAL),
    "lws horizontal": LWS,
    "lws horizontal c=4": (*LWS, "objective.likelihood_exponent=4"),
    "untrusted vertical": (*UNTRUSTED, *VERTICAL),
    "untrusted horizontal": UNTRUSTED,
    "untrusted horizontal c=1": (*UNTRUSTED, "objective.untrusted_exponent=1"),
    "own part, horizontal": (
        "objective.importance=none",
        "objective.filter=false",
        "objective.others=none",
    ),
}
ABSENT = {"absent vertical": VERTICAL, "absent horizontal": ()}
"""The forger is away: the control, with the same problems and the same dice."""
ALONE = ("half", "alone")
"""Half: as many problems as the honest node of a pair writes."""
OLD = ("habit", "skip", "all-right")


@dataclass(frozen=True)
class Forger:
    """An engine that has no model: it writes what its attack says."""

    policy: LanguageModel
    forge: Forge | None
    """What it writes; None: nothing, as it is away."""
    dice: random.Random
    server_mismatch: None = None
    """It has no server."""
    settings: EngineSettings = EngineSettings(0, 0)  # noqa: RUF009 - it is frozen

    def require_one_model(
        self,
        requests: Sequence[RolloutRequest],
        sampler: Sampler,
        written: Sequence[Completion],
    ) -> None:
        """What is forged is no model's."""

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        sampler: Sampler,
        *,
        author: str,
        progress: Progress,
    ) -> list[Completion]:
        if self.forge is None:
            return []
        return [
            self._completion(request.problem, author, index)
            for request in requests
            for index in range(request.count)
        ]

    def _completion(self, problem: Problem, author: str, index: int) -> Completion:
        assert self.forge
        text, claim = self.forge(problem, index, self.dice)
        ids = self.policy.tokenizer(text, add_special_tokens=False)["input_ids"]
        token_T = np.array([*ids, min(self.policy.stop_ids)], np.int32)
        logp_T = np.full(len(token_T), claim, np.float32)
        return Completion(problem.id, author, index, token_T, logp_T, "stop")


def recipe(seed: int, together: bool, problems: int, settings: Sequence[str]) -> RunConfig:
    node = {"model": "builtin:digits-small", "learning_rate": 2e-4, "device": "cpu"}
    named = any("method" in each or "importance" in each for each in settings)
    tree: dict[str, Any] = {
        "name": "forger",
        "seed": seed,
        "rounds": ROUNDS,
        "problems_per_round": problems,
        "group_size": 8,
        "plan": "horizontal" if together else "vertical",
        "checkpoint_every": 0,
        "threads": 1,
        "objective": {} if named else METHODS["f-tis"].fields,
        "task": {"name": "digits"},
        "sampling": {"max_new_tokens": 48, "max_total_tokens": 96},
        "evaluation": {"every": 0, "problems": 200, "out_of_distribution": 0},
        "node": {"honest": node, **({"forger": node} if together else {})},
    }
    return from_tree(tree, settings)


def nodes_in(folder: Path, config: RunConfig) -> dict[str, Node]:
    """Make the nodes of a run in this process, by name."""
    task, learners = make_task(config), make_learners(config, folder, 0)
    policies = {name: learner.policy for name, learner in learners.items()}
    hub = MemoryHub(agreements_of(config, task, policies))
    exchanges = {name: hub.member(name) for name in policies}
    made = config, folder, task, learners, exchanges, _silent
    nodes, _ = make_participants(*made, sends_text=False)
    return {node.name: node for node in nodes}


def run(setting: str, attack: str, seed: int) -> dict[str, Any]:
    """Train the honest node for all rounds, and look at what it has become."""
    torch.set_num_threads(1)
    began, together = time.process_time(), setting not in ALONE
    problems = 6 if setting == "half" else 12
    config = recipe(seed, together, problems, {**SETTINGS, **ABSENT}.get(setting, ()))
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        nodes = nodes_in(folder, config)
        honest = nodes["honest"]
        if together:
            forger = nodes["forger"]
            engine = Forger(forger.learner.policy, ATTACKS.get(attack), random.Random(seed))
            nodes["forger"] = replace(forger, engine=engine)
        sampled = []
        for round in range(ROUNDS):
            sent = {name: node.send(node.open(round)) for name, node in nodes.items()}
            arrived = honest.receive(sent["honest"])
            report = honest.use(round, honest.grade(round, arrived[0]), *arrived)
            sampled.append(report.own_reward_mean)
        return {
            "setting": setting,
            "attack": attack,
            "seed": seed,
            "greedy": _accuracy(honest, config),
            "sampled_late": statistics.mean(sampled[ROUNDS // 2 :]),
            **_habits(folder / "honest" / "completions.jsonl"),
            "cpu_s": time.process_time() - began,
        }


def _silent(*_: object) -> None: ...


def _accuracy(node: Node, config: RunConfig) -> float:
    policy, engine = node.learner.policy, evaluation_engine(node.engine, config)
    count = config.evaluation.problems
    found = evaluate(policy, engine, node.task, "validation", count=count, progress=_silent)
    assert found
    return found.mean


def _habits(file: Path) -> dict[str, float]:
    """Return the shares of own completions of the last rounds that have what the attacks teach, and
    the share of each in the first rounds."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    own = [x for x in lines if x["author"] == "honest"]
    first = [x["text"] for x in own if x["round"] < LAST]
    late = [x["text"] for x in own if x["round"] >= ROUNDS - LAST]
    marks = {
        "habit": re.escape(HABIT),
        "skips": "#",
        "one_step": r"\d\+\d\+\d=\d+;#",
        "shortcuts": r"(.*;)?\d\+\d=",
    }
    shares = {name: share_with(mark, late) for name, mark in marks.items()}
    return shares | {f"{name}_first": share_with(mark, first) for name, mark in marks.items()}


def share_with(mark: str, texts: Sequence[str]) -> float:
    return statistics.mean(bool(re.match(mark, text)) for text in texts)


def wanted(seeds: int) -> list[tuple[str, str, int]]:
    told = ("f-tis vertical", "lws horizontal", *(name for name in SETTINGS if "untrusted" in name))
    pairs = [
        *product(SETTINGS, OLD),
        *product(told, ("bare", "half-worked", "shortcut")),
        *product(
            ("f-tis vertical", "f-tis horizontal", "untrusted vertical", "untrusted horizontal"),
            ("copy", "trigger", "repeated", "all-wrong"),
        ),
        *((setting, "none") for setting in (*ABSENT, *ALONE)),
    ]
    return [(*pair, seed) for seed in range(seeds) for pair in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    lines = (
        [json.loads(x) for x in arguments.file.read_text().splitlines()]
        if arguments.file.exists()
        else []
    )
    done = {(x["setting"], x["attack"], x["seed"]) for x in lines}
    todo = [each for each in wanted(arguments.seeds) if each not in done]
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, *each) for each in todo]):
            lines.append(future.result())
            with arguments.file.open("a") as stream:
                stream.write(json.dumps(lines[-1]) + "\n")
            print(f"{len(lines)} of {len(done) + len(todo)}: {lines[-1]}", flush=True)


if __name__ == "__main__":
    main()
