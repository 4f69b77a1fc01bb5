"""The demo's result: as a noun, in words, and as one HTML file that needs nothing else.

    summary (a dict, as the demo saves it) --compare--> Comparison --> picture, table, report

The page has no script and needs no network. Its template escapes what a model wrote and what a
summary holds; the page's own policy forbids scripts and outside addresses as well, should an
escape be forgotten.
"""

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from potluck.display.text import METHOD_LABELS, decimal, label, percent, printable

COUNTS = {1: "one model", 2: "two different models", 3: "three different models"}
EXTRAS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "out_of_distribution": ("other problems, end", lambda share: decimal(share, 2)),
    "filtered_share": ("answers filtered", percent),
}
"""Columns that are there where the summary has them: their titles and formats, by its keys."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Greedy accuracy of each node under each method, over the rounds."""

    eval_rounds: tuple[int, ...]
    """Rounds that had been trained at each evaluation; the first is 0."""
    curves: Mapping[str, Mapping[str, tuple[float, ...]]]
    """node -> method -> accuracy at each of ``eval_rounds``. Shares from 0 to 1."""

    @property
    def models(self) -> str:
        """Number of models, in words."""
        return COUNTS.get(len(self.curves), f"{len(self.curves)} different models")

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods that any node has, the known ones first."""
        present = dict.fromkeys(method for curves in self.curves.values() for method in curves)
        known = [method for method in METHOD_LABELS if method in present]
        return tuple(dict.fromkeys([*known, *present]))

    def start(self, node: str) -> float | None:
        """Return the accuracy before the first round, the same under every method."""
        return next((curve[0] for curve in self.curves[node].values()), None)

    def end(self, node: str, method: str) -> float | None:
        curve = self.curves[node].get(method)
        return curve[-1] if curve else None


def compare(summary: Mapping[str, Any]) -> Comparison:
    """Check the summary; raise ValueError if a curve does not fit its rounds or is no accuracy."""
    eval_rounds = tuple(int(round) for round in summary["eval_rounds"])
    curves: dict[str, dict[str, tuple[float, ...]]] = {node: {} for node in summary["nodes"]}
    for node, by_method in summary["nodes"].items():
        for method, values in by_method.items():
            curve = curves[node][method] = tuple(float(value) for value in values)
            name = f"the curve of {node!r} under {method!r}"
            if len(curve) != len(eval_rounds) or not curve:
                raise ValueError(
                    f"{name} has {len(curve)} values for {len(eval_rounds)} evaluations; "
                    f"each needs exactly one, and there is at least one"
                )
            if not all(math.isfinite(value) and 0 <= value <= 1 for value in curve):
                raise ValueError(f"{name} holds {curve}; expected shares from 0 to 1")
    if not curves:
        raise ValueError("the summary has no nodes; expected at least one")
    return Comparison(eval_rounds, curves)


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """Say what the numbers show, a sentence for each node; computed, so it is always true.

    >>> curves = {"alone": [0.3, 0.8], "nois": [0.3, 0.44], "f-tis": [0.3, 0.79]}
    >>> verdict({"eval_rounds": [0, 40], "nodes": {"columns": curves}})
    ['Naive sharing (NoIS) cost `columns` 0.36 of accuracy; F-TIS ended 0.01 below alone.']
    """
    comparison = compare(summary)
    if comparison.eval_rounds[-1] == 0:
        return ["No round was trained, so there is nothing to compare yet."]
    return [_verdict_on(comparison, node) for node in comparison.curves]


def _verdict_on(comparison: Comparison, node: str) -> str:
    alone = comparison.end(node, "alone")
    naive, corrected = comparison.end(node, "nois"), comparison.end(node, "f-tis")
    if alone is None or (naive is None and corrected is None):
        return f"`{node}` was not trained both alone and with others: nothing to compare."
    parts = []
    if naive is not None:
        gap = _difference(naive, alone)
        moved = f"{'cost' if gap < 0 else 'gained'} `{node}` {decimal(abs(gap), 2)} of accuracy"
        level = f"left `{node}` level with learning alone"
        parts.append(f"Naive sharing (NoIS) {moved if gap else level}")
    if corrected is not None:
        gap = _difference(corrected, alone)
        subject = "F-TIS" if parts else f"`{node}` with F-TIS"
        moved = f"{decimal(abs(gap), 2)} {'above' if gap > 0 else 'below'} alone"
        parts.append(f"{subject} ended {moved if gap else 'level with alone'}")
    return "; ".join(parts) + "."


def _difference(value: float, reference: float) -> float:
    """Subtract the numbers as the table shows them, so that a reader can check the sentence."""
    return round(round(value, 2) - round(reference, 2), 2)


def write_report(summary: Mapping[str, Any], picture: Path, path: Path) -> None:
    """Write the HTML report beside a drawn picture; raise ValueError as ``compare`` does."""
    comparison, extras = compare(summary), [key for key in EXTRAS if summary.get(key)]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    page = environment.get_template("report.html.j2").render(
        count=comparison.models,
        rounds=comparison.eval_rounds[-1],
        seconds=summary.get("seconds"),
        verdict=verdict(summary),
        picture=base64.b64encode(picture.read_bytes()).decode("ascii"),
        extras=[EXTRAS[key][0] for key in extras],
        nodes=[
            {"name": printable(node, 400), "rows": _rows(comparison, node, summary, extras)}
            for node in comparison.curves
        ],
        samples=summary.get("samples"),
    )
    path.write_text(page, encoding="utf-8")


def _rows(
    comparison: Comparison, node: str, summary: Mapping[str, Any], extras: list[str]
) -> list[dict[str, Any]]:
    curves = comparison.curves[node]
    return [
        {
            "method": printable(label(method), 400),
            "start": decimal(curves[method][0], 2),
            "end": decimal(curves[method][-1], 2),
            "extras": [EXTRAS[key][1](summary[key].get(node, {}).get(method)) for key in extras],
        }
        for method in comparison.methods
        if method in curves
    ]
