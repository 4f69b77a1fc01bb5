"""What the statistics and the filter cost, as a share of the learning step they are part of.

Process CPU time of ``row_statistics``, ``silence`` and ``source_reports``, measured where
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

from potluck.config import NodeConfig, ObjectiveConfig
from potluck.node import learner as learning
from potluck.node.batch import Batch, pack
from potluck.node.objective import silence
from potluck.node.statistics import row_statistics, source_reports
from potluck.rollout import LanguageModel
from potluck.types import Completion, Group, Problem

MICRO_BATCH_TOKENS = 4096


def measure(quick: bool) -> tuple[list[Row], object]:
    steps, rows, raw = 3 if quick else 20, [], {}
    work = harness.workloads(quick, problems=4, group_size=12)[0]
    digits = LanguageModel.load("builtin:digits-small", device="cpu")
    questions = [Problem(f"digits/{i}", f"{100 + i}+{200 + i}=", "") for i in range(24)]
    cases = {
        f"10M model, {work.title}": batch_of(
            harness.language_model(), [order.problem for order in work.orders], work.length_N
        ),
        "digits-small, 288 rows": batch_of(digits, questions, [4 + i % 8 for i in range(288)]),
    }
    for name, (language, batch) in cases.items():
        shares = [100 * share for share in cost(language, batch, steps, name)]
        middle = statistics.median(shares)
        rows.append(Row(name, middle, min(shares), max(shares), unit=" %", at_most=3.0))
        raw[name] = {"percent": shares}
    return rows, raw


def batch_of(
    language: LanguageModel, problems: list[Problem], length_N: list[int] | tuple[int, ...]
) -> tuple[LanguageModel, Batch]:
    """Two authors, half of each group's rows rewarded, author log-probs near the model's own."""
    dice, groups = np.random.default_rng(0), []
    each = len(length_N) // len(problems)
    for i, problem in enumerate(problems):
        prompt_P = language.prompt(problem)
        completions = []
        for j in range(each):
            token_T = dice.integers(0, language.vocabulary, length_N[i * each + j]).astype("i4")
            with torch.no_grad():
                own_1T = language.logp([prompt_P], [token_T], temperature=1.0)
            logp_T = own_1T[0].numpy() + 0.1 * dice.standard_normal(len(token_T)).astype("f4")
            author = ("north", "south")[2 * j // each]
            completions.append(
                Completion(problem.id, author, j, token_T, np.minimum(logp_T, 0), "length")
            )
        groups.append(Group(problem, tuple(completions), tuple(j % 2.0 for j in range(each))))
    return language, pack(groups, language.prompt)


def cost(language: LanguageModel, batch: Batch, steps: int, name: str) -> list[float]:
    """The share of each step, 0..1."""
    learner = learning.Learner(
        name="north",
        language=language,
        optimizer=learning.make_optimizer(language, NodeConfig(model="-")),
        objective=ObjectiveConfig(),
        temperature=1.0,
        gradient_clip_norm=1.0,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
    )
    # The learner calls what its module names, so that is where the meter goes.
    meter, shares = Meter(), []
    learning.row_statistics = meter.on(row_statistics)
    learning.silence = meter.on(silence)
    report = meter.on(source_reports)
    authors = [c.author for c in batch.completions]
    reward_B, length_B = torch.ones(len(authors)), batch.mask_BT.sum(dim=1)
    for step in range(steps + 1):
        meter.seconds, start = 0.0, time.process_time()
        lesson = learner.learn(batch, lambda done, total: None)
        heard = lesson.heard_B, lesson.statistics_B8, lesson.dropped
        report(authors, reward_B, length_B, batch.advantage_B, *heard)
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
