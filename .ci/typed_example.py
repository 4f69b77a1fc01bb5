"""A program of a user's, for mypy: what it imports comes from the installed wheel."""

from pathlib import Path
from typing import assert_type

import potluck
from potluck.reports.events import Event


class Quiet:
    def show(self, event: Event) -> None:
        print(type(event).__name__)


def mean_reward(folder: Path) -> float:
    run = potluck.read_run(folder)
    rewards = [round.own_reward_mean or 0.0 for node in run.nodes for round in node.rounds]
    return sum(rewards) / len(rewards)


config = potluck.load(potluck.STARTING_RECIPE, ["rounds=2"])
assert_type(config, potluck.RunConfig)
assert_type(config.objective.weight_cap, float)
result = potluck.run(config, Path("runs") / "typed", display=Quiet())
assert_type(result, potluck.RunResult)
print(result.accuracy, mean_reward(result.folder), potluck.__version__)
