"""Functions of a recipe's ``[[reward]]``, in place of a task's rewards, with TRL's signature.

    def correct(prompts, completions, solution, **columns):
        return [float(s in c) for s, c in zip(solution, completions)]

Loading one runs a stranger's file: callers ask for ``--trust-code`` before.

Source: TRL 1.16, GRPOTrainer; a function that works there works here unchanged. **Deviations**: the
table at the end of docs/tasks.md. An unfinished completion earns at most 0
(``docs/paper-notes.md``, decision 8), and what a text earns cannot depend on when it is asked.
"""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal, get_args

import numpy as np

from potluck.episode import transcript, turns_in
from potluck.fields import Options
from potluck.right import TASK, short_names
from potluck.search_path import add_trusted_folders
from potluck.tasks import base
from potluck.tasks.base import Attempts, DerivedTask, Graded, Task, TaskError
from potluck.tasks.calls import call, copied, numbers, parameters_of, takes_of
from potluck.tasks.own_code import import_file, with_own_names
from potluck.types import OUT_OF_ROOM, Completion, Episode, Problem

Format = Literal["text", "messages"]
TRIAL_TEXT = "A completion."
ColumnsOf = Callable[[Problem], Mapping[str, Any]]
NOT_COLUMNS = ("prompt", "completion", "completion_ids")
"""Columns that TRL does not pass on under these names: they are there in the plural."""


class RewardOptions(Options, frozen=True, kw_only=True):
    """A function that scores completions; several are added up. Without any the task grades."""

    function: str
    """Function: ``FILE.py:NAME`` from the current directory, ``MODULE:NAME``, or ``task``, the
    task's own grading. It is code, so it runs only with ``--trust-code``: docs/tasks.md."""
    weight: float = 1.0
    """Factor on its numbers; a completion's reward is the sum over all functions."""
    format: Literal["auto", "text", "messages"] = "auto"
    """Form of the prompts and completions that the function gets: texts, or lists of messages.
    "auto": messages where the data's questions are messages, as in TRL."""


@dataclass(frozen=True, slots=True)
class Reward:
    """A function that pays, and its weight."""

    name: str
    """The recipe's name for it: "rewards.py:correct", "package.module:correct", or "task"."""
    function: Callable[..., Any] | None
    """Function that pays; None: the task's own grading."""
    source: str
    """SHA-256 of the function's code, as ``load_function`` returns it."""
    weight: float = 1.0
    format: Format = "text"

    @classmethod
    def load(cls, name: str, *, weight: float = 1.0, format: Format = "text") -> "Reward":
        """Import, and so run, the file or module; raise TaskError as ``load_function`` does."""
        if name == TASK:
            return cls(name, None, "", weight, format)
        return cls(name, *load_function("reward", name), weight, format)


_OF_ALL: dict[str, FunctionType] = {}
HANDED: ContextVar[dict[str, FunctionType]] = ContextVar("HANDED", default=_OF_ALL)
"""Functions that this process's own user handed over, and so trusts, by their names in recipes. A
run in the background has a copy: a name may mean another function a moment later."""


def hand_over(function: Callable[..., Any]) -> str:
    """Keep ``function`` for ``load_function`` and return its name for a recipe, MODULE:NAME; raise
    TaskError for a lambda, or an object, which has none."""
    if not (isinstance(function, FunctionType) and function.__name__.isidentifier()):
        raise TaskError(f"reward is {function!r:.80}; expected a function with a name, by def")
    HANDED.get()[name := f"{function.__module__}:{function.__name__}"] = function
    return name


def load_function(what: str, name: str) -> tuple[Callable[..., Any], str]:
    """Import, and so run, the file or module that ``name`` begins with; return its function, and
    the SHA-256 of the file; of a function of ``__main__`` that of its own source. Raise TaskError,
    with ``what`` it is for, if there is none."""
    what, (place, _, attribute) = f"{what} {name!r}", name.rpartition(":")
    if place == "__main__":
        own = HANDED.get().get(name, getattr(sys.modules[place], attribute, None))
        if not isinstance(own, FunctionType):
            raise TaskError(
                f"{what} is of the Python program or notebook that made the run, and not here; go "
                f"on from there, or put it into a file for the next run and name FILE.py:NAME"
            )
        try:
            return own, hashlib.sha256(inspect.getsource(own).encode()).hexdigest()
        except OSError:  # typed at a prompt that keeps no text
            raise TaskError(f"{what} has no source; define it in a file, or in a cell") from None
    module, file = _imported(what, place)
    function = HANDED.get().get(name, getattr(module, attribute, None))
    if not callable(function):
        found = "is no function" if hasattr(module, attribute) else "is not there"
        raise TaskError(f"{what}: {attribute!r} {found} in {place}")
    return function, _sha256(file)


class CustomRewards(DerivedTask):
    """Another task's problems, paid by the weighted sum of ``rewards``."""

    def __init__(
        self,
        task: Task,
        rewards: Sequence[Reward],
        *,
        columns: ColumnsOf | None = None,
        tells_task: bool = False,
    ) -> None:
        """Raise TaskError where a function asks for a column that there is not. ``tells_task``: the
        task's own grading is told beside them, and pays nothing."""
        code = [(r.name, r.source, r.weight, r.format) for r in rewards]
        super().__init__(task, f"custom 1: {code}; problems of {task.digest}")
        if tells_task and all(reward.function is not None for reward in rewards):
            rewards = [*rewards, Reward(TASK, None, "", weight=0.0)]
        self._rewards = tuple(rewards)
        self._names = short_names([reward.name for reward in rewards])
        self._columns = columns or (lambda p: {"question": p.question, "answer": p.answer})
        first_id = next((id for split in get_args(base.Split) for id in task.ids(split)), None)
        self._first = task.problem(first_id) if first_id else None
        if self._first:
            first = Attempts([self._first], [], [], [])
            given = _given(first, "text", self._columns, lambda name: True)
            for reward in self._rewards:
                _require_columns(reward, given)

    def lacking(self, problem: Problem, text: str) -> str:
        """Functions have forms of their own: only the task's grading knows what a text lacks."""
        is_graded = any(reward.function is None for reward in self._rewards)
        return super().lacking(problem, text) if is_graded else ""

    def try_once(self) -> None:
        """Call each function for a made-up group of the first problem, before any model is loaded.
        Raise TaskError as ``graded`` does, and tell where another ``format`` would do."""
        if self._first is None:
            return
        texts = ["", self._first.answer or TRIAL_TEXT]  # a model may stop at once
        token_T, logp_T = np.zeros(1, np.int32), np.zeros(1, np.float32)
        written = [Completion(self._first.id, "trial", i, token_T, logp_T, "stop") for i in (0, 1)]
        answers = Attempts([self._first] * 2, written, texts, [None] * 2)
        for reward in self._rewards:
            if reward.function is None:
                continue
            try:
                _called(reward, reward.format, answers, self._columns)
            except TaskError as error:
                other: Format = "text" if reward.format == "messages" else "messages"
                if not self._expects(reward, other, answers, error):
                    raise
                raise TaskError(f"{error}; it can with format = {other!r} in [[reward]]") from error

    def _expects(self, reward: Reward, other: Format, answers: Attempts, error: TaskError) -> bool:
        """Tell whether a function failed for the form of what it got: it raised an error of types,
        does so for answers that are not empty too, and grades them in the ``other`` form."""
        if not isinstance(error.__cause__, TypeError | AttributeError | LookupError):
            return False
        written = answers._replace(texts=[TRIAL_TEXT] * len(answers.texts))
        with suppress(TaskError):
            _called(reward, reward.format, written, self._columns)
            return False
        with suppress(TaskError):
            _called(reward, other, answers, self._columns)
            return True
        return False

    def graded(self, answers: Attempts) -> Graded:
        """Add up weight x number of each, and tell what each function returned, 0 for None. Raise
        TaskError if a function raised, or returned anything but one number or None for each."""
        if not list(zip(*answers, strict=True)):
            return [], {}
        totals, parts = [0.0] * len(answers.texts), {}
        for name, reward in zip(self._names, self._rewards, strict=True):
            if reward.function is None:
                values, _ = base.graded(self._task, *answers)
            else:
                values = _called(reward, reward.format, answers, self._columns)
            parts[name] = values
            totals = [t + reward.weight * value for t, value in zip(totals, values, strict=True)]
            for i, total in enumerate(totals):
                if not abs(total) <= base.LARGEST_REWARD:
                    raise TaskError(
                        f"reward {reward.name!r} returned {values[i]:g} for completion {i}, which "
                        f"times its weight {reward.weight:g} makes {total:g}; expected a sum of at "
                        f"most {base.LARGEST_REWARD:g}"
                    )
        # At most: where a bad answer costs something, running on must not be the cheaper way.
        pairs = zip(totals, answers.completions, strict=True)
        return [min(total, 0.0) if c.end in OUT_OF_ROOM else total for total, c in pairs], parts


class HashReward(DerivedTask):
    """Another task's problems, paid by one bit of a hash of the tokens, to test the machinery.
    **Deviation** from other tasks: it pays the unfinished, as an untrained model rarely stops."""

    def __init__(self, task: Task) -> None:
        rules = "hash 1: lowest bit of the first byte of sha256(problem id, tokens as <i4)"
        super().__init__(task, f"{rules}; problems of {task.digest}")

    def graded(self, answers: Attempts) -> Graded:
        rewards = []
        for _, completion, *_ in zip(*answers, strict=True):
            hashed = completion.problem_id.encode() + completion.token_T.astype("<i4").tobytes()
            rewards.append(float(hashlib.sha256(hashed).digest()[0] & 1))
        return rewards, {"task": rewards}


def _given(
    answers: Attempts, format: Format, columns: ColumnsOf, takes: Callable[[str], bool]
) -> dict[str, Any]:
    """Collect the keywords that TRL passes; of columns those that the function ``takes``. All are
    new, each completion's its own: a function may change what it is given."""
    problems, completions, texts, episodes = answers
    rows = [columns(problem) for problem in problems]
    names = dict.fromkeys(name for row in rows for name in row if name not in NOT_COLUMNS)
    as_messages = format == "messages"
    return {
        **{name: [copied(row.get(name)) for row in rows] for name in names if takes(name)},
        "prompts": [p.messages if as_messages else p.question for p in problems],
        "completions": [
            _messages(*written) if as_messages else written[1]
            for written in zip(completions, texts, episodes, strict=True)
        ],
        "completion_ids": [completion.token_T.tolist() for completion in completions],
        "log_extra": lambda name, value: None,
        "log_metric": lambda name, value: None,
    }


def _messages(completion: Completion, text: str, episode: Episode | None) -> list[dict[str, Any]]:
    if episode is None:
        return [{"role": "assistant", "content": text}]
    turns = turns_in(completion.text or "") or ()
    messages = [dict(message) for message in transcript(turns, episode)]
    for message in messages:
        if calls := message.pop("calls", None):
            message["tool_calls"] = [{"type": "function", "function": call} for call in calls]
    return messages


def _called(reward: Reward, format: Format, answers: Attempts, columns: ColumnsOf) -> list[float]:
    assert reward.function
    given = _given(answers, format, columns, takes_of(reward.function))
    values = call(reward.name, reward.function, given, len(answers.texts))
    return numbers(reward.name, values)


def _require_columns(reward: Reward, given: Mapping[str, Any]) -> None:
    for p in parameters_of(reward.function) if reward.function else ():
        needed = p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if needed and p.name not in given:
            there = ", ".join(name[:40] for name in [*given][:20])
            if p.name == "environments":
                raise TaskError(
                    f"reward {reward.name!r} asks for 'environments', which TRL passes and Potluck "
                    f"does not: they play in processes of their own; pay by the environment's "
                    f"get_reward, or read completions"
                )
            raise TaskError(
                f"reward {reward.name!r} asks for {p.name!r}, which the problems do not have; "
                f"there is {there}"
            )


def _imported(what: str, place: str) -> tuple[ModuleType, Path]:
    """Import, and so run, a file or a module; return it, and its file."""
    file, is_file = Path(place).expanduser(), place.endswith(".py")
    if is_file and not file.is_file():
        raise TaskError(f"{what}: there is no file {file}; relative paths begin in {Path.cwd()}")
    try:
        module = import_file(file) if is_file else _module(place)
    except Exception as error:
        reason = with_own_names(f"{type(error).__name__}: {error}".splitlines()[0])
        folder = str(file.resolve().parent)
        way_out = "expected a module on Python's path, or a file FILE.py:FUNCTION"
        if is_file and isinstance(error, ImportError):
            way_out = "a file imports what is installed, and what lies beside it"
            way_out += "" if folder in reason else f" in {folder}"
        raise TaskError(f"{what} cannot be imported ({reason}); {way_out}") from error
    if not (its_file := getattr(module, "__file__", None)):
        raise TaskError(f"{what}: module {place} has no file; name one that has")
    return module, Path(its_file)


def _module(name: str) -> ModuleType:
    """Import a module; its user trusts it, so it may lie in the current folder."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:  # what it imports itself is not installed
            raise
    add_trusted_folders()
    return importlib.import_module(name)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
