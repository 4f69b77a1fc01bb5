"""An experiment's curves as a PNG: a row for each pair, its models by greedy and by sampled.

Lines are means over the seeds, bands their 95 % t-intervals, one colour and marker a setting.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from potluck.dashboard.style import INK, QUIET, RULE, only_below, save_small
from potluck.reproduce.judge.runs import Runs
from potluck.reproduce.judge.statistics import interval_of
from potluck.reproduce.page.finished import Finished
from potluck.reproduce.page.legend import dashes, draw_legend, styles_of
from potluck.reproduce.page.markdown import counted
from potluck.reproduce.page.words import pair_title
from potluck.reproduce.result import NodeResult
from potluck.reproduce.suite import Experiment

ACROSS, TOP, MANY, TALL, LOW = 4, 1.35, 4, 4.0, 3.1
"""Panels in a row; inches of the titles; more rows than MANY are LOW, others TALL."""
SMOOTHED = 3
"""Rounds over which sampled reward is averaged: each with its neighbours."""

Kind = Literal["greedy", "sampled"]
TITLES: Final[Mapping[Kind, str]] = {"greedy": "greedy accuracy", "sampled": "sampled reward"}


@dataclass(frozen=True, slots=True)
class Curve:
    """One setting in one panel. Accuracies 0..1."""

    setting: str
    rounds: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def draw_curves(experiment: Experiment, there: Finished, path: Path) -> None:
    """Draws what the experiment has of a scale; equal cells give equal bytes."""
    save_small(lambda: _figure(experiment, there), path)


def curve_of(setting: str, nodes: Sequence[NodeResult], kind: Kind) -> Curve | None:
    """The mean over the seeds and its interval, at every point that all seeds have.

    One seed has no interval: its band has no width. None of no seed.
    """
    if not nodes:
        return None
    each = [n.greedy if kind == "greedy" else smoothed(n.sampled) for n in nodes]
    first = nodes[0]
    rounds = first.eval_rounds if kind == "greedy" else range(1, len(first.sampled) + 1)
    mean, low, high = [], [], []
    for values in zip(*each, strict=False):
        interval = interval_of(values)
        mean.append(interval.mean if interval else values[0])
        low.append(interval.low if interval else values[0])
        high.append(interval.high if interval else values[0])
    shown = tuple(float(round) for round in rounds)[: len(mean)]
    return Curve(setting, shown, tuple(mean), tuple(low), tuple(high))


def smoothed(values: Sequence[float]) -> list[float]:
    """Each in the mean with its neighbours, as many as it has on both sides.

    >>> smoothed([0.0, 3.0, 0.0, 0.0])
    [0.0, 1.0, 1.0, 0.0]
    """
    reach, last = SMOOTHED // 2, len(values) - 1
    wide = [min(reach, at, last - at) for at in range(len(values))]
    around = [values[at - w : at + w + 1] for at, w in enumerate(wide)]
    return [sum(near) / len(near) for near in around]


def _figure(experiment: Experiment, there: Finished) -> Figure:
    pairs = experiment.pairs[there.scale]
    blocks = [_rows_of(there, pair) for pair in pairs]
    rows = sum(blocks)
    row = LOW if rows > MANY else TALL
    bottom = 0.55 + 0.3 * math.ceil(len(experiment.settings) / 2)
    height = TOP + row * rows + bottom
    figure = Figure(figsize=(16, height), dpi=100, facecolor="white")
    _titles(figure, experiment, there, height)
    at = 0
    for pair, block in zip(pairs, blocks, strict=True):
        top = height - TOP - row * at
        title = pair_title(there.suite, there.scale, pair)
        y = (top - 0.12) / height
        figure.text(0.045, y, title, size=16, weight="bold", color=INK, va="center")
        panels = _panels(experiment, Runs(there.suite, there.scale, pair, there.results))
        styles = styles_of(experiment.settings)
        _draw_panels(figure, panels, styles, top / height, row / height, 1 / height)
        at += block
    draw_legend(figure, experiment, there, (bottom - 0.3) / height)
    return figure


def _rows_of(there: Finished, pair: str) -> int:
    return math.ceil(2 * len(there.suite.pair(there.scale, pair)) / ACROSS)


def _titles(figure: Figure, experiment: Experiment, there: Finished, height: float) -> None:
    counts = Counter(
        (c.family, c.models, c.setting) for c in there.of(experiment).values()
    ).values()
    least, most = min(counts), max(counts)
    seeds = counted(most, "seed") if least == most else f"{least} to {most} seeds"
    subtitle = (
        f"Mean of {seeds}; bands are 95 % intervals. Greedy: on problems that training "
        f"has none of. Sampled: in training, over {SMOOTHED} rounds each."
    )
    y = 1 - 0.38 / height
    figure.text(0.045, y, experiment.title, size=23, weight="bold", color=INK, va="center")
    figure.text(0.045, 1 - 0.8 / height, subtitle, size=15, color=QUIET, va="center")


Styles = Mapping[str, tuple[str, str]]
"""Of each setting, colour and marker."""
Panels = Mapping[tuple[str, Kind], Sequence[Curve]]
"""Of one pair, by model and kind: every model by greedy, then every model by sampled."""


def _panels(experiment: Experiment, runs: Runs) -> Panels:
    return {
        (model, kind): [
            curve
            for setting in experiment.settings
            if (curve := curve_of(setting, list(runs.of(model, setting).values()), kind))
        ]
        for kind in TITLES
        for model in runs.models
    }


def _draw_panels(
    figure: Figure, panels: Panels, styles: Styles, top: float, row: float, inch: float
) -> None:
    """Below ``top``, each row so high; all in shares of the figure's height."""
    limits = {
        kind: _limits([c for (_, k), curves in panels.items() if k == kind for c in curves])
        for kind in TITLES
    }
    width, left, gap = 0.2, 0.045, 0.0475
    for place, ((model, kind), curves) in enumerate(panels.items()):
        down, across = divmod(place, ACROSS)
        low = top - row * (down + 1) + 0.75 * inch
        box = (left + across * (width + gap), low, width, row - 1.35 * inch)
        axes = figure.add_axes(box)
        _panel(axes, curves, styles, f"{model}, {TITLES[kind]}", limits[kind])


def _limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """Tenths that hold all means; bands may leave them."""
    means = [value for curve in curves for value in curve.mean] or [0.0, 1.0]
    low, high = math.floor(min(means) * 10 - 0.2) / 10, math.ceil(max(means) * 10 + 0.2) / 10
    return max(0.0, low) - 0.01, min(1.0, max(high, low + 0.2)) + 0.01


def _panel(
    axes: Axes, curves: Sequence[Curve], styles: Styles, title: str, limits: tuple[float, float]
) -> None:
    last = max((curve.rounds[-1] for curve in curves), default=1) or 1
    axes.set(xlim=(-0.02 * last, last * 1.02), ylim=limits)
    axes.set_title(title, loc="left", size=14, color=INK, pad=8, parse_math=False)
    axes.set_xlabel("rounds", size=13, color=QUIET, labelpad=3)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.tick_params(length=0, labelsize=12.5, labelcolor=QUIET, pad=6)
    axes.grid(axis="y", color=RULE, linewidth=1)
    only_below(axes)
    for curve in curves:
        colour, marker = styles[curve.setting]
        few = len(curve.rounds) <= 12
        axes.fill_between(curve.rounds, curve.low, curve.high, color=colour, alpha=0.13, lw=0)
        axes.plot(
            curve.rounds,
            curve.mean,
            color=colour,
            marker=marker,
            markevery=1 if few else max(1, len(curve.rounds) // 6),
            linewidth=2.2,
            linestyle=dashes(curve.setting),
            markersize=6.5,
            markeredgecolor="white",
            markeredgewidth=0.8,
        )
