"""Displays of a run while it goes: bars in a terminal, plain lines anywhere else, lines of JSON."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Self

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from potluck.files import printable
from potluck.reports import (
    EvaluationReport,
    RoundReport,
    events,
    nothing_in_words,
    stats_of,
    waited_share,
)
from potluck.show.terminal.text import decimal, duration, percent, spent
from potluck.types import PotluckError

PLAIN_EVERY_S = 60.0
"""Least time between two lines about phases, where there is no terminal for bars."""
MOST_AUTHORS = 4
"""Authors of a round of which is told what was left out of their completions."""
WIDE = 80
"""Columns of a terminal; with fewer the bars are shorter, and notes have no room."""


class LiveDisplay:
    """Display of a run on a console, from ``with`` to the end of the block.

    A bar for the rounds, and one below it for each node that has told of a phase. A round counts as
    done when the first node is done with it. Without a terminal all share a line a minute.
    """

    def __init__(self, console: Console, *, rounds: int = 0, first_round: int = 0) -> None:
        """Count ``rounds`` of the whole run, from ``first_round`` on; 0: there are none."""
        self._console, self._rounds = console, rounds
        self._began_s = self._plain_s = time.monotonic()
        self._ended_s = deque[float](maxlen=11)  # ten rounds tell the time that is left
        self._plain: dict[str, str] = {}
        self._phases: dict[str, tuple[bars.TaskID, str]] = {}
        self._widest = 0  # of the nodes' names, so that the phases stand in a column
        wide = console.width >= WIDE
        # Descriptions are of nodes and notes, so none of them is markup.
        note = bars.TextColumn("{task.fields[note]}", style="dim", markup=False)
        self._progress = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=24 if wide else 10),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            *([note] if wide else []),
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

    def __exit__(self, *error: object) -> None:
        # The bars go, also when the run failed: what is printed below them must be readable.
        self._progress.stop()

    def show(self, event: events.Event) -> None:
        match event:
            case events.PhaseProgress():
                self._phase(event)
            case events.RoundDone(node=node, report=report):
                self._round_done(node, report)
            case events.Evaluated(node=node, report=evaluation):
                self._evaluated(node, evaluation)
            case _:
                self._print(Text(printable(event.text, 2000)))

    def _phase(self, event: events.PhaseProgress) -> None:
        node, phase = printable(event.node, 32), printable(event.phase, 16)
        note = "nodes here" if event.phase == "wait" else ""
        if not self._console.is_terminal:
            self._plain[event.node] = f"{node} {phase} {event.done}/{event.total} {note}".rstrip()
            if (now_s := time.monotonic()) - self._plain_s >= PLAIN_EVERY_S:
                self._plain_s = now_s
                left = f", about {left}" if (left := self._left()) else ""
                gone = duration(now_s - self._began_s)
                self._print(Text("  ".join([gone + left, *self._plain.values()])))
            return
        if event.node not in self._phases:
            self._widest = max(self._widest, len(node))
            self._phases[event.node] = self._progress.add_task("", note=""), event.phase
        task, before = self._phases[event.node]
        if before != event.phase:
            self._phases[event.node] = task, event.phase
            self._progress.reset(task)  # its clock, too
        description = f"{node:<{self._widest}} {phase}"
        self._progress.update(
            task, description=description, completed=event.done, total=event.total, note=note
        )

    def _round_done(self, node: str, report: RoundReport) -> None:
        done = report.round + 1
        if done > self._furthest:
            self._furthest = done
            self._ended_s.append(time.monotonic())
        self._progress.update(self._round_task, completed=self._furthest, note=self._left())
        line = self._start_of_line(done, node)
        if report.texts is not None:
            line.append(f"wrote {report.texts} texts")
            line.append("".join(f"  {spent(name, cost)}" for name, cost in report.cost.items()))
        else:
            line.append(f"reward {decimal(report.reward_mean)}")
            line.append(f"  own {decimal(report.own_reward_mean)}")
            # One function's mean says little beside the reward that it is.
            for name, part in report.rewards.items() if len(report.rewards) > 1 else ():
                line.append(f"  {printable(name, 32)} {decimal(part.mean)}")
        line.append(f"  {sum(report.seconds.values()):.1f} s", style="dim")
        if (waited := waited_share([report]) or 0.0) >= 0.01:
            line.append(f" ({percent(waited)} waiting)", style="dim")
        for trouble in _troubles(report):
            line.append(f"  {trouble}", style="yellow")
        self._print(line)

    def _left(self) -> str:
        """Say how much time is left; "" while that is not known, and at the end."""
        ended_s, rounds = self._ended_s, self._rounds - self._furthest
        if len(ended_s) < 2 or not rounds:
            return ""
        return f"{duration(rounds * (ended_s[-1] - ended_s[0]) / (len(ended_s) - 1))} left"

    def _evaluated(self, node: str, report: EvaluationReport) -> None:
        line = self._start_of_line(report.round, node)
        measure = "validation, mean reward" if report.partial else "validation"
        line.append(f"{measure} {decimal(report.validation)}", style="bold")
        if report.problems is not None:
            line.append(f" of {report.problems}{' problems' * bool(report.partial)}", style="dim")
        for name, value in report.rewards.items() if len(report.rewards) > 1 else ():
            line.append(f"  {printable(name, 32)} {decimal(value)}")
        if report.constant is not None:
            line.append(f"  a constant earns {decimal(report.constant)}", style="dim")
        if report.out_of_distribution is not None:
            line.append(f"  out of distribution {decimal(report.out_of_distribution)}")
            line.append(f" of {report.out_of_distribution_problems}", style="dim")
        self._print(line)

    def _start_of_line(self, round: int, node: str) -> Text:
        line = Text(f"round {round:>{len(str(self._rounds))}}/{self._rounds}  ")
        return line.append(f"{printable(node, 32):<8}  ", style="cyan")

    def _print(self, line: Text) -> None:
        # Without a terminal no line is folded: it is for a program or a log.
        self._console.print(line, soft_wrap=not self._console.is_terminal, highlight=False)


def _troubles(report: RoundReport) -> Iterator[str]:
    if not report.updates and report.texts is None:
        yield _no_step(report)
    told = {
        "missing": _names(report.missing),
        "absent": _names(report.absent),
        "late": f"{report.late}, {report.late_used} used" if report.late else "",
        **{stat.warning: getattr(report, name) for name, stat in stats_of(RoundReport).items()},
        "refused": _names(f"{name} {count}" for name, count in report.refused.items()),
        "quarantined": _names(report.quarantined),
    }
    yield from (f"{name}: {what}" for name, what in told.items() if name and what)
    for author, reasons in islice(report.unreadable.items(), MOST_AUTHORS):
        came = report.sources[author].completions if author in report.sources else 0
        count = sum(reasons.values())
        yield f"left out of {printable(author, 32)}: {count} of {came + count}, {_names(reasons)}"


def _no_step(report: RoundReport) -> str:
    differ = sum(source.with_advantage for source in report.sources.values())
    if not differ:
        why = "no step: no completion was better than its group"
        if report.reward_mean or not report.own_earned_nothing:
            return why
        return f"{why}; its own: {nothing_in_words(report.own_earned_nothing)}"
    return (
        f"no step: {differ} completions differ in reward from their group, and none of them is of "
        f"a trusted author and passed the filter"
    )


def _names(names: Iterable[str]) -> str:
    return printable(", ".join(printable(name, 40) for name in names), 80)


@dataclass(frozen=True, slots=True)
class Watched:
    """Facts about a run that a display needs when it opens."""

    console: Console
    rounds: int
    first_round: int = 0
    """Round in which a resumed run goes on; from 0."""


DISPLAYS: dict[str, Callable[[Watched], AbstractContextManager[events.Display]]] = {
    "live": lambda run: LiveDisplay(run.console, rounds=run.rounds, first_round=run.first_round),
    "lines": lambda run: nullcontext(events.EventLines(sys.stdout)),
    "none": lambda run: nullcontext(events.Fanout()),
}


@contextmanager
def open_displays(names: Sequence[str], run: Watched) -> Iterator[events.Display]:
    """Open these displays until the block ends; raise PotluckError if there is none of a name."""
    if unknown := [name for name in names if name not in DISPLAYS]:
        raise PotluckError(f"--display is {unknown[0]!r}; choose one of {', '.join(DISPLAYS)}")
    with ExitStack() as stack:
        opened = [stack.enter_context(DISPLAYS[name](run)) for name in dict.fromkeys(names)]
        yield events.Fanout(opened)
