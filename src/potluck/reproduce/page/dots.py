"""Accuracy out of distribution as a PNG: a row for each model of each pair, a dot a setting.

It is measured at the end only, so there is no curve to draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from potluck.dashboard.style import INK, QUIET, RULE, only_below, save_small
from potluck.reproduce.judge.runs import Runs
from potluck.reproduce.judge.statistics import interval_of
from potluck.reproduce.judge.verdict import CEILING, FLOOR
from potluck.reproduce.page.finished import Finished
from potluck.reproduce.page.legend import draw_legend, styles_of
from potluck.reproduce.suite import Experiment

TOP, ROW, PAIR, BOTTOM = 1.9, 0.42, 0.5, 1.5
"""Inches: of the titles, a model, the space above a pair, the axis and the legend."""
NO_ROOM = "#f3f0ec"


@dataclass(frozen=True, slots=True)
class Row:
    """One model of one pair."""

    pair: str
    model: str
    y: float
    """Inches below the top of the panel."""


def draw_dots(experiment: Experiment, there: Finished, path: Path) -> None:
    """Draws what the experiment has of a scale; equal cells give equal bytes."""
    save_small(lambda: _figure(experiment, there), path)


def _figure(experiment: Experiment, there: Finished) -> Figure:
    pairs = experiment.pairs[there.scale]
    families = list(dict.fromkeys(pair.partition(".")[0] for pair in pairs))
    rows = {family: _rows(there, [p for p in pairs if _of(p) == family]) for family in families}
    inside = max(of_family[-1].y for of_family in rows.values()) + ROW
    height = TOP + inside + BOTTOM
    figure = Figure(figsize=(16, height), dpi=100, facecolor="white")
    about = (
        "Greedy accuracy at the end on longer or harder problems than those of the training: mean "
        "and 95 % interval over the seeds."
    )
    y = 1 - 0.38 / height
    figure.text(0.03, y, experiment.title, size=23, weight="bold", color=INK, va="center")
    figure.text(0.03, 1 - 0.8 / height, about, size=15, color=QUIET, va="center")
    width = 0.97 / len(families)
    for at, family in enumerate(families):
        left, bottom = 0.03 + at * width + 0.11, BOTTOM / height
        axes = figure.add_axes((left, bottom, width - 0.14, inside / height))
        axes.set_ylim(inside, 0)
        title = there.suite.scales[there.scale].family[family].title
        axes.set_title(
            title, loc="left", size=16, weight="bold", color=INK, pad=26, parse_math=False
        )
        _panel(axes, experiment, there, rows[family])
    draw_legend(figure, experiment, there, 0.85 / height)
    return figure


def _of(pair: str) -> str:
    return pair.partition(".")[0]


def _rows(there: Finished, pairs: Sequence[str]) -> list[Row]:
    found, y = [], 0.0
    for pair in pairs:
        y += PAIR
        for model in there.suite.pair(there.scale, pair):
            found.append(Row(pair, model, y))
            y += ROW
    return found


def _panel(axes: Axes, experiment: Experiment, there: Finished, rows: Sequence[Row]) -> None:
    axes.set_xlim(0, 1)
    axes.axvspan(0, FLOOR, color=NO_ROOM, lw=0)
    axes.axvspan(CEILING, 1, color=NO_ROOM, lw=0)
    for x, word in ((FLOOR / 2, "floor"), ((1 + CEILING) / 2, "ceiling")):
        axes.annotate(word, (x, 1), (0, 4), xycoords=("data", "axes fraction"), ha="center",
                      textcoords="offset points", size=12, color=QUIET)  # fmt: skip
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_yticks([row.y for row in rows], [row.model for row in rows])
    axes.tick_params(length=0, labelsize=13, labelcolor=QUIET, pad=7)
    axes.grid(axis="x", color=RULE, linewidth=1)
    only_below(axes)
    for row in rows:
        runs = Runs(there.suite, there.scale, row.pair, there.results)
        count = len(experiment.settings)
        for at, (setting, style) in enumerate(styles_of(experiment.settings).items()):
            values = runs.values(row.model, setting, "out-of-distribution", "end").values()
            interval = interval_of(list(values))
            if interval:
                y = row.y + ROW * 0.24 * (at - (count - 1) / 2)
                colour, marker = style
                axes.plot([interval.low, interval.high], [y, y], color=colour, lw=2, zorder=3)
                axes.plot([interval.mean], [y], color=colour, marker=marker, ms=6.5, zorder=4)
