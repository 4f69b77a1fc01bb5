"""The nodes of a run that are of one process, from the first look at a recipe to the end."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from msgspec.structs import replace

from potluck.builder import checks
from potluck.builder.bfloat16 import doubts_on_bfloat16
from potluck.builder.exchange import agreements_of
from potluck.builder.nodes import make_learners, make_participants
from potluck.builder.prepare import prepare
from potluck.builder.task import keep_grade
from potluck.config import RunConfig, as_tree
from potluck.exchange import Agreement, Exchange
from potluck.files import JOINED, sealed, write_atomically
from potluck.launch.children import interrupts
from potluck.launch.journal import Journal
from potluck.launch.rounds import LocalRounds, RunResult, StoppableProgress, Stopped, is_over
from potluck.node.learning.group import ProcessGroup, process_group
from potluck.node.learning.workers import run_worker
from potluck.node.participant import NodeProgress
from potluck.node.storage.folder import (
    disk_errors_explained,
    exclusive,
    forget_failed_start,
    remove_parts,
)
from potluck.node.storage.resume import prepare_resume, whole_round
from potluck.node.storage.same_run import recorded_recipe, require_folder, require_same_files
from potluck.reports.events import Display, Fanout, Notice
from potluck.show.trackers.libraries import About
from potluck.show.trackers.tracked import Tracked
from potluck.tasks import Task
from potluck.types import PotluckError

Meet = Callable[
    [Mapping[str, Agreement], Display, NodeProgress], AbstractContextManager[Mapping[str, Exchange]]
]
"""Opens the exchange of each node of this process, waits for the others; closes it."""


@dataclass(frozen=True)
class LocalNodes:
    """The nodes of a run that this process hosts."""

    config: RunConfig
    """Recipe of the whole run."""
    names: tuple[str, ...]
    folder: Path
    """Folder of the run."""
    resume: bool
    meet: Meet
    is_whole: bool
    """True: the process has all nodes and the folder; else one node, and its part of the folder."""
    all_here: bool
    """True: the models of all others are on this machine too, so that they can be looked at."""
    trust_code: bool

    @property
    def mine(self) -> RunConfig:
        """Recipe, as if there were no other nodes."""
        return replace(self.config, node={name: self.config.node[name] for name in self.names})

    @property
    def folders(self) -> list[Path]:
        """Folders that no other process may write to meanwhile."""
        return [self.folder] * self.is_whole + [self.folder / name for name in self.names]

    def check_folder(self) -> None:
        part = "" if self.is_whole else self.names[0]
        require_folder(self.folder, self.config, self.resume, part)


def run_nodes(local: LocalNodes, display: Display) -> RunResult:
    """Train the nodes of this process, which may be one of several that are one node."""
    say = partial(_tell, display)
    if local.config.threads:
        torch.set_num_threads(local.config.threads)
    with process_group(say) as processes:
        if processes.rank:
            return _run_worker(processes, local)
        try:
            local.check_folder()  # before one is made, to be locked
            with disk_errors_explained(local.folder), ExitStack() as stack:
                for at, folder in enumerate(local.folders):
                    stack.enter_context(exclusive(folder, say))
                    if not at and local.is_whole and not local.resume:
                        forget_failed_start(folder, local.names, say)
                result = _run_leader(local, processes, display)
        except (PotluckError, OSError) as error:
            processes.broadcast("stop", error)
            raise
        processes.broadcast("stop", result)
        return result


def _run_worker(processes: ProcessGroup, local: LocalNodes) -> RunResult:
    make = partial(make_learners, processes=processes, trust_code=local.trust_code)
    with interrupts() as interrupted:
        outcome = run_worker(processes, partial(make, local.mine, local.folder), interrupted)
    if isinstance(outcome, RunResult):
        return outcome
    assert isinstance(outcome, Exception)
    raise outcome


def _tell(display: Display, text: str) -> None:
    display.show(Notice(text))


def _run_leader(local: LocalNodes, processes: ProcessGroup, display: Display) -> RunResult:
    """Look at all that can be wrong before anything is written; then run the rounds."""
    config, mine, folder, resume = local.config, local.mine, local.folder, local.resume
    local.check_folder()  # again: another process may have had it until now
    prepared = prepare(
        config, local.names, folder, trust_code=local.trust_code, all_here=local.all_here,
        kept=local.folders[0], say=partial(_tell, display),
    )  # fmt: skip
    task = prepared.task
    assert task  # absent data is an error: no absences are named
    digests = {"digest": task.digest, **prepared.digests}
    require_same_files(folder, digests)
    checks.require_servers(mine, longest_prompt=prepared.prompts.longest)
    checks.require_processes(mine, processes, task)
    first, said = whole_round(folder, mine) if resume else (0, [])
    learners = make_learners(mine, folder, first, processes, trust_code=local.trust_code)
    _write_recipe(local, digests, task)
    # A resume removes the line of an evaluation at the end.
    over = resume and is_over(config, folder, mine.learners, first)
    if resume:
        which = f"{local.names[0]}: " if len(local.names) < len(config.node) else ""
        for line in [*said, *prepare_resume(folder, mine, first)]:
            display.show(Notice(which + line))
    tracked = Tracked(display, config.log.to, _about_nodes(mine, folder, first, resume))
    journal = Journal(config, folder, local.names, first)
    with tracked, journal, interrupts() as interrupted:
        display = Fanout((display, tracked, journal))
        notify = partial(_tell, display)
        for note in (*prepared.notes, *doubts_on_bfloat16(mine)):
            notify(note)
        progress = StoppableProgress(display, interrupted)
        try:
            policies = {n: learners[n].policy if n in learners else None for n in local.names}
            agreements = agreements_of(config, task, policies)
            with local.meet(agreements, display, progress) as exchanges:
                made = config, folder, task, learners, exchanges, progress
                sends = prepared.sends_text
                nodes, authors = make_participants(*made, sends_text=sends, notify=notify)
                with journal.of([*nodes, *authors]):
                    rounds = LocalRounds(config, folder, nodes, authors, display, progress)
                    return rounds.run(first, is_over=over)
        except Stopped:  # before the first round
            return RunResult(folder, first, True, {})


def _about_nodes(config: RunConfig, folder: Path, first: int, resume: bool) -> list[About]:
    return [
        About(
            project=config.log.project,
            group=config.log.group or config.name,
            node=name,
            folder=folder,
            first_round=first,
            resumed=resume,
            recipe=as_tree(config),
            wandb_mode=config.log.wandb_mode,
            completions=config.log.completions if config.log.to else 0,
        )
        for name in config.node
    ]


def _write_recipe(local: LocalNodes, digests: Mapping[str, str], task: Task) -> None:
    """Take the folder for this run: without what a killed process left, and with its recipe."""
    folder = local.folder
    for each in local.folders:
        remove_parts(each)
    folder.mkdir(parents=True, exist_ok=True)

    recipe = as_tree(local.config)
    joined = sealed(recipe)
    if not local.is_whole and (folder / "recipe.json").is_file():
        # What the other nodes of this folder were made with, they know better.
        before = recorded_recipe(folder)["node"]
        for name in recipe["node"].keys() & before.keys() - {*local.names}:
            recipe["node"][name] = before[name]
    write_atomically(folder / "recipe.json", sealed(recipe))
    write_atomically(folder / "task.json", sealed(digests))
    keep_grade(task, local.folders[0])
    if not local.is_whole:  # the run's is that of other nodes here, too: other keys
        write_atomically(local.folders[0] / JOINED, joined)
