"""Whole runs beside each other, each in a process of its own: a demo's, a comparison's,
or the controls of a run, which are made in its folder when it is done."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from potluck.config import RunConfig, StopConfig, as_tree, load
from potluck.config.control import controls_of
from potluck.files import available_cores, printable, sealed, write_atomically
from potluck.launch.children import STOPPED, Child, Children, interrupts
from potluck.reports import EvaluationReport
from potluck.reports.answers import add_answers, answer_of
from potluck.reports.events import Event, PhaseProgress, RoundDone
from potluck.reports.runs import EVALUATION, RECIPE, end_of, read_lines, read_recipe
from potluck.show.terminal.live import LiveDisplay
from potluck.types import PotluckError


@dataclass(frozen=True, slots=True)
class WholeRun:
    """One run to be made, with its recipe beside its folder."""

    config: RunConfig
    folder: Path

    @property
    def is_done(self) -> bool:
        """True: every node has learned from its last round, and was evaluated if that is asked."""
        recipe = self.folder / RECIPE
        was = replace(load(recipe), control=()) if recipe.is_file() else None
        if was != replace(self.config, control=()):
            return False  # a run of another recipe is refused when it is gone on with
        asked = self.config.evaluation.problems or self.config.evaluation.out_of_distribution
        read = read_recipe(self.folder)
        for own in (self.folder / name for name in self.config.learners):
            lines, end = read_lines(own / EVALUATION, EvaluationReport), end_of(own, read)
            evaluated = not asked or any(each.round == end for each in lines)
            saved = own / "checkpoints" / f"{end:06d}" / "state.json"
            if not (saved.is_file() and evaluated):
                return False
        return True

    def start(self, children: Children, options: Sequence[str]) -> Child:
        """Start it, or go on with it, in one process, so that it has the same bits each time."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        recipe = self.folder.with_name(f"{self.folder.name}.json")
        write_atomically(recipe, sealed(as_tree(self.config)))
        begun = ["--resume"] if (self.folder / RECIPE).is_file() else []
        words = ["run", str(recipe), "--out", str(self.folder), "--one-process", *begun, *options]
        return children.start(self.config.name, words, threads=self.config.threads)


def run_side_by_side(
    runs: Sequence[WholeRun], console: Console, *, options: Sequence[str] = ()
) -> bool:
    """Make those ``runs`` that are not done, going on with those that are begun; return False if
    Ctrl-C stopped them, saved. Raise PotluckError if one breaks down.

    As many go at a time as there are cores for their ``threads``; a run with torch's own number of
    threads has no other beside it. ``options`` are further ones of ``potluck run``.
    """
    waiting, running = [each for each in runs if not each.is_done], dict[Child, WholeRun]()
    with interrupts() as interrupted, LiveDisplay(console) as display, Children() as children:

        def show(child: Child, event: Event) -> None:
            if isinstance(event, RoundDone):
                done, end = event.report.round + 1, running[child].config.end
                display.show(PhaseProgress(child.name, "rounds", done, end))

        while (waiting and not children.is_stopped) or children.going:
            while waiting and len(children.going) < _at_once(waiting[0].config):
                run = waiting.pop(0)
                running[run.start(children, options)] = run
                display.show(PhaseProgress(run.config.name, "rounds", 0, run.config.end))
            if child := children.hear(show):
                _require_success(child, running[child], children.is_stopped)
            if interrupted():
                waiting.clear()
                children.stop()
        return not children.is_stopped


def _require_success(child: Child, run: WholeRun, is_stopped: bool) -> None:
    if child.code and not (is_stopped and child.code in STOPPED):
        log = run.folder.with_name(f"{run.folder.name}.log")
        write_atomically(log, "\n".join(child.said).encode())
        last = printable(child.said[-1], 500) if child.said else "it said nothing"
        raise PotluckError(f"{child.name} ended with exit code {child.code}: {last} ({log})")


def _at_once(config: RunConfig) -> int:
    return max(1, available_cores() // config.threads) if config.threads else 1


def run_controls(
    config: RunConfig, place: Path, console: Console, *, options: Sequence[str] = ()
) -> bool:
    """Make the controls of the finished run in ``place``, or go on with them, and keep what they
    tell. Return and raise as ``run_side_by_side``."""
    # The command line sets what the Hub's client, which it loads, reads at its import.
    from potluck.node.storage.export import card_of

    config = replace(config, node=load(place / "recipe.json").node)  # from where it started
    recipe = read_recipe(place)
    ends = {name: end_of(place / name, recipe) for name in config.learners}
    controls, runs = controls_of(config), list[WholeRun]()
    for each in controls:
        end = max(ends[name] for name in each.nodes)  # before the last round by ``stop_when`` alone
        stop = StopConfig(rounds=end if end < config.rounds else 0)
        runs.append(WholeRun(replace(each.config, stop_when=stop), place / each.folder))
    if not run_side_by_side(runs, console, options=options):
        return False
    least = min(ends.values(), default=config.end)  # behind it a node had no partner
    found = [
        answer
        for each in controls
        for node in each.nodes
        if (answer := answer_of(place, place / each.folder, node, each.kind, least))
    ]
    if least < config.end:  # it ended as its greedy accuracy was high, or was not
        found = [replace(each, greedy=None) for each in found]
    add_answers(place, found)
    for name, end in ends.items():
        card = card_of(config, name, place / name, end).encode()
        write_atomically(place / name / "checkpoints" / f"{end:06d}" / "README.md", card)
    return True
