"""Runs in notebooks and in Python: progress while one goes; a table and a picture of its folder.

Pandas, matplotlib and IPython are imported where they are used.
"""

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console

from potluck.files import printable
from potluck.reports import RoundReport, as_line, runs
from potluck.reports.events import Display, Evaluated, Event, Fanout, RoundDone
from potluck.show.terminal.live import Watched, open_displays
from potluck.show.terminal.show import show_nodes
from potluck.show.terminal.text import decimal
from potluck.show.trackers.libraries import evaluation_values, round_values
from potluck.types import PotluckError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

DRAWING_SHARE = 0.05
"""Share of a run's time that drawing may take."""
HTML = '<pre style="line-height:normal;font-size:small">{code}</pre>'


def open_display(
    display: Display | str | None, folder: Path, run: Watched
) -> AbstractContextManager[Display]:
    """Open what ``potluck.run(display=...)`` names; raise PotluckError if there is none so."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    if display == "auto" and hasattr(ask(), "kernel"):
        return nullcontext(NotebookDisplay(folder, run))
    if isinstance(display, str):
        return open_displays(["live" if display == "auto" else display], run)
    return nullcontext(display or Fanout())


class NotebookDisplay:
    """Display of a run in the cell that started it: a curve that grows along an axis of all rounds,
    with the time left above it. It changes once a round, or less often if drawing takes long."""

    def __init__(self, folder: Path, run: Watched) -> None:
        import IPython.display

        show: Any = IPython.display.display
        waiting = {"text/plain": f"round {run.first_round} of {run.rounds}"}
        self._update = show(waiting, raw=True, display_id=True).update
        self._folder, self._run = folder, run
        self._began_s, self._next_s = time.monotonic(), 0.0

    def show(self, event: Event) -> None:
        match event:
            case RoundDone(report=report):
                if time.monotonic() >= self._next_s or report.round + 1 == self._run.rounds:
                    self._draw(report.round + 1)
            case Evaluated(node=node, report=report):
                print(f"round {report.round}  {node}  validation {decimal(report.validation)}")
            case _ if text := getattr(event, "text", ""):
                print(printable(text, 2000))

    def _draw(self, done: int) -> None:
        began_s, rounds = time.monotonic(), self._run.rounds
        each_s = (began_s - self._began_s) / max(1, done - self._run.first_round)
        left = timedelta(seconds=round(each_s * (rounds - done)))
        figure = curves(self._folder)
        figure.axes[0].set_xlim(0.5, rounds + 0.5)
        told = f"round {done} of {rounds}" + (f", about {left} left" if done < rounds else "")
        figure.axes[0].set_title(told, loc="left", size="medium")
        self._update(figure)
        self._next_s = time.monotonic() + (time.monotonic() - began_s) / DRAWING_SHARE


class Look:
    """A run folder that can be looked at."""

    __slots__ = ()
    folder: Path

    def frame(self) -> "DataFrame":
        """Return a row for each node and round, of its numbers, under the names that trackers use.
        Rounds count from 1, so a row tells of a model after so many; 0: before the first one."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise PotluckError("frame() needs pandas; pip install pandas") from None
        rows: dict[tuple[str, int], dict[str, float]] = {}
        for node in runs.read_run(self.folder).nodes:
            values = [(each.round + 1, round_values(as_line(each))) for each in node.rounds]
            values += [(each.round, evaluation_values(as_line(each))) for each in node.evaluations]
            for round, row in values:
                rows.setdefault((node.name, round), {}).update(row)
        return DataFrame([{"node": at[0], "round": at[1], **rows[at]} for at in sorted(rows)])

    def plot(self) -> "Figure":
        """Draw the reward of each node over the rounds, beside that of its controls."""
        return curves(self.folder)

    def __repr__(self) -> str:
        return f"<run {self.folder}>"

    def _repr_html_(self) -> str:
        console = Console(record=True, file=StringIO(), width=100, force_jupyter=False)
        show_nodes(runs.read_run(self.folder), console)
        return console.export_html(inline_styles=True, code_format=HTML)


@dataclass(frozen=True, slots=True, repr=False)
class SeenRun(Look, runs.Run):
    """A run folder as ``potluck.read_run`` returns it."""


def read_run(folder: Path | str) -> SeenRun:
    """Read a run folder, even during the run; raise PotluckError if it is none, or damaged."""
    run = runs.read_run(Path(folder))
    return SeenRun(run.folder, run.recipe, run.nodes)


def curves(folder: Path) -> "Figure":
    """Draw the rewards of what each node wrote, of what all wrote, and of the controls."""
    from potluck.show.terminal import style

    figure = style.Picture(figsize=(8, 3.6), dpi=100, layout="constrained", facecolor="white")
    axes = figure.add_subplot(xlabel="round", ylabel="reward")
    style.only_below(axes)
    axes.grid(axis="y", color=style.RULE)
    nodes = [*runs.read_recipe(folder).node]
    _line(axes, folder / nodes[0], "all that were used", style.GREY, "dotted", "reward_mean")
    for node, colour in zip(nodes, cycle(style.PALETTE), strict=False):
        _line(axes, folder / node, node, colour, "solid")
        for path in sorted(folder.glob(f"control.*/{node}")):
            _line(axes, path, f"{node}, {path.parent.name}", colour, "dashed")
    figure.legend(frameon=False, fontsize="small", loc="outside right center")
    return figure


def _line(
    axes: "Axes", folder: Path, label: str, colour: str, look: str, key: str = "own_reward_mean"
) -> None:
    lines = runs.read_lines(folder / runs.METRICS, RoundReport)
    found = ((line.round + 1, getattr(line, key)) for line in lines)
    by_round = {round: value for round, value in found if value is not None}
    x, marker = sorted(by_round), "." if len(by_round) == 1 else ""
    y, side = [by_round[at] for at in x], len(x) // 20
    # A mean of neighbours on both sides: no curve lags.
    mean = [fmean(y[max(0, at - side) : at + side + 1]) for at in range(len(y))]
    axes.plot(x, mean, color=colour, linestyle=look, label=label, marker=marker)
