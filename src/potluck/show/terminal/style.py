"""Looks of every picture: colours, axes, and a file that depends on nothing but what is drawn."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, QUIET, RULE, AXIS = "#1b1f24", "#5b6570", "#e3e6ea", "#9aa3ad"
# Okabe and Ito's palette, which the colour-blind can tell apart; the markers differ as well.
GREY, VERMILION, BLUE, GREEN = "#4d4d4d", "#D55E00", "#0072B2", "#009E73"
PINK, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"

PALETTE = BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, GREY


class Picture(Figure):
    """A figure that a notebook shows, whatever matplotlib's backend is."""

    def _repr_png_(self) -> bytes:
        self.savefig(made := BytesIO(), format="png")
        return made.getvalue()


def save(make: Callable[[], Figure], path: Path) -> None:
    """Make a picture and save it as a PNG; equal pictures give equal bytes."""
    # A user's matplotlibrc must not change the picture. DejaVu Sans comes with matplotlib.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Without its name and version the file depends on what is drawn and nothing else.
        make().savefig(path, format="png", metadata={"Software": None})


def only_below(axes: Axes) -> None:
    """Hide the frame except the line at the bottom."""
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(AXIS)
