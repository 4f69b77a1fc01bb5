"""The problems that a node at its own pace has written."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from potluck.node.storage.record import Record

WINDOW = 64
"""Own rounds for which rewards are kept, to compare what others send later with."""


class WrittenProblems:
    """The problems that a node has written, and the rewards of its completions of the last
    ``WINDOW`` rounds. It is in ``written.jsonl``, too."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.times = Counter[str]()
        """Rounds in which each problem was written."""
        self._kept: dict[str, tuple[int, tuple[float, ...]]] = {}
        self._window = deque[tuple[int, list[str]]]()
        for line in record.each("written"):
            self._add(line["round"], line["rewards"])

    def add(self, round: int, rewards: Mapping[str, Sequence[float]]) -> None:
        """Note a round's rewards of own completions, by problem, and the rounds of others in it."""
        self._record.add("written", [{"round": round, "rewards": rewards}])
        self._record.add_taken()
        self._add(round, rewards)

    def rewards(self, problem_id: str) -> tuple[float, ...]:
        """Return the rewards of this node's newest completions of the problem, or none."""
        return self._kept.get(problem_id, (0, ()))[1]

    def _add(self, round: int, rewards: Mapping[str, Sequence[float]]) -> None:
        self.times.update(rewards.keys())
        self._kept |= {id: (round, tuple(paid)) for id, paid in rewards.items()}
        self._window.append((round, [*rewards]))
        while self._window[0][0] <= round - WINDOW:
            old, ids = self._window.popleft()
            for id in ids:
                if id in self._kept and self._kept[id][0] == old:
                    del self._kept[id]
