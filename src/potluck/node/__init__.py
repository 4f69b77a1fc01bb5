"""One participant. The only room where the others meet."""

from potluck.node import checkpoint
from potluck.node.batch import Batch, pack
from potluck.node.evaluation import (
    UNBOUNDED,
    Answers,
    Evaluation,
    answer,
    evaluate,
    examiner,
    first_problems,
)
from potluck.node.learner import Learner, Lesson
from potluck.node.loop import Node, Progress, step_together
from potluck.node.optimizers import make_optimizer
from potluck.node.record import Record
from potluck.node.report import RoundReport
from potluck.node.sieve import Sieve
from potluck.types import RunFolderError

__all__ = [
    "UNBOUNDED",
    "Answers",
    "Batch",
    "Evaluation",
    "Learner",
    "Lesson",
    "Node",
    "Progress",
    "Record",
    "RoundReport",
    "RunFolderError",
    "Sieve",
    "answer",
    "checkpoint",
    "evaluate",
    "examiner",
    "first_problems",
    "make_optimizer",
    "pack",
    "step_together",
]
