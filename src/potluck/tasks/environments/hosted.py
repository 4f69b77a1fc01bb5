"""An environment whose episodes are played in processes apart, when written and when replayed."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from potluck.episode import EnvironmentFailed, Grade, Turn, digest_of, text_of
from potluck.files import available_cores
from potluck.tasks.environments.check import Checked, check
from potluck.tasks.environments.kinds import Spec
from potluck.tasks.environments.play import HostedPlay, ended
from potluck.tasks.environments.process import Process, step_of
from potluck.types import OBSERVED_BYTES, Completion, Episode, Problem

EpisodeKey = tuple[str, str, bytes, str, int]
"""Problem and turns; where an episode does not repeat itself also what was observed between them,
and its author's name and its place among the author's completions of the problem."""
FEWEST_PROCESSES, MOST_PROCESSES = 2, 4
MOST_KEPT_BYTES = 2**26
"""Bytes of the episodes that are remembered, the latest ones."""
EPISODE_BYTES, OBSERVATION_BYTES, CHARACTER_BYTES = 512, 250, 4
"""Bytes in memory of each, at most: of the first two beside their texts."""
REPLAY_STEPS = 2
"""A whole episode of a peer may take as long as this many steps: not as all of its turns."""


@dataclass(frozen=True, slots=True)
class Start:
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
        max_turns: int = 16,
        step_s: float = 5.0,
        limit_bytes: int = 4 * 2**30,
        grade: Grade = "replay",
    ) -> None:
        """Start no process yet. ``start`` of a problem's id is where it begins."""
        self._spec, self._start, self.max_turns = spec, start, max_turns
        self._step_s, self._limit_bytes = step_s, limit_bytes
        self._kept: OrderedDict[EpisodeKey, Episode] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.RLock()
        self._started: list[Process] = []
        self._idle: list[Process] = []
        weakref.finalize(self, _end, self._started)
        self._grade: Grade = grade
        self.found: Checked | None = None
        """Reason for the grade; None: nobody has looked."""
        self._replaying = self._process(REPLAY_STEPS, described=True)

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
                self._replaying = self._process(REPLAY_STEPS, described=True)

    @property
    def name(self) -> str:
        """The class, by the place of its file."""
        return self._spec.name

    def check(self, ids: Sequence[str]) -> None:
        """Play the starts of these problems in fresh processes, and grade it by that. Raise
        EnvironmentFailed if it cannot be played."""
        limits = self._step_s, self._limit_bytes
        self.found = check(self._spec, limits, [self._start(id).row for id in ids])
        self.grade = self.found.grade

    def _process(self, steps: int = 1, *, described: bool = False) -> Process:
        spec = replace(self._spec, offline=self._grade != "own", described=described)
        made = Process(spec, steps * self._step_s, self._limit_bytes, {})
        self._started.append(made)
        return made

    def about(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the schemas of its tools, and True if it pays; raise EnvironmentFailed if there is
        no such class, or it cannot be constructed."""
        with self._lock:
            schemas, pays, _ = self._replaying.ask("about")
        return schemas, pays

    @property
    def has_network(self) -> bool:
        """True: the class, and what others' episodes have it do, can reach a network."""
        with self._lock:
            return bool(self._replaying.ask("about")[2])

    def question(self, problem_id: str) -> str:
        """Ask for the question of a problem; raise EnvironmentFailed where reset raises."""
        with self._lock:
            question: str = self._said("play", self._replaying, 0, problem_id, ())[0]
        return question

    def open(self, author: str = "") -> HostedPlay:
        with self._lock:
            count = min(max(available_cores(), FEWEST_PROCESSES), MOST_PROCESSES)
            here, self._idle = self._idle[:count], self._idle[count:]
        return HostedPlay(self, author, here + [self._process() for _ in range(count - len(here))])

    def give_back(self, processes: Sequence[Process]) -> None:
        with self._lock:
            self._idle += processes

    def begin(self, process: Process, key: int, problem: Problem) -> None:
        self._asked("play", process, key, problem, ())

    def replay(
        self, problem: Problem, turns: Sequence[Turn], written: Completion | None = None
    ) -> Episode:
        known = (written.observed, written.author, written.index) if written else (b"", "", 0)
        key = self._key(problem, turns, *known)
        with self._lock:
            if key not in self._kept:
                if self._grade == "own":
                    raise EnvironmentFailed(f"{problem.id}: no such episode was played here")
                if len(turns) > self.max_turns:
                    found = f"{len(turns)} turns; at most {self.max_turns}"
                    raise EnvironmentFailed(f"{problem.id}: an episode has {found}")
                self._keep(key, self._replayed(problem, turns))
            self._kept.move_to_end(key)
            return self._kept[key]

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

    def _replayed(self, problem: Problem, turns: Sequence[Turn]) -> Episode:
        steps, paid = self._asked("replay", self._replaying, 0, problem, turns)
        return ended([step_of(step) for step in steps], len(turns), paid)

    def _asked(
        self, verb: str, process: Process, key: int, problem: Problem, turns: Sequence[Turn]
    ) -> list[Any]:
        question, *rest = self._said(verb, process, key, problem.id, turns)
        if question != problem.question:
            raise EnvironmentFailed(f"{problem.id}: reset says another thing than the first time")
        return rest

    def _said(
        self, verb: str, process: Process, key: int, problem_id: str, turns: Sequence[Turn]
    ) -> list[Any]:
        """Ask for ``verb`` as ``host.py`` has it; return the whole question, and the rest."""
        start = self._start(problem_id)
        sent = dict(start.row), start.seed, msgspec.to_builtins(list(turns))
        said, *rest = process.ask(verb, key, *sent)
        # TRL appends to the last user's message; a game's own words stand apart.
        between = "\n\n" if self._spec.kind == "game" and start.question and said else ""
        return [f"{start.question}{between}{said or ''}", *rest]

    def close(self) -> None:
        """End the processes that nobody plays in; the next question starts new ones."""
        with self._lock:
            _end((*self._idle, self._replaying))
            self._idle = []


def _bytes_of(key: EpisodeKey, episode: Episode) -> int:
    heard = [len(o.content + o.tool) for said in episode.observations for o in said]
    texts = CHARACTER_BYTES * (len(key[1]) + sum(heard))
    return EPISODE_BYTES + OBSERVATION_BYTES * len(heard) + texts


def _end(processes: Sequence[Process]) -> None:
    for process in processes:
        process.end()
