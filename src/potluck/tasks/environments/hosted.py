"""An environment whose episodes are played in processes apart, when written and when replayed."""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from subprocess import Popen
from sys import getsizeof
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from potluck.episode import EnvironmentFailed, Grade, Step, Turn, digest_of, text_of
from potluck.files import available_cores
from potluck.tasks.environments.check import Checked, check
from potluck.tasks.environments.host import Process, Spec
from potluck.types import OBSERVED_BYTES, Completion, Episode, Observation, Problem

Made = TypeVar("Made")
EpisodeKey = tuple[str, str, bytes, str, int]
"""Problem and turns; of a replay also its author, of grade "own" also what was observed between the
turns, author and index."""
FEWEST_PROCESSES, MOST_PROCESSES = 2, 4
MOST_KEPT_BYTES, EPISODE_BYTES, OBSERVATION_BYTES = 2**28, 512, 250
"""Bytes of the latest episodes, which are remembered; of each beside its texts, at most."""
MOST_REPLAYING = 8
"""Processes that replay, each the episodes of one author; the one used least lately ends first."""
REPLAY_STEPS = 2
"""A whole episode of a peer may take as long as this many steps: not as all of its turns."""


class Start(NamedTuple):
    """Where an episode begins."""

    row: Mapping[str, Any]
    seed: int
    question: str
    """Text before what is said at ``reset``."""


class HostedEnvironment:
    """A class of a user, or of the package, as ``episode.Environment``."""

    def __init__(
        self,
        spec: Spec,
        start: Callable[[str], Start],
        *,
        max_turns: int,
        step_s: float,
        limit_bytes: int,
    ) -> None:
        """Start no process yet. ``start`` of an id is where the problem begins."""
        self._spec, self._start, self.max_turns = spec, start, max_turns
        self._step_s, self._limit_bytes = step_s, limit_bytes
        self._kept: OrderedDict[EpisodeKey, Episode] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.RLock()
        self._idle: list[Process] = []
        self._grade: Grade = "replay"
        self.found: Checked | None = None
        """Reason for the grade; None: nobody has looked."""
        self._asked = self._process(REPLAY_STEPS, described=True)
        """Process that is asked about the class and for questions: no turn of anybody is taken."""
        self._replaying: OrderedDict[str, Process] = OrderedDict()
        """Processes by the author whose episodes they replay. What a class keeps outside its
        instances (decimal's precision, the current folder) reaches no other author."""

    @property
    def grade(self) -> Grade:
        return self._grade

    @grade.setter
    def grade(self, grade: Grade) -> None:
        """Set it before episodes are played. Only one of grade "own" may use the network."""
        with self._lock:
            is_other, self._grade = (grade == "own") != (self._grade == "own"), grade
            if is_other:
                self.close()
                self._asked = self._process(REPLAY_STEPS, described=True)

    @property
    def name(self) -> str:
        return self._spec.name

    def check(self, ids: Sequence[str]) -> None:
        """Play the starts of these problems in fresh processes, and grade it by that. Raise
        EnvironmentFailed if it cannot be played."""
        limits = self._step_s, self._limit_bytes
        self.found = check(self._spec, limits, [self._start(id).row for id in ids])
        self.grade = self.found.grade

    def _process(self, steps: int = 1, *, described: bool = False) -> Process:
        spec = replace(self._spec, offline=self._grade != "own", described=described)
        return Process(spec, steps * self._step_s, self._limit_bytes, {})

    def about(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the schemas of its tools, and True if it pays."""
        with self._lock:
            _, schemas, pays, *_ = self._asked.call("about")
        return schemas, pays

    @property
    def has_network(self) -> bool:
        """True: the class, and what others' episodes have it do, can reach a network."""
        with self._lock:
            return bool(self._asked.call("about")[3])

    def question(self, problem_id: str) -> str:
        with self._lock:
            return str(self._said("play", self._asked, 0, problem_id, ())[0])

    def open(self, author: str = "") -> "HostedPlay":
        with self._lock:
            count = min(max(available_cores(), FEWEST_PROCESSES), MOST_PROCESSES)
            here, self._idle = self._idle[:count], self._idle[count:]
        return HostedPlay(self, author, here + [self._process() for _ in range(count - len(here))])

    def give_back(self, processes: Sequence[Process]) -> None:
        with self._lock:
            self._idle += processes

    def replay(
        self,
        problem: Problem,
        turns: Sequence[Turn],
        written: Completion | None = None,
        *,
        within_s: float = math.inf,
    ) -> Episode:
        author = written.author if written else ""
        known = (written.observed, author, written.index) if written else (b"", "", 0)
        key = self._key(problem, turns, *known)
        with self._lock:
            if key not in self._kept and self._grade != "own":
                # It was not played here. Nor is what another author's process said of it taken.
                key = (*key[:3], author, 0)
            if key not in self._kept:
                if self._grade == "own":
                    raise EnvironmentFailed(f"{problem.id}: no such episode is remembered here")
                if len(turns) > self.max_turns:
                    found = f"{len(turns)} turns; at most {self.max_turns}"
                    raise EnvironmentFailed(f"{problem.id}: an episode has {found}")
                process = self._process_of(author)
                try:
                    steps, paid = self.begin("replay", process, 0, problem, turns, within_s)
                except EnvironmentFailed:
                    self.begin_anew(author)
                    raise
                self._keep(key, ended([step_of(step) for step in steps], len(turns), paid))
            self._kept.move_to_end(key)
            return self._kept[key]

    def begin_anew(self, author: str) -> None:
        with self._lock:
            if process := self._replaying.pop(author, None):
                process.end()

    def _process_of(self, author: str) -> Process:
        """Return the process that replays the episodes of an author."""
        if author not in self._replaying:
            self._replaying[author] = self._process(REPLAY_STEPS)
        self._replaying.move_to_end(author)
        if len(self._replaying) > MOST_REPLAYING:
            _, longest_unused = self._replaying.popitem(last=False)
            longest_unused.end()
        return self._replaying[author]

    def remember(
        self, problem: Problem, turns: Sequence[Turn], episode: Episode, author: str, index: int
    ) -> None:
        with self._lock:
            observed = b"".join(map(digest_of, episode.observations))
            self._keep(self._key(problem, turns, observed, author, index), episode)

    def _key(
        self, problem: Problem, turns: Sequence[Turn], observed: bytes, author: str, index: int
    ) -> EpisodeKey:
        if self._grade != "own":
            return problem.id, text_of(turns), b"", "", 0
        between = OBSERVED_BYTES * max(0, len(turns) - 1)
        return problem.id, text_of(turns), observed[:between], author, index

    def _keep(self, key: EpisodeKey, episode: Episode) -> None:
        if before := self._kept.pop(key, None):
            self._kept_bytes -= _bytes_of(key, before)
        self._kept[key] = episode
        self._kept_bytes += _bytes_of(key, episode)
        while self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= _bytes_of(*self._kept.popitem(last=False))

    def begin(
        self,
        verb: str,
        process: Process,
        key: int,
        problem: Problem,
        turns: Sequence[Turn],
        within_s: float = math.inf,
    ) -> list[Any]:
        """Return what follows the question. Raise EnvironmentFailed where it is another one."""
        question, *rest = self._said(verb, process, key, problem.id, turns, within_s)
        if question != problem.question:
            raise EnvironmentFailed(f"{problem.id}: reset says another thing than the first time")
        return rest

    def _said(
        self,
        verb: str,
        process: Process,
        key: int,
        problem_id: str,
        turns: Sequence[Turn],
        within_s: float = math.inf,
    ) -> list[Any]:
        start = self._start(problem_id)
        sent = dict(start.row), start.seed, msgspec.to_builtins(list(turns))
        said, *rest = process.call(verb, key, *sent, within_s=within_s)
        # TRL appends to the last user's message; a game's own words stand apart.
        between = "\n\n" if self._spec.kind == "game" and start.question and said else ""
        return [f"{start.question}{between}{said or ''}", *rest]

    def close(self) -> None:
        """End the processes that nobody plays in; the next question starts new ones."""
        with self._lock:
            for process in (*self._idle, self._asked, *self._replaying.values()):
                process.end()
            self._idle = []
            self._replaying.clear()


@dataclass
class Live:
    """An episode, wherever it is."""

    problem: Problem
    index: int
    home: Popen[bytes] | None = None
    """Process in which it is."""
    failed: EnvironmentFailed | None = None
    turns: list[Turn] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


class HostedPlay:
    """Episodes in some processes, each with a thread that waits for it. Where an episode's process
    ended, it is played again, to where it was, in the next one."""

    def __init__(
        self, source: "HostedEnvironment", author: str, processes: Sequence[Process]
    ) -> None:
        self._source, self._author, self._processes = source, author, processes
        self._threads = [ThreadPoolExecutor(1, "environment") for _ in processes]
        self._live: dict[int, Live] = {}
        self._asked: dict[int, Future[Step]] = {}

    def begin(self, episode: int, problem: Problem, index: int = 0) -> None:
        live = Live(problem, index)
        self._soon(episode, live, lambda process: None).result()
        self._live[episode] = live

    def act(self, episode: int, turn: Turn) -> None:
        live = self._live[episode]

        def acted(process: Process) -> Step:
            live.steps.append(step_of(process.call("act", episode, msgspec.to_builtins(turn))))
            live.turns.append(turn)
            return live.steps[-1]

        self._asked[episode] = self._soon(episode, live, acted)

    def answered(self, wait_s: float) -> list[tuple[int, Step | EnvironmentFailed]]:
        wait(self._asked.values(), wait_s)
        answers: list[tuple[int, Step | EnvironmentFailed]] = []
        for episode in [episode for episode, asked in self._asked.items() if asked.done()]:
            try:
                answers.append((episode, self._asked.pop(episode).result()))
            except EnvironmentFailed as error:
                answers.append((episode, error))
        return answers

    def finish(self, episode: int) -> Episode:
        if asked := self._asked.pop(episode, None):
            with suppress(EnvironmentFailed):
                asked.result()
        live = self._live.pop(episode)
        paid = self._soon(episode, live, lambda process: process.call("finish", episode)).result()
        made = ended(live.steps, len(live.turns), paid)
        self._source.remember(live.problem, live.turns, made, self._author, live.index)
        return made

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        for episode in [episode for episode, asked in self._asked.items() if asked.running()]:
            self._processes[episode % len(self._processes)].kill()
        for thread in self._threads:
            thread.shutdown()
        self._live.clear()
        self._asked.clear()
        self._source.give_back(self._processes)
        self._processes = ()

    def _soon(self, episode: int, live: Live, do: Callable[[Process], Made]) -> "Future[Made]":
        """Have the thread of the episode's process do something where the episode is."""
        process = self._processes[at := episode % len(self._processes)]

        def done() -> Made:
            if live.failed:
                raise live.failed
            try:
                if live.home is None or live.home is not process.process:
                    self._play_again(process, episode, live)
                return do(process)
            except EnvironmentFailed as error:
                live.failed = error
                raise

        return self._threads[at].submit(done)

    def _play_again(self, process: Process, episode: int, live: Live) -> None:
        self._source.begin("play", process, episode, live.problem, ())
        turns = msgspec.to_builtins(live.turns)  # one by one: each has its own time
        if [step_of(process.call("act", episode, turn)) for turn in turns] != live.steps:
            raise EnvironmentFailed(f"{live.problem.id} went on otherwise when it was played again")
        live.home = process.process


def step_of(said: Any) -> Step:
    observations, done = said
    return Step(msgspec.convert(observations, tuple[Observation, ...]), done)


def ended(steps: Sequence[Step], turns: int, paid: tuple[float, int, int]) -> Episode:
    """Make the episode; ``paid`` is what ``host.py`` says to "finish"."""
    reward, calls, errors = paid
    # What was done before the last turn was not ended by it.
    done = bool(steps) and steps[-1].done and len(steps) == turns
    return Episode(tuple(step.observations for step in steps), done, reward, calls, errors)


def _bytes_of(key: EpisodeKey, episode: Episode) -> int:
    heard = [getsizeof(o.content) for said in episode.observations for o in said]
    return EPISODE_BYTES + OBSERVATION_BYTES * len(heard) + getsizeof(key[1]) + sum(heard)
