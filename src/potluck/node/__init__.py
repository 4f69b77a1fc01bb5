"""One node. The only room where the others meet."""

from potluck.node.author import Author
from potluck.node.batch import Batch, Scored, pack
from potluck.node.learner import Gradient, Learner, UpdateReport
from potluck.node.loop import Node, step_together
from potluck.node.participant import NodeProgress, Participant
from potluck.node.read import read
from potluck.node.selection import Selector
from potluck.node.storage import checkpoint
from potluck.node.storage.record import Record
from potluck.types import RunFolderError

__all__ = [
    "Author",
    "Batch",
    "Gradient",
    "Learner",
    "Node",
    "NodeProgress",
    "Participant",
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
