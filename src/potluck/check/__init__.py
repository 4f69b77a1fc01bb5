"""Looking before the leap: what a run will do and cost. Nothing is started."""

from potluck.check.plan import check

__all__ = ["check"]
