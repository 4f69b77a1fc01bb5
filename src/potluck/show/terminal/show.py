"""``potluck show RUN``: the contents of a run folder, on 80 columns."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from operator import attrgetter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.files import printable
from potluck.objective.methods import METHODS
from potluck.reports import AuthorReport, Doubts, RoundReport, mean, runs, stats_of, waited_share
from potluck.reports.answers import told
from potluck.reports.doubts import NOTHING, habit_told
from potluck.reports.right import binary_in, binary_of, rule_of
from potluck.right import merged
from potluck.show.terminal.text import (
    decimal,
    formatted,
    line_of,
    new_table,
    percent,
    sparkline,
)

WINDOW = 5
"""Rounds in the mean of an author's last values: one round alone says little."""
NODES_ABREAST = 3
"""Columns of nodes that fit on 80 characters."""
FIRST, LAST = 24, 8
"""Lines of an episode that are shown, of its beginning and of its end."""
TITLES: Mapping[tuple[Any, ...], str] = {
    tuple(method.fields.values()): method.title for method in METHODS.values()
}
TableRow = tuple[str, list[str]]
"""A row of the table of nodes: its name, and a cell for each node."""


def show(path: Path, console: Console) -> None:
    """Print a run folder, as far as it has been written; raise RunReadError as ``read_run``."""
    run = runs.read_run(path)
    show_nodes(run, console)
    if any(node.rounds for node in run.nodes):
        window = min(WINDOW, max(len(node.rounds) for node in run.nodes))
        title = f"Each node's view of each author's answers (mean of its last {window} values)"
        console.print(Text(f"\n{title}", style="bold"))
        console.print(*_authors(run, console), sep="\n")
        for line in _doubts(run):
            console.print(line, highlight=False)
    for sample in _samples(run):
        console.print(sample, highlight=False)


def show_nodes(run: runs.Run, console: Console) -> None:
    """Print what each node came to, and whether sharing helped."""
    console.print(_headline(run), highlight=False)
    for start in range(0, len(run.nodes), NODES_ABREAST):
        console.print()
        console.print(_nodes(run, run.nodes[start : start + NODES_ABREAST], console))
    for said in told(run.folder) if len(run.nodes) > 1 else ():
        console.print(Text(f"\n{printable(said, 600)}"))


def title_of(its: runs.ObjectiveRecipe) -> str:
    """Return the method's title; of a control, its weights and its choice of others."""
    title = TITLES.get((its.importance, its.filter, "all"), its.importance)
    return TITLES.get((its.importance, its.filter, its.others)) or f"{title} + {its.others}"


def _headline(run: runs.Run) -> Text:
    recipe, method = run.recipe, title_of(run.recipe.objective)
    how = "one node alone" if len(recipe.node) == 1 else f"{recipe.plan} plan"
    task = recipe.settings.get("task.name", "?")
    facts = (
        f"{task}, {method}, {how}, {recipe.problems_per_round} problems x "
        f"{recipe.group_size} answers a round, seed {recipe.seed}"
    )
    return Text.assemble((printable(recipe.name, 40), "bold"), "  ", (printable(facts), "dim"))


def _nodes(run: runs.Run, nodes: Sequence[runs.NodeRun], console: Console) -> Table:
    made = new_table(console, ["first → last quarter", *(node.name for node in nodes)])
    made.columns[0].style, made.columns[0].no_wrap = "dim", True
    for name, cells in (*_results(run, nodes), *_troubles(nodes), *_seconds(nodes)):
        made.add_row(Text(name), *map(Text, cells))
    return made


def _results(run: runs.Run, nodes: Sequence[runs.NodeRun]) -> Iterator[TableRow]:
    yield "model", [printable(node.model or "none: it only writes", 60) for node in nodes]
    # A node that was away went on where the others were, so it has fewer.
    yield "rounds done", [f"{len(node.rounds)} of {run.recipe.rounds}" for node in nodes]
    yield "own reward", [_change(each.own_reward_mean for each in n.rounds) for n in nodes]
    graded = [each for node in run.nodes for each in node.evaluations]
    word = ", mean reward" if any(each.partial for each in graded) else ""
    yield f"validation{word}", [_curve(each.validation for each in n.evaluations) for n in nodes]
    if any(each.constant is not None for each in graded):
        last = (_known(each.constant for each in node.evaluations) for node in nodes)
        yield "a constant would earn", [decimal(its[-1] if its else None) for its in last]
    if run.recipe.settings.get("keep_best") == "true":
        best = ("{:.3f} after {} rounds".format(*node.best) if node.best else "-" for node in nodes)
        yield "best checkpoint", [*best]
    names = dict.fromkeys(name for each in graded for name in each.rewards)
    for name in names if len(names) > 1 else ():
        curves = [_curve(each.rewards.get(name) for each in node.evaluations) for node in nodes]
        yield f"validation, {printable(name, 20)}", curves
    for field, name in {
        "out_of_distribution": f"out of distribution{word}",
        "out_of_distribution_constant": "a constant there",
    }.items():
        last = (_known(map(attrgetter(field), node.evaluations)) for node in nodes)
        cells = [decimal(its[-1] if its else None) for its in last]
        if field == "out_of_distribution" or {*cells} != {"-"}:
            yield name, cells
    if _filters(run):
        yield "filtered", [_change((r.filtered_share for r in n.rounds), "z.0%") for n in nodes]
    trained = ([r.rows_trained / r.completions for r in n.rounds if r.completions] for n in nodes)
    yield "rows trained", [_change(its, "z.0%") for its in trained]
    reports = [report for node in run.nodes for report in node.rounds]
    for field, stat in stats_of(RoundReport).items():
        value = attrgetter(field)
        if stat.format and any(value(report) is not None for report in reports):
            yield stat.name, [_change(map(value, node.rounds), stat.format) for node in nodes]
    for kind in dict.fromkeys(kind for each in reports for kind in each.own_earned_nothing):
        # A round that has none of a kind does not name it.
        counts = ([each.own_earned_nothing.get(kind, 0) for each in n.rounds] for n in nodes)
        name = f"earned 0: {NOTHING.get(kind, printable(kind, 20))}"
        yield name, [_change(its, "z.1f") for its in counts]
    functions = dict.fromkeys(name for report in reports for name in report.rewards)
    for name in functions if [*functions] != ["task"] else ():
        found = ([r.rewards[name].mean for r in n.rounds if name in r.rewards] for n in nodes)
        yield printable(name, 20), [*map(_change, found)]


def _filters(run: runs.Run) -> bool:
    """Tell whether others' failures are learned from at all, as shares of them mean little else."""
    return run.recipe.objective.others == "all"


def _troubles(nodes: Sequence[runs.NodeRun]) -> Iterator[TableRow]:
    """Yield rows about a swarm; those in which every node has a 0 are left out."""
    counts: dict[str, Callable[[RoundReport], int]] = {
        "rounds without a node": lambda report: bool(report.missing),
        "unusable, left out": lambda report: report.unusable,
        "late completions": lambda report: report.late,
        "of them learned from": lambda report: report.late_used,
        "messages refused": lambda report: sum(report.refused.values()),
        "texts written": lambda report: report.texts or 0,
    }
    for name, count in counts.items():
        sums = [sum(map(count, node.rounds)) for node in nodes]
        if any(sums):
            yield name, [*map(str, sums)]
    for cost in dict.fromkeys(name for node in nodes for name in node.cost):
        yield f"{printable(cost, 20)} in all", [f"{n.cost.get(cost, 0):,.6g}" for n in nodes]
    sent = [mean(report.sent_bytes_per_token for report in node.rounds) for node in nodes]
    if any(sent):
        yield "bytes sent a token", [decimal(each, 2) for each in sent]


def _seconds(nodes: Sequence[runs.NodeRun]) -> Iterator[TableRow]:
    phases = dict.fromkeys(p for node in nodes for report in node.rounds for p in report.seconds)
    for phase in phases:
        means = (mean(report.seconds.get(phase) for report in node.rounds) for node in nodes)
        yield f"{printable(phase, 12)}, s a round", [decimal(each, 2) for each in means]
    if "wait" in phases:
        yield "waited", [f"{percent(waited_share(node.rounds))} of its time" for node in nodes]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _change(values: Iterable[float | None], format: str = "z.3f") -> str:
    """Write the means of the first and of the last quarter of the rounds."""
    known = _known(values)
    quarter = max(1, len(known) // 4)
    first, last = (formatted(mean(part), format) for part in (known[:quarter], known[-quarter:]))
    return last if len(known) < 2 else f"{first} → {last}"


def _curve(values: Iterable[float | None]) -> str:
    """Draw the curve over the evaluations, and write its end."""
    known = _known(values)
    return f"{sparkline(known, 10)} {decimal(known[-1])}" if known else "-"


def _authors(run: runs.Run, console: Console) -> Iterator[Table | Text]:
    """Yield a table with a row for each node and author of the last rounds, and one of episodes,
    without columns of no value, then what their columns mean."""
    seen: dict[tuple[str, str], list[AuthorReport]] = {}
    for node in run.nodes:
        last = [report.sources for report in node.rounds[-WINDOW:]]
        for author in dict.fromkeys(author for sources in last for author in sources):
            its = [each.sources[author] for each in node.rounds if author in each.sources]
            seen[node.name, author] = its
    hidden = () if _filters(run) else ("filtered_share_negative",)
    stats = {n: s for n, s in stats_of(AuthorReport).items() if s.format and n not in hidden}
    rows = (zip(*map(attrgetter(*stats), its), strict=True) for its in seen.values())
    means = [[mean(_known(values)[-WINDOW:]) for values in row] for row in rows]
    all_of = zip(stats.values(), *means, strict=True)
    columns = {stat: values for stat, *values in all_of if {*values} - {None}}
    for of_episodes in (False, True):
        shown = [stat for stat in columns if (stat.group == "Episodes") == of_episodes]
        table = new_table(console, ["node", "author"], [stat.name for stat in shown])
        for at, (name, author) in enumerate(seen):
            texts = [formatted(columns[stat][at], stat.format) for stat in shown]
            table.add_row(Text(name), Text(printable(author, 32)), *texts)
        if shown or not of_episodes:
            yield table
    for (name, author), reports in seen.items():
        if told := habit_told(name, author, reports):
            yield Text(printable(told, 400))
    legend = [f"{stat.name}: {stat.help}" for stat in columns if stat.help]
    yield Text("\n".join(legend), style="dim")


def _doubts(run: runs.Run) -> Iterator[Text]:
    objective = run.recipe.objective
    reads_logp = objective.importance != "none" or objective.filter
    for node in run.nodes:
        doubts = Doubts(
            node.name, objective.weight, reads_logp=reads_logp, rule=rule_of(run.recipe)
        )
        for alert in (alert for report in node.rounds for alert in doubts.new(report)):
            yield Text(f"round {alert.round + 1}: {printable(alert.text, 600)}", style="yellow")


def _samples(run: runs.Run) -> Iterator[Text | Table]:
    """Yield a right and a wrong answer of each author, from the first node that has one; where
    nothing tells which are right, its best and its worst."""
    written = [line for node in run.nodes for line in node.last_written]
    if not written:
        return
    rule = rule_of(run.recipe)
    binary = merged(
        binary_of(report for node in run.nodes for report in node.rounds), binary_in(written)
    )
    function = rule.function(binary)
    problems = {p.problem: p for node in reversed(run.nodes) for p in node.problems.values()}
    chosen = dict[tuple[str, int], tuple[str, str, runs.WrittenCompletion]]()
    for line in written:
        if (is_right := line.is_right(function)) is not None:
            place, word, colour = (0, "right", "green") if is_right else (1, "wrong", "red")
            earned = "" if line.reward in (0, 1) else f" (reward {line.reward:z.3g})"
            chosen.setdefault((line.author, place), (f"{word}{earned}", colour, line))
    if not chosen:
        by_reward = sorted(written, key=attrgetter("reward"))
        for place, lines in ((0, reversed(by_reward)), (1, by_reward)):
            for line in lines:
                chosen.setdefault((line.author, place), (f"reward {line.reward:z.3g}", "", line))
    yield Text("\nAnswers of the last round", style="bold")
    if run.recipe.reward or not function:
        yield Text(printable(rule.in_words(binary), 400), style="dim")
    if any(line.turns for *_, line in chosen.values()):
        yield Text("> its model wrote it   < the environment said it", style="dim")
    for author, place in sorted(chosen):
        what, colour, line = chosen[author, place]
        its = problems.get(line.problem, runs.GradedProblem(line.problem))
        yield Text.assemble(
            (f"{printable(author, 32)}  ", "cyan"),
            (what, colour),
            (f"  {printable(line.problem, 60)}{_ended(line)}", "dim"),
        )
        asked = its.question if not line.turns else ""
        for what, text in (("question", asked), ("right answer", its.answer)):
            if text:
                yield Text(f"  {what}: {line_of(text, 300)}", style="dim")
        if line.turns:
            question = [runs.Said("user", its.question)] if its.question else []
            yield _episode([*question, *line.turns])
        else:
            yield Text("  " + line_of(line.text, 300))


def _ended(written: runs.WrittenCompletion) -> str:
    """Say how an episode ended; "" of an answer that is none."""
    turns = sum(said.is_written for said in written.turns)
    counted = f"  {turns} turn{'s' * (turns != 1)}, end: {printable(written.end, 20)}"
    return counted if written.turns else ""


def _episode(messages: Sequence[runs.Said]) -> Table:
    """Make a row of each line. Signs have a column of their own, which no text can imitate."""
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(width=3, justify="right")
    made.add_column(overflow="fold")
    rows = [
        ((">", "bold cyan"), (printable(line, 300), ""))
        if said.is_written
        else (("<", "dim"), (printable(line, 300), "dim"))
        for said in messages
        for line in said.words.split("\n")
    ]
    if (left_out := len(rows) - FIRST - LAST) > 0:
        rows[FIRST:-LAST] = [(("", ""), (f"... {left_out} more lines", "dim"))]
    for row in rows:
        made.add_row(*starmap(Text, row))
    return made
