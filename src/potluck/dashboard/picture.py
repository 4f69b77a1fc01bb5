"""The demo's curves as a PNG: one panel per node, one curve per method."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from potluck.dashboard.comparison import Comparison, compare, label
from potluck.dashboard.style import DASHED, INK, QUIET, RULE, SPARE_STYLES, STYLES, only_below, save
from potluck.dashboard.text import printable

MEANINGS: Final = {
    "alone": "alone: learns from its own answers only",
    "nois": "NoIS: takes everyone's answers as its own",
    "f-tis": "F-TIS: reweights and filters the others' answers",
}
COUNTS = {1: "One model", 2: "Two different models", 3: "Three different models"}
LABEL_GAP = 0.06
"""Least distance of two labels at the ends of curves, as a share of the axis."""


def draw(summary: Mapping[str, Any], path: Path) -> None:
    """Draws the demo's result, about 1600 x 700 pixels; equal summaries give equal bytes.

    Raises:
        ValueError: the summary does not hold together.
    """
    comparison = compare(summary)
    save(lambda: _figure(comparison), path)


def _figure(comparison: Comparison) -> Figure:
    nodes = list(comparison.curves)
    across = min(len(nodes), 3)
    down = math.ceil(len(nodes) / across)
    height = 3.3 + 3.7 * down
    figure = Figure(figsize=(16, height), dpi=100, facecolor="white")
    top, bottom = 1 - 1.85 / height, 1.5 / height
    grid = figure.add_gridspec(
        down,
        across,
        left=0.052,
        right=0.905,
        top=top,
        bottom=bottom,
        wspace=0.28 if across < 3 else 0.4,
        hspace=0.45,
    )
    for at, node in enumerate(nodes):
        axes = figure.add_subplot(grid[at // across, at % across])
        _panel(axes, comparison, node)
        if at % across:
            axes.tick_params(labelleft=False)
    rounds = comparison.eval_rounds[-1]
    title = f"{COUNTS.get(len(nodes), f'{len(nodes)} different models')}, alone and together"
    subtitle = (
        "How many problems each model gets right on a test that it never trains on, "
        f"over {rounds} {'round' if rounds == 1 else 'rounds'} of training"
    )
    figure.text(0.052, 1 - 0.55 / height, title, size=25, weight="bold", color=INK, va="center")
    figure.text(0.052, 1 - 1.0 / height, subtitle, size=15.5, color=QUIET, va="center")
    _legend(figure, comparison, 0.4 / height)
    return figure


def _panel(axes: Axes, comparison: Comparison, node: str) -> None:
    curves, rounds = comparison.curves[node], comparison.eval_rounds
    # A single evaluation still needs an axis that has a length.
    last = max(rounds[-1], 1)
    axes.set(xlim=(-0.02 * last, last * 1.02), ylim=(-0.02, 1.02))
    axes.set_title(
        printable(node, 32), loc="left", size=17, weight="bold", color=INK, pad=12, parse_math=False
    )
    axes.set_xlabel("rounds of training", size=13.5, color=QUIET, labelpad=6)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.tick_params(length=0, labelsize=13, labelcolor=QUIET, pad=7)
    axes.grid(axis="y", color=RULE, linewidth=1)
    only_below(axes)
    shown = [method for method in comparison.methods if method in curves]
    for method in shown:
        colour, marker = _style(comparison, method)
        # Alone is what the others are measured by: drawn first, thinner and dashed.
        reference = method == "alone"
        axes.plot(
            rounds,
            curves[method],
            color=colour,
            marker=marker,
            linewidth=2.4 if reference else 3,
            linestyle=DASHED if reference else "solid",
            markersize=7.5,
            markeredgecolor="white",
            markeredgewidth=1.2,
            clip_on=False,
            zorder=3 if reference else 4,
        )
    heights = _spread([curves[method][-1] for method in shown])
    for method, height in zip(shown, heights, strict=True):
        end = round(curves[method][-1], 2)  # Rounded as in the tables, halves too.
        axes.annotate(
            printable(f"{label(method)}  {end:.0%}", 24),
            (rounds[-1], height),
            xytext=(13, 0),
            textcoords="offset points",
            va="center",
            size=14,
            weight="bold",
            color=_style(comparison, method)[0],
            annotation_clip=False,
            parse_math=False,
        )


def _legend(figure: Figure, comparison: Comparison, y: float) -> None:
    handles, meanings = [], []
    for method in comparison.methods:
        colour, marker = _style(comparison, method)
        handle = Line2D([], [], color=colour, marker=marker, linewidth=3, markersize=8)
        handle.set_linestyle("dashed" if method == "alone" else "solid")
        handles.append(handle)
        meanings.append(MEANINGS.get(method, printable(label(method), 24)))
    legend = figure.legend(
        handles,
        meanings,
        loc="center left",
        bbox_to_anchor=(0.042, y),
        ncols=3,
        frameon=False,
        fontsize=13.5,
        labelcolor=INK,
        handlelength=1.9,
        columnspacing=1.7,
        handletextpad=0.6,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _style(comparison: Comparison, method: str) -> tuple[str, str]:
    if method in STYLES:
        return STYLES[method]
    spare = [other for other in comparison.methods if other not in STYLES]
    return SPARE_STYLES[spare.index(method) % len(SPARE_STYLES)]


def _spread(heights: list[float]) -> list[float]:
    """Labels at these heights, moved apart as little as keeps each readable and in its order.

    >>> [f"{height:.3f}" for height in _spread([0.5, 0.5, 0.9])]
    ['0.470', '0.530', '0.900']
    """
    order = sorted(range(len(heights)), key=lambda at: heights[at])
    clusters: list[list[float]] = []  # [centre, count]: labels that stand shoulder to shoulder
    for at in order:
        clusters.append([heights[at], 1])
        while len(clusters) > 1:
            (low, below), (high, above) = clusters[-2], clusters[-1]
            if high - low >= LABEL_GAP * (below + above) / 2:
                break
            both = below + above
            clusters[-2:] = [[(low * below + high * above) / both, both]]
    spread = [
        centre + LABEL_GAP * (place - (count - 1) / 2)
        for centre, count in clusters
        for place in range(int(count))
    ]
    placed = [0.0] * len(heights)
    for at, height in zip(order, spread, strict=True):
        placed[at] = height
    return placed
