"""A call of a user's reward function: what it is handed, what it may return, what its errors say.

It gets copies, so that nothing that it does to them outlives the call; it returns an ordered
sequence with one number for each completion; a time limit that could not be set is told.
"""

import asyncio
import copy
import functools
import inspect
import os
import reprlib
import signal
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from potluck.files import one_line
from potluck.tasks.base import TaskError, number_of
from potluck.tasks.own_code import with_own_names

PLAIN = (str, bytes, int, float, complex, type(None))
"""Types whose values nothing can change: they are handed on as they are, however long."""
UNORDERED = (Mapping, Set, MappingView, str, bytes, bytearray, memoryview)
"""Types that can be iterated, and yet hold no numbers in the order of the completions."""
UNORDERED_ITERATORS: tuple[type, ...] = (
    type(iter({})),
    type(iter({}.items())),
    type(iter({}.values())),
    type(iter(set())),
)
TIMERS = {signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF}
"""Signals by which Python code limits its own time."""
OURS = str(Path(__file__).parents[1])
INSTALLED = [sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
NOT_THE_USERS = ("<frozen", *(folder + os.sep for folder in (OURS, *INSTALLED)))
"""How names of files begin that are Potluck's, Python's, or installed."""


def copied(value: Any) -> Any:
    """Copy what a row's column holds: lists and dicts down to their texts and numbers."""
    if isinstance(value, PLAIN):
        return value
    if type(value) is list:
        return [copied(item) for item in value]
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return copy.deepcopy(value)


def call(name: str, function: Callable[..., Any], given: Mapping[str, Any], count: int) -> Any:
    """Call the reward ``name`` with those of ``given`` that it takes; return the list that it
    returns, of ``count`` items. Raise TaskError if it raises, or returns anything else."""
    positional, keywords = _arguments(function, given)
    try:
        with time_limits_told(name):
            returned = function(*positional, **keywords)
            if inspect.isawaitable(returned):
                coroutine = asyncio.wait_for(returned, None)  # it may be any awaitable
                returned = asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()
            values = list(returned) if _is_sequence(returned) else None
    except TimeLimitNotSet as error:
        raise TaskError(str(error)) from None
    except Exception as error:  # a stranger's code may raise anything
        raise TaskError(
            f"reward {name!r} raised {type(error).__name__}: {_said(error)} "
            f"({_place(error, function)}); {_way_out(error)}"
        ) from error
    if values is None:
        raise TaskError(
            f"reward {name!r} returned {_shown(returned)} for {count} completions; expected a list "
            f"of one number or None for each, in their order"
        )
    if len(values) != count:
        raise TaskError(
            f"reward {name!r} returned {len(values)} values for {count} completions; expected one "
            f"number or None for each"
        )
    return values


def numbers(name: str, values: Sequence[Any]) -> list[float]:
    """Read what the reward ``name`` pays, 0 for None; raise TaskError for what is no number."""
    said = f"reward {name!r} returned"
    return [
        0.0 if value is None else number_of(value, said, f" for completion {i}")
        for i, value in enumerate(values)
    ]


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """List what a function takes; one in C, of which nothing is known, takes everything."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)]


def takes_of(function: Callable[..., Any]) -> Callable[[str], bool]:
    """Make what tells whether a function takes an argument of a name."""
    parameters = parameters_of(function)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters}
    return lambda name: takes_all or name in names


def _arguments(
    function: Callable[..., Any], given: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Choose what a function takes: its positional-only arguments, and keywords."""
    parameters = parameters_of(function)
    positional = list[Any]()
    for parameter in parameters:
        if parameter.kind is not parameter.POSITIONAL_ONLY or parameter.name not in given:
            break
        positional.append(given[parameter.name])
    taken_by_place = {p.name for p in parameters if p.kind is p.POSITIONAL_ONLY}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        names = [name for name in given if name not in taken_by_place]
    else:
        names = [p.name for p in parameters if p.name in given and p.name not in taken_by_place]
    return positional, {name: given[name] for name in names}


def _is_sequence(returned: Any) -> bool:
    """Tell whether iterating yields an item for each completion, in their order."""
    if isinstance(returned, (*UNORDERED, *UNORDERED_ITERATORS)):
        return False
    # A table of pandas or polars yields its columns; an array of two dimensions, its rows.
    is_table = getattr(returned, "ndim", 1) != 1 and not hasattr(returned, "tolist")
    return isinstance(returned, Iterable) and not is_table and not hasattr(returned, "iter_rows")


def _shown(value: Any) -> str:
    """Name a value's type, and show what it holds where that fits into a line."""
    kind = type(value).__name__
    if value is None:
        return kind
    try:
        text = " ".join(reprlib.repr(value).split())
    except Exception:  # of a stranger's class
        return kind
    return f"{kind} {text[:60]}"


def _said(error: BaseException) -> str:
    """Write an error's message as one line."""
    return with_own_names(one_line(str(error)))


def _place(error: BaseException, function: Callable[..., Any]) -> str:
    """Name the file and line of the user's code at which it raised: not of a library, nor ours."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(NOT_THE_USERS)]
    if own:
        return f"{Path(own[-1].filename).name}, line {own[-1].lineno}"
    with suppress(Exception):
        code = inspect.unwrap(function).__code__
        if not code.co_filename.startswith(NOT_THE_USERS):
            return f"{Path(code.co_filename).name}, line {code.co_firstlineno}"
    deepest = frames[-1]
    return f"{Path(deepest.filename).name}, line {deepest.lineno}"


def _way_out(error: BaseException) -> str:
    kind = type(error).__name__
    if kind in ("BrokenProcessPool", "TerminatedWorkerError") or "pickle" in str(error).lower():
        return (
            "a process that is not forked imports what it runs by its name: define that at the top "
            "of a file (a program's own work stands under `if __name__ == '__main__':`), not in a "
            "notebook or in another function; or take multiprocessing.get_context('fork')"
        )
    if isinstance(error, ImportError):
        return "a file imports what is installed, and what lies beside it"
    return "it has to grade any completion"


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Start the one event loop of this process, in a thread of its own: an open client belongs to
    the loop it was opened in, and a notebook is inside a loop already."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rewards", daemon=True).start()
    return loop


# Python sets a signal's handler in the main thread alone. A library that limits its time by
# SIGALRM, as math-verify does, raises ValueError anywhere else; a function that takes each error
# for a wrong answer would then pay 0 for everything, and nothing would say so.


class TimeLimitNotSet(Exception):
    """A function tried to limit its time by a signal where none can be set."""


_refused: list[list[str]] = []
"""A list for each call of a reward that is going on: places at which a limit was not set."""
_guard = threading.RLock()
_true_signal = signal.signal


def _signal(number: int, handler: Any) -> Any:
    """Do what ``signal.signal`` does, and note a timer that it cannot set."""
    try:
        return _true_signal(number, handler)
    except ValueError:
        if number in TIMERS and threading.current_thread() is not threading.main_thread():
            with _guard:
                for places in _refused:
                    places.append(signal.Signals(number).name)
        raise


@contextmanager
def time_limits_told(name: str) -> Iterator[None]:
    """Raise TimeLimitNotSet at the end if a time limit could not be set, whoever took its error."""
    places = list[str]()
    with _guard:
        _refused.append(places)
        setattr(signal, "signal", _signal)  # noqa: B010  (mypy knows its own signature)
    problem: Exception | None = None
    try:
        yield
    except Exception as error:
        problem = error
    finally:
        with _guard:
            _refused[:] = [other for other in _refused if other is not places]
            if not _refused:
                signal.signal = _true_signal
    if places:
        raise TimeLimitNotSet(
            f"reward {name!r} limits its time by {places[0]}, which Python permits in the main "
            f"thread alone; run it without background=True, as a plain `def` and in no thread of "
            f"its own, or without that limit (math-verify: parse(..., parsing_timeout=None), "
            f"verify(..., timeout_seconds=None))"
        ) from problem
    if problem is not None:
        raise problem
