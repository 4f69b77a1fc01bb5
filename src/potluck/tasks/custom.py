"""Reward functions of one's own, with the signature that TRL's users have.

    def correct(prompts, completions, solution, **columns):
        return [float(s in c) for s, c in zip(solution, completions)]

Called with keywords, each a list with one entry a completion: ``prompts``,
``completions``, ``completion_ids`` (lists of int), and every column of the problems' rows
but "prompt", "completion" and "completion_ids"; a task that has no rows has the columns
``question`` and ``answer``. It returns one number for each completion, or None where it has
nothing to say about one. It may be ``async``. The reward is the sum of weight x number.

Source: TRL 1.16, GRPOTrainer; a function that works there works here unchanged but for the
**deviations**:
  - an unfinished completion earns at most 0 (``docs/paper-notes.md``, decision 8);
  - where every function says None a completion earns 0, TRL leaves it out of its group;
  - there is no ``trainer_state``: what a text earns must not depend on when it is asked,
    since a resumed run asks again; ``log_extra`` and ``log_metric`` are there and do nothing;
  - functions without ``**`` get what they name, where TRL raises;
  - ``async`` functions run one after the other, TRL runs those of one batch together;
  - a NaN is an error, for TRL it is None.
"""

import asyncio
import functools
import inspect
import math
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from potluck.tasks.base import Split, Task, TaskError, digest_of
from potluck.tasks.reward_code import Format, Reward, parameters_of
from potluck.types import Completion, Problem

Columns = Callable[[Problem], Mapping[str, Any]]

NOT_COLUMNS = ("prompt", "completion", "completion_ids")
"""What TRL does not pass on under these names: it is there in the plural."""


class CustomRewards:
    """Another task's problems, paid by the weighted sum of ``rewards``."""

    def __init__(
        self, task: Task, rewards: Sequence[Reward], *, columns: Columns | None = None
    ) -> None:
        """Raises TaskError where a function asks for a column that there is not."""
        self._task, self._rewards = task, tuple(rewards)
        self._columns = columns or _question_and_answer
        first = next((id for split in _SPLITS for id in task.ids(split)), None)
        if first:
            given = _given([task.problem(first)], [], [], "text", self._columns)
            for reward in self._rewards:
                _require_columns(reward, given)
        code = [(r.name, r.source, r.weight, r.format) for r in rewards]
        self.digest = digest_of(f"custom 1: {code}; problems of {task.digest}", ())

    def ids(self, split: Split) -> Sequence[str]:
        return self._task.ids(split)

    def problem(self, id: str) -> Problem:
        return self._task.problem(id)

    def rewards(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
    ) -> list[float]:
        """As every task, but a function may raise, hang or run what it reads: it is trusted.

        Raises:
            TaskError: a function raised, or returned anything but one number or None for each.
        """
        if not list(zip(problems, completions, texts, strict=True)):
            return []
        totals = [0.0] * len(texts)
        for reward in self._rewards:
            values: Sequence[float | None]
            if reward.function is None:
                values = self._task.rewards(problems, completions, texts)
            else:
                given = _given(problems, completions, texts, reward.format, self._columns)
                values = _called(reward, reward.function, given, len(texts))
            for i, value in enumerate(values):
                totals[i] += reward.weight * (value or 0.0)
        ends = (completion.end for completion in completions)
        # At most: where a bad answer costs something, running on must not be the cheaper way.
        return [
            total if end == "stop" else min(total, 0.0)
            for total, end in zip(totals, ends, strict=True)
        ]


_SPLITS: tuple[Split, ...] = ("train", "validation", "out-of-distribution")


def _question_and_answer(problem: Problem) -> Mapping[str, Any]:
    return {"question": problem.question, "answer": problem.answer}


def _given(
    problems: Sequence[Problem],
    completions: Sequence[Completion],
    texts: Sequence[str],
    format: Format,
    columns: Columns,
) -> dict[str, Any]:
    """The keywords that TRL passes. A column that a row does not have is None there."""
    rows = [columns(problem) for problem in problems]
    names = dict.fromkeys(name for row in rows for name in row if name not in NOT_COLUMNS)
    prompts: list[Any] = [problem.question for problem in problems]
    said: list[Any] = list(texts)
    if format == "messages":
        prompts = [_messages(problem) for problem in problems]
        said = [[{"role": "assistant", "content": text}] for text in texts]
    return {
        **{name: [row.get(name) for row in rows] for name in names},
        "prompts": prompts,
        "completions": said,
        "completion_ids": [completion.token_T.tolist() for completion in completions],
        "log_extra": _ignored,
        "log_metric": _ignored,
    }


def _messages(problem: Problem) -> list[dict[str, str]]:
    system = [{"role": "system", "content": problem.system}] if problem.system else []
    return [*system, {"role": "user", "content": problem.question}]


def _ignored(name: str, value: object) -> None:
    """What TRL would write into its log."""


def _called(
    reward: Reward, function: Callable[..., Any], given: Mapping[str, Any], count: int
) -> list[float | None]:
    """What ``function`` returns for each of ``count`` completions; TaskError for what is odd."""
    parameters = parameters_of(function)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        given = {p.name: given[p.name] for p in parameters if p.name in given}
    try:
        returned = function(**given)
        if inspect.isawaitable(returned):
            returned = asyncio.run_coroutine_threadsafe(_result(returned), _loop()).result()
        values = list(returned) if isinstance(returned, Iterable) else None
    except Exception as error:  # a stranger's code may raise anything
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise TaskError(
            f"reward {reward.name!r} raised {type(error).__name__}: {error} "
            f"({Path(at.filename).name}, line {at.lineno}); it has to grade any completion"
        ) from error
    if values is None or len(values) != count:
        found = type(returned).__name__ if values is None else f"{len(values)} values"
        raise TaskError(
            f"reward {reward.name!r} returned {found} for {count} completions; expected one "
            f"number or None for each"
        )
    return [_number(reward, i, value) for i, value in enumerate(values)]


def _number(reward: Reward, i: int, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        found = repr(value)[:60]
        raise TaskError(
            f"reward {reward.name!r} returned {found} for completion {i}; expected a finite "
            f"number, or None"
        )
    return number


async def _result(awaitable: Any) -> Any:
    return await awaitable


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for the whole process, in a thread of its own.

    A client that a function keeps open belongs to the loop it was opened in, and whoever
    calls us, a notebook for one, may be inside a loop already.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rewards", daemon=True).start()
    return loop


def _require_columns(reward: Reward, given: Mapping[str, Any]) -> None:
    for p in parameters_of(reward.function) if reward.function else ():
        needed = p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if needed and p.name == "trainer_state":
            raise TaskError(
                f"reward {reward.name!r} asks for 'trainer_state', which TRL passes and Potluck "
                f"does not: what a text earns must not depend on when it is asked"
            )
        if needed and p.name not in given:
            there = ", ".join(name[:40] for name in [*given][:20])
            raise TaskError(
                f"reward {reward.name!r} asks for {p.name!r}, which the problems do not have; "
                f"there is {there}"
            )
