"""How good a model is by itself: its answers to problems that it does not train on."""

from collections.abc import Sequence
from dataclasses import dataclass

from potluck.config import RunConfig
from potluck.rollout import Draw, Engine, Greedy, LanguageModel, Order, Progress
from potluck.tasks import Split, Task
from potluck.types import Problem

UNBOUNDED = 2**31
"""Tokens: only the model's context bounds an answer further."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    accuracy: float
    """Mean reward, 0..1 for tasks that pay 0 or 1."""
    problems: int


@dataclass(frozen=True, slots=True)
class Answers:
    """What a model's answers to one problem earned."""

    problem_id: str
    rewards: tuple[float, ...]
    """In the order of writing."""
    unfinished: int
    """Of them, those that ran out of room."""


def examiner(engine: Engine, config: RunConfig) -> Engine:
    """The engine with the room that ``[evaluation]`` gives answers."""
    most = config.evaluation.max_new_tokens
    return engine.limited_to(
        max_new_tokens=most or config.sampling.max_new_tokens,
        # A limit of its own means it: then only the model's context bounds it further.
        max_total_tokens=UNBOUNDED if most else config.sampling.max_total_tokens,
    )


def evaluate(
    language: LanguageModel,
    engine: Engine,
    task: Task,
    split: Split,
    *,
    count: int,
    progress: Progress,
) -> Evaluation | None:
    """The first ``count`` problems of ``split``, answered greedily; None if it has none."""
    problems = first_problems(task, split, count)
    if not problems:
        return None
    answers = answer(language, engine, task, problems, Greedy(), count=1, progress=progress)
    rewards = [each.rewards[0] for each in answers]
    return Evaluation(sum(rewards) / len(rewards), len(rewards))


def first_problems(task: Task, split: Split, count: int) -> list[Problem]:
    """Always the same ones, so that models and rounds can be compared."""
    return [task.problem(id) for id in task.ids(split)[:count]]


def answer(
    language: LanguageModel,
    engine: Engine,
    task: Task,
    problems: Sequence[Problem],
    draw: Draw,
    *,
    count: int,
    progress: Progress,
) -> list[Answers]:
    """``count`` answers to each problem, graded."""
    orders = [Order(problem, count) for problem in problems]
    written = engine.write(orders, draw, author="evaluation", progress=progress)
    asked = [problem for problem in problems for _ in range(count)]
    rewards = task.rewards(asked, written, [language.text(c.token_T) for c in written])
    return [
        Answers(
            problem.id,
            tuple(rewards[at : at + count]),
            sum(c.end == "length" for c in written[at : at + count]),
        )
        for problem, at in zip(problems, range(0, len(written), count), strict=True)
    ]
