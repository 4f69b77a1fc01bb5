"""``potluck show RUN``: what a run folder tells, on 80 columns."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.dashboard.runs import NodeRun, RoundMetrics, Run, Source, Written, read_run
from potluck.dashboard.text import decimal, mean, percent, printable, sparkline

WINDOW = 5
"""Rounds in the means of "first" and "last": one round alone says little."""
NODES_ABREAST = 3
"""More columns than these do not fit on 80 characters."""
LEGEND = """\
ln ratio: nats per token, the node's own policy over the author's
filtered: of the bad answers; sample size: effective, 1 where all weigh the same"""
METHODS = {"none": "NoIS", "vanilla": "VIS", "truncated": "TIS"}


def show(run: Path, console: Console) -> None:
    """Prints a run folder, as far as it has been written.

    Raises:
        RunReadError: the folder is no run, or one of its files is damaged.
    """
    told = read_run(run)
    console.print(_headline(told), highlight=False)
    for start in range(0, len(told.nodes), NODES_ABREAST):
        console.print()
        console.print(_nodes(told, told.nodes[start : start + NODES_ABREAST], console))
    if any(_last(node) for node in told.nodes):
        title = f"Each node's view of each author's answers (mean of the last {WINDOW} rounds)"
        console.print(Text(f"\n{title}", style="bold"))
        console.print(_authors(told, console))
        console.print(Text(LEGEND, style="dim"))
    for line in _samples(told):
        console.print(line, highlight=False)


def _headline(run: Run) -> Text:
    recipe = run.recipe
    importance = recipe.objective.importance
    name = METHODS.get(importance, importance)
    method = f"F-{name}" if recipe.objective.filter else name
    how = "one node alone" if len(recipe.node) == 1 else f"{recipe.plan} plan"
    facts = (
        f"{recipe.task.name}, {method}, {how}, {recipe.problems_per_round} problems x "
        f"{recipe.group_size} answers a round, seed {recipe.seed}"
    )
    return Text.assemble((printable(recipe.name, 40), "bold"), "  ", (printable(facts), "dim"))


def _table(console: Console) -> Table:
    # Lines are for a terminal; a file or a pipe gets plain columns.
    return Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)


def _nodes(run: Run, nodes: Sequence[NodeRun], console: Console) -> Table:
    table = _table(console)
    table.add_column("", style="dim", no_wrap=True)
    for node in nodes:
        table.add_column(Text(node.name), overflow="fold")
    for name, tell in _rows(run.recipe.rounds, nodes):
        table.add_row(Text(name), *(tell(node) for node in nodes))
    return table


def _rows(
    rounds: int, nodes: Sequence[NodeRun]
) -> Iterable[tuple[str, Callable[[NodeRun], Text | str]]]:
    yield "model", lambda node: Text(printable(node.model, 60))
    yield "rounds done", lambda node: f"{_rounds_done(node)} of {rounds}"
    yield (
        "own reward",
        lambda node: _change([metrics.own_reward_mean for metrics in node.rounds], decimal),
    )
    yield "validation", _validation
    yield (
        "out of distribution",
        lambda node: decimal(_latest(each.out_of_distribution for each in node.evaluations)),
    )
    yield (
        "filtered",
        lambda node: _change([metrics.filtered_share for metrics in node.rounds], percent),
    )
    yield (
        "rows trained",
        lambda node: _change([_share_trained(metrics) for metrics in node.rounds], percent),
    )
    yield from _troubles(nodes)
    phases = dict.fromkeys(
        phase for node in nodes for metrics in node.rounds for phase in metrics.seconds
    )
    for phase in phases:

        def seconds(node: NodeRun, phase: str = phase) -> str:
            return decimal(mean(metrics.seconds.get(phase) for metrics in node.rounds), 2)

        yield f"{printable(phase, 12)}, s a round", seconds


def _rounds_done(node: NodeRun) -> int:
    """Those it took part in: who was away went on where the others were."""
    return len(node.rounds)


def _sum(count: Callable[[RoundMetrics], int], node: NodeRun) -> str:
    return str(sum(map(count, node.rounds)))


def _troubles(
    nodes: Sequence[NodeRun],
) -> Iterable[tuple[str, Callable[[NodeRun], Text | str]]]:
    """Of a swarm; rows in which every node has nothing to tell are left out."""
    counts: dict[str, Callable[[RoundMetrics], int]] = {
        "rounds without somebody": lambda metrics: bool(metrics.missing),
        "late completions": lambda metrics: metrics.late,
        "of them learned from": lambda metrics: metrics.late_used,
        "messages refused": lambda metrics: sum(metrics.refused.values()),
    }
    for name, count in counts.items():
        if any(count(metrics) for node in nodes for metrics in node.rounds):
            yield name, partial(_sum, count)
    if any(metrics.sent_bytes_per_token for node in nodes for metrics in node.rounds):
        yield (
            "bytes sent a token",
            lambda node: decimal(mean(m.sent_bytes_per_token for m in node.rounds), 2),
        )


def _change(values: Sequence[float | None], shown: Callable[[float | None], str]) -> str:
    """The mean of the first rounds, and of the last ones where there are others."""
    first, last = mean(values[:WINDOW]), mean(values[-WINDOW:])
    return shown(last) if len(values) < 2 else f"{shown(first)} → {shown(last)}"


def _share_trained(metrics: RoundMetrics) -> float | None:
    return metrics.rows_trained / metrics.completions if metrics.completions else None


def _validation(node: NodeRun) -> str:
    curve = [each.validation for each in node.evaluations if each.validation is not None]
    return f"{sparkline(curve, 10)} {decimal(curve[-1])}" if curve else "-"


def _latest(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return known[-1] if known else None


def _last(node: NodeRun) -> tuple[RoundMetrics, ...]:
    return node.rounds[-WINDOW:]


def _authors(run: Run, console: Console) -> Table:
    table = _table(console)
    table.add_column("node")
    table.add_column("author")
    for name in ("reward", "ln ratio", "k3", "capped", "filtered", "sample size"):
        table.add_column(name, justify="right")
    for node in run.nodes:
        authors = dict.fromkeys(author for metrics in _last(node) for author in metrics.sources)
        for author in authors:
            told = [m.sources[author] for m in _last(node) if author in m.sources]
            table.add_row(Text(node.name), Text(printable(author, 32)), *_of_author(told))
    return table


def _of_author(told: Sequence[Source]) -> list[str]:
    return [
        decimal(mean(source.reward_mean for source in told)),
        decimal(mean(source.log_ratio_mean for source in told)),
        decimal(mean(source.k3 for source in told)),
        percent(mean(source.capped_share for source in told)),
        percent(mean(source.filtered_share_negative for source in told)),
        decimal(mean(source.effective_sample_size for source in told), 2),
    ]


def _samples(run: Run) -> Iterable[Text]:
    """A right and a wrong answer of each author, whichever node's file tells of them."""
    chosen: dict[tuple[str, bool], Written] = {}
    for node in run.nodes:
        for written in node.last_written:
            chosen.setdefault((written.author, written.reward > 0), written)
    if chosen:
        yield Text("\nAnswers of the last round", style="bold")
    for (author, right), written in sorted(
        chosen.items(), key=lambda item: (item[0][0], not item[0][1])
    ):
        mark, colour = ("right", "green") if right else ("wrong", "red")
        yield Text.assemble(
            (f"{printable(author, 32)}  ", "cyan"),
            (mark, colour),
            (f"  {printable(written.problem, 60)}", "dim"),
        )
        yield Text("  " + printable(written.text, 300))
