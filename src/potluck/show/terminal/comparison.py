"""A comparison of runs as people see it: in a terminal, as Markdown or HTML, and as a picture."""

from dataclasses import dataclass
from html import escape
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.reports.comparison import Compared, Paths
from potluck.show.terminal import style
from potluck.show.terminal.text import new_table

TEXTS, NUMBERS = ("node", "measure"), ("A", "B", "A - B")
LOOKS = ((style.BLUE, "solid"), (style.ORANGE, (0, (4, 2))))


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Compared):
    """Results of ``potluck.compare``."""

    @property
    def sides(self) -> list[str]:
        more = f" and {len(self.runs) - 1} more" if len(self.runs) > 1 else ""
        return [f"{side}: {run}{more}" for side, run in zip("AB", self.runs[0], strict=True)]

    @property
    def note(self) -> str:
        rest = f"; left out, of a seed on one side: {', '.join(self.left_out)}"
        return (
            "Own reward: mean reward of the completions that a model wrote itself, sampled, in the "
            "second half of the rounds; pass@4: the chance that one of four of them is right; "
            f"greedy: accuracy at the end. [...]: 95 %, over {self.over}"
            f"{rest if self.left_out else ''}"
        )

    def table(self, console: Console | None = None) -> Table:
        made = new_table(console or Console(), TEXTS, NUMBERS)
        for row in self.rows:
            made.add_row(*map(Text, row.cells))
        return made

    def markdown(self) -> str:
        rows = [TEXTS + NUMBERS, ("---", "---", *["---:"] * 3), *(row.cells for row in self.rows)]
        safe = [[escape(x, quote=False).replace("|", r"\|") for x in row] for row in rows]
        table = "\n".join(f"| {' | '.join(row)} |" for row in safe)
        below = escape(f"{self.note}.\n\n{'; '.join(self.sides)}", quote=False)
        return f"{self.verdict}.\n\n{table}\n\n{below}.\n"

    def __repr__(self) -> str:
        return f"<{self.verdict}>"

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def plot(self) -> Figure:
        """Draw the curves of both sides, and each node's difference with its interval."""
        figure = style.Picture(figsize=(16, 7), dpi=100, facecolor="white")
        curves, differences = figure.subplots(1, 2, width_ratios=(1.6, 1))
        figure.subplots_adjust(left=0.055, right=0.97, top=0.76, bottom=0.12, wspace=0.3)
        _draw_curves(curves, self)
        _draw_differences(differences, self)
        title, _, more = self.verdict.partition(": ")
        title = title[0].upper() + title[1:]
        figure.text(0.055, 0.93, title, size=25, weight="bold", color=style.INK, va="center")
        figure.text(0.055, 0.865, more, size=14.5, color=style.QUIET, va="center")
        return figure


def compare(a: Paths, b: Paths) -> Comparison:
    """Compare finished runs: a run's folder or several for each side, paired by seed. Raise
    RunReadError where they cannot be compared."""
    return Comparison.of(a, b)


def _draw_curves(axes: Axes, found: Comparison) -> None:
    for (colour, line), points, label in zip(LOOKS, found.curves, found.sides, strict=True):
        x, known = [each.written for each in points], [p.interval for p in points if p.interval]
        y = [each.reward for each in points]
        axes.plot(x, y, color=colour, linestyle=line, linewidth=3, label=label)
        if known:
            low, high = [each.low for each in known], [each.high for each in known]
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    made = axes.legend(frameon=False, fontsize=13.5, loc="lower right", labelcolor=style.INK)
    for text in made.get_texts():
        text.set_parse_math(False)  # a path may have a $
    _look(axes, "Own reward", "completions that a model has written", across="y")


def _draw_differences(axes: Axes, found: Comparison) -> None:
    rows = [row for row in found.rows if row.measure == found.main.measure]
    for at, row in enumerate(rows):
        axes.plot(row.a - row.b, at, "o", color=style.BLUE, markersize=10)
        if gap := row.difference:
            axes.plot((gap.low, gap.high), (at, at), color=style.BLUE, linewidth=2.5)
    axes.axvline(0, color=style.AXIS, linewidth=1)
    axes.set_yticks(range(len(rows)), [row.node for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.locator_params("x", nbins=6)
    _look(axes, "A - B", "own reward, second half of the rounds; lines: 95 %", across="x")


def _look(axes: Axes, title: str, below: str, *, across: Literal["x", "y"]) -> None:
    axes.set_title(title, loc="left", size=17, weight="bold", color=style.INK, pad=12)
    axes.set_xlabel(below, size=13.5, color=style.QUIET)
    axes.tick_params(length=0, labelsize=13, labelcolor=style.QUIET, pad=7)
    axes.grid(axis=across, color=style.RULE)
    style.only_below(axes)
