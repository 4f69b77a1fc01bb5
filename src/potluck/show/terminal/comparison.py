"""A comparison of runs as people see it: in a terminal, as Markdown or HTML, and as a picture."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.reports.comparison import Compared, Place
from potluck.show.terminal import style
from potluck.show.terminal.text import new_table

TEXTS, NUMBERS = ("node", "measure"), ("A", "B", "A - B")
NOTE = (
    "Own reward: mean reward of the completions that a model wrote itself, sampled, in the second "
    "half of the rounds; pass@4: the chance that one of four of them is right; greedy: accuracy at "
    "the end. [...]: 95 %, over "
)
LOOKS = ((style.BLUE, "solid"), (style.ORANGE, (0, (4, 2))))


@dataclass(frozen=True, slots=True)
class Comparison(Compared):
    """Results of ``potluck.compare``."""

    @property
    def sides(self) -> list[str]:
        more = f" and {len(self.runs) - 1} more" if len(self.runs) > 1 else ""
        return [f"{side}: {run}{more}" for side, run in zip("AB", self.runs[0], strict=True)]

    @property
    def note(self) -> str:
        return NOTE + self.over

    def table(self, console: Console | None = None) -> Table:
        made = new_table(console or Console(), TEXTS, NUMBERS)
        for row in self.rows:
            made.add_row(*map(Text, row.cells))
        return made

    def markdown(self) -> str:
        head, *rows = ([*TEXTS, *NUMBERS], *(row.cells for row in self.rows))
        lines = [head, ["---", "---", "---:", "---:", "---:"], *rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{self.verdict}.\n\n{table}\n\n{self.note}.\n\n{'; '.join(self.sides)}.\n"

    def plot(self) -> Figure:
        """Draw the curves of both sides, and each node's difference with its interval."""
        return _figure(self)

    def _repr_html_(self) -> str:
        rows = ([*TEXTS, *NUMBERS], *(row.cells for row in self.rows))
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        table = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<p>{escape(self.verdict)}</p><table>{table}</table>"


def compare(a: Place | Iterable[Place], b: Place | Iterable[Place]) -> Comparison:
    """Compare finished runs: one run folder or several for each side, paired by seed.

    Raise RunReadError for a run that is not finished, runs of different tasks, and runs without a
    common seed or node.
    """
    return Comparison.of(a, b)


def _figure(found: Comparison) -> Figure:
    figure = Figure(figsize=(16, 7), dpi=100, facecolor="white")
    curves, differences = figure.subplots(1, 2, width_ratios=(1.6, 1))
    figure.subplots_adjust(left=0.055, right=0.97, top=0.76, bottom=0.12, wspace=0.3)
    _curves(curves, found)
    _differences(differences, found)
    title, _, more = found.verdict.partition(": ")
    title = title[0].upper() + title[1:]
    figure.text(0.055, 0.93, title, size=25, weight="bold", color=style.INK, va="center")
    figure.text(0.055, 0.865, more, size=14.5, color=style.QUIET, va="center")
    return figure


def _curves(axes: Axes, found: Comparison) -> None:
    for (colour, line), points, label in zip(LOOKS, found.curves, found.sides, strict=True):
        x, y = [point.written for point in points], [point.reward for point in points]
        axes.plot(x, y, color=colour, linestyle=line, linewidth=3, label=label)
        known = [p.interval for p in points if p.interval]
        if known:
            low, high = [each.low for each in known], [each.high for each in known]
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.grid(axis="y", color=style.RULE)
    axes.legend(frameon=False, fontsize=13.5, loc="lower right", labelcolor=style.INK)
    _look(axes, "Own reward", "completions that a model has written")


def _differences(axes: Axes, found: Comparison) -> None:
    rows = [row for row in found.rows if row.measure == found.main.measure]
    for at, row in enumerate(rows):
        axes.plot(row.a - row.b, at, "o", color=style.BLUE, markersize=10)
        if row.difference:
            ends = row.difference.low, row.difference.high
            axes.plot(ends, [at, at], color=style.BLUE, linewidth=2.5)
    axes.axvline(0, color=style.AXIS, linewidth=1)
    axes.set_yticks(range(len(rows)), [row.node for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.locator_params("x", nbins=6)
    axes.grid(axis="x", color=style.RULE)
    _look(axes, "A - B", "own reward, second half of the rounds; lines: 95 %")


def _look(axes: Axes, title: str, below: str) -> None:
    axes.set_xlabel(below, size=13.5, color=style.QUIET)
    axes.set_title(title, loc="left", size=17, weight="bold", color=style.INK, pad=12)
    axes.tick_params(length=0, labelsize=13, labelcolor=style.QUIET, pad=7)
    style.only_below(axes)
