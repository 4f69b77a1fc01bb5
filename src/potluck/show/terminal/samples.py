"""Answers of a run's last round as ``potluck show`` prints them, episodes turn by turn."""

from collections.abc import Iterator, Sequence
from itertools import starmap

from rich.table import Table
from rich.text import Text

from potluck.files import printable
from potluck.reports.runs import GradedProblem, Run, Said, WrittenCompletion, lines_of
from potluck.types import is_right

FIRST, LAST = 24, 8
"""Lines of an episode that are shown, of its beginning and of its end."""


def samples(run: Run) -> Iterator[Text | Table]:
    """Yield a right and a wrong answer of each author, from the first node that has one."""
    chosen: dict[tuple[str, bool], tuple[WrittenCompletion, GradedProblem]] = {}
    for node in run.nodes:
        for written in node.last_written:
            its = node.problems.get(written.problem, GradedProblem(written.problem))
            chosen.setdefault((written.author, not is_right(written.reward)), (written, its))
    if chosen:
        yield Text("\nAnswers of the last round", style="bold")
    if any(written.turns for written, _ in chosen.values()):
        yield Text("> its model wrote it   < the environment said it", style="dim")
    for author, is_wrong in sorted(chosen):
        written, its = chosen[author, is_wrong]
        earned = "" if written.reward in (0, 1) else f" (reward {written.reward:.3g})"
        yield Text.assemble(
            (f"{printable(author, 32)}  ", "cyan"),
            (f"wrong{earned}", "red") if is_wrong else (f"right{earned}", "green"),
            (f"  {printable(written.problem, 60)}{_ended(written)}", "dim"),
        )
        asked = its.question if not written.turns else ""
        for what, text in (("question", asked), ("right answer", its.answer)):
            if text:
                yield Text(f"  {what}: {printable(text, 300)}", style="dim")
        if written.turns:
            question = [Said("user", its.question)] if its.question else []
            yield _episode([*question, *written.turns])
        else:
            yield Text("  " + printable(written.text, 300))


def _ended(written: WrittenCompletion) -> str:
    """Say how an episode ended; "" of an answer that is none."""
    turns = sum(said.is_written for said in written.turns)
    counted = f"  {turns} turn{'s' * (turns != 1)}, end: {printable(written.end, 20)}"
    return counted if written.turns else ""


def _episode(messages: Sequence[Said]) -> Table:
    """Make a row of each line. Signs have a column of their own, which no text can imitate."""
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(width=3, justify="right")
    made.add_column(overflow="fold")
    rows = [
        ((">", "bold cyan"), (printable(line, 300), ""))
        if said.is_written
        else (("<", "dim"), (printable(line, 300), "dim"))
        for said, line in lines_of(messages)
    ]
    if (left_out := len(rows) - FIRST - LAST) > 0:
        rows[FIRST:-LAST] = [(("", ""), (f"... {left_out} more lines", "dim"))]
    for row in rows:
        made.add_row(*starmap(Text, row))
    return made
