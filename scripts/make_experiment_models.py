"""Makes the base models of the experiments' tiny families (experiments/tiny/).

    python scripts/make_experiment_models.py OUT [--only NAME]

The same schooling as that of the models that ship with the package (make_digits_models.py):
solutions of which half stop before the answer and 15 % skip the working, so that the models
can do it, but not reliably; a share of the problems is out of distribution, so that this
measure moves at all. ``potluck reproduce`` calls it for the models that it misses.

One to two minutes a model on one core.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

import make_digits_models as school  # also sets the number of threads, before torch
from potluck.tasks import Task
from potluck.tasks.arithmetic import ChainOptions, DigitsOptions, draw_chain
from solutions import chain_solution, digits_solution


@dataclass(frozen=True)
class Family:
    """A task, with new problems out of its distribution and a solution in each notation."""

    task: Task
    draw_other: Callable[[random.Random], str]
    solve: Callable[..., str]


FAMILIES = {
    "digits": lambda: Family(
        DigitsOptions().make(),
        lambda generator: f"digits/{generator.randint(1000, 9999)}+{generator.randint(1000, 9999)}",
        digits_solution,
    ),
    "chain": lambda: Family(
        ChainOptions(terms=5, other_terms=7).make(),
        lambda generator: f"chain/{draw_chain(generator, terms=7)}",
        chain_solution,
    ),
}


SCHEDULE_STEPS = 1600


@dataclass(frozen=True)
class Base:
    """A model to be made, and how well it is brought up: what is left for GRPO to teach."""

    hidden_size: int
    layers: int
    notation: str
    steps: int
    """Of SCHEDULE_STEPS."""
    other_share: float
    """Of the problems, the share that is out of distribution."""


BASES = {
    "digits-small": Base(64, 3, "columns", steps=700, other_share=0.35),
    "digits-large": Base(96, 4, "columns", steps=650, other_share=0.35),
    "digits-small-terse": Base(64, 3, "terse", steps=600, other_share=0.35),
    "digits-large-terse": Base(96, 4, "terse", steps=400, other_share=0.35),
    "chain-small": Base(64, 3, "steps", steps=650, other_share=0.25),
    "chain-large": Base(96, 4, "steps", steps=750, other_share=0.25),
    "chain-small-terse": Base(64, 3, "terse", steps=700, other_share=0.25),
    "chain-large-terse": Base(96, 4, "terse", steps=800, other_share=0.25),
}


def train(name: str, tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    base, family = BASES[name], FAMILIES[name.partition("-")[0]]()
    task = family.task
    torch.manual_seed(0)
    generator = random.Random(name)
    # Other problems than those that measure.
    measured = set(task.ids("out-of-distribution"))

    def draw() -> tuple[str, str]:
        if generator.random() < base.other_share:
            while (id := family.draw_other(generator)) in measured:
                pass
        else:
            id = generator.choice(task.ids("train"))
        problem = task.problem(id)
        return problem.question, school.lesson(family.solve(problem, base.notation), generator)

    model = school.untrained(base.hidden_size, base.layers, tokenizer)
    return school.teach(
        name, model, tokenizer, draw, steps=base.steps, schedule_steps=SCHEDULE_STEPS
    )


def main() -> None:
    tokenizer = school.character_tokenizer()
    school.make_all(__doc__, BASES, lambda name: (train(name, tokenizer), tokenizer, ""))


if __name__ == "__main__":
    main()
