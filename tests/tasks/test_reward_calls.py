"""Calls of a user's reward function: copies in, a sequence out, time limits, big numbers."""

import collections
import math
import signal
import threading

import numpy as np
import pytest

from potluck.tasks import TaskError
from potluck.tasks.rewards import CustomRewards
from tasks.test_custom import asked, by, paid_by, rows_task

ROW = {"question": "9 + 9?", "answer": "18", "tests": [1, [2], {"a": [3]}]}


def popping(completions, tests, prompts, completion_ids, **columns):
    paid = [float(len(cases) + len(cases[1]) + len(cases[2]["a"])) for cases in tests]
    for cases, ids in zip(tests, completion_ids, strict=True):
        cases[1].clear()
        cases[2]["a"].clear()
        cases.clear()
        ids.clear()
    completions.clear()
    prompts.clear()
    return paid


def test_what_a_function_changes_reaches_no_other_completion_call_or_function():
    task = paid_by(by(popping), by(popping, "b.py:g"), rows=[ROW])
    task.try_once()
    for _ in range(2):
        assert asked(task, "a", "b", "c") == [10.0] * 3


def test_messages_that_a_function_changes_are_its_own():
    def f(completions, prompts, **columns):
        paid = [float(c[0]["content"] == "a" and p[0]["content"] == "9 + 9?")
                for c, p in zip(completions, prompts, strict=True)]  # fmt: skip
        completions[0][0]["content"] = prompts[0][0]["content"] = "x"
        return paid

    task = paid_by(*(by(f, f"{i}.py:f", format="messages") for i in "ab"), rows=[ROW])
    assert asked(task, "a", "a") == [2.0, 2.0]


NOT_IN_ORDER = {
    "dict": {0: 1.0, 1: 0.5}, "set": {1.0, 0.5}, "frozenset": frozenset((1.0, 0.5)),
    "text": "10", "bytes": b"10", "bytearray": bytearray(b"10"), "memoryview": memoryview(b"10"),
    "keys": {0: 1, 1: 2}.keys(), "values": {0: 1, 1: 2}.values(), "items": {0: 1, 1: 2}.items(),
    "counter": collections.Counter({0: 1, 1: 2}), "user dict": collections.UserDict({0: 1, 1: 2}),
    "set iterator": iter({1.0, 0.5}), "dict iterator": iter({0: 1, 1: 2}),
    "chain map": collections.ChainMap({0: 1, 1: 2}), "one number": 1.0, "nothing": None,
}  # fmt: skip


@pytest.mark.parametrize("returned", NOT_IN_ORDER.values(), ids=NOT_IN_ORDER)
def test_what_has_no_order_is_refused_with_function_and_value(returned):
    with pytest.raises(TaskError, match=r"reward 'here:f' returned \w+.* expected a list of one"):
        asked(paid_by(by(lambda **_: returned)), "a", "b")


def test_a_table_of_pandas_is_refused_and_a_series_is_not():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(TaskError, match="returned DataFrame"):
        asked(paid_by(by(lambda **_: table)), "a", "b")
    assert asked(paid_by(by(lambda **_: pandas.Series([1.0, 0.5]))), "a", "b") == [1.0, 0.5]


IN_ORDER = {
    "list": [1.0, 0.5], "tuple": (1.0, 0.5), "array": np.array([1.0, 0.5]),
    "map": map(float, ["1", ".5"]),
    "iterator": iter([1.0, 0.5]), "deque": collections.deque([1.0, 0.5]),
    "reversed": reversed([0.5, 1.0]), "float32": np.array([1, 0.5], np.float32),
    "generator": (x for x in (1.0, 0.5)),
}  # fmt: skip


@pytest.mark.parametrize("returned", IN_ORDER.values(), ids=IN_ORDER)
def test_what_has_an_order_is_taken(returned):
    assert asked(paid_by(by(lambda **_: returned)), "a", "b")[0] == 1.0


def test_numbers_that_overflow_are_told_with_their_bound():
    for big in (1e31, -1e200, 1e308, 10**40):
        with pytest.raises(TaskError, match=r"'here:f' returned .* at most 1e\+30"):
            asked(paid_by(by(lambda big=big, **_: [big])), "a")
    for big in (10**400, 10**5000, math.inf):
        with pytest.raises(TaskError, match=r"'here:f' returned .* expected a finite number"):
            asked(paid_by(by(lambda big=big, **_: [big])), "a")
    with pytest.raises(TaskError, match=r"returned 2 .* weight 1e\+308 makes inf"):
        asked(paid_by(by(lambda **_: [2.0], weight=1e308)), "a")
    assert asked(paid_by(by(lambda **_: [1e29])), "a") == [1e29]


def limited(completions, **columns):
    """Grade as math-verify within try/except does."""
    try:
        before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, before)
    except Exception:
        return [0.0] * len(completions)
    return [1.0] * len(completions)


async def limited_async(completions, **columns):
    return limited(completions)


def in_a_thread(function, *texts):
    found = []

    def work():
        try:
            found.append(asked(paid_by(by(function)), *texts))
        except TaskError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


def test_a_time_limit_that_cannot_be_set_is_told_and_not_taken_for_a_wrong_answer():
    assert asked(paid_by(by(limited)), "a") == [1.0]
    assert "limits its time by SIGALRM" in str(in_a_thread(limited, "a"))
    with pytest.raises(TaskError, match="limits its time by SIGALRM, which Python permits in the"):
        asked(paid_by(by(limited_async)), "a")
    assert in_a_thread(lambda completions, **_: [1.0], "a") == [1.0]
    assert signal.signal.__module__ == "signal"


def test_positional_only_arguments_are_given_by_place():
    def f(prompts, completions, /, **columns):
        return [float(c == "a" and "completions" not in columns) for c in completions]

    assert asked(paid_by(by(f)), "a", "b") == [1.0, 0.0]


def test_the_other_format_is_named_only_where_the_form_was_wrong():
    def empty(completions, **_):
        return [math.nan if not text else 1.0 for text in completions]

    def last(completions, **_):
        return [float(text[-1] == ".") for text in completions]

    for function in (empty, last):
        with pytest.raises(TaskError) as caught:
            CustomRewards(rows_task(ROW | {"answer": "18"}), [by(function)]).try_once()
        assert "format =" not in str(caught.value)

    def content(completions, **_):
        return [float(len(c[0]["content"])) for c in completions]

    with pytest.raises(TaskError, match="it can with format = 'messages'"):
        paid_by(by(content)).try_once()


def test_environments_of_trl_are_told_to_be_absent():
    def f(environments, **columns):
        return [1.0] * len(environments)

    with pytest.raises(TaskError, match="'environments', which TRL passes and Potluck does not"):
        paid_by(by(f))
