"""How good a model is by itself: greedy answers to problems it does not train on."""

from dataclasses import dataclass

from potluck.rollout import Engine, Greedy, LanguageModel, Order, Progress
from potluck.tasks import Split, Task


@dataclass(frozen=True, slots=True)
class Evaluation:
    accuracy: float
    """Mean reward, 0..1 for tasks that pay 0 or 1."""
    problems: int


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
    problems = [task.problem(id) for id in task.ids(split)[:count]]
    if not problems:
        return None
    orders = [Order(problem, 1) for problem in problems]
    answers = engine.write(orders, Greedy(), author="evaluation", progress=progress)
    rewards = task.rewards(problems, answers, [language.text(c.token_T) for c in answers])
    return Evaluation(sum(rewards) / len(rewards), len(rewards))
