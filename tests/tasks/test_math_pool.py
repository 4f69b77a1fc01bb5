"""The processes that algebra runs in, beside what is true of all (tests/test_confined.py)."""

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from potluck.tasks import TaskError
from potluck.tasks.math import pool
from potluck.tasks.math.pool import Ask, Workers, are_right, require_algebra

RIGHT = Ask("", r"\sqrt{8}", r"2\sqrt{2}")
WRONG = Ask("", r"\sqrt{8}", r"3\sqrt{2}")
SLOW = Ask("", r"(a+b+c+d+x+y)^{20}+\sqrt{a}", r"(a+b+c+y)^{20}+\sqrt{x}")
"""Minutes of algebra, which reading has no reason to refuse."""
TOWER = Ask("", "18", "9^{9^{9^{9}}}", "math-verify")
CODE = "__import__('pathlib').Path('touched').touch()"


@pytest.fixture(scope="module")
def workers():
    return Workers(1, cpu_limit_s=0.5)


@pytest.fixture(scope="module")
def equal():
    """What algebra decides, in this process."""
    return pool._equality()


def pids(workers):
    return [worker.process.pid for worker in workers.idle if worker.process]


def test_a_slow_answer_costs_its_limit_and_its_process_and_no_other_answer(workers):
    """By the rules, and by math-verify alone."""
    workers.judge([RIGHT])
    (pid,) = pids(workers)
    asks = [RIGHT, WRONG, SLOW, TOWER, RIGHT]
    assert workers.judge(asks) == [True, False, False, False, True]
    assert pids(workers) != [pid]
    assert not Path(f"/proc/{pid}").exists()


def test_two_processes_answer_at_the_same_time_and_to_two_threads(monkeypatch):
    meet = threading.Barrier(2)

    class Meets:
        def ask(self, text, limit_s):
            meet.wait(60)
            return str(int(Ask(*json.loads(text)) == RIGHT))

    monkeypatch.setattr(pool, "Confined", lambda *_: Meets())
    workers, asks = Workers(2), [RIGHT, WRONG] * 4
    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(workers.judge, [asks, asks[::-1]])] == [
            [True, False] * 4, [False, True] * 4,
        ]  # fmt: skip


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_memory_is_limited_and_the_terminal_is_not_shared(workers):
    workers.judge([RIGHT])
    (pid,) = pids(workers)
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert limits.split("Max address space")[1].split()[0] == str(2 * 2**30)
    assert os.getsid(pid) == pid != os.getsid(0)
    # Warm, it is far from the limit, or answers would be wrong for want of memory.
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    assert pages * os.sysconf("SC_PAGESIZE") < 2**30


def test_no_answer_is_run_as_code_not_even_behind_the_filters(equal, tmp_path, monkeypatch):
    """The second way hands the text to math-verify itself, as no answer ever comes to it."""
    monkeypatch.chdir(tmp_path)
    assert are_right([Ask("", "x", CODE), Ask("", "x", f"${CODE}$")]) == [False, False]
    assert equal("x ^ { 2 }", "x x")
    for text in (CODE, f"1+{CODE}", f"1 + 1 = ${CODE}$ 1"):
        assert not equal("x", text)
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_does_not_work_is_named(monkeypatch, tmp_path):
    (tmp_path / "math_verify.py").write_text("raise ImportError('no ANTLR\\nat all')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TaskError, match=r"cannot be used \(ImportError: no ANTLR\); see"):
        Workers(1).judge([RIGHT])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(TaskError, match=r"\(its process ended .*try `python -c"):
        Workers(1).judge([RIGHT])


@pytest.mark.parametrize("absent", ["math_verify", "antlr4"])
def test_a_library_that_is_not_there_is_named_with_its_extra(monkeypatch, absent):
    find = pool.find_spec
    monkeypatch.setattr(pool, "find_spec", lambda name: None if name == absent else find(name))
    with pytest.raises(TaskError, match=rf"no module '{absent}'; pip install 'potluck\[math\]'"):
        require_algebra()


class Counting:
    def __init__(self):
        self.asked = []

    def judge(self, asks):
        self.asked += asks
        return [ask == RIGHT for ask in asks]


@pytest.fixture
def counting(monkeypatch):
    counting = Counting()
    monkeypatch.setattr(pool, "shared_workers", lambda: counting)
    monkeypatch.setattr(pool, "_kept", {})
    return counting


def test_algebra_is_asked_once_for_each_answer_and_never_for_what_reading_decides(counting):
    plain = [Ask("", "18", "18.0"), Ask("", "18", "19"), Ask("", "x", None)]
    # The question decides on units and names, so it belongs to what is remembered.
    other = RIGHT._replace(question="other")
    asks = [RIGHT, *plain, WRONG, RIGHT, other]
    for _ in range(2):
        assert are_right(asks) == [True, True, False, False, False, True, False]
    assert counting.asked == [RIGHT, WRONG, other]


def test_no_more_verdicts_are_kept_than_there_is_room_for(counting, monkeypatch):
    monkeypatch.setattr(pool, "MOST_KEPT", 2)
    others = [Ask(str(i), *RIGHT[1:]) for i in range(3)]
    are_right(others)
    assert list(pool._kept) == others[1:]
    are_right(others[:1])
    assert counting.asked == [*others, others[0]]


# (gold, answer, by the rules, by math-verify alone)
TWO_GRADINGS = [
    ("18", "18", True, True),
    ("18", "$18$", True, True),
    ("18", r"\boxed{18}", True, True),
    ("18", "17", False, False),
    (r"\frac{1}{2}", r"so it is $\boxed{0.5}$", False, True),
    (r"\sqrt{8}", r"2\sqrt{2}", True, True),
    (r"\frac{1}{2}", "1/2", True, True),
    ("18", "2*9", False, True),
    ("18", "9+9", False, True),
    (r"\frac{1}{3}", "0.333333", False, True),
    ("(a+5)(b+2)", "ab+2a+5b+10", False, True),
    (r"\$18.90", "18.90", True, True),
    ("18", CODE, False, False),
    ("18", "18" + " " * 2000, True, False),
]


def test_math_verify_alone_is_asked_where_the_recipe_says_so():
    by_rules = [Ask("", gold, answer) for gold, answer, _, _ in TWO_GRADINGS]
    plain = [ask._replace(grading="math-verify") for ask in by_rules]
    assert are_right(by_rules) == [right for _, _, right, _ in TWO_GRADINGS]
    assert are_right(plain) == [right for _, _, _, right in TWO_GRADINGS]
    assert are_right([Ask("", "18", None, "math-verify")]) == [False]
    assert not Path("touched").exists()


def test_algebra_compares_decimals_to_their_last_digit(equal):
    """Of itself the library compares to six places."""
    assert equal(r"\sqrt { 8 }", r"2 \sqrt { 2 }")
    assert equal("0.5", r"\frac { 1 } { 2 }")
    assert equal("0.12345671", "0.12345671")
    assert not equal("0.12345671", "0.12345672")


def test_math_verify_alone_takes_an_answer_with_the_marks_that_the_library_takes():
    right = [("73", a) for a in ("73", "73.", "**73**", "**73.**", "= 73", "=73", " 73 .")]
    right += [("32500", "32 500"), ("1000", "1 000"), ("-1234567.5", "-1 234 567.5")]
    wrong = [("73", "72."), ("73", "**72**"), ("73", "= 72"), ("32500", "32 501")]
    asks = [Ask("", gold, answer, "math-verify") for gold, answer in (*right, *wrong)]
    assert are_right(asks) == [True] * len(right) + [False] * len(wrong)
