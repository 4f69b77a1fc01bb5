"""A task whose answers are episodes: another task's problems, or numbers, and an environment."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from potluck.episode import EnvironmentFailed, turns_in
from potluck.files import derived_seed
from potluck.tasks.base import DerivedTask, Graded, Task, TaskError
from potluck.tasks.environments.hosted import HostedEnvironment, Start
from potluck.tasks.environments.kinds import EnvironmentKind, Spec
from potluck.tasks.environments.options import PlayOptions
from potluck.types import OUT_OF_ROOM, Completion, Episode, Problem

RowOf = Callable[[str], Mapping[str, Any]]


class EnvironmentTask(DerivedTask):
    """Another task's problems, each the start of an episode.

    A question has behind it what the environment says at ``reset``. It pays the reward; one that
    has none leaves that to the other task, which reads the last turn alone.
    """

    environment: HostedEnvironment

    def __init__(
        self, task: Task, limits: PlayOptions, kind: EnvironmentKind, name: str, *, row: RowOf
    ) -> None:
        """Start a process to see what tools there are, and whether it pays. ``row`` of a problem's
        id is what ``reset`` gets. Raise TaskError where there is no such class."""
        place, _, attribute = name.rpartition(":")
        is_file = place.endswith(".py")
        here = f"{Path(place).expanduser().absolute()}:{attribute}" if is_file else name
        environment = HostedEnvironment(
            Spec(kind, here, limits.observation_bytes),
            self._start,
            max_turns=limits.max_turns,
            step_s=limits.step_s,
            limit_bytes=int(limits.memory_gib * 2**30),
        )
        try:
            try:
                schemas, self._pays = environment.about()
            except EnvironmentFailed:  # it may be made of a client of the network
                environment.grade = "own"
                schemas, self._pays = environment.about()
        except EnvironmentFailed as error:
            raise TaskError(str(error)) from error
        self._tools = json.dumps(schemas) if schemas else ""
        self._row, self._seed = row, limits.seed
        self._asked: dict[str, Problem] = {}
        # A file may lie elsewhere on another node, but is called the same.
        known = f"{Path(place).name if is_file else place}:{attribute}"
        bounds = limits.max_turns, limits.observation_bytes, limits.step_s, limits.memory_gib
        rules = f"environment 1: {kind} {known}, tools {self._tools}, limits {bounds}"
        super().__init__(task, f"{rules}, seed {limits.seed}; problems of {task.digest}")
        self.environment, self.base = environment, task

    def _start(self, id: str) -> Start:
        seed = derived_seed(f"{self._seed}/{id}")
        return Start(self._row(id), seed, self._task.problem(id).question)

    def problem(self, id: str) -> Problem:
        if id not in self._asked:
            problem = self._task.problem(id)
            try:
                question = self.environment.question(id)
            except EnvironmentFailed as error:
                raise TaskError(f"{id} cannot begin: {error}") from error
            self._asked[id] = replace(problem, question=question, tools=self._tools)
        return self._asked[id]

    def graded(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
        episodes: Sequence[Episode | None],
    ) -> Graded:
        """Pay what an environment of this node paid, and at most 0 where room ran out. Raise
        TaskError for a completion without its episode."""
        paid, last = list[float](), list[str]()
        for completion, episode in zip(completions, episodes, strict=True):
            if not (turns := turns_in(completion.text or "")) or episode is None:
                raise TaskError(
                    f"a completion of {completion.problem_id!r} comes without its episode; play it "
                    f"in task.environment, and grade both by potluck.tasks.base.graded"
                )
            last.append(turns[-1].content)
            is_cut = completion.end in OUT_OF_ROOM
            paid.append(min(episode.reward, 0.0) if is_cut else episode.reward)
        rewards = paid if self._pays else self._task.rewards(problems, completions, last)
        return rewards, {"task": rewards}
