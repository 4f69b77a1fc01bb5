"""The rounds of the nodes of one process, from the first look at a recipe to the end."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import transformers
from msgspec.structs import replace

from potluck.builder import checks
from potluck.builder.exchange import agreements_of
from potluck.builder.nodes import make_authors, make_learners, make_nodes
from potluck.builder.prepare import Host, prepare
from potluck.config import ConfigError, RunConfig, as_tree
from potluck.evaluation.grade import SplitAccuracy, evaluate, evaluation_engine
from potluck.exchange import Agreement, Exchange
from potluck.files import sealed, write_atomically
from potluck.launch.course import ALONE_ROUNDS, Course
from potluck.launch.journal import Journal
from potluck.launch.signals import interrupts
from potluck.node.author import Author
from potluck.node.learning.group import ProcessGroup, process_group
from potluck.node.learning.workers import run_worker
from potluck.node.loop import Node, step
from potluck.node.participant import NodeProgress
from potluck.node.storage import checkpoint
from potluck.node.storage.card import card_of
from potluck.node.storage.folder import (
    JOINED,
    disk_errors_explained,
    exclusive,
    forget_failed_start,
    remove_parts,
)
from potluck.node.storage.resume import prepare_resume, require_same_files, whole_round
from potluck.objective.methods import reads_author_logp
from potluck.reports import Doubts, EvaluationReport, RoundReport, as_line
from potluck.reports.events import Display, Evaluated, Fanout, Notice, PhaseProgress, RoundDone
from potluck.reports.runs import EVALUATION, read_lines
from potluck.show.notebook import Look
from potluck.show.trackers.base import About
from potluck.show.trackers.tracked import Tracked
from potluck.tasks import Split
from potluck.types import PotluckError

# A run has a display of its own; a bar for each file that is loaded or saved only tears it.
transformers.logging.disable_progress_bar()

Meet = Callable[
    [Mapping[str, Agreement], Display, NodeProgress], AbstractContextManager[Mapping[str, Exchange]]
]
"""Opens the exchange of each node of this process, waits for the others; closes it."""


@dataclass(frozen=True, slots=True)
class RunResult(Look):
    """Outcome of a run."""

    folder: Path
    rounds: int
    """Rounds done, those before a resume included."""
    interrupted: bool
    """True: Ctrl-C ended it; a checkpoint stands, and ``resume`` goes on."""
    accuracy: Mapping[str, float]
    """Accuracy of each node at the end, on the validation problems; empty if none were asked."""
    skipped: int = 0
    """Number of ``rounds`` that were not done, as the others were ahead."""


@dataclass(frozen=True)
class LocalNodes:
    """The nodes of a run that this process hosts."""

    config: RunConfig
    """Recipe of the whole run."""
    names: tuple[str, ...]
    folders: tuple[Path, ...]
    """Folders that no other process may write to meanwhile."""
    check_folder: Callable[[], None]
    """Raises RunFolderError unless the folder is free, or that of the run that goes on."""
    meet: Meet
    all_here: bool
    """True: the models of all others are on this machine too, so that they can be looked at."""
    trust_code: bool
    """True: functions that ``[[reward]]`` and ``[objective] loss`` name may be imported and run."""

    @property
    def mine(self) -> RunConfig:
        """Recipe, as if there were no other nodes."""
        return replace(self.config, node={name: self.config.node[name] for name in self.names})


def run_nodes(local: LocalNodes, folder: Path, *, resume: bool, display: Display) -> RunResult:
    """Train the nodes of this process, which may be one of several that are one node."""
    if local.config.threads:
        torch.set_num_threads(local.config.threads)
    with process_group() as processes:
        if processes.rank:
            return _run_worker(processes, local, folder)
        try:
            local.check_folder()  # before one is made, to be locked
            say = partial(_tell, display)
            with disk_errors_explained(folder), ExitStack() as stack:
                stack.enter_context(exclusive(local.folders[0], say))
                if not resume and local.folders[0] == folder:  # all nodes are of this process
                    forget_failed_start(folder, local.names, say)
                for each in local.folders[1:]:
                    stack.enter_context(exclusive(each, say))
                result = _run_leader(local, processes, folder, resume, display)
        except (PotluckError, OSError) as error:
            processes.broadcast("stop", error)
            raise
        processes.broadcast("stop", result)
        return result


def _run_worker(processes: ProcessGroup, local: LocalNodes, folder: Path) -> RunResult:
    """Take part in what the first process of a node does, and end as it does."""
    make = partial(make_learners, processes=processes, trust_code=local.trust_code)
    with interrupts() as interrupted:
        outcome = run_worker(processes, partial(make, local.mine, folder), interrupted)
    if isinstance(outcome, RunResult):
        return outcome
    assert isinstance(outcome, Exception)
    raise outcome


def _run_leader(
    local: LocalNodes, processes: ProcessGroup, folder: Path, resume: bool, display: Display
) -> RunResult:
    """Look at everything that can be wrong with the recipe, before anything is written; then run
    its rounds."""
    config, mine = local.config, local.mine
    local.check_folder()  # again: another process may have had it until now
    host = Host(local.names, folder, all_here=local.all_here)
    prepared = prepare(config, host, trust_code=local.trust_code)
    task = prepared.task
    assert task  # absent data is an error: no absences are named
    digests = {"digest": task.digest, **prepared.digests}
    require_same_files(folder, digests)
    checks.require_servers(mine, longest_prompt=prepared.prompts.longest)
    checks.require_processes(mine, processes)
    first, said = whole_round(folder, mine) if resume else (0, [])
    learners = make_learners(mine, folder, first, processes, trust_code=local.trust_code)
    policies = {name: learner.policy for name, learner in learners.items()}
    sends_text = checks.sends_text(config, all_here=local.all_here)
    if not sends_text or reads_author_logp(config.objective):
        checks.require_one_stop(policies)
    _write_recipe(local, folder, digests)
    is_over = resume and _is_over(mine, folder, first)
    if resume:
        which = f"{local.names[0]}: " if len(local.names) < len(config.node) else ""
        for line in [*said, *prepare_resume(folder, mine, first)]:
            display.show(Notice(which + line))
    tracked = Tracked(display, config.log.to, _about_nodes(mine, folder, first, resume))
    journal = Journal(config, folder, local.names, first)
    with tracked, journal, interrupts() as interrupted:
        display = Fanout((display, tracked, journal))
        for note in prepared.notes:
            display.show(Notice(note))

        shown: dict[str, PhaseProgress] = {}

        def progress(node: str, phase: str, done: int, total: int) -> None:
            event = PhaseProgress(node, phase, done, total)
            if shown.get(node) != event:  # while it writes, a node tells of each token
                display.show(event)
            shown[node] = event
            # Learning changes the model, so it is not broken off half-way.
            if phase != "learn" and interrupted():
                raise _Stopped

        try:
            agreements = agreements_of(config, task, {n: policies.get(n) for n in local.names})
            with local.meet(agreements, display, progress) as exchanges:
                made = folder, task, learners, exchanges, progress, first
                nodes = make_nodes(config, *made, sends_text=sends_text)
                authors = make_authors(
                    config, folder, task, exchanges, progress, first, partial(_tell, display)
                )
                with journal.of([*nodes, *authors]):
                    rounds = _Rounds(nodes, authors, config, display, progress, interrupted)
                    return rounds.run(folder, first, is_over=is_over)
        except _Stopped:  # before the first round
            return RunResult(folder, first, True, {})


def _is_over(mine: RunConfig, folder: Path, first: int) -> bool:
    """Tell whether each node had met a condition of ``stop_when`` after ``first`` rounds: a resume
    removes the line of that evaluation, and makes it again only in the rounds that have one."""
    found = []
    for name in mine.learners:
        lines = read_lines(folder / name / EVALUATION, EvaluationReport)
        by_round = {line.round: line.validation for line in lines if line.round <= first}
        found.append([each for each in by_round.values() if each is not None])
    return bool(found) and all(map(mine.stop_when.is_met, found))


def _tell(display: Display, text: str) -> None:
    display.show(Notice(text))


PAUSE_S = 0.1


@dataclass(frozen=True)
class _Rounds:
    """The nodes of this process, in their rounds."""

    nodes: list[Node]
    """Nodes that learn."""
    authors: list[Author]
    """Participants that only write."""
    config: RunConfig
    display: Display
    progress: NodeProgress
    interrupted: Callable[[], bool]

    def run(self, folder: Path, first: int, *, is_over: bool) -> RunResult:
        """Run the rounds from ``first`` to the last one, or to where ``stop_when`` ends them;
        none if it ended them before (``is_over``)."""
        config, done, stopped, whole = self.config, first, False, True
        seen, saved = first - 1, first  # rounds up to which was evaluated, and saved
        last: dict[str, SplitAccuracy] = {}
        everybody = [*self.nodes, *self.authors]
        together = config.pace == "together"
        turns = [everybody] if together else [[node] for node in everybody]
        course = Course(everybody[0], config.end, self.display)
        reads_logp = reads_author_logp(config.objective)
        doubts = Doubts(config.objective.weight, reads_logp=reads_logp)
        try:
            while done < config.end and not is_over:
                round = course.next_round(done, time.time()) if together else done
                # Rounds may be skipped, so "every five" is the first one after each fifth.
                if (every := config.evaluation.every) and round // every > seen // every:
                    seen = round
                    if self.evaluate_meanwhile(round):
                        done = round
                        break
                whole = False  # until all have learned
                reports = [report for nodes in turns for report in step(nodes, round)]
                whole, done = True, round + 1
                for node, report in zip(everybody, reports, strict=True):
                    self.display.show(RoundDone(node.name, report))
                    for alert in doubts.new(report, node.name):
                        self.display.show(alert)
                # At its own pace a node may well be alone.
                alone = together and not self._has_company(reports)
                rest_s = course.add_round(round, reports[0].seconds, alone=alone)
                if (every := config.checkpoint_every) and done // every > saved // every:
                    self.save(done)
                    saved = done
                is_lost = config.swarm.alone == "stop" and course.alone >= ALONE_ROUNDS
                if self.interrupted() or is_lost:
                    raise _Stopped
                if config.swarm.alone == "throttle":
                    self._wait(rest_s)
            self.save(done)  # whatever happens to the evaluation, what was learned stays
            if done < config.rounds:
                names = ", ".join(node.name for node in everybody)
                ended = f"stop_when ends the run after {done} of {config.rounds} rounds"
                self.display.show(Notice(f"{names}: {ended}; to go on, change it, with --resume"))
            last = self.evaluate(done, at_end=True)
        except _Stopped:
            stopped = True
        except ConfigError:  # a callback's
            if whole and done > first:
                self.save(done)
            raise
        finally:
            for node in self.nodes:
                node.abandon()
        self.save(done)
        accuracy = {name: evaluation.accuracy for name, evaluation in last.items()}
        skipped = done - len(everybody[0].record.rows("metrics"))
        return RunResult(folder, done, stopped, accuracy, skipped)

    def _has_company(self, reports: Sequence[RoundReport]) -> bool:
        """Tell whether completions of nodes elsewhere were used, or there are no such nodes, or
        they may have ended by ``stop_when``."""
        if self.config.stop_when.by_value:
            return True
        here = {node.name for node in (*self.nodes, *self.authors)}
        if here >= set(self.config.node) and not any(report.missing for report in reports):
            return True
        return not self.nodes or any(report.sources.keys() - here for report in reports)

    def _wait(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.progress(self.nodes[0].name, "wait", 0, len(self.config.node) - 1)
            time.sleep(PAUSE_S)

    def evaluate_meanwhile(self, round: int) -> bool:
        """Evaluate before the end, keep what is best, and tell whether ``stop_when`` ends it."""
        self.evaluate(round, at_end=False)
        found = [
            [line["validation"] for line in node.record.each("evaluation") if "validation" in line]
            for node in self.nodes
        ]
        is_best = any(each.index(max(each)) == len(each) - 1 for each in found if each)
        if round and is_best and self.config.keep_best:
            self.save(round)
        return bool(found) and all(map(self.config.stop_when.is_met, found))

    def evaluate(self, round: int, *, at_end: bool) -> dict[str, SplitAccuracy]:
        """Measure each node by itself, on the validation problems and at the end on others."""
        wanted = self.config.evaluation
        counts: dict[Split, int] = {
            "validation": wanted.problems,
            "out-of-distribution": wanted.out_of_distribution if at_end else 0,
        }
        results = {}
        for node in self.nodes:
            engine = evaluation_engine(node.writer.engine, self.config)
            moved = partial(self.progress, node.name, "evaluate")
            seen, other = (
                evaluate(node.learner.policy, engine, node.task, split, count, moved)
                for split, count in counts.items()
            )
            if seen:
                results[node.name] = seen
            if seen or other:
                report = EvaluationReport(
                    round,
                    validation=seen.accuracy if seen else None,
                    problems=seen.problems if seen else None,
                    out_of_distribution=other.accuracy if other else None,
                    out_of_distribution_problems=other.problems if other else None,
                    rewards=seen.rewards if seen else {},
                    partial=any(each.is_partial for each in (seen, other) if each) or None,
                    at_end=at_end or None,
                )
                node.record.add("evaluation", [as_line(report)])
                self.display.show(Evaluated(node.name, report))
        return results

    def save(self, done: int) -> None:
        for node in self.nodes:
            folder, learner = node.record.folder, node.learner
            card = card_of(self.config, node.name, folder, done)
            if done in checkpoint.rounds_saved(folder):  # an evaluation may have come since
                page = checkpoint.checkpoint_folder(folder, done) / "README.md"
                write_atomically(page, card.encode())
            else:
                # From here to the end of their part the others wait for us: nothing may fail.
                learner.processes.broadcast("save", node.name)
                checkpoint.save(folder, done, learner.policy, learner.optimizer, card=card)
                checkpoint.keep(folder, self.config.keep_checkpoints, best=self.config.keep_best)
                told = {"round": done - 1, "time_s": round(time.time(), 3), "kind": "checkpoint"}
                node.record.add("events", [told | {"text": f"saved after {done} rounds"}])


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


def _write_recipe(local: LocalNodes, folder: Path, digests: Mapping[str, str]) -> None:
    """Take ``folder`` for this run: without what a killed process left, and with its recipe."""
    for each in local.folders:
        remove_parts(each)
    folder.mkdir(parents=True, exist_ok=True)
    recipe = sealed(as_tree(local.config))
    write_atomically(folder / "recipe.json", recipe)
    write_atomically(folder / "task.json", sealed(digests))
    if local.folders[0] != folder:  # the run's is that of other nodes here, too: other keys
        write_atomically(local.folders[0] / JOINED, recipe)


class _Stopped(Exception):
    """Ctrl-C at a moment when nothing is half done."""
