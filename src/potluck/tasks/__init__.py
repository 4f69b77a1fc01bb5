"""Where problems come from, and what counts as right. Imports no model."""

from potluck.tasks.base import Split, Task, TaskError
from potluck.tasks.digits import Digits
from potluck.tasks.gsm8k import Gsm8k
from potluck.tasks.synthetic import HashReward

__all__ = ["Digits", "Gsm8k", "HashReward", "Split", "Task", "TaskError"]
