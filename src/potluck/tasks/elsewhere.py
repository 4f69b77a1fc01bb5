"""One task's problems to learn from, another one's to see what was learned elsewhere."""

from collections.abc import Sequence

from potluck.tasks.base import Split, Task, TaskError, digest_of
from potluck.types import Completion, Problem


class Elsewhere:
    """A task whose out-of-distribution split is that of another, graded by the other's rules."""

    def __init__(self, task: Task, other: Task) -> None:
        """Raises TaskError where ``other`` has no such split, or it shares ids with ``task``."""
        if not (there := other.ids("out-of-distribution")):
            raise TaskError(
                "the task of [out_of_distribution] has no out-of-distribution problems; choose "
                "another one, such as math500, or drop the table"
            )
        own = {id for split in ("train", "validation") for id in task.ids(split)}
        if shared := next((id for id in there if id in own), None):
            raise TaskError(
                f"[out_of_distribution] has the problem {shared!r}, which is one of [task], too; "
                f"choose another task"
            )
        self._task, self._other = task, other
        self._elsewhere = frozenset(there)
        self.digest = digest_of(f"elsewhere 1: {task.digest} and {other.digest}", ())

    def ids(self, split: Split) -> Sequence[str]:
        return (self._other if split == "out-of-distribution" else self._task).ids(split)

    def problem(self, id: str) -> Problem:
        return (self._other if id in self._elsewhere else self._task).problem(id)

    def rewards(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
    ) -> list[float]:
        triples = list(zip(problems, completions, texts, strict=True))
        rewards = [0.0] * len(triples)
        for task, is_other in ((self._task, False), (self._other, True)):
            places = [i for i, p in enumerate(problems) if (p.id in self._elsewhere) == is_other]
            chosen = [triples[i] for i in places]
            graded = task.rewards(
                [p for p, _, _ in chosen], [c for _, c, _ in chosen], [t for _, _, t in chosen]
            )
            for place, reward in zip(places, graded, strict=True):
                rewards[place] = reward
        return rewards
