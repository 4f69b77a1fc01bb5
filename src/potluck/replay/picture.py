"""The replay's curves as a PNG: a row of three panels for each node, one colour per method."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from potluck.files import printable
from potluck.objective.methods import METHODS
from potluck.replay.plan import ReplayRow, by_curve
from potluck.reports import smoothed
from potluck.show.terminal import style
from potluck.show.terminal.text import label

PALETTE = style.VERMILION, style.PINK, style.GREEN, style.ORANGE, style.SKY, style.BLUE
COLOURS: Final = defaultdict(lambda: style.GREY, zip(METHODS, cycle(PALETTE)))
PANELS: Final[Mapping[str, Callable[[ReplayRow], float | None]]] = {
    "cosine with on-policy": lambda row: row.cosine,
    "effective sample size": lambda row: row.effective_sample_size,
    "share filtered": lambda row: row.filtered_share,
}


def draw(rows: Sequence[ReplayRow], path: Path) -> None:
    """Draw what was measured; equal rows give equal bytes."""
    style.save(lambda: _figure(rows), path)


def _figure(rows: Sequence[ReplayRow]) -> Figure:
    nodes = list(dict.fromkeys(line.node for line in rows))
    height = 2.6 + 3.6 * len(nodes)
    figure = Figure(figsize=(16, height), dpi=100, facecolor="white")
    figure.subplots_adjust(left=0.05, right=0.98, top=1 - 1.75 / height, bottom=1.35 / height)
    grid = figure.add_gridspec(len(nodes), len(PANELS), wspace=0.16, hspace=0.5)
    for row, node in enumerate(nodes):
        own = [line for line in rows if line.node == node]
        for column, (name, value) in enumerate(PANELS.items()):
            axes = figure.add_subplot(grid[row, column])
            _panel(axes, f"{printable(node, 20)}: {name}", own, value)
            # Each method has its own ceiling: models that have learned differently differ in noise.
            for (_, method), curve in by_curve(own).items() if not column else ():
                look = {"color": COLOURS[method], "linewidth": 1.6, "linestyle": "dashed"}
                _curve(axes, curve, lambda row: row.ceiling, **look)
    title = "The same completions, learned from by each method"
    window = max(_window(curve) for curve in by_curve(rows).values())
    line = f"a line is the mean of {window} rounds, a point one; " if window > 1 else ""
    subtitle = f"By round; {line}dashed: the cosine of two on-policy gradients with each other"
    figure.text(0.05, 1 - 0.5 / height, title, size=23, weight="bold", color=style.INK, va="center")
    figure.text(0.05, 1 - 0.95 / height, subtitle, size=14.5, color=style.QUIET, va="center")
    methods = list(dict.fromkeys(row.method for row in rows))
    handles = [Line2D([], [], color=COLOURS[method], linewidth=3) for method in methods]
    handles.append(Line2D([], [], color=style.QUIET, linewidth=1.6, linestyle="dashed"))
    figure.legend(
        handles,
        [*map(label, methods), "ceiling of the method's cosine"],
        loc="center left",
        bbox_to_anchor=(0.042, 0.4 / height),
        ncols=len(handles),
        frameon=False,
        fontsize=13.5,
        labelcolor=style.INK,
        handlelength=2.2,
        columnspacing=1.8,
    )
    return figure


def _panel(
    axes: Axes, title: str, rows: Sequence[ReplayRow], value: Callable[[ReplayRow], float | None]
) -> None:
    # Where methods do alike their curves lie on each other: the later ones are thinner.
    for at, ((_, method), curve) in enumerate(by_curve(rows).items()):
        colour, width = COLOURS[method], max(1.6, 4.2 - 0.9 * at)
        _curve(axes, curve, value, color=colour, linewidth=width, zorder=3 + at)
        rounds = [row.round + 1 for row in curve]
        points = np.array([value(row) for row in curve], float)
        axes.plot(rounds, points, color=colour, linestyle="none", marker="o", ms=4, alpha=0.5)
    seen = [y for y in map(value, rows) if y is not None]
    high = 1.0 if max(seen, default=1.0) > 0.3 else max(0.05, 1.15 * max(seen))
    axes.set_ylim(min(-0.03 * high, 1.1 * min(seen, default=0.0)), 1.03 * high)
    last = max(row.round for row in rows) + 1
    axes.set_xlim(0.5, max(last, 2) + 0.5)
    axes.set_title(
        title, loc="left", size=14, weight="bold", color=style.INK, pad=9, parse_math=False
    )
    axes.set_xlabel("round", size=12.5, color=style.QUIET, labelpad=5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.tick_params(length=0, labelsize=12, labelcolor=style.QUIET, pad=6)
    axes.grid(axis="y", color=style.RULE, linewidth=1)
    style.only_below(axes)


def _curve(
    axes: Axes, curve: Sequence[ReplayRow], value: Callable[[ReplayRow], float | None], **look: Any
) -> None:
    smooth = smoothed([value(row) for row in curve], _window(curve) // 2)
    # None becomes NaN, at which matplotlib leaves a gap.
    axes.plot([row.round + 1 for row in curve], np.array(smooth, float), **look)


def _window(curve: Sequence[ReplayRow]) -> int:
    """Return the odd number of rounds in a line's mean: the cosine of one round is noisy."""
    return min(5, len(curve) // 4 | 1)
