"""How every picture of Potluck looks: colours, axes, and a file that depends on nothing else."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import IO, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, QUIET, RULE, AXIS = "#1b1f24", "#5b6570", "#e3e6ea", "#9aa3ad"
# Okabe and Ito's palette, which the colour-blind can tell apart; the markers differ as well.
GREY, VERMILION, BLUE, GREEN = "#4d4d4d", "#D55E00", "#0072B2", "#009E73"
PINK, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
STYLES: Final = {
    "alone": (GREY, "o"),
    "nois": (VERMILION, "s"),
    "f-tis": (BLUE, "D"),
}
SPARE_STYLES: Final = ((GREEN, "^"), (PINK, "v"), (ORANGE, "P"), (SKY, "X"))
DASHED: Final = (0, (4, 2))
"""Of what the others are measured by."""


def save(make: Callable[[], Figure], path: Path | IO[bytes]) -> None:
    """Makes a picture and saves it as a PNG; equal pictures give equal bytes."""
    # A user's matplotlibrc must not change the picture. DejaVu Sans comes with matplotlib.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Without its name and version the file depends on what is drawn and nothing else.
        make().savefig(path, format="png", metadata={"Software": None})


def save_small(make: Callable[[], Figure], path: Path) -> None:
    """The same with at most 256 colours: a third of the bytes, for pictures that are committed."""
    from PIL import Image  # of matplotlib

    whole = BytesIO()
    save(make, whole)
    # Chosen to come near every colour, however rare it is: a verdict may have one bar.
    coverage, plain = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
    few = Image.open(whole).convert("RGB").quantize(256, method=coverage, dither=plain)
    few.save(path, format="png", optimize=True)


def only_below(axes: Axes) -> None:
    """Leaves of the frame the line below."""
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(AXIS)
