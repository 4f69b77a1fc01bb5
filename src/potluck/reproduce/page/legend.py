"""How a setting looks in every picture: its colour, marker and line, and what the legend says."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

from potluck.dashboard.style import (
    BLUE,
    DASHED,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PINK,
    SKY,
    VERMILION,
)
from potluck.reproduce.page.finished import Finished
from potluck.reproduce.page.words import setting_title
from potluck.reproduce.suite import Experiment

STYLES: Final[Mapping[str, tuple[str, str]]] = {
    "alone": (GREY, "o"),
    "half": (ORANGE, "p"),
    "quarter": (ORANGE, "p"),
    "nois": (VERMILION, "s"),
    "vis": (ORANGE, "P"),
    "tis": (GREEN, "^"),
    "f-nois": (PINK, "v"),
    "f-vis": (SKY, "X"),
    "f-tis": (BLUE, "D"),
    "g5": (ORANGE, "<"),
    "g10": (GREEN, "^"),
    "g100": (PINK, ">"),
    "horizontal": (VERMILION, "h"),
}
LONGER = {"alone-long": "alone", "f-tis-long": "f-tis"}
"""Settings that look like another one; no experiment has both."""


def styles_of(settings: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each; one that has none of its own gets what the others leave.

    >>> styles_of(["alone", "mine"])["mine"] != styles_of(["alone"])["alone"]
    True
    """
    own = {s: STYLES[LONGER.get(s, s)] for s in settings if LONGER.get(s, s) in STYLES}
    taken = {colour for colour, _ in own.values()}
    spare = sorted({style for style in STYLES.values() if style[0] not in taken})
    free = cycle([*spare, (INK, "*")])
    return {setting: own[setting] if setting in own else next(free) for setting in settings}


def dashes(setting: str) -> LineStyleType:
    """Alone is what the others are measured by, and so are its shares."""
    if LONGER.get(setting, setting) == "alone":
        return DASHED
    return "dotted" if setting in ("half", "quarter") else "solid"


def draw_legend(figure: Figure, experiment: Experiment, there: Finished, top: float) -> None:
    """Every setting with what it means, below ``top`` (a share of the figure's height)."""
    handles = []
    for setting, (colour, marker) in styles_of(experiment.settings).items():
        style = dashes(setting)
        handles.append(
            Line2D([], [], color=colour, marker=marker, lw=2.4, markersize=8, linestyle=style)
        )
    legend = figure.legend(
        handles,
        [setting_title(there.suite, setting) for setting in experiment.settings],
        loc="upper left",
        bbox_to_anchor=(0.035, top),
        ncols=2,
        frameon=False,
        fontsize=14,
        labelcolor=INK,
        handlelength=2.4,
        columnspacing=2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
