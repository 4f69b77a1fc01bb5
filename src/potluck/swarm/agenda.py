"""What a round asks of whom: members by the plan, strangers by their own name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from potluck.swarm.plan import Plan, Share, problems_of_round


@dataclass(frozen=True)
class Agenda:
    """Equal on every node of a run, so that they agree on every round without talking."""

    ids: Sequence[str]
    """The problems to train on."""
    weights: Mapping[str, float]
    """How much each member writes, relative to the others."""
    plan: Plan
    group_size: int
    problems_per_round: int
    seed: int
    stranger_problems: int = 0
    """Groups that a node which is no member may write; 0: there are no strangers."""

    def members_shares(self, round: int) -> list[Share]:
        """Of the problems that all members draw together."""
        if not self.weights:
            return []
        drawn = problems_of_round(
            self.ids, seed=self.seed, round=round, count=self.problems_per_round
        )
        return self.plan(drawn, self.weights, self.group_size, round=round)

    def strangers_shares(self, round: int, name: str) -> list[Share]:
        """Whole groups of problems that ``name`` draws by itself, so nobody need have agreed
        with it; and which it cannot choose.

        The seed is a text that no number is, so these are not the members' problems.
        """
        if name in self.weights or not self.stranger_problems:
            return []
        count = min(self.stranger_problems, len(self.ids))
        drawn = problems_of_round(self.ids, seed=f"{self.seed}/{name}", round=round, count=count)
        return [Share(id, name, self.group_size) for id in drawn]

    def shares_of(self, round: int, name: str) -> list[Share]:
        """What ``name``, whoever it is, is asked to write."""
        members = [s for s in self.members_shares(round) if s.node == name]
        return members or self.strangers_shares(round, name)

    def shares(self, round: int, authors: Iterable[str]) -> list[Share]:
        """The members', present or not; then those of the strangers among ``authors``, by name."""
        strangers = sorted(set(authors) - set(self.weights))
        return self.members_shares(round) + [
            share for name in strangers for share in self.strangers_shares(round, name)
        ]
