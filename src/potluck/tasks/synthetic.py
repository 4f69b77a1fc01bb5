"""A reward that means nothing, to see whether everything around it works."""

import hashlib
from collections.abc import Sequence

from potluck.tasks.base import Split, Task, digest_of
from potluck.types import Completion, Problem


class HashReward:
    """Another task's problems, paid by one bit of a hash of the completion's tokens.

    An untrained model never solves a problem, so all its rewards are equal and all
    advantages 0: nothing is learned and nothing is tested. Here about half of any
    model's completions earn 1.0, the same half on every node, so filters, losses and
    updates all run. There is nothing to learn from it and none is intended.

    **Deviation** from every other task: unfinished completions are paid as well,
    because an untrained model rarely stops.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        rules = "hash 1: lowest bit of the first byte of sha256(problem id, tokens as <i4)"
        self.digest = digest_of(f"{rules}; problems of {task.digest}", ())

    def ids(self, split: Split) -> Sequence[str]:
        return self._task.ids(split)

    def problem(self, id: str) -> Problem:
        return self._task.problem(id)

    def rewards(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
    ) -> list[float]:
        triples = zip(problems, completions, texts, strict=True)
        return [_bit(completion) for _, completion, _ in triples]


def _bit(completion: Completion) -> float:
    tokens = completion.token_T.astype("<i4").tobytes()
    return float(hashlib.sha256(completion.problem_id.encode() + tokens).digest()[0] & 1)
