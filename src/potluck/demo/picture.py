"""The demo's curves as a PNG: one panel per node, one curve per setting."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from potluck.demo.report import Outcome, Result
from potluck.show.terminal import style
from potluck.show.terminal.style import INK, QUIET, RULE, only_below, save
from potluck.show.terminal.text import label

MEANINGS: Final = {
    "alone": "alone: writes every answer itself",
    "half": "half: alone, with half of the problems",
    "lws": "LWS: writes half, learns also from the other's right answers",
}
STYLES: Final = {
    "alone": (style.GREY, "o"),
    "half": (style.ORANGE, "s"),
    "lws": (style.BLUE, "D"),
}
BAND: Final = "#f3f5f7"
LABEL_GAP = 0.06
"""Least distance of two labels at the ends of curves, as a share of the axis."""


def draw(result: Result, path: Path) -> None:
    """Draw the demo's result, about 1600 x 700 pixels."""
    save(lambda: _figure(result), path)


def _figure(result: Result) -> Figure:
    figure = Figure(figsize=(16, 7), dpi=100, facecolor="white")
    figure.subplots_adjust(0.052, 0.214, 0.905, 0.736, 0.28)
    for at, (node, outcomes) in enumerate(result.nodes.items()):
        axes = figure.add_subplot(1, len(result.nodes), at + 1)
        _panel(axes, node, outcomes)
        if at:
            axes.tick_params(labelleft=False)
    title, subtitle = (
        "Two models, alone and together",
        "How many of the answers that a model samples are right, over the rounds of training; "
        "at the right, the mean of the second half",
    )
    figure.text(0.052, 0.921, title, size=25, weight="bold", color=INK, va="center")
    figure.text(0.052, 0.857, subtitle, size=15.5, color=QUIET, va="center")
    figure.legend(
        figure.axes[0].get_lines(), list(MEANINGS.values()),
        loc="center left", bbox_to_anchor=(0.042, 0.057), ncols=3, frameon=False, fontsize=13.5,
        labelcolor=INK, handlelength=1.9, columnspacing=1.7, handletextpad=0.6,
    )  # fmt: skip
    return figure


def _panel(axes: Axes, node: str, outcomes: Mapping[str, Outcome]) -> None:
    last = len(outcomes["alone"].sampled)
    middle = last // 2 + 0.5
    axes.set(xlim=(0.5, last + 0.5), ylim=(-0.02, 1.02))
    axes.set_title(node, loc="left", size=17, weight="bold", color=INK, pad=12)
    axes.set_xlabel("round", size=13.5, color=QUIET, labelpad=6)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.tick_params(length=0, labelsize=13, labelcolor=QUIET, pad=7)
    axes.grid(axis="y", color=RULE, linewidth=1)
    only_below(axes)
    axes.axvspan(middle, last + 0.5, color=BAND, zorder=0)
    for setting, outcome in outcomes.items():
        colour, marker = STYLES[setting]
        # Alone is what the others are measured by: thinner and dashed.
        reference = setting == "alone"
        axes.plot(
            range(1, last + 1), _smooth(outcome.sampled), color=colour, marker=marker,
            markevery=(0, 4), markersize=7.5, markeredgecolor="white", markeredgewidth=1.2,
            linewidth=2.4 if reference else 3, linestyle=(0, (4, 2)) if reference else "solid",
            clip_on=False, zorder=3 if reference else 4,
        )  # fmt: skip
    heights = _spread([outcome.late for outcome in outcomes.values()])
    for (setting, outcome), height in zip(outcomes.items(), heights, strict=True):
        colour, late = STYLES[setting][0], round(outcome.late, 2)  # Rounded as in the tables.
        axes.hlines(outcome.late, middle, last + 0.5, color=colour, linewidth=1, zorder=2)
        axes.annotate(
            f"{label(setting)}  {late:.0%}", (last + 0.5, height), (9, 0), va="center", size=14,
            textcoords="offset points", weight="bold", color=colour, annotation_clip=False,
        )  # fmt: skip


def _smooth(shares: Sequence[float]) -> list[float]:
    """Average each round with its neighbours.

    >>> _smooth([0.0, 0.75, 0.75])
    [0.375, 0.5, 0.75]
    """
    windows = (shares[max(0, at - 1) : at + 2] for at in range(len(shares)))
    return [sum(window) / len(window) for window in windows]


def _spread(heights: list[float]) -> list[float]:
    """Move labels at these heights apart, so that each is readable and all keep their order.

    >>> [f"{height:.3f}" for height in _spread([0.5, 0.5, 0.9])]
    ['0.470', '0.530', '0.900']
    """
    order = sorted(range(len(heights)), key=heights.__getitem__)
    # Without the gaps: then heights that do not fall are far enough apart.
    bare = [heights[at] - LABEL_GAP * place for place, at in enumerate(order)]
    raised, lowered = accumulate(bare, max), [*accumulate(reversed(bare), min)][::-1]
    between = [(high + low) / 2 for high, low in zip(raised, lowered, strict=True)]
    return [between[place] + LABEL_GAP * place for place in map(order.index, range(len(order)))]
