"""Makes the base models of ``maze`` and ``calculator`` that ship with the package.

    python scripts/make_game_models.py OUT [--only NAME]

game_lessons.py says what they are brought up on. A minute a model on one core.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

import game_lessons as games
import make_digits_models as school  # also sets the number of threads, before torch
from potluck.tasks.games.calculator import CalculatorOptions
from potluck.tasks.games.maze import MazeOptions


@dataclass(frozen=True)
class Base:
    """A model to be made, and how well it is brought up."""

    hidden_size: int
    layers: int
    lesson: Callable[[random.Random], list[str]]
    steps: int
    characters: str = games.MAZE_CHARACTERS


BASES = {
    "maze-small": Base(48, 2, games.maze_lesson, steps=400),
    "maze-large": Base(64, 3, games.maze_lesson, steps=400),
    "maze-keys": Base(64, 2, partial(games.maze_lesson, own="keys"), steps=400),
    "maze-portals": Base(64, 2, partial(games.maze_lesson, own="portals"), steps=400),
    "calculator-small": Base(48, 2, games.calculator_lesson, 400, games.CALCULATOR_CHARACTERS),
    "calculator-large": Base(64, 2, games.calculator_lesson, 400, games.CALCULATOR_CHARACTERS),
}
LEARNING_RATE, ROWS = 4e-3, 32


def made(name: str) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast, str]:
    base, generator = BASES[name], random.Random(name)
    torch.manual_seed(0)
    tokenizer = school.character_tokenizer(base.characters)
    model = school.teach(
        name,
        games.untrained(base.hidden_size, base.layers, tokenizer),
        tokenizer,
        partial(base.lesson, generator),
        steps=base.steps,
        schedule_steps=base.steps,
        learning_rate=LEARNING_RATE,
        rows=ROWS,
    )
    options = MazeOptions() if name.startswith("maze") else CalculatorOptions()
    task = options.make()
    for split in ("validation", "out-of-distribution"):
        reward = games.played_reward(model, task, tokenizer, task.ids(split)[:200])
        print(f"{name}: sampled reward {reward:.3f}, {split}", flush=True)
    task.environment.close()
    return model, tokenizer, ""


def main() -> None:
    school.make_all(__doc__, BASES, made)


if __name__ == "__main__":
    main()
