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


def right(completions: list[str], answer: list[str], **columns: object) -> list[float]:
    return [float(text == gold) for text, gold in zip(completions, answer, strict=True)]


told: list[Event] = []
config = potluck.load(potluck.STARTING_RECIPE, ["rounds=2"])
assert_type(config, potluck.RunConfig)
assert_type(config.objective.weight_cap, float)
result = potluck.run(config, Path("runs") / "typed", display=Quiet(), rewards=[right, (right, 0.1)])
assert_type(result, potluck.RunResult)
handle = potluck.run("recipe.toml", background=True, callbacks=[told.append], display=None)
assert_type(handle, potluck.BackgroundRun)
handle.stop()
assert_type(handle.result(), potluck.RunResult)
assert_type(potluck.run({"name": "tree", "node": {}}), potluck.RunResult)
potluck.read_run("runs/typed").plot().savefig("typed.png")
print(handle.done(), result.frame())
print(result.accuracy, mean_reward(result.folder), potluck.__version__)
