"""The replay's curves as a PNG: a row of three panels for each node, one colour per method."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from potluck.dashboard.comparison import label
from potluck.dashboard.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PINK,
    QUIET,
    RULE,
    SKY,
    VERMILION,
    only_below,
    save,
)
from potluck.dashboard.text import mean, printable
from potluck.replay.lines import Line, by_curve

COLOURS: Final = {
    "nois": VERMILION,
    "f-nois": ORANGE,
    "vis": PINK,
    "f-vis": SKY,
    "tis": GREEN,
    "f-tis": BLUE,
}
PANELS: Final[Mapping[str, Callable[[Line], float | None]]] = {
    "cosine with on-policy": lambda line: line.cosine,
    "effective sample size": lambda line: line.effective_sample_size,
    "share filtered": lambda line: line.filtered_share,
}


def draw(lines: Sequence[Line], path: Path) -> None:
    """Draws what was measured; equal lines give equal bytes."""
    save(lambda: _figure(lines), path)


def _figure(lines: Sequence[Line]) -> Figure:
    nodes = list(dict.fromkeys(line.node for line in lines))
    height = 2.6 + 3.6 * len(nodes)
    figure = Figure(figsize=(16, height), dpi=100, facecolor="white")
    grid = figure.add_gridspec(
        len(nodes),
        len(PANELS),
        left=0.05,
        right=0.98,
        top=1 - 1.75 / height,
        bottom=1.35 / height,
        wspace=0.16,
        hspace=0.5,
    )
    for row, node in enumerate(nodes):
        own = [line for line in lines if line.node == node]
        for column, (name, value) in enumerate(PANELS.items()):
            axes = figure.add_subplot(grid[row, column])
            _panel(axes, f"{printable(node, 20)}: {name}", own, value)
            if not column:
                _ceiling(axes, own)
    title = "The same completions, learned from by each method"
    window = max(_window(told) for told in by_curve(lines).values())
    line = f"a line is the mean of {window} rounds, a point one; " if window > 1 else ""
    subtitle = f"By round; {line}dashed: the cosine of two on-policy gradients with each other"
    figure.text(0.05, 1 - 0.5 / height, title, size=23, weight="bold", color=INK, va="center")
    figure.text(0.05, 1 - 0.95 / height, subtitle, size=14.5, color=QUIET, va="center")
    _legend(figure, lines, 0.4 / height)
    return figure


def _panel(
    axes: Axes, title: str, lines: Sequence[Line], value: Callable[[Line], float | None]
) -> None:
    # Where methods do alike their curves lie on each other: the later ones are thinner.
    for at, ((_, method), told) in enumerate(by_curve(lines).items()):
        colour, width = COLOURS[method], max(1.6, 4.2 - 0.9 * at)
        _curve(axes, told, value, color=colour, linewidth=width, zorder=3 + at)
        rounds = [line.round + 1 for line in told]
        points = [_or_nan(value(line)) for line in told]
        axes.plot(rounds, points, color=colour, linestyle="none", marker="o", ms=4, alpha=0.5)
    seen = [y for y in map(value, lines) if y is not None]
    high = 1.0 if max(seen, default=1.0) > 0.3 else max(0.05, 1.15 * max(seen))
    axes.set_ylim(min(-0.03 * high, 1.1 * min(seen, default=0.0)), 1.03 * high)
    last = max(line.round for line in lines) + 1
    axes.set_xlim(0.5, max(last, 2) + 0.5)
    axes.set_title(title, loc="left", size=14, weight="bold", color=INK, pad=9, parse_math=False)
    axes.set_xlabel("round", size=12.5, color=QUIET, labelpad=5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.tick_params(length=0, labelsize=12, labelcolor=QUIET, pad=6)
    axes.grid(axis="y", color=RULE, linewidth=1)
    only_below(axes)


def _ceiling(axes: Axes, lines: Sequence[Line]) -> None:
    """Of each method by itself: models that have learned otherwise are noisy otherwise."""
    for (_, method), told in by_curve(lines).items():
        colour = COLOURS[method]
        _curve(axes, told, lambda x: x.ceiling, color=colour, linewidth=1.6, linestyle="dashed")


def _curve(
    axes: Axes, told: Sequence[Line], value: Callable[[Line], float | None], **look: Any
) -> None:
    beside = _window(told) // 2
    smooth = [
        mean(value(line) for line in told[max(0, at - beside) : at + beside + 1])
        for at in range(len(told))
    ]
    axes.plot([line.round + 1 for line in told], [_or_nan(y) for y in smooth], **look)


def _window(told: Sequence[Line]) -> int:
    """Rounds in the mean that is drawn as a line, an odd number: the cosine of one is noisy."""
    return min(5, len(told) // 4 | 1)


def _or_nan(value: float | None) -> float:
    """matplotlib leaves a gap where there is a NaN."""
    return math.nan if value is None else value


def _legend(figure: Figure, lines: Sequence[Line], y: float) -> None:
    methods = list(dict.fromkeys(line.method for line in lines))
    handles = [Line2D([], [], color=COLOURS[method], linewidth=3) for method in methods]
    handles.append(Line2D([], [], color=QUIET, linewidth=1.6, linestyle="dashed"))
    figure.legend(
        handles,
        [*map(label, methods), "ceiling of the method's cosine"],
        loc="center left",
        bbox_to_anchor=(0.042, y),
        ncols=len(handles),
        frameon=False,
        fontsize=13.5,
        labelcolor=INK,
        handlelength=2.2,
        columnspacing=1.8,
    )
