"""Tasks: sources of problems, and their grading. Imports no model."""

from potluck.tasks.base import Split, Task, TaskError, TaskOptions

__all__ = ["Split", "Task", "TaskError", "TaskOptions"]
