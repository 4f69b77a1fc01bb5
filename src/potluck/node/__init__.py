"""One node. The only room where the others meet."""

from potluck.node.batch import Batch, Scored, pack, read
from potluck.node.learner import Gradient, Learner, UpdateReport
from potluck.node.loop import Node, NodeProgress, step_together
from potluck.node.selection import Selector
from potluck.node.storage import checkpoint
from potluck.node.storage.record import Record
from potluck.types import RunFolderError

__all__ = [
    "Batch",
    "Gradient",
    "Learner",
    "Node",
    "NodeProgress",
    "Record",
    "RunFolderError",
    "Scored",
    "Selector",
    "UpdateReport",
    "checkpoint",
    "pack",
    "read",
    "step_together",
]
