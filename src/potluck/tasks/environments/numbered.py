"""Tasks without data: the problems are numbers, of which an environment makes questions."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

from potluck.fields import Count
from potluck.tasks.base import HeldTask, Split, TaskError
from potluck.tasks.environments.task import EnvironmentTask, PlayOptions
from potluck.types import Completion, Problem


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
        base = Numbered(self)
        return EnvironmentTask(base, self, *entry, row=base.row)

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
    """Those of the problems out of distribution; without them there are none."""

    def columns(self, split: Split) -> Mapping[str, Any] | None:
        return self.other_parameters if split == "out-of-distribution" else self.parameters


class Numbered(HeldTask):
    """Problems that are a number each, from 0 over all splits; an environment makes up the rest."""

    def __init__(self, options: NumberedOptions) -> None:
        self._rows, columns_of = dict[str, Mapping[str, Any]](), []
        ids: dict[Split, list[str]] = {}
        for split in sorted(get_args(Split), reverse=True):
            if (columns := options.columns(split)) is None:
                continue
            size = options.problems if split == "train" else options.validation_problems
            ids[split] = [f"{options.name}/{split}/{i}" for i in range(size)]
            numbered = enumerate(ids[split], start=len(self._rows))
            self._rows |= {id: {"number": number, **columns} for number, id in numbered}
            columns_of.append((split, size, dict(columns)))
        asked = options.question, "", options.system_prompt
        problems = [Problem(id, *asked) for id in self._rows]
        super().__init__(f"numbered 1: {json.dumps(columns_of, sort_keys=True)}", problems, ids)

    def row(self, id: str) -> Mapping[str, Any]:
        return self._rows[self.problem(id).id]

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        """Raise TaskError: nothing is known of a number."""
        raise TaskError("the environment has no get_reward; give it one, or a [[reward]]")
