"""Measure what scoring costs, as a share of the learning step it is part of.

Process CPU time of ``score_rows`` (filter and metrics) and ``author_reports``, measured where
the learner calls them, over that of the whole step: forward, backward, optimiser and report.
Two models: the one of the other benchmarks, and the smallest built-in one, whose steps are so
cheap that whatever is not arithmetic shows most.

    python benchmarks/overhead.py [--quick]
"""

import statistics
import time
from collections.abc import Callable

import harness
import numpy as np
import torch
from harness import Row

from potluck.config import NodeConfig
from potluck.model import LanguageModel, make_optimizer
from potluck.node.learning import learner as learning
from potluck.node.learning.batch import Batch, pack
from potluck.node.learning.learner import Learner
from potluck.node.report import author_reports
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.types import Completion, Group, Problem
from potluck.types import Row as ReadRow

MICRO_BATCH_TOKENS = 4096


def measure(quick: bool) -> tuple[list[Row], object]:
    steps, rows, raw = 3 if quick else 20, [], {}
    work = harness.workloads(quick, problems=4, group_size=12)[0]
    digits = LanguageModel.load("builtin:digits-small", device="cpu")
    questions = [Problem(f"digits/{i}", f"{100 + i}+{200 + i}=", "") for i in range(24)]
    cases = {
        f"10M model, {work.title}": batch_of(
            harness.language_model(), [request.problem for request in work.requests], work.length_N
        ),
        "digits-small, 288 rows": batch_of(digits, questions, [4 + i % 8 for i in range(288)]),
    }
    for name, (policy, batch) in cases.items():
        shares = [100 * share for share in cost(policy, batch, steps, name)]
        middle = statistics.median(shares)
        rows.append(Row(name, middle, min(shares), max(shares), unit=" %", at_most=3.0))
        raw[name] = {"percent": shares}
    return rows, raw


def batch_of(
    policy: LanguageModel, problems: list[Problem], length_N: list[int] | tuple[int, ...]
) -> tuple[LanguageModel, Batch]:
    """Two authors, half of each group's rows rewarded, author log-probs near the model's own."""
    generator, groups = np.random.default_rng(0), []
    each = len(length_N) // len(problems)
    for i, problem in enumerate(problems):
        prompt_P = policy.prompt(problem)
        rows = []
        for j in range(each):
            token_T = generator.integers(0, policy.vocabulary, length_N[i * each + j]).astype("i4")
            with torch.no_grad():
                own_1T = policy.logp([prompt_P], [token_T], temperature=1.0)
            logp_T = own_1T[0].numpy() + 0.1 * generator.standard_normal(len(token_T)).astype("f4")
            author = ("north", "south")[2 * j // each]
            own = Completion(problem.id, author, j, token_T, np.minimum(logp_T, 0), "length")
            rows.append(ReadRow(own, prompt_P, token_T, ""))
        groups.append(Group(problem, tuple(rows), tuple(j % 2.0 for j in range(each))))
    return policy, pack(groups)


def cost(policy: LanguageModel, batch: Batch, steps: int, name: str) -> list[float]:
    """The share of each step, 0..1."""
    node = NodeConfig(model="-")
    learner = Learner(
        name="north",
        policy=policy,
        optimizer=make_optimizer(policy, node.optimizer, node.adam),
        objective=ObjectiveConfig(**METHODS["f-tis"].fields),
        temperature=1.0,
        gradient_clip_norm=1.0,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
    )
    # The learner calls what its module names, so that is where the meter goes.
    meter, shares = Meter(), []
    learning.score_rows = meter.on(learning.score_rows)
    report = meter.on(author_reports)
    rewards = [1.0] * len(batch.completions)
    for step in range(steps + 1):
        meter.seconds, start = 0.0, time.process_time()
        update = learner.learn(batch, lambda done, total: None)
        report(update.scored, rewards)
        if step:  # the first warms up
            shares.append(meter.seconds / (time.process_time() - start))
        harness.say(f"{name}: step {step}/{steps}")
    harness.say("")
    return shares


class Meter:
    """CPU seconds spent in the functions it was put on."""

    seconds = 0.0

    def on(self, function: Callable) -> Callable:
        def metered(*args: object, **kwargs: object) -> object:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start

        return metered


if __name__ == "__main__":
    harness.run("overhead", measure)
