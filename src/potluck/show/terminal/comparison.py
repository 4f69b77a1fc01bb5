"""A comparison of runs as people see it: in a terminal, as Markdown or HTML, and as a picture."""

from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.reports.comparison import Compared, Paths
from potluck.show.terminal import style
from potluck.show.terminal.text import new_table

TEXTS, NUMBERS = ("node", "measure"), ("A", "B", "A - B")


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

    _repr_markdown_ = markdown

    def plot(self) -> Figure:
        """Draw each node's difference with its interval."""
        rows = [row for row in self.rows if row.measure == self.main.measure]
        size = 9, 2.6 + 0.5 * len(rows)
        figure = style.Picture(figsize=size, dpi=100, layout="constrained", facecolor="white")
        axes = figure.add_subplot(xlabel="A - B: own reward, second half of the rounds, and 95 %")
        for at, row in enumerate(rows):
            axes.plot(row.a - row.b, at, "o", color=style.BLUE, markersize=10)
            if gap := row.difference:
                axes.plot((gap.low, gap.high), (at, at), color=style.BLUE, linewidth=2.5)
        axes.axvline(0, color=style.AXIS, linewidth=1)
        axes.set_yticks(range(len(rows)), [row.node for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.locator_params("x", nbins=6)
        axes.tick_params(length=0, labelcolor=style.QUIET)
        axes.grid(axis="x", color=style.RULE)
        style.only_below(axes)
        verdict, _, more = self.verdict.partition(": ")
        figure.suptitle(f"{verdict[0].upper()}{verdict[1:]}", weight="bold", color=style.INK)
        axes.set_title(more, size="small", color=style.QUIET)
        return figure


def compare(a: Paths, b: Paths) -> Comparison:
    """Compare finished runs: a run's folder or several for each side, paired by seed. Raise
    RunReadError where they cannot be compared."""
    return Comparison.of(a, b)
