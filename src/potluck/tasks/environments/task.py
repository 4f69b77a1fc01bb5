"""A task whose answers are episodes: another task's problems, or numbers, and an environment."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args

from msgspec import Meta

from potluck.episode import EnvironmentFailed, turns_in
from potluck.fields import Count, Positive
from potluck.files import derived_seed
from potluck.tasks import base
from potluck.tasks.base import Split, Task, TaskError
from potluck.tasks.environments.host import KINDS, EnvironmentKind, Spec
from potluck.tasks.environments.hosted import HostedEnvironment, Start
from potluck.types import OUT_OF_ROOM, Completion, Problem

RowOf = Callable[[str], Mapping[str, Any]]


class PlayOptions(base.TaskOptions, frozen=True, kw_only=True):
    """Limits of episodes. A task without an environment has none."""

    max_turns: Annotated[int, Meta(ge=1, le=4096)] = 16
    """Turns of an episode, at most."""
    observation_bytes: Annotated[int, Meta(ge=64)] = 4096
    """Bytes of each text of an environment; the rest is cut off, with a mark."""
    step_s: Positive = 5.0
    """Seconds that a reset or a step may compute, or four times as many on the clock. An episode
    of another node, played again, may take twice as long in all."""
    memory_gib: Positive = 4.0
    """Memory (address space) of a process in which environments run."""
    seed: int = 0
    """Seed of an environment: with the problem's id it decides what ``reset`` gets as ``seed``."""

    @property
    def code(self) -> Mapping[str, str]:
        return {key: name for key in KINDS if (name := getattr(self, key, ""))}

    def play(self) -> tuple[EnvironmentKind, str] | None:
        """Return the kind and the place of the class, if any; raise TaskError for two."""
        found = [(kind, self.code[kind]) for kind in KINDS if kind in self.code]
        if len(found) > 1:
            said = " and ".join(f"task.{key} is {name!r}" for key, name in found)
            raise TaskError(f"{said}; name one of them")
        return found[0] if found else None


class EnvironmentTask(base.DerivedTask):
    """Another task's problems, each the start of an episode: the question has behind it what the
    environment says at ``reset``. Where that pays nothing the other task grades the last turn."""

    environment: HostedEnvironment

    def __init__(
        self, task: Task, limits: PlayOptions, kind: EnvironmentKind, name: str, *, row: RowOf
    ) -> None:
        """Start a process to see its tools and whether it pays; ``reset`` gets the ``row``."""
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

    def graded(self, answers: base.Attempts) -> base.Graded:
        """Pay what an environment of this node paid, and at most 0 where room ran out. Raise
        TaskError for a completion without its episode."""
        paid, last = list[float](), list[str]()
        problems, completions, _, episodes = answers
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


class NumberedOptions(PlayOptions, frozen=True, kw_only=True):
    """Problems without data: a class makes each of them up, at ``reset``."""

    problems: Count = 2_000
    """Problems to train on."""
    validation_problems: Count = 256
    """Problems to validate on, and as many out of distribution, if there are any."""
    question: str = ""
    """Text before what the environment says at first, the same in all problems."""
    system_prompt: str = ""
    """System prompt of all problems."""

    def columns(self, split: Split) -> Mapping[str, Any] | None:
        """Return what ``reset`` gets beside ``number`` and ``seed``; None: no such split."""
        raise NotImplementedError

    def make(self) -> EnvironmentTask:
        if (entry := self.play()) is None:
            raise TaskError(f"task.name is {self.name!r}, but no task.game or task.environment")
        numbered = Numbered(self)
        return EnvironmentTask(numbered, self, *entry, row=numbered.row)

    @property
    def name(self) -> str:
        return str(self.__struct_config__.tag)


class GameOptions(NumberedOptions, frozen=True, kw_only=True, tag_field="name", tag="game"):
    """A class of your own that makes up its problems: docs/environments.md."""

    game: str = ""
    """Class with ``reset(**row)`` and ``step(text)``: ``FILE.py:NAME`` or ``MODULE:NAME``. It is
    code, so it runs only with ``--trust-code``."""
    environment: str = ""
    """Class of TRL's ``environment_factory`` instead: its methods are tools."""
    parameters: Mapping[str, Any] = MappingProxyType({})
    """Keywords that ``reset`` gets, the same in all problems."""
    other_parameters: Mapping[str, Any] | None = None
    """Keywords of the problems out of distribution; None: there are no such problems."""

    def columns(self, split: Split) -> Mapping[str, Any] | None:
        return self.other_parameters if split == "out-of-distribution" else self.parameters


class Numbered(base.HeldTask):
    """Problems that are a number each, from 0 over all splits; an environment makes up the rest."""

    def __init__(self, options: NumberedOptions) -> None:
        self._rows, columns_of = dict[str, Mapping[str, Any]](), []
        asked = options.question, "", options.system_prompt
        splits: dict[Split, list[Problem]] = {}
        for split in sorted(get_args(Split), reverse=True):
            if (columns := options.columns(split)) is None:
                continue
            size = options.problems if split == "train" else options.validation_problems
            problems = [Problem(f"{options.name}/{split}/{i}", *asked) for i in range(size)]
            for number, problem in enumerate(problems, start=len(self._rows)):
                self._rows[problem.id] = {"number": number, **columns}
            splits[split] = problems
            columns_of.append((split, size, dict(columns)))
        super().__init__(f"numbered 1: {json.dumps(columns_of, sort_keys=True)}", splits)

    def row(self, id: str) -> Mapping[str, Any]:
        return self._rows[self.problem(id).id]

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        """Raise TaskError: nothing is known of a number."""
        raise TaskError("the environment has no get_reward; give it one, or a [[reward]]")
