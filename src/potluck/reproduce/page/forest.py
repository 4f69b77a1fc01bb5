"""All claims in one picture: a bar for each test, and where the claim says that it has to lie."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from potluck.dashboard.style import BLUE, INK, QUIET, RULE, VERMILION, only_below, save_small
from potluck.reproduce.judge.verdict import Finding, Verdict, findings_of, verdict_of_claim
from potluck.reproduce.page.finished import Finished
from potluck.reproduce.suite import Claim

COLOURS: Final[dict[Verdict, str]] = {
    "shown": BLUE,
    "refuted": VERMILION,
    "inconclusive": "#8a8a8a",
}
HOLDS = "#e4f2e7"
MARKERS = ("o", "s", "^", "v")
"""Of the families, in their order."""
TOP, BOTTOM, TEST, GAP, WORDS = 1.5, 1.05, 0.115, 0.17, 0.27
"""Inches: of the titles, the legend, a test, the space between two claims, a line of text."""
CHARACTERS = 46
"""Of a claim, in a line."""


@dataclass(frozen=True, slots=True)
class Band:
    """One claim and its tests."""

    figure: str
    claim: Claim
    tests: Sequence[Finding]

    @property
    def text(self) -> str:
        return "\n".join(textwrap.wrap(self.claim.text, CHARACTERS))

    @property
    def height(self) -> float:
        lines = self.text.count("\n") + 1
        return max(TEST * len(self.tests), WORDS * lines) + GAP


def draw_forest(there: Finished, path: Path) -> None:
    """Draws the tests of all claims at a scale; equal cells give equal bytes."""
    save_small(lambda: _figure(there), path)


def bands_of(there: Finished) -> list[Band]:
    """In the order of the experiments."""
    found = []
    for experiment in there.suite.experiments:
        findings = findings_of(there.suite, experiment, there.scale, there.results)
        for claim in experiment.claims:
            tests = [finding for finding in findings if finding.claim == claim]
            if tests:
                figure = experiment.figure or experiment.name.partition("_")[0]
                found.append(Band(figure, claim, tests))
    return found


def _figure(there: Finished) -> Figure:
    bands = bands_of(there)
    inside = sum(band.height for band in bands)
    height = TOP + inside + BOTTOM
    figure = Figure(figsize=(16, height), dpi=100, facecolor="white")
    title = "Every claim, and what each test of it says"
    about = (
        "A bar: the 95 % interval of a difference in accuracy, of one model of one pair (Table 2: "
        "the mean of pairs). A claim says it lies in the green."
    )
    figure.text(0.03, 1 - 0.4 / height, title, size=23, weight="bold", color=INK, va="center")
    figure.text(0.03, 1 - 0.82 / height, about, size=15, color=QUIET, va="center")
    axes = figure.add_axes((0.5, BOTTOM / height, 0.47, inside / height))
    limits = _limits(bands)
    axes.set(xlim=limits, ylim=(inside, 0))
    axes.set_yticks([])
    axes.tick_params(length=0, labelsize=13, labelcolor=QUIET, labeltop=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+.2g}" if abs(value) > 1e-9 else "0")
    axes.grid(axis="x", color=RULE, linewidth=1)
    only_below(axes)
    axes.axvline(0, color=QUIET, linewidth=1, zorder=2)
    families = list(there.suite.scales[there.scale].family)
    y = 0.0
    for band in bands:
        _band(axes, band, y, limits, families)
        y += band.height
    _legend(figure, there, families, height)
    return figure


def _limits(bands: Sequence[Band]) -> tuple[float, float]:
    """What holds all means, and most of the bars."""
    means = [t.difference.mean for band in bands for t in band.tests if t.difference]
    reach = [*means, *(side for b in bands for side in (-b.claim.margin, b.claim.margin))]
    return min(-0.12, min(reach) - 0.06), max(0.12, max(reach) + 0.06)


def _band(
    axes: Axes, band: Band, top: float, limits: tuple[float, float], families: Sequence[str]
) -> None:
    low, high = _holds(band.claim, limits)
    middle = top + band.height / 2
    axes.fill_betweenx([top + 0.04, top + band.height - 0.04], low, high, color=HOLDS, lw=0)
    axes.axhline(top, color=RULE, linewidth=1, clip_on=False)
    first = middle - TEST * (len(band.tests) - 1) / 2
    for at, test in enumerate(band.tests):
        if test.difference:
            y, colour = first + at * TEST, COLOURS[test.verdict]
            axes.plot([test.difference.low, test.difference.high], [y, y], color=colour, lw=2)
            marker = MARKERS[families.index(test.pair.partition(".")[0]) % len(MARKERS)]
            axes.plot([test.difference.mean], [y], color=colour, marker=marker, markersize=5.5)
    _words(axes, band, middle)


def _words(axes: Axes, band: Band, y: float) -> None:
    """Beside the tests: the figure, the claim and its verdict."""
    verdict = verdict_of_claim(band.tests)
    place = axes.get_yaxis_transform()
    figure = f"Fig. {band.figure}" if band.figure.isdecimal() else band.figure
    for x, text, colour, side, weight in (
        (-1.0, figure, QUIET, "left", "normal"),
        (-0.87, band.text, INK, "left", "normal"),
        (-0.02, verdict, COLOURS[verdict], "right", "bold"),
    ):
        axes.text(
            x,
            y,
            text,
            color=colour,
            ha=side,
            weight=weight,
            transform=place,
            va="center",
            size=13,
            clip_on=False,
            parse_math=False,
        )


def _holds(claim: Claim, limits: tuple[float, float]) -> tuple[float, float]:
    """Where the interval has to lie."""
    low, high = limits
    match claim.lies:
        case "below":
            return low, -claim.margin
        case "above":
            return claim.margin, high
        case "within":
            return -claim.margin, claim.margin
        case "not below":
            return -claim.margin, high


def _legend(figure: Figure, there: Finished, families: Sequence[str], height: float) -> None:
    titles = {name: there.suite.scales[there.scale].family[name].title for name in families}
    handles: list[tuple[Line2D | Patch, str]] = [(Patch(color=HOLDS), "where the claim holds")]
    handles += [(Line2D([], [], color=COLOURS[v], lw=3), v) for v in COLOURS]
    handles += [
        (Line2D([], [], color=QUIET, marker=MARKERS[at % len(MARKERS)], lw=0), titles[name])
        for at, name in enumerate(families)
    ]
    legend = figure.legend(
        [handle for handle, _ in handles],
        [text for _, text in handles],
        loc="center left",
        bbox_to_anchor=(0.02, 0.35 / height),
        ncols=len(handles),
        frameon=False,
        fontsize=14,
        labelcolor=INK,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
