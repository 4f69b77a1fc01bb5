"""The rounds of the nodes of one process, to the last one or to where they are stopped."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from potluck.config import RunConfig
from potluck.evaluation.grade import SplitResult, evaluate, evaluation_engine
from potluck.files import write_atomically
from potluck.node.loop import Node, step
from potluck.node.pace.together import RoundBound
from potluck.node.participant import Author, Participant
from potluck.node.storage import checkpoint
from potluck.node.storage.export import card_of
from potluck.node.storage.folder import rounds_saved
from potluck.reports import Doubts, EvaluationReport, RoundReport, as_line
from potluck.reports.events import Alert, Display, Evaluated, Notice, PhaseProgress, RoundDone
from potluck.reports.right import binary_in_run, binary_of
from potluck.reports.runs import EVALUATION, METRICS, read_lines
from potluck.right import TASK, merged
from potluck.show.notebook import Look
from potluck.tasks import Split
from potluck.types import NonFiniteError, PotluckError

PAUSE_S = 0.1
STAY_S = 30.0
"""Longest time that an author stays behind its last round."""
ALONE_ROUNDS = 10
ALONE = (
    f"for {ALONE_ROUNDS} rounds no other node's completions were used: this node trains alone. To "
    f"wait for the others, press Ctrl-C, and start it with --resume when they are back"
)
"""Alert after ALONE_ROUNDS such rounds in a row."""


class Stopped(Exception):
    """Ctrl-C at a moment when nothing is half done."""


class StoppableProgress:
    """NodeProgress that shows what the nodes do, and raises Stopped where Ctrl-C may end it."""

    def __init__(self, display: Display, interrupted: Callable[[], bool]) -> None:
        self.interrupted = interrupted
        self.is_begun = False
        """True: a node has learned and others have not: a checkpoint would be of two rounds."""
        self.is_learning = False
        """True: from where a model may change in a round until all nodes have learned."""
        self._display, self._shown = display, dict[str, PhaseProgress]()

    def __call__(self, node: str, phase: str, done: int, total: int) -> None:
        event = PhaseProgress(node, phase, done, total)
        if self._shown.get(node) != event:  # while it writes, a node tells of each token
            self._display.show(event)
        self._shown[node] = event
        self.is_learning |= phase == "learn"
        # Learning changes the model, so it is not broken off half-way.
        if phase != "learn" and not self.is_begun and self.interrupted():
            raise Stopped


@dataclass(frozen=True, slots=True)
class RunResult(Look):
    """Outcome of a run."""

    folder: Path
    rounds: int
    """Rounds done, those before a resume included."""
    interrupted: bool
    """True: Ctrl-C ended it; a checkpoint stands, and ``resume`` goes on."""
    accuracy: Mapping[str, float]
    """Share of right ones among each node's greedy answers to the validation problems at the end;
    empty if none were asked, or no reward function decides what is right."""
    skipped: int = 0
    """Number of ``rounds`` that were not done, as the others were ahead."""
    validation: Mapping[str, float] = field(default_factory=dict)
    """Mean reward of these answers."""


@dataclass(frozen=True)
class LocalRounds:
    config: RunConfig
    """Recipe of the whole run."""
    folder: Path
    nodes: list[Node]
    authors: list[Author]
    display: Display
    progress: StoppableProgress

    def run(self, first: int, *, is_over: bool) -> RunResult:
        """Run the rounds from ``first`` to the last one, or to where ``stop_when`` ends them;
        none if it ended them before (``is_over``)."""
        config, done, stopped = self.config, first, False
        seen, saved = first - 1, first  # rounds up to which was evaluated, and saved
        last: dict[str, SplitResult] = {}
        everybody = [*self.nodes, *self.authors]
        together = config.pace == "together"
        turns = [everybody] if together else [[node] for node in everybody]
        course = Course(everybody[0], config.end, self.display)
        reads_logp, weight = config.sends_logp, config.objective.weight
        doubts = {
            each.name: Doubts(
                each.name,
                weight,
                reads_logp=reads_logp,
                rule=config.right_rule,
                binary=binary_of(read_lines(each.record.folder / METRICS, RoundReport)),
            )
            for each in everybody
        }
        try:
            while done < config.end and not is_over:
                round = course.next_round(done, time.time()) if together else done
                # Rounds may be skipped, so "every five" is the first one after each fifth.
                if (every := config.evaluation.every) and round // every > seen // every:
                    seen = round
                    if self.evaluate_meanwhile(round):
                        done = round
                        break
                reports = self._round(turns, round)
                done = round + 1
                for node, report in zip(everybody, reports, strict=True):
                    self.display.show(RoundDone(node.name, report))
                    for alert in doubts[node.name].new(report):
                        self.display.show(alert)
                # At its own pace a node may well be alone.
                alone = together and not self._has_company(reports)
                rest_s = course.add_round(round, reports[0].seconds, alone=alone)
                if (every := config.checkpoint_every) and done // every > saved // every:
                    self.save(done)
                    saved = done
                is_lost = config.swarm.alone == "stop" and course.alone >= ALONE_ROUNDS
                if self.progress.interrupted() or is_lost:
                    raise Stopped
                if config.swarm.alone == "throttle":
                    self._wait(rest_s)
            self.save(done)  # whatever happens to the evaluation, what was learned stays
            if done < config.rounds:
                names = ", ".join(node.name for node in everybody)
                ended = f"stop_when ends the run after {done} of {config.rounds} rounds"
                self.display.show(Notice(f"{names}: {ended}; to go on, change it, with --resume"))
            last = self.evaluate(done, at_end=True)
            if not self.nodes:
                with suppress(Stopped):  # all is done
                    self._stay()
        except Stopped:
            stopped = True
        except NonFiniteError:  # the models may be what is broken
            raise
        except PotluckError as error:  # a reward, a judge or a server that failed; a callback
            self._save_after(error, done, is_new=done > first)
            raise
        finally:
            for node in self.nodes:
                node.abandon()
        self.save(done)
        skipped = done - sum(1 for _ in everybody[0].record.each("metrics"))
        return RunResult(
            self.folder,
            done,
            interrupted=stopped,
            accuracy=self._accuracy(last),
            skipped=skipped,
            validation={name: its.mean for name, its in last.items()},
        )

    def _accuracy(self, last: Mapping[str, SplitResult]) -> dict[str, float]:
        """Return the share of right answers of each node; of none if nothing decides that."""
        evaluated = [its.binary for its in last.values()]
        function = self.config.right_rule.function(merged(binary_in_run(self.folder), *evaluated))
        return {name: its.full[function] for name, its in last.items()} if function else {}

    def _round(self, turns: Iterable[Sequence[Participant]], round: int) -> list[RoundReport]:
        reports = list[RoundReport]()
        for nodes in turns:
            reports += step(nodes, round)
            self.progress.is_begun = True
        self.progress.is_begun = self.progress.is_learning = False
        return reports

    def _save_after(self, error: PotluckError, done: int, *, is_new: bool) -> None:
        """Save what was learned before ``error``, where all models are after ``done`` rounds; note
        on the error what is saved."""
        lost = ""
        if is_new and (self.progress.is_begun or self.progress.is_learning):
            lost = "it failed while a round was learned from"
        elif is_new:
            try:
                for node in self.nodes:  # what it has graded is graded again
                    node.record.truncate_from(done, {})
                self.save(done)
            # A full disk, a server that is down, a process that has gone: mend the first error.
            except (PotluckError, OSError, RuntimeError) as another:
                lost = str(another)
        if lost:
            error.add_note(f"not saved since the last checkpoint: {lost}")
        newest = [max(rounds_saved(node.record.folder), default=0) for node in self.nodes]
        if kept := min(newest, default=0):
            error.add_note(f"saved after {kept} rounds; when it is mended, go on with --resume")

    def _stay(self) -> None:
        """Stay while a node that learns may still fetch the last texts of these authors."""
        writing = self.config.node.keys() - self.config.learners.keys()
        end_s = time.monotonic() + STAY_S
        for author in self.authors:
            while time.monotonic() < end_s:
                peers = author.exchange.status().peers.items()
                if not any(peer.live for name, peer in peers if name not in writing):
                    break
                self.progress(author.name, "wait", 0, 1)  # Ctrl-C ends it here
                time.sleep(PAUSE_S)

    def _has_company(self, reports: Sequence[RoundReport]) -> bool:
        """Tell whether completions of nodes elsewhere were used, or there are no such nodes."""
        if self.config.stop_when.by_value:  # they may have ended
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
        found = _validations(self.folder, [node.name for node in self.nodes], round)
        is_best = any(each.index(max(each)) == len(each) - 1 for each in found if each)
        is_saved = all(round in rounds_saved(node.record.folder) for node in self.nodes)
        if round and (is_saved or (is_best and self.config.keep_best)):
            self.save(round)  # of one that is there the card alone, which now has this result
        return bool(found) and all(map(self.config.stop_when.is_met, found))

    def evaluate(self, round: int, *, at_end: bool) -> dict[str, SplitResult]:
        """Measure each node by itself, on the validation problems and at the end on others."""
        wanted = self.config.evaluation
        counts: dict[Split, int] = {
            "validation": wanted.problems,
            "out-of-distribution": wanted.out_of_distribution if at_end else 0,
        }
        results = {}
        for node in self.nodes:
            engine = evaluation_engine(node.engine, self.config)
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
                    validation=seen.mean if seen else None,
                    problems=seen.problems if seen else None,
                    out_of_distribution=other.mean if other else None,
                    out_of_distribution_problems=other.problems if other else None,
                    constant=self._constant(seen),
                    out_of_distribution_constant=self._constant(other),
                    rewards=seen.rewards if seen else {},
                    partial=any(each.is_partial for each in (seen, other) if each) or None,
                    at_end=at_end or None,
                )
                node.record.add("evaluation", [as_line(report)])
                self.display.show(Evaluated(node.name, report))
        return results

    def _constant(self, result: SplitResult | None) -> float | None:
        """Tell what one answer to all problems would earn; None: little, or it is not known, as
        another function than the task's own grading decides what is right."""
        if result is None or result.constant is None or self.config.task.reward != "task":
            return None
        decides = self.config.right_rule.function(result.binary)
        return result.constant.share if decides == TASK else None

    def save(self, done: int) -> None:
        for node in self.nodes:
            folder, learner = node.record.folder, node.learner
            card = card_of(self.config, node.name, folder, done)
            if done in rounds_saved(folder):  # an evaluation may have come since
                page = checkpoint.checkpoint_folder(folder, done) / "README.md"
                write_atomically(page, card.encode())
            else:
                # From here to the end of their part the others wait for us: nothing may fail.
                learner.save(folder, done, card=card)
                checkpoint.keep(folder, self.config.keep_checkpoints, best=self.config.keep_best)
                told = {"round": done - 1, "time_s": round(time.time(), 3), "kind": "checkpoint"}
                node.record.add("events", [told | {"text": f"saved after {done} rounds"}])


def is_over(config: RunConfig, folder: Path, names: Iterable[str], first: int) -> bool:
    """Tell whether these nodes, which learn, had met ``stop_when`` after ``first`` rounds."""
    if not config.stop_when.by_value:  # a damaged file is in no other run's way
        return False
    found = _validations(folder, names, first)
    return bool(found) and all(map(config.stop_when.is_met, found))


def _validations(folder: Path, names: Iterable[str], first: int) -> list[list[float]]:
    found = []
    for name in names:
        lines = read_lines(folder / name / EVALUATION, EvaluationReport)
        by_round = {line.round: line.validation for line in lines if line.round <= first}
        found.append([each for each in by_round.values() if each is not None])
    return found


class Course:
    """Choice of a node's rounds; tells when it skips some, and when it believes no others."""

    def __init__(self, node: Participant, rounds: int, display: Display) -> None:
        self._node, self._display, self._is_told = node, display, False
        self._own_s, self._whole_s, self.alone = list[float](), list[float](), 0
        for line in node.record.each("metrics"):
            alone = len(line.get("sources", ())) == 1
            self.add_round(line["round"], line.get("seconds", {}), alone=alone)
            self.alone = 0
        self._bound = RoundBound(rounds - 1)
        for line in node.record.each("in_step"):  # the last one counts
            self._bound = RoundBound(rounds - 1, line["round"], line["time_s"])

    def add_round(self, round: int, seconds: Mapping[str, float], *, alone: bool = False) -> float:
        """Note the seconds of each phase of a round; return by how many one that the node did alone
        is shorter than the median of the last ones with others."""
        self._own_s.append(seconds.get("write", 0.0) + seconds.get("learn", 0.0))
        self.alone, whole_s = self.alone + 1 if alone else 0, sum(seconds.values())
        if self.alone == ALONE_ROUNDS:
            self._display.show(Alert(self._node.name, "alone", round, ALONE))
        self._whole_s += [] if alone else [whole_s]
        return median(self._whole_s[-10:]) - whole_s if alone and self._whole_s else 0.0

    def next_round(self, done: int, now_s: float) -> int:
        """Choose the round to do after ``done`` rounds; ``now_s``: seconds since 1970."""
        # The clock was set back: no resume counts from before, either.
        if (self._bound.in_step_s or 0.0) > now_s:
            self._count_from(self._bound.round, now_s)
        node, bound = self._node, self._bound
        furthest = bound.furthest(now_s, self._own_s)
        round, others = node.next_round(done, furthest)
        if round > done:
            what = f"the others are at {others + 1}, so {round - done} rounds are skipped"
            self._display.show(Notice(f"{node.name}, round {done + 1}: {what}"))
        is_refused = round == done and others > max(furthest, done + node.pace.max_staleness)
        if is_refused and not self._is_told:
            why = f"the run ends with round {bound.last + 1}"
            if bound.in_step_s is not None and furthest < bound.last:
                since = f"in the {now_s - bound.in_step_s:.0f} s since round {bound.round + 1}"
                why = f"{since} at most {furthest - bound.round} rounds can have passed"
            what = f"the others claim round {others + 1}; {why}: going on with {done + 1}"
            self._display.show(Notice(f"{node.name}: {what}"))
        self._is_told = is_refused
        if node.is_in_step(round, others):
            self._count_from(round, now_s)
        elif bound.in_step_s is None:  # a partner that is mute at first gets no more than the time
            self._bound = RoundBound(bound.last, round, now_s)
        return round

    def _count_from(self, round: int, now_s: float) -> None:
        """Bound the rounds of others from ``round`` at this time on, after a restart too."""
        self._bound = RoundBound(self._bound.last, round, now_s)
        self._node.record.add("in_step", [{"round": round, "time_s": now_s}])
