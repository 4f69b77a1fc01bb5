"""All tasks that a recipe can name."""

from typing import get_args

from potluck.tasks.arithmetic import ChainOptions, DigitsOptions
from potluck.tasks.base import TaskOptions
from potluck.tasks.benchmarks import Gsm8kOptions, Math500Options
from potluck.tasks.environments.task import GameOptions
from potluck.tasks.games.calculator import CalculatorOptions
from potluck.tasks.games.maze import MazeOptions
from potluck.tasks.gym import ReasoningGymOptions
from potluck.tasks.table import HubOptions, JsonlOptions

AnyTask = (
    DigitsOptions
    | ChainOptions
    | Gsm8kOptions
    | Math500Options
    | JsonlOptions
    | HubOptions
    | ReasoningGymOptions
    | GameOptions
    | MazeOptions
    | CalculatorOptions
)
"""A new task is a file, and a member here."""
TASKS: dict[str, type[TaskOptions]] = {
    str(options.__struct_config__.tag): options for options in get_args(AnyTask)
}
