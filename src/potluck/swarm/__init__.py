"""Who takes part, and who writes what. Pure functions of what every node already knows."""

from potluck.swarm.plan import PLANS, Plan, Share, horizontal, problems_of_round, vertical

__all__ = ["PLANS", "Plan", "Share", "horizontal", "problems_of_round", "vertical"]
