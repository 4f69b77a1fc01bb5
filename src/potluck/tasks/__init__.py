"""Where problems come from, and what counts as right. Imports no model."""

from potluck.tasks.base import Split, Task, TaskError
from potluck.tasks.chain import Chain
from potluck.tasks.custom import CustomRewards
from potluck.tasks.digits import Digits
from potluck.tasks.elsewhere import Elsewhere
from potluck.tasks.gsm8k import Gsm8k
from potluck.tasks.gym import ReasoningGym
from potluck.tasks.math500 import Math500
from potluck.tasks.overlap import overlaps
from potluck.tasks.reward_code import Reward
from potluck.tasks.rows import Rules
from potluck.tasks.synthetic import HashReward
from potluck.tasks.table import Table, hub_parts, jsonl_parts

__all__ = [
    "Chain",
    "CustomRewards",
    "Digits",
    "Elsewhere",
    "Gsm8k",
    "HashReward",
    "Math500",
    "ReasoningGym",
    "Reward",
    "Rules",
    "Split",
    "Table",
    "Task",
    "TaskError",
    "hub_parts",
    "jsonl_parts",
    "overlaps",
]
