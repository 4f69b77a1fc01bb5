"""The demo's curves as a PNG: one panel per node, one curve per method."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from potluck.demo.report import Comparison, compare
from potluck.display import style
from potluck.display.style import INK, QUIET, RULE, only_below, save
from potluck.display.text import label, printable

MEANINGS: Final = {
    "alone": "alone: learns from its own answers only",
    "nois": "NoIS: takes everyone's answers as its own",
    "f-tis": "F-TIS: reweights and filters the others' answers",
}
STYLES: Final = {
    "alone": (style.GREY, "o"),
    "nois": (style.VERMILION, "s"),
    "f-tis": (style.BLUE, "D"),
}
SPARE_STYLES: Final = ((style.GREEN, "^"), (style.PINK, "v"), (style.ORANGE, "P"), (style.SKY, "X"))
LABEL_GAP = 0.06
"""Least distance of two labels at the ends of curves, as a share of the axis."""


def draw(summary: Mapping[str, Any], path: Path) -> None:
    """Draw the demo's result, about 1600 x 700 pixels; raise ValueError as ``compare`` does."""
    comparison = compare(summary)
    save(lambda: _figure(comparison), path)


def _figure(comparison: Comparison) -> Figure:
    nodes = list(comparison.curves)
    across = min(len(nodes), 3)
    down = math.ceil(len(nodes) / across)
    height = 3.3 + 3.7 * down
    figure = Figure(figsize=(16, height), dpi=100, facecolor="white")
    top, bottom = 1 - 1.85 / height, 1.5 / height
    figure.subplots_adjust(0.052, bottom, 0.905, top, 0.28 if across < 3 else 0.4, 0.45)
    for at, node in enumerate(nodes):
        axes = figure.add_subplot(down, across, at + 1)
        _panel(axes, comparison, node)
        if at % across:
            axes.tick_params(labelleft=False)
    rounds = comparison.eval_rounds[-1]
    title = f"{comparison.models.capitalize()}, alone and together"
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
            rounds, curves[method], label=method, color=colour, marker=marker, clip_on=False,
            linewidth=2.4 if reference else 3, linestyle=(0, (4, 2)) if reference else "solid",
            markersize=7.5, markeredgecolor="white", markeredgewidth=1.2,
            zorder=3 if reference else 4,
        )  # fmt: skip
    heights = _spread([curves[method][-1] for method in shown])
    for method, height in zip(shown, heights, strict=True):
        end = round(curves[method][-1], 2)  # Rounded as in the tables, halves too.
        axes.annotate(
            printable(f"{label(method)}  {end:.0%}", 24), (rounds[-1], height), (13, 0),
            textcoords="offset points", va="center", size=14, weight="bold",
            color=_style(comparison, method)[0], annotation_clip=False, parse_math=False,
        )  # fmt: skip


def _legend(figure: Figure, comparison: Comparison, y: float) -> None:
    lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_lines()}
    legend = figure.legend(
        [lines[method] for method in comparison.methods],
        [MEANINGS.get(method, printable(label(method), 24)) for method in comparison.methods],
        loc="center left", bbox_to_anchor=(0.042, y), ncols=3, frameon=False, fontsize=13.5,
        labelcolor=INK, handlelength=1.9, columnspacing=1.7, handletextpad=0.6,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def _style(comparison: Comparison, method: str) -> tuple[str, str]:
    spare = [other for other in comparison.methods if other not in STYLES]
    return STYLES.get(method) or SPARE_STYLES[spare.index(method) % len(SPARE_STYLES)]


def _spread(heights: list[float]) -> list[float]:
    """Move labels at these heights apart, as little as keeps each readable and in its order.

    >>> [f"{height:.3f}" for height in _spread([0.5, 0.5, 0.9])]
    ['0.470', '0.530', '0.900']
    """
    order = sorted(range(len(heights)), key=lambda at: heights[at])
    clusters: list[tuple[float, int]] = []  # centre and count of labels side by side
    for at in order:
        high, above = heights[at], 1
        while clusters:
            low, below = clusters[-1]
            if high - low >= LABEL_GAP * (below + above) / 2:
                break
            clusters.pop()
            high, above = (low * below + high * above) / (below + above), below + above
        clusters.append((high, above))
    spread = (
        centre + LABEL_GAP * (place - (count - 1) / 2)
        for centre, count in clusters
        for place in range(count)
    )
    placed = dict(zip(order, spread, strict=True))
    return [placed[at] for at in range(len(heights))]
