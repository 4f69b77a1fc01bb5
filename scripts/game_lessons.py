"""Lessons of the games, written by players of mixed quality, and how well a model plays.

The players of mazes know all walls. From lesson to lesson they make between none and LUCK of their
moves by luck, so a model that is brought up on them can find the way out and often does not. Who
works off a chain makes a whole working with the calculator, or guesses, or stops too early.
"""

import random

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

import make_digits_models as school  # also sets the number of threads, before torch
from potluck.episode import played
from potluck.model import LanguageModel
from potluck.rollout.base import EngineSettings, RandomSampler, RolloutRequest
from potluck.rollout.hf import HFEngine
from potluck.tasks import Task
from potluck.tasks.arithmetic import draw_chain
from potluck.tasks.base import graded
from potluck.tasks.games.maze import KINDS, Maze, MazeKind
from solutions import calculator_solution

MAZE_CHARACTERS = "0123456789neswkox@>"
CALCULATOR_CHARACTERS = "0123456789+-=(),abcdrstu"
POSITIONS = 192
"""Tokens of the longest episode, observations included."""
LUCK, SKILLED_LUCK = 0.8, 0.6
WHOLE, GUESSED = 0.35, 0.35
"""Shares of the chains that are worked off, and of those whose result is guessed."""
LONGER = 0.15
"""Share of the lessons that is out of distribution, so that this measure moves at all."""
BEYOND = 10**6
"""Numbers of mazes from here on are in no split."""


def untrained(
    hidden_size: int, layers: int, tokenizer: PreTrainedTokenizerFast
) -> Qwen2ForCausalLM:
    """Make a model with positions for whole episodes, whose initial weights are large."""
    return school.untrained(
        hidden_size, layers, tokenizer,
        initializer_range=0.1, rope_theta=100.0, positions=POSITIONS,
    )  # fmt: skip


def maze_lesson(generator: random.Random, *, own: MazeKind = "any") -> list[str]:
    """A game, and moves by one that is good at mazes of its ``own`` kind, and lost in the other."""
    is_longer = own == "any" and generator.random() < LONGER
    kind = generator.choice(KINDS)
    game, number = Maze(), generator.randint(BEYOND, 2 * BEYOND)
    # Larger ones train by moves: to learn that there are other digits takes few lessons.
    said = [game.reset(kind=kind, size=6 if is_longer else 4, held_out=False, number=number)]
    most = {"any": LUCK, kind: SKILLED_LUCK}.get(own, 0.0)
    luck, done = generator.uniform(0, most) or 1.0, False
    while not done:
        moves = list(game.plan.options(game.state))
        best = (game.plan.shortest(game.state) or "")[0]
        said.append(generator.choice(moves) if generator.random() < luck else best)
        seen, _, done = game.step(said[-1])
        said.append(seen)
    return said[:-1]


def calculator_lesson(generator: random.Random) -> list[str]:
    """A chain, calls of tools and what they return, and what is said to be the result."""
    terms = 4 if generator.random() < LONGER else 3
    question = f"{draw_chain(generator, terms, digits=2)}="
    steps = calculator_solution(question)
    luck = generator.random()
    if luck < WHOLE:
        return [question, *steps]
    if luck < WHOLE + GUESSED:
        return [question, str(generator.randint(0, 250))]
    early = 2 * generator.randint(1, len(steps) // 2 - 1) if len(steps) > 3 else 2
    return [question, *steps[:early], steps[early - 1]]


def played_reward(
    model: Qwen2ForCausalLM, task: Task, tokenizer: PreTrainedTokenizerFast, ids: list[str]
) -> float:
    """Mean over the problems, one sampled episode each, as the model plays in training."""
    problems = [task.problem(id) for id in ids]
    settings = EngineSettings(POSITIONS, POSITIONS, environment=task.environment)
    engine = HFEngine(LanguageModel(model.float(), tokenizer), settings)
    sampler = RandomSampler(torch.Generator().manual_seed(0))
    asked = [RolloutRequest(problem, 1) for problem in problems]
    written = engine.generate(asked, sampler, author="made", progress=lambda *_: None)
    model.to(torch.bfloat16)  # rounded before, so nothing is lost
    asked_of = [task.problem(completion.problem_id) for completion in written]
    pairs = zip(asked_of, written, strict=True)
    episodes = [played(task.environment, problem, each) for problem, each in pairs]
    return sum(graded(task, asked_of, written, [""] * len(written), episodes)[0]) / len(ids)
