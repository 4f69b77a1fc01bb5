"""Checks before a run: will it work here, and what will it cost? Nothing is started.

plan.py     a recipe's cost in memory and tokens, ``potluck run --check``
memory.py   the estimate of a node's memory, and whether a device holds its nodes
inspect.py  models, tokenizers and data, as far as they are at hand
doctor/     the machine, its network and its keys, ``potluck doctor``; without torch
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from potluck.preflight.plan import CostPlan, check, plan_cost

__all__ = ["CostPlan", "check", "plan_cost"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # the doctor, beside it, loads no torch
        from potluck.preflight import plan

        return getattr(plan, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
