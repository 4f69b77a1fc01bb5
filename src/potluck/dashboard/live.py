"""The progress of a run: bars in a terminal, plain lines anywhere else."""

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from potluck.dashboard.text import decimal, percent, printable

PLAIN_EVERY_S = 10.0
"""Without a terminal, a node's progress with a phase is one line in this time at most."""
WIDE = 80
"""Columns of a terminal; with fewer the bars are shorter, and notes have no room."""
WAITING = "nodes are here"
"""Said of the phase "wait", which counts nodes, where all others count work."""


class LiveDisplay:
    """Shows a run on a console, from ``with`` to the end of the block.

    A bar for the rounds, and one below it for each node that has told of a phase. A round
    counts as done when the first node is done with it: nodes go round by round together, so
    the bar is never more than a part of a round ahead.
    """

    def __init__(
        self,
        console: Console,
        *,
        rounds: int,
        first_round: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            rounds: of the whole run, those before ``first_round`` included; 0: there are none.
            first_round: where a resumed run goes on; from 0.
            clock: seconds; only differences count.
        """
        self._console, self._rounds, self._clock = console, rounds, clock
        self._plain_s: dict[str, float] = {}
        self._phases: dict[str, tuple[TaskID, str]] = {}
        self._widest = 0  # of the nodes' names; below each other, what they do is a column
        wide = console.width >= WIDE
        # Descriptions are of nodes and notes, so none of them is markup.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24 if wide else 10),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            *([TextColumn("{task.fields[note]}", style="dim", markup=False)] if wide else []),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._round_task = self._progress.add_task(
            "rounds", total=rounds, completed=first_round, note="", visible=rounds > 0
        )
        self._furthest = first_round

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The bars go, also when the run failed: what is printed below them must be readable.
        self._progress.stop()

    def phase(self, node: str, name: str, done: int, total: int, note: str = "") -> None:
        """How far a node is with writing, learning or an evaluation. May be called often."""
        if name == "wait":
            note = WAITING
        shown, what, hint = printable(node, 32), printable(name, 16), printable(note, 40)
        if not self._console.is_terminal:
            self._plain_phase(node, f"{shown} {what} {done}/{total} {hint}".rstrip())
            return
        if node not in self._phases:
            self._widest = max(self._widest, len(shown))
            self._phases[node] = self._progress.add_task("", note=""), name
        task, before = self._phases[node]
        if before != name:
            self._phases[node] = task, name
            self._progress.reset(task)  # its clock, too
        self._progress.update(
            task,
            description=f"{shown:<{self._widest}} {what}",
            completed=done,
            total=total,
            note=hint,
        )

    def round_done(self, node: str, metrics: Mapping[str, Any]) -> None:
        """Prints a line of metrics.jsonl."""
        done = int(metrics["round"]) + 1
        self._furthest = max(self._furthest, done)
        self._progress.update(self._round_task, completed=self._furthest)
        seconds = sum(part or 0.0 for part in (metrics.get("seconds") or {}).values())
        line = self._start_of_line(done, node)
        line.append(f"reward {decimal(metrics.get('reward_mean'))}")
        line.append(f"  own {decimal(metrics.get('own_reward_mean'))}")
        line.append(f"  filtered {percent(metrics.get('filtered_share')):>4}")
        line.append(f"  {seconds:.1f} s", style="dim")
        for trouble in _troubles(metrics):
            line.append(f"  {trouble}", style="yellow")
        self._print(line)

    def evaluated(self, node: str, evaluation: Mapping[str, Any]) -> None:
        """Prints a line of evaluation.jsonl; its round is the number of rounds trained."""
        line = self._start_of_line(int(evaluation["round"]), node)
        line.append(f"validation {decimal(evaluation.get('validation'))}", style="bold")
        if evaluation.get("problems") is not None:
            line.append(f" of {evaluation['problems']}", style="dim")
        if evaluation.get("out_of_distribution") is not None:
            line.append(f"  out of distribution {decimal(evaluation['out_of_distribution'])}")
            line.append(f" of {evaluation.get('out_of_distribution_problems')}", style="dim")
        self._print(line)

    def say(self, text: str) -> None:
        """Prints a message, as text whatever it holds."""
        self._print(Text(printable(text, 2000)))

    def _start_of_line(self, round: int, node: str) -> Text:
        line = Text(f"round {round:>{len(str(self._rounds))}}/{self._rounds}  ")
        return line.append(f"{printable(node, 32):<8}  ", style="cyan")

    def _plain_phase(self, node: str, line: str) -> None:
        now_s = self._clock()
        # A node's first call says nothing new: it has just begun.
        if now_s - self._plain_s.setdefault(node, now_s) >= PLAIN_EVERY_S:
            self._plain_s[node] = now_s
            self._print(Text(line))

    def _print(self, line: Text) -> None:
        # Without a terminal no line is folded: who reads it is a program or a log.
        self._console.print(line, soft_wrap=not self._console.is_terminal, highlight=False)


def _troubles(metrics: Mapping[str, Any]) -> list[str]:
    troubles = []
    if metrics.get("updates") == 0:
        troubles.append("no step: no completion was better than its group")
    if metrics.get("missing"):
        troubles.append(f"missing: {_names(metrics['missing'])}")
    if metrics.get("late"):
        used = metrics.get("late_used")  # Runs of before 0.2 do not tell.
        of_use = "" if used is None else f", {int(used)} used"
        troubles.append(f"late: {int(metrics['late'])}{of_use}")
    for key, name in (
        ("unasked", "unasked"),
        ("unusable", "unusable"),
        ("too_few", "alone in their group"),
        ("over_share", "beyond strangers' share"),
        ("dropped_nonfinite", "not finite"),
    ):
        if metrics.get(key):
            troubles.append(f"{name}: {int(metrics[key])}")
    if metrics.get("refused"):
        counts = (f"{name} {int(count)}" for name, count in metrics["refused"].items())
        troubles.append(f"refused: {_names(counts)}")
    if metrics.get("quarantined"):
        troubles.append(f"quarantined: {_names(metrics['quarantined'])}")
    return troubles


def _names(names: Iterable[Any]) -> str:
    return printable(", ".join(printable(str(name), 40) for name in names), 80)
