"""Who takes part, and who writes what. Pure functions of what every node already knows."""

from potluck.swarm.agenda import Agenda
from potluck.swarm.caps import within_caps
from potluck.swarm.cohort import cohort
from potluck.swarm.plan import PLANS, Plan, Share, horizontal, problems_of_round, vertical

__all__ = [
    "PLANS",
    "Agenda",
    "Plan",
    "Share",
    "cohort",
    "horizontal",
    "problems_of_round",
    "vertical",
    "within_caps",
]
