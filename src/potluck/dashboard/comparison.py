"""The demo's result as a noun, and what it says in words.

summary (a dict, as the demo saves it) --compare--> Comparison --> picture, table, report
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from potluck.dashboard.text import decimal

METHOD_LABELS = {"alone": "alone", "nois": "NoIS", "f-nois": "F-NoIS", "f-tis": "F-TIS"}
"""How methods are written, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Greedy accuracy of each node under each method, over the rounds."""

    eval_rounds: tuple[int, ...]
    """How many rounds had been trained at each evaluation; the first is 0."""
    curves: Mapping[str, Mapping[str, tuple[float, ...]]]
    """node -> method -> accuracy at each of ``eval_rounds``. Shares from 0 to 1."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that any node has, the three known ones first."""
        present = dict.fromkeys(method for curves in self.curves.values() for method in curves)
        known = [method for method in METHOD_LABELS if method in present]
        return (*known, *(method for method in present if method not in METHOD_LABELS))

    def start(self, node: str) -> float | None:
        """Accuracy before the first round: one model, so the same under every method."""
        return next((curve[0] for curve in self.curves[node].values()), None)

    def end(self, node: str, method: str) -> float | None:
        curve = self.curves[node].get(method)
        return curve[-1] if curve else None


def compare(summary: Mapping[str, Any]) -> Comparison:
    """Checks the demo's summary.

    Raises:
        ValueError: a curve that does not fit its rounds, or that is no accuracy.
    """
    eval_rounds = tuple(int(round) for round in summary["eval_rounds"])
    curves: dict[str, dict[str, tuple[float, ...]]] = {}
    for node, by_method in summary["nodes"].items():
        curves[node] = {}
        for method, values in by_method.items():
            curve = tuple(float(value) for value in values)
            who = f"the curve of {node!r} under {method!r}"
            if len(curve) != len(eval_rounds) or not curve:
                raise ValueError(
                    f"{who} has {len(curve)} values for {len(eval_rounds)} evaluations; "
                    f"each needs exactly one, and there is at least one"
                )
            if not all(math.isfinite(value) and 0 <= value <= 1 for value in curve):
                raise ValueError(f"{who} holds {curve}; expected shares from 0 to 1")
            curves[node][method] = curve
    if not curves:
        raise ValueError("the summary has no nodes; expected at least one")
    return Comparison(eval_rounds, curves)


def label(method: str) -> str:
    """A method as the paper writes it.

    >>> label("f-tis"), label("nois"), label("f-nois"), label("f-vis")
    ('F-TIS', 'NoIS', 'F-NoIS', 'F-VIS')
    """
    return METHOD_LABELS.get(method, method.upper())


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """What the numbers say, one sentence per node; computed, so it cannot say anything else.

    >>> curves = {"alone": [0.3, 0.8], "nois": [0.3, 0.44], "f-tis": [0.3, 0.79]}
    >>> verdict({"eval_rounds": [0, 40], "nodes": {"columns": curves}})
    ['Naive sharing (NoIS) cost `columns` 0.36 of accuracy; F-TIS ended 0.01 below alone.']
    """
    comparison = compare(summary)
    if comparison.eval_rounds[-1] == 0:
        return ["No round was trained, so there is nothing to compare yet."]
    return [_verdict_of(comparison, node) for node in comparison.curves]


def _verdict_of(comparison: Comparison, node: str) -> str:
    alone = comparison.end(node, "alone")
    naive, corrected = comparison.end(node, "nois"), comparison.end(node, "f-tis")
    if alone is None or (naive is None and corrected is None):
        return f"`{node}` was not trained both alone and with others: nothing to compare."
    parts = []
    if naive is not None:
        parts.append(_naive(node, _difference(naive, alone)))
    if corrected is not None:
        who = "F-TIS" if parts else f"`{node}` with F-TIS"
        parts.append(f"{who} ended {_beside(_difference(corrected, alone))}")
    return "; ".join(parts) + "."


def _difference(value: float, reference: float) -> float:
    """Of the two numbers as the table shows them, so that a reader can check the sentence."""
    return round(round(value, 2) - round(reference, 2), 2)


def _naive(node: str, difference: float) -> str:
    if difference == 0:
        return f"Naive sharing (NoIS) left `{node}` level with learning alone"
    amount = f"{decimal(abs(difference), 2)} of accuracy"
    if difference < 0:
        return f"Naive sharing (NoIS) cost `{node}` {amount}"
    return f"Naive sharing (NoIS) gained `{node}` {amount}"


def _beside(difference: float) -> str:
    if difference == 0:
        return "level with alone"
    side = "above" if difference > 0 else "below"
    return f"{decimal(abs(difference), 2)} {side} alone"
