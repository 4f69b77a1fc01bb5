"""Pictures of what the default gives in each kind of pair, and of how the way of writing moves."""

import textwrap
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from potluck_experiments.kinds import BEFORE, CONTROLS, DEFAULT, Kind, newest
from potluck_experiments.notations import SETTINGS, Writers, over_pairs, writers
from potluck_experiments.plots import (
    BLUE,
    FIXED,
    GREY,
    QUIET,
    SMOOTHED,
    VERMILION,
    bounds,
    label,
    style,
    styles_of,
)
from potluck_experiments.results import Results
from potluck_experiments.statistics import MeanInterval, interval_of

ROW = 0.46  # inches
GAINS = {
    "": "vs. alone, with as many\nsamples (stronger of two ways)",
    "own-part": "vs. together, with no\nlessons from others",
    "alone": "vs. alone,\nwith all of the samples",
}
"""What the default is compared with where one picture is to tell; empty: the better half."""
PARTS = {
    "share": "share of answers in the partner's notation",
    "own": "reward in the own notation",
    "other": "reward in the partner's notation",
}
"""Fields of Habit."""


def draw_all(results: Results) -> Iterator[tuple[str, Figure]]:
    """Draw the pictures of a scale with their file names."""
    kinds = newest(results)
    if kinds:
        yield f"gains-{results.scale}.png", draw_gains(kinds)
        yield f"kinds-{results.scale}.png", draw_kinds(kinds)
    if rows := list(writers(kinds)):
        yield f"notations-{results.scale}.png", draw_notations(rows)


def draw_gains(kinds: Sequence[Kind]) -> Figure:
    """Draw the three comparisons that a reader asks for first, readable at 800 pixels' width."""
    found = {
        than: [interval_of(kind.minus(than or kind.better())) for kind in kinds] for than in GAINS
    }
    same = [each for each in found[""] if each]
    more, less = sum(each.low > 0 for each in same), sum(each.high < 0 for each in same)
    height = 0.52 * len(kinds) + 2.75
    ends = [end for its in found.values() for each in its if each for end in each[1:3]]
    with style():
        figure = Figure(figsize=(14, height))
        for at, (than, title) in enumerate(GAINS.items()):
            place = 0.16 + 0.28 * at, 0.62 / height, 0.265, 0.52 * len(kinds) / height
            axes = figure.add_axes(place, sharex=figure.axes[0] if at else None)
            axes.axvline(0, color=QUIET, linewidth=1.5)
            axes.set(ylim=(len(kinds) - 0.5, -0.5), yticks=range(len(kinds)), yticklabels=[])
            axes.set_title(title, loc="left", size=16, parse_math=False)
            axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter("{x:.1f}")
            axes.tick_params(labelsize=15)
            for y, interval in enumerate(found[than]):
                if interval:
                    _draw_gain(axes, interval, y)
        figure.axes[0].set_xlim(min([0.0, *ends]) - 0.02, max([0.0, *ends]) + 0.02)
        figure.axes[0].set_yticklabels(
            [textwrap.fill(kind.title, 18) for kind in kinds], size=16, parse_math=False
        )
        title = (
            f"With as many samples, sharing earns more in {more} of {len(same)} kinds of pair, "
            f"less in {less or 'none'} (left)"
        )
        about = (
            f"Sampled reward of the default, LWS, less that of a control: mean and 95 % interval "
            f"over {min(len(kind.pairs) for kind in kinds)} pairs\nof models. Blue: better "
            "together. Orange: worse. Grey: no clear difference."
        )
        figure.text(0.01, 1 - 0.42 / height, title, size=18, weight="bold", parse_math=False)
        figure.text(0.01, 1 - 0.6 / height, about, size=15, color=QUIET, va="top")
        return figure


def _draw_gain(axes: Axes, of: MeanInterval, y: float) -> None:
    colour = BLUE if of.low > 0 else VERMILION if of.high < 0 else GREY
    axes.plot([of.low, of.high], [y, y], color=colour, lw=3.5)
    axes.plot([of.mean], [y], color=colour, marker="o", ms=10)


def draw_kinds(kinds: Sequence[Kind]) -> Figure:
    """Draw a panel for each comparison and a row for each kind of pair."""
    rows = [(kind, role) for kind in kinds for role in kind.told]
    controls = {"": "the better half", **CONTROLS}
    inside, seen = ROW * len(rows), [0.0]
    height, width = inside + 2.3, 0.87 / len(controls)
    with style():
        figure = Figure(figsize=(16, height))
        for at, (than, title) in enumerate(controls.items()):
            place = 0.125 + width * at, 1.0 / height, width - 0.012, inside / height
            axes = figure.add_axes(place, sharex=figure.axes[0] if at else None)
            axes.axvline(0, color=QUIET, linewidth=1)
            axes.set(ylim=(len(rows) - 0.5, -0.5), yticks=range(len(rows)), yticklabels=[])
            axes.set_title(f"minus {title}", loc="left", size=12, parse_math=False)
            axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            for row, (kind, role) in enumerate(rows):
                for method, shift in ((DEFAULT, -0.15), (BEFORE, 0.2)):
                    against = than or kind.better(role)
                    if method != than:
                        values = kind.by(method).minus(against, role=role)
                        seen += values
                        _draw_interval(axes, values, row + shift, *FIXED[method])
        figure.axes[0].set_xlim(min(seen) - 0.05, max(seen) + 0.05)  # of all panels
        names = [
            f"· {role}" if role else f"{kind.title} ({len(kind.pairs)})" for kind, role in rows
        ]
        figure.axes[0].set_yticklabels(names, parse_math=False)
        handles = [
            Line2D([], [], color=FIXED[name][0], marker=FIXED[name][1], lw=2, label=text)
            for name, text in ((DEFAULT, "the default"), (BEFORE, "LWS, c = 1"))
        ]
        about = (
            "Differences of sampled reward, second half of the rounds: mean and 95 % interval over "
            "base pairs (number in brackets), each of them a dot; wider intervals are cut off."
        )
        return label(figure, "What others' answers give, by kind of pair", about, handles, 2)


def _draw_interval(axes: Axes, values: Sequence[float], y: float, colour: str, mark: str) -> None:
    axes.plot(values, [y] * len(values), color=colour, marker=".", ms=6, alpha=0.5, ls="none")
    if found := interval_of(values):
        axes.plot([found.low, found.high], [y, y], color=colour, lw=2)
        axes.plot([found.mean], [y], color=colour, marker=mark, ms=8)


def draw_notations(rows: Sequence[Writers]) -> Figure:
    """Draw a row of panels for each group of models, a line for each setting."""
    height = 3.1 * len(rows) + 2.2
    settings = [name for name in SETTINGS if any(name in of.settings for of in rows)]
    looks = styles_of(settings)
    with style():
        figure = Figure(figsize=(16, height))
        grid = figure.subplots(len(rows), len(PARTS), squeeze=False, sharey=True)
        for of, line in zip(rows, grid, strict=True):
            for axes, (field, text) in zip(line, PARTS.items(), strict=True):
                axes.set_title(f"{of.title}\n{text}", loc="left", size=11, parse_math=False)
                axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
                axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
                axes.set_ylim(0, 1)
                for setting in of.settings:
                    _draw_course(axes, of, setting, field, *looks[setting])
        figure.tight_layout(rect=(0, 0.9 / height, 1, 1 - 0.9 / height))
        of_setting = rows[0].kind.results.suite.settings
        handles = [
            Line2D(
                [], [], color=looks[name][0], marker=looks[name][1], label=of_setting[name].title
            )
            for name in settings
        ]
        about = f"Mean and 95 % interval over base pairs, {SMOOTHED} rounds each, by round."
        return label(figure, "Which notation a model writes, and what it earns", about, handles, 3)


def _draw_course(axes: Axes, of: Writers, setting: str, field: str, colour: str, mark: str) -> None:
    margin = SMOOTHED // 2
    found = {
        at + 1: values
        for at in range(margin, of.rounds - margin)
        if (values := over_pairs(of, setting, range(at - margin, at + margin + 1), field))
    }
    low, high = np.transpose([bounds(values) for values in found.values()])
    means = [float(np.mean(values)) for values in found.values()]
    axes.plot([*found], means, color=colour, marker=mark, ms=6, markevery=4)
    axes.fill_between([*found], low, high, color=colour, alpha=0.13, lw=0)
