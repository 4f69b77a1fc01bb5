"""The demo's curves as a PNG: a row for each model, a panel for each skill, a line a setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from potluck.demo.run import COLUMNS, NOTE, SKILLS, TOGETHER, Gain, OwnAnswers, Result, curve
from potluck.show.terminal import style
from potluck.show.terminal.style import INK, QUIET, RULE, only_below, save

LOOKS: Final = {
    TOGETHER: ("together: writes half", style.BLUE, "solid"),
    "half": ("by itself: writes half", style.ORANGE, "solid"),
    "alone": ("by itself: writes all", style.GREY, (0, (4, 2))),
}
ABOUT = (
    "Each model can do one kind of problem, and hardly ever the other. Shown: the share of right "
    "answers among those\nthat it samples, by the number of completions that it has written "
    "itself{seeds}. A line ends where its writing ends."
)
PLACES = (0.03, 0.155, 0.4, 0.5, 0.59, 0.75, 0.86, 0.97)
"""Places where the table's first two columns begin and the others end, as shares of the width."""


def draw(result: Result, path: Path) -> None:
    """Draw the demo's result, 1600 x 1400 pixels, to be read at half the size, too."""
    save(lambda: _figure(result), path)


def _figure(result: Result) -> Figure:
    figure = Figure(figsize=(16, 14), dpi=100, facecolor="white")
    grid = figure.subplots(len(result.nodes), 2, squeeze=False, sharex=True, sharey=True)
    figure.subplots_adjust(0.065, 0.225, 0.975, 0.785, 0.06, 0.24)
    for of, panels in zip(result.gains, grid, strict=True):
        settings = result.nodes[of.node]
        for axes, sign in zip(
            panels, sorted(SKILLS, key=lambda sign: sign != of.sign), strict=True
        ):
            whose = "its partner's skill" if sign == of.sign else "its own skill"
            _panel(axes, settings, sign, f"{of.node}: {SKILLS[sign]}, {whose}")
        if of.level:
            _goal(panels[0], of)
    for axes in grid[-1]:
        axes.set_xlabel("completions that the model has written itself", size=16, color=QUIET)
    for at, of in enumerate(result.gains):
        figure.text(0.03, 0.962 - 0.03 * at, f"{of}.", size=18.5, weight="bold", color=INK)
    seeds = f"; mean of {len(result.seeds)} seeds" if len(result.seeds) > 1 else ""
    figure.text(0.03, 0.912, ABOUT.format(seeds=seeds), size=16.5, color=QUIET, va="top")
    figure.legend(
        grid[0, 0].get_lines()[: len(LOOKS)], [words for words, *_ in LOOKS.values()],
        loc="center left", bbox_to_anchor=(0.022, 0.846), ncols=len(LOOKS), frameon=False,
        fontsize=17, labelcolor=INK, handlelength=2, columnspacing=2, borderaxespad=0,
    )  # fmt: skip
    figure.text(0.03, 0.012, NOTE, size=14.5, color=QUIET)
    for at, row in enumerate([COLUMNS, *result.rows]):
        for column, (place, cell) in enumerate(zip(PLACES, row, strict=True)):
            figure.text(
                place, 0.128 - 0.033 * at, cell, size=17, color=INK if at else QUIET,
                ha="left" if column < 2 else "right", weight="normal" if column else "bold",
            )  # fmt: skip
    return figure


def _panel(axes: Axes, settings: Mapping[str, Sequence[OwnAnswers]], sign: str, title: str) -> None:
    axes.set(ylim=(-0.02, 1.02), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_title(title, loc="left", size=18, weight="bold", color=INK, pad=10)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.tick_params(length=0, labelsize=16, labelcolor=QUIET, pad=7)
    axes.grid(axis="y", color=RULE, linewidth=1)
    only_below(axes)
    for setting, (_, colour, line) in LOOKS.items():
        x, share = zip(*curve(settings[setting], sign), strict=True)
        wide, order = (4.5, 4) if setting == TOGETHER else (3, 3)
        axes.plot(x, share, color=colour, linewidth=wide, linestyle=line, zorder=order)
    axes.set_xlim(left=0)


def _goal(axes: Axes, of: Gain) -> None:
    """Mark where both ways come to the level that they are compared at."""
    colours = style.BLUE, LOOKS[of.way][1]
    axes.plot([of.together, of.by_itself], [of.level] * 2, color=INK, lw=1.5, ls=":", zorder=5)
    for x, colour in zip((of.together, of.by_itself), colours, strict=True):
        axes.plot([x], [of.level], "o", ms=13, color=colour, mec="white", mew=2, zorder=6)
