"""How a setting looks in every picture: its colour, marker and line, and what the legend says."""

from collections.abc import Mapping
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
ANY_OTHER = (INK, "*")


def dashes(setting: str) -> LineStyleType:
    """Alone is what the others are measured by, and so are its shares."""
    if setting == "alone":
        return DASHED
    return "dotted" if setting in ("half", "quarter") else "solid"


def draw_legend(figure: Figure, experiment: Experiment, there: Finished, top: float) -> None:
    """Every setting with what it means, below ``top`` (a share of the figure's height)."""
    handles = []
    for setting in experiment.settings:
        colour, marker = STYLES.get(setting, ANY_OTHER)
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
