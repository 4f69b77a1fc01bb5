"""The progress of a run: bars in a terminal, plain lines anywhere else."""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from potluck.dashboard.text import decimal, percent, printable

PLAIN_EVERY_S = 10.0
"""Without a terminal, a phase's progress is one line in this time at most."""


class LiveDisplay:
    """Shows a run on a console, from ``with`` to the end of the block.

    A round counts as shown when the first node is done with it: nodes of one machine go
    round by round together, so the bar is never more than a part of a round ahead.
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
        self._last_phase_s: float | None = None
        self._phase: tuple[str, str] | None = None
        # Descriptions are of nodes and notes, so none of them is markup.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._round_task = self._progress.add_task(
            "rounds", total=rounds, completed=first_round, note="", visible=rounds > 0
        )
        self._phase_task = self._progress.add_task("", visible=False, note="")
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
        what = f"{printable(node, 32)} {printable(name, 16)}"
        hint = printable(note, 40)
        if not self._console.is_terminal:
            self._plain_phase(f"{what} {done}/{total} {hint}".rstrip())
            return
        if self._phase != (node, name):
            self._phase = (node, name)
            self._progress.reset(self._phase_task)
        self._progress.update(
            self._phase_task,
            description=what,
            completed=done,
            total=total,
            note=hint,
            visible=True,
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

    def _plain_phase(self, line: str) -> None:
        now_s = self._clock()
        if self._last_phase_s is None:
            self._last_phase_s = now_s  # The first calls come at once and say nothing new.
        elif now_s - self._last_phase_s >= PLAIN_EVERY_S:
            self._last_phase_s = now_s
            self._print(Text(line))

    def _print(self, line: Text) -> None:
        # Without a terminal no line is folded: who reads it is a program or a log.
        self._console.print(line, soft_wrap=not self._console.is_terminal, highlight=False)


def _troubles(metrics: Mapping[str, Any]) -> list[str]:
    troubles = []
    if metrics.get("updates") == 0:
        troubles.append("no step: no completion was better than its group")
    if metrics.get("missing"):
        names = ", ".join(printable(str(name), 32) for name in metrics["missing"])
        troubles.append(f"missing: {printable(names, 80)}")
    for key, name in (
        ("late", "late"),
        ("unasked", "unasked"),
        ("unusable", "unusable"),
        ("dropped_nonfinite", "not finite"),
    ):
        if metrics.get(key):
            troubles.append(f"{name}: {int(metrics[key])}")
    return troubles
