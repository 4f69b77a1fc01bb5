"""A run in this process: all of its nodes, or one that meets the others on the network."""

from potluck.launch.alone import join
from potluck.launch.display import Display, RunResult, Silent
from potluck.launch.together import run

__all__ = ["Display", "RunResult", "Silent", "join", "run"]
