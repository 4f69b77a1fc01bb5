"""Reward functions of each kind, as tables: what they return, what they do to what they are given,
and what they start. Each is right, or refused in one line that names function and value."""

import array
import asyncio
import collections
import contextlib
import contextvars
import copy
import decimal
import enum
import fractions
import functools
import io
import json
import math
import multiprocessing
import os
import queue
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from potluck.launch.children import interrupts
from potluck.tasks import TaskError
from tasks.test_custom import asked, by, paid_by

NAN, INF = math.nan, math.inf


class Score(enum.IntEnum):
    GOOD = 1


class Half(float):
    pass


class WithFloat:
    def __float__(self):
        return 0.5


class WithIndex:
    def __index__(self):
        return 1


class BadRepr:
    def __repr__(self):
        raise RuntimeError


class OwnSequence(collections.abc.Sequence):
    def __len__(self):
        return 2

    def __getitem__(self, at):
        return [1.0, 0.5][at]


class Endless:
    def __iter__(self):
        raise ValueError("no more")


def breaking():
    yield 1.0
    raise ValueError("half way")


async def later():
    yield 1.0


@dataclass
class Scores:
    values: list


Pair = collections.namedtuple("Pair", "one other")

PAID = {
    "list": ([1.0, 0.5], [1.0, 0.5]),
    "tuple": ((1.0, 0.5), [1.0, 0.5]),
    "named tuple": (Pair(1.0, 0.5), [1.0, 0.5]),
    "own sequence": (OwnSequence(), [1.0, 0.5]),
    "generator": (lambda: (x for x in (1.0, 0.5)), [1.0, 0.5]),
    "map": (lambda: map(float, "10"), [1.0, 0.0]),
    "filter": (lambda: filter(None, [1.0, 2.0]), [1.0, 2.0]),
    "zip longest": (lambda: iter((1.0, 0.5)), [1.0, 0.5]),
    "range": (range(2), [0.0, 1.0]),
    "deque": (collections.deque([1.0, 0.5]), [1.0, 0.5]),
    "array of Python": (array.array("d", [1.0, 0.5]), [1.0, 0.5]),
    "numpy": (np.array([1.0, 0.5]), [1.0, 0.5]),
    "numpy of integers": (np.array([1, 0], np.int8), [1.0, 0.0]),
    "numpy of truths": (np.array([True, False]), [1.0, 0.0]),
    "numpy of half": (np.array([1.0, 0.5], np.float16), [1.0, 0.5]),
    "numpy of objects": (np.array([1.0, None], object), [1.0, 0.0]),
    "list of numpy numbers": ([np.float32(1), np.int64(0)], [1.0, 0.0]),
    "list of arrays without dimensions": ([np.array(1.0), np.array(0.5)], [1.0, 0.5]),
    "tensor": (torch.tensor([1.0, 0.5]), [1.0, 0.5]),
    "tensor of bfloat16": (torch.tensor([1.0, 0.5], dtype=torch.bfloat16), [1.0, 0.5]),
    "tensor of integers": (torch.tensor([1, 0]), [1.0, 0.0]),
    "tensor of truths": (torch.tensor([True, False]), [1.0, 0.0]),
    "tensor with a gradient": (torch.tensor([1.0, 0.5], requires_grad=True), [1.0, 0.5]),
    "list of tensors": ([torch.tensor(1.0), torch.tensor([0.5])], [1.0, 0.5]),
    "series": (pandas.Series([1.0, 0.5]), [1.0, 0.5]),
    "series with an index": (pandas.Series([1.0, 0.5], index=[7, 3]), [1.0, 0.5]),
    "series that can miss": (pandas.Series([1, 0], dtype="Int64"), [1.0, 0.0]),
    "index": (pandas.Index([1.0, 0.5]), [1.0, 0.5]),
    "truths": ([True, False], [1.0, 0.0]),
    "whole numbers": ([1, 0], [1.0, 0.0]),
    "decimals": ([decimal.Decimal("1"), decimal.Decimal("0.5")], [1.0, 0.5]),
    "fractions": ([fractions.Fraction(1), fractions.Fraction(1, 2)], [1.0, 0.5]),
    "members of an enumeration": ([Score.GOOD, 0], [1.0, 0.0]),
    "own floats": ([Half(1), Half(0.5)], [1.0, 0.5]),
    "None": ([1.0, None], [1.0, 0.0]),
    "all None": ([None, None], [0.0, 0.0]),
    "below nothing": ([-1.0, -0.0], [-1.0, 0.0]),
    "large": ([1e29, -1e29], [1e29, -1e29]),
    "tiny": ([5e-324, 1e-300], [5e-324, 1e-300]),
}  # fmt: skip
REFUSED = {
    "dict": ({0: 1.0, 1: 0.5}, "returned dict"),
    "dict of scores": ({"score": [1.0, 0.5]}, "returned dict"),
    "ordered dict": (collections.OrderedDict({0: 1.0, 1: 0.5}), "returned OrderedDict"),
    "default dict": (collections.defaultdict(float, {0: 1.0, 1: 0.5}), "returned defaultdict"),
    "counter": (collections.Counter("ab"), "returned Counter"),
    "proxy of a dict": (types.MappingProxyType({0: 1.0, 1: 0.5}), "returned mappingproxy"),
    "keys": ({1.0: 0, 0.5: 0}.keys(), "returned dict_keys"),
    "values": ({0: 1.0, 1: 0.5}.values(), "returned dict_values"),
    "set": ({1.0, 0.5}, "returned set"),
    "frozen set": (frozenset((1.0, 0.5)), "returned frozenset"),
    "text": ("10", "returned str"),
    "bytes": (b"10", "returned bytes"),
    "json": (json.dumps([1.0, 0.5]), "returned str"),
    "frame": (pandas.DataFrame({"a": [1.0], "b": [0.5]}), "returned DataFrame"),
    "dataclass": (Scores([1.0, 0.5]), "returned Scores"),
    "one number": (1.0, "returned float 1.0"),
    "one truth": (True, "returned bool True"),
    "one numpy number": (np.float64(1.0), "returned float64"),
    "array without dimensions": (np.array(1.0), "returned ndarray|raised TypeError"),
    "tensor without dimensions": (torch.tensor(1.0), "returned Tensor|raised TypeError"),
    "nothing": (None, "returned NoneType"),
    "dots": (..., "returned ellipsis"),
    "a class": (list, "returned type"),
    "a function": (len, "returned builtin_function_or_method"),
    "what has no text": (BadRepr(), "returned BadRepr"),
    "asynchronous generator": (lambda: later(), "returned async_generator"),
    "open file": (io.StringIO("1\n0\n"), r"returned '1\\n' for completion 0"),
    "what breaks at once": (Endless(), "raised ValueError: no more"),
    "generator that breaks": (breaking, "raised ValueError: half way"),
    "none": ([], "returned 0 values for 2 completions"),
    "too few": ([1.0], "returned 1 values for 2 completions"),
    "too many": ([1.0] * 3, "returned 3 values for 2 completions"),
    "empty generator": (lambda: iter(()), "returned 0 values"),
    "rows": ([[1.0], [0.5]], r"returned \[1.0\] for completion 0"),
    "rows of two": ([[1.0, 0.5], [0.5, 1.0]], "for completion 0"),
    "matrix": (np.eye(2), "for completion 0"),
    "matrix of torch": (torch.eye(2), "for completion 0"),
    "a row of both": ([[1.0, 0.5]], "returned 1 values"),
    "pairs": ([(1.0, "well"), (0.5, "so")], r"returned \(1.0, 'well'\) for completion 0"),
    "dicts": ([{"score": 1.0}, {"score": 0.5}], r"returned \{'score': 1.0\} for completion 0"),
    "texts": (["1.0", "0.5"], "returned '1.0' for completion 0"),
    "words": ([1.0, "good"], "returned 'good' for completion 1"),
    "empty text": ([1.0, ""], "returned '' for completion 1"),
    "NaN": ([NAN, 0.5], "returned nan for completion 0"),
    "NaN of numpy": (np.array([1.0, np.nan]), "returned nan for completion 1"),
    "NaN of a tensor": (torch.tensor([1.0, torch.nan]), "for completion 1"),
    "NaN of pandas": (pandas.Series([1, None], dtype="Int64"), "for completion 1"),
    "NaN of a decimal": ([decimal.Decimal("NaN"), 1], "for completion 0"),
    "infinity": ([INF, 0.5], "returned inf for completion 0"),
    "minus infinity": ([1.0, -INF], "returned -inf for completion 1"),
    "infinity of numpy": (np.array([np.inf, 1.0]), "returned inf for completion 0"),
    "too large": ([1e31, 0.5], r"returned 1e\+31 .* at most 1e\+30"),
    "far too large": ([1e200, 0.5], r"returned 1e\+200 .* at most 1e\+30"),
    "far below": ([1.0, -1e308], r"returned -1e\+308 .* at most 1e\+30"),
    "too large a whole number": ([10**400, 1], "for completion 0"),
    "too large a decimal": ([decimal.Decimal("1e400"), 1], "for completion 0"),
    "too large a fraction": ([fractions.Fraction(10**400), 1], "for completion 0"),
    "complex": ([1 + 0j, 0.5], r"returned \(1\+0j\) for completion 0"),
    "dates": (np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"), "for completion 0"),
    "functions": ([len, len], "for completion 0"),
    "exceptions": ([ValueError("x"), 1.0], "for completion 0"),
    "what has no text among them": ([BadRepr(), 1.0], "for completion 0"),
}  # fmt: skip


def returning(value):
    """Make a function that returns a value, or what a function of a table makes anew."""
    is_made = isinstance(value, types.FunctionType)
    return lambda **_: value() if is_made else value


@pytest.mark.parametrize("case", PAID)
def test_what_is_a_number_for_each_is_paid(case):
    value, paid = PAID[case]
    assert asked(paid_by(by(returning(value))), "a", "b") == paid


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_none_is_refused_in_one_line(case):
    value, found = REFUSED[case]
    with pytest.raises(TaskError, match=rf"^reward 'here:f' .*({found})") as caught:
        asked(paid_by(by(returning(value))), "a", "b")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


ROW = {
    "question": "9 + 9?",
    "answer": "18",
    "tests": [1, [2, [3]], {"a": [4, {"b": [5]}]}],
    "rubric": {"parts": [{"points": [1, 2]}]},
    "name": "sum",
}
CHANGES = {
    "pops from a list": lambda tests, **_: [cases.pop() for cases in tests],
    "clears a list": lambda tests, **_: [cases.clear() for cases in tests],
    "sorts a list": lambda tests, **_: [cases.reverse() for cases in tests],
    "adds to a list": lambda tests, **_: [cases.append(9) for cases in tests],
    "takes from a list with del": lambda tests, **_: [cases.__delitem__(0) for cases in tests],
    "pops from a list in a list": lambda tests, **_: [cases[1].pop() for cases in tests],
    "clears a list three deep": lambda tests, **_: [cases[1][1].clear() for cases in tests],
    "clears a dict": lambda tests, **_: [cases[2].clear() for cases in tests],
    "pops a key": lambda tests, **_: [cases[2].pop("a") for cases in tests],
    "clears a list in a dict": lambda tests, **_: [cases[2]["a"].clear() for cases in tests],
    "clears a list in a dict in a list in a dict": lambda tests, **_: [
        cases[2]["a"][1]["b"].clear() for cases in tests
    ],
    "writes a key": lambda rubric, **_: [it.update(parts=None) for it in rubric],
    "clears a dict's list": lambda rubric, **_: [
        it["parts"][0]["points"].clear() for it in rubric
    ],
    "clears the column": lambda tests, **_: tests.clear(),
    "changes the column": lambda answer, **_: answer.__setitem__(0, "x"),
    "clears the completions": lambda completions, **_: completions.clear(),
    "changes a completion": lambda completions, **_: completions.__setitem__(0, "x"),
    "clears the prompts": lambda prompts, **_: prompts.clear(),
    "clears the ids": lambda completion_ids, **_: [ids.clear() for ids in completion_ids],
    "empties its keywords": lambda **given: given.clear(),
    "makes one list of all": lambda tests, **_: [
        tests[0].extend(cases) for cases in tests if cases is not tests[0]
    ],
}  # fmt: skip
UNCHANGED = {
    "tests": [ROW["tests"]] * 2,
    "rubric": [ROW["rubric"]] * 2,
    "answer": ["18"] * 2,
    "name": ["sum"] * 2,
    "completions": ["a", "b"],
    "prompts": ["9 + 9?"] * 2,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_function_changes_is_its_own(change):
    seen = []

    def f(**given):
        seen.append(copy.deepcopy({name: given[name] for name in UNCHANGED}))
        seen.append({"ids": [len(ids) > 0 for ids in given["completion_ids"]]})
        CHANGES[change](**given)
        return [1.0] * 2

    task = paid_by(by(f), by(f, "b.py:g"), rows=[ROW])
    task.try_once()
    del seen[:]
    for _ in range(2):
        assert asked(task, "a", "b") == [2.0, 2.0]
    assert seen == [UNCHANGED, {"ids": [True, True]}] * 4


def pop_one(tests, **_):
    """Pay for what is left: each completion has tests of its own."""
    paid = [float(len(cases)) for cases in tests]
    for cases in tests:
        cases.pop()
    return paid


def test_a_function_that_uses_up_its_tests_pays_each_completion_the_same_in_each_round():
    task = paid_by(by(pop_one), rows=[ROW])
    task.try_once()
    assert [asked(task, "a", "b", "c") for _ in range(3)] == [[3.0] * 3] * 3


def test_completions_may_share_what_a_function_keeps_for_itself():
    seen = collections.Counter()

    def f(completions, **_):
        seen.update(completions)
        return [float(seen[text]) for text in completions]

    assert asked(paid_by(by(f)), "a", "a") == [2.0, 2.0]


def size(text):
    return float(len(text))


def wait_for_ever():
    while True:
        time.sleep(60.0)


def compute_for_ever():
    while True:
        pass


def ignore_the_interrupt():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wait_for_ever()


def put(result, text):
    result.put(size(text))


def limited(completions, work=compute_for_ever, end="terminate"):
    """End each process that is not done, as graders of code do."""
    for _ in completions:
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        getattr(process, end)()
        process.join()
    return [size(text) for text in completions]


def by_pool(completions):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(size, completions)


def by_executor(completions):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        return list(pool.map(size, completions))


def by_pool_that_is_terminated(completions):
    pool = multiprocessing.get_context("fork").Pool(2)
    pool.apply_async(wait_for_ever)
    paid = pool.map(size, completions, chunksize=1)
    pool.terminate()
    pool.join()
    return paid


@functools.cache
def pool_that_is_kept():
    return multiprocessing.get_context("fork").Pool(1)


def by_pool_that_is_kept(completions):
    return pool_that_is_kept().map(size, completions)


def by_queue(completions):
    context = multiprocessing.get_context("fork")
    result, paid = context.SimpleQueue(), []
    for text in completions:
        process = context.Process(target=put, args=(result, text))
        process.start()
        paid.append(result.get())
        process.join()
    return paid


def by_fork(completions):
    paid = []
    for text in completions:
        if (child := os.fork()) == 0:
            os._exit(len(text))
        paid.append(float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    return paid


def by_fork_that_is_ended(number):
    def ended(completions):
        for _ in completions:
            ready, tell = os.pipe()
            if (child := os.fork()) == 0:
                os.write(tell, b"x")
                wait_for_ever()
            os.read(ready, 1)
            os.kill(child, number)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -number
            os.close(ready)
            os.close(tell)
        return [size(text) for text in completions]

    return ended


def by_subprocess(completions):
    program = "import sys; print(len(sys.stdin.read()))"
    words = [sys.executable, "-ISc", program]
    return [
        float(subprocess.run(words, input=text, capture_output=True, text=True).stdout)
        for text in completions
    ]


def by_subprocess_with_a_limit(completions):
    words = [sys.executable, "-ISc", "import time\nwhile True: time.sleep(60)"]
    for _ in completions[:1]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(words, timeout=0.01)
    return [size(text) for text in completions]


def by_subprocess_that_is_terminated(completions):
    for _ in completions[:1]:
        process = subprocess.Popen(["sleep", "60"])
        process.terminate()
        assert process.wait() == -signal.SIGTERM
    return [size(text) for text in completions]


def by_alarm(completions):
    class TooLong(Exception):
        pass

    def stop(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        wait_for_ever()
    except TooLong:
        return [size(text) for text in completions]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def by_threads(completions):
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(size, completions))


def by_thread_and_queue(completions):
    found = queue.SimpleQueue()
    threads = [threading.Thread(target=put, args=(found, text)) for text in completions]
    for thread in threads:
        thread.start()
        thread.join()
    return [found.get() for _ in completions]


def by_asyncio_run(completions):
    async def one(text):
        await asyncio.sleep(0)
        return size(text)

    async def all():
        return await asyncio.gather(*map(one, completions))

    return asyncio.run(all())


def by_a_loop_of_its_own(completions):
    async def one(text):
        return size(text)

    loop = asyncio.new_event_loop()
    try:
        return [loop.run_until_complete(one(text)) for text in completions]
    finally:
        loop.close()


def in_the_main_thread(completions):
    assert threading.current_thread() is threading.main_thread()
    return [size(text) for text in completions]


DOES = {
    "terminates": limited,
    "kills": lambda completions: limited(completions, end="kill"),
    "terminates one that waits": lambda completions: limited(completions, wait_for_ever),
    "terminates one that ignores Ctrl-C": lambda c: limited(c, ignore_the_interrupt),
    "a pool": by_pool,
    "an executor": by_executor,
    "terminates a pool at work": by_pool_that_is_terminated,
    "keeps a pool": by_pool_that_is_kept,
    "processes and a queue": by_queue,
    "forks": by_fork,
    "ends a fork by SIGTERM": by_fork_that_is_ended(signal.SIGTERM),
    "ends a fork by SIGHUP": by_fork_that_is_ended(signal.SIGHUP),
    "ends a fork by SIGALRM": by_fork_that_is_ended(signal.SIGALRM),
    "a program": by_subprocess,
    "a program with a limit": by_subprocess_with_a_limit,
    "terminates a program": by_subprocess_that_is_terminated,
    "an alarm": by_alarm,
    "threads": by_threads,
    "threads and a queue": by_thread_and_queue,
    "asyncio.run": by_asyncio_run,
    "a loop of its own": by_a_loop_of_its_own,
    "the main thread": in_the_main_thread,
}


@pytest.fixture(autouse=True, scope="module")
def no_pool_left():
    # What started the tests (nohup) may have them ignore it, and so what they fork.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
    pool_that_is_kept().terminate()
    pool_that_is_kept().join()


@pytest.mark.parametrize("case", DOES)
def test_what_a_function_starts_does_in_a_run_what_it_does_without(case):
    task = paid_by(by(lambda completions, **_: DOES[case](completions)))
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
    with interrupts() as interrupted:
        for _ in range(2):
            assert asked(task, "a", "bbb") == [1.0, 3.0]
        assert not interrupted()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)] == handlers


def raises(error):
    def f(**_):
        raise error

    return f


def local_work(completions):
    def inner(text):
        return size(text)

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(inner, completions))


def dying(completions):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        return list(pool.map(os._exit, [1]))


async def broken_later(**_):
    await asyncio.sleep(0)
    return 1 / 0


BREAKS = {
    "a local function in a pool of spawn": (lambda completions, **_: local_work(completions),
                                            "define that at the top of a file"),
    "a worker that dies": (lambda completions, **_: dying(completions), "raised BrokenProcessPool"),
    "division": (lambda **_: 1 / 0, r"raised ZeroDivisionError: .*\(test_reward_kinds.py, line"),
    "a key": (lambda **_: {}["x"], "raised KeyError: 'x'"),
    "an attribute": (lambda completions, **_: completions.no, "raised AttributeError"),
    "several lines": (raises(ValueError("one\ntwo\n\nthree")), "raised ValueError: one"),
    "an error without words": (raises(AssertionError()), "raised AssertionError"),
    "recursion": (lambda **_: (f := lambda: f())(), "raised RecursionError"),
    "memory": (raises(MemoryError()), "raised MemoryError"),
    "a group": (raises(ExceptionGroup("all", [ValueError("x")])), "raised ExceptionGroup: all"),
    "a time-out": (raises(TimeoutError("slow")), "raised TimeoutError: slow"),
    "the end of an iteration": (raises(StopIteration()), "raised StopIteration"),
    "a later error": (broken_later, "raised ZeroDivisionError"),
    "a loop in a loop": (lambda **_: asyncio.get_running_loop(), "raised RuntimeError"),
}  # fmt: skip


@pytest.mark.parametrize("case", BREAKS)
def test_a_function_that_breaks_is_told_in_one_line(case):
    function, found = BREAKS[case]
    with pytest.raises(TaskError, match=f"^reward 'here:f' .*{found}") as caught:
        asked(paid_by(by(function)), "a", "b")
    assert "\n" not in str(caught.value)


def reference(completions, answer, **_):
    return [float(text == right) for text, right in zip(completions, answer, strict=True)]


class Judge:
    """Grade as an object, with what it keeps."""

    __name__ = "judge"

    def __init__(self):
        self.asked = 0

    def __call__(self, completions, answer, **_):
        self.asked += 1
        return reference(completions, answer)

    def method(self, completions, answer, **_):
        return reference(completions, answer)

    @classmethod
    def of_class(cls, completions, answer, **_):
        return reference(completions, answer)

    @staticmethod
    def static(completions, answer, **_):
        return reference(completions, answer)


def logged(function):
    @functools.wraps(function)
    def wrapped(*given, **named):
        return function(*given, **named)

    return wrapped


def weighted(completions, answer, factor, **_):
    return [factor * paid for paid in reference(completions, answer)]


def keyword_only(*, completions, answer):
    return reference(completions, answer)


def positional(prompts, completions, answer, /):
    assert prompts
    return reference(completions, answer)


def with_defaults(completions, answer, bonus=0.0, missing=None, **_):
    assert missing is None
    return [paid + bonus for paid in reference(completions, answer)]


def of_the_ids(completions, completion_ids, answer, **_):
    assert all(type(ids) is list and ids for ids in completion_ids)
    return reference(completions, answer)


def that_logs(completions, answer, log_extra, log_metric, **_):
    log_extra("answer", answer)
    log_metric("share", 0.5)
    return reference(completions, answer)


def by_pattern(completions, answer, **_):
    found = (re.search("[0-9]+", text) for text in completions)
    return [float(bool(it) and it[0] == right) for it, right in zip(found, answer, strict=True)]


def by_json(completions, answer, **_):
    paid = []
    for text, right in zip(completions, answer, strict=True):
        try:
            paid.append(float(json.loads(text) == json.loads(right)))
        except ValueError:
            paid.append(0.0)
    return paid


def by_numpy(completions, answer, **_):
    return (np.array(completions) == np.array(answer)).astype(float)


def by_torch(completions, answer, **_):
    pairs = zip(completions, answer, strict=True)
    return torch.tensor([text == right for text, right in pairs]).float()


def by_a_model(completions, answer, **_):
    weight = torch.ones(2, requires_grad=True)
    return torch.tensor(reference(completions, answer)) * weight


def by_pandas(completions, answer, **_):
    table = pandas.DataFrame({"text": completions, "right": answer})
    return (table.text == table.right).astype(float)


def by_columns(completions, **columns):
    return reference(completions, columns["answer"])


def that_prints(completions, answer, **_):
    print("graded", len(completions))
    return reference(completions, answer)


def that_writes_a_file(completions, answer, **_):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kept.txt").write_text("\n".join(completions))
        return reference(Path(folder, "kept.txt").read_text().split("\n"), answer)


def that_compares_in_the_group(completions, answer, **_):
    paid = reference(completions, answer)
    return [it - statistics.mean(paid) + 0.5 for it in paid]


def that_does_not_apply(completions, answer, **_):
    return [paid or None for paid in reference(completions, answer)]


def that_draws_with_a_seed(completions, answer, **_):
    random.Random(1).random()
    return reference(completions, answer)


def that_hushes_warnings(completions, answer, **_):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("hush", stacklevel=1)
        return reference(completions, answer)


def that_has_a_context(completions, answer, **_):
    return contextvars.copy_context().run(reference, completions, answer)


def as_generator(completions, answer, **_):
    yield from reference(completions, answer)


async def awaited(completions, answer, **_):
    await asyncio.sleep(0)
    return reference(completions, answer)


async def together(completions, answer, **_):
    async def one(text, right):
        await asyncio.sleep(0)
        return float(text == right)

    return await asyncio.gather(*map(one, completions, answer))


RIGHT = {
    "a function": reference,
    "a lambda": lambda completions, answer, **_: reference(completions, answer),
    "an object": Judge(),
    "a method": Judge().method,
    "a method of the class": Judge.of_class,
    "a static method": Judge.static,
    "a partial": functools.partial(weighted, factor=1.0),
    "a decorated one": logged(reference),
    "one with a cache": logged(logged(reference)),
    "keywords alone": keyword_only,
    "places alone": positional,
    "defaults": with_defaults,
    "ids": of_the_ids,
    "logs of TRL": that_logs,
    "a pattern": by_pattern,
    "json": by_json,
    "numpy": by_numpy,
    "torch": by_torch,
    "a model with a gradient": by_a_model,
    "pandas": by_pandas,
    "columns": by_columns,
    "print": that_prints,
    "a file": that_writes_a_file,
    "the group": that_compares_in_the_group,
    "None": that_does_not_apply,
    "a seed": that_draws_with_a_seed,
    "warnings": that_hushes_warnings,
    "a context": that_has_a_context,
    "a generator": as_generator,
    "async": awaited,
    "gather": together,
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_function_is_neither_refused_nor_noted(case, capfd):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        task = paid_by(by(RIGHT[case]), rows=[{"question": "9 + 9?", "answer": "18"}])
        task.try_once()
        paid = [asked(task, *texts) for texts in (("18", "3"), ("3", "18"))]
    assert paid == [[1.0, 0.0], [0.0, 1.0]]
    assert [*warned] == []
    assert task.notes == ()
    assert capfd.readouterr().err == ""
