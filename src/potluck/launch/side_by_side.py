"""Whole runs beside each other, each in a process of its own: a demo's, or a run's controls."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from potluck.config import RunConfig, as_tree, load
from potluck.files import available_cores, printable, sealed, write_atomically
from potluck.launch.signals import interrupts
from potluck.reports import EvaluationReport, RoundReport
from potluck.reports.events import PhaseProgress
from potluck.reports.runs import EVALUATION, METRICS, RECIPE, end_of, read_lines, read_recipe
from potluck.show.terminal.live import LiveDisplay
from potluck.types import PotluckError

_RUN = (
    "from potluck.launch.signals import stop_at_end_of_stdin; stop_at_end_of_stdin(); "
    "from potluck.cli import main; main()"
)


class SideBySideError(PotluckError):
    """A run beside others that broke down."""


@dataclass(frozen=True, slots=True)
class WholeRun:
    """One run to be made. Its recipe and its log lie beside its folder."""

    config: RunConfig
    folder: Path

    @property
    def is_done(self) -> bool:
        """True: every node has learned from its last round of this recipe, and was evaluated if
        that is asked."""
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

    @property
    def rounds_done(self) -> int:
        last = self.folder / [*self.config.node][-1] / METRICS
        return sum(1 for _ in read_lines(last, RoundReport))

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    def start(self, options: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start it, or go on with it, in one process, so that it has the same bits each time."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        recipe = self.folder.with_name(f"{self.folder.name}.json")
        write_atomically(recipe, sealed(as_tree(self.config)))
        begun = ["--resume"] if (self.folder / "recipe.json").is_file() else []
        command = [sys.executable, "-c", _RUN, "run", str(recipe), "--out", str(self.folder)]
        self.log.unlink(missing_ok=True)  # an earlier start may still write to that one
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*command, "--one-process", *begun, *options],
                stdin=subprocess.PIPE,  # shut when this process is gone, however it ended
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal reaches this process alone, which hands it on once.
                process_group=0,
            )


def run_side_by_side(
    runs: Sequence[WholeRun], console: Console, *, options: Sequence[str] = ()
) -> bool:
    """Make those ``runs`` that are not done, going on with those that are begun; return False if
    Ctrl-C stopped them, saved. Raise SideBySideError if one breaks down.

    As many go at a time as there are cores for their ``threads``; a run with torch's own number of
    threads has no other beside it. ``options`` are further ones of ``potluck run``.
    """
    waiting, running = [each for each in runs if not each.is_done], dict[Path, _Running]()
    stopped = False
    with interrupts() as interrupted, LiveDisplay(console) as display:
        try:
            while waiting or running:
                while waiting and len(running) < _at_once(waiting[0].config):
                    run = waiting.pop(0)
                    running[run.folder] = _Running(run, run.start(options))
                for folder, each in [*running.items()]:
                    name, rounds = each.run.config.name, each.run.config.end
                    display.show(PhaseProgress(name, "rounds", each.run.rounds_done, rounds))
                    if each.process.poll() is not None:
                        del running[folder]
                        each.require_success(stopped)
                if interrupted() and not stopped:
                    stopped = True
                    waiting.clear()
                    for each in running.values():
                        each.process.send_signal(signal.SIGINT)
                time.sleep(0.2)
        finally:
            for each in running.values():
                each.process.kill()
                each.process.communicate()
    return not stopped


@dataclass(frozen=True, slots=True)
class _Running:
    run: WholeRun
    process: subprocess.Popen[bytes]

    def require_success(self, stopped: bool) -> None:
        self.process.communicate()  # shuts its stdin
        code = self.process.returncode
        if code and not (stopped and code in (130, -signal.SIGINT)):
            words = self.run.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = printable(words[-1], 500) if words else "it said nothing"
            name = self.run.config.name
            raise SideBySideError(f"{name} ended with exit code {code}: {last} ({self.run.log})")


def _at_once(config: RunConfig) -> int:
    return max(1, available_cores() // config.threads) if config.threads else 1
