"""The processes that algebra runs in: what becomes of slow, broken and abandoned ones."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from potluck.tasks import TaskError
from potluck.tasks.math import pool
from potluck.tasks.math.pool import Ask, Workers, are_right, require_algebra

RIGHT = Ask("", r"\sqrt{8}", r"2\sqrt{2}")
WRONG = Ask("", r"\sqrt{8}", r"3\sqrt{2}")
SLOW = Ask("", r"(a+b+c+d+x+y)^{20}+\sqrt{a}", r"(a+b+c+y)^{20}+\sqrt{x}")
"""Minutes of algebra, which reading has no reason to refuse."""
CODE = "__import__('pathlib').Path('touched').touch()"


@pytest.fixture(scope="module")
def workers():
    workers = Workers(1, cpu_limit_s=0.5)
    yield workers
    workers.close()


def pids(workers):
    return [worker.process.pid for worker in workers.idle if worker.process]


def test_a_slow_answer_costs_its_limit_and_its_process_and_no_other_answer(workers):
    workers.judge([RIGHT])
    (pid,), before = pids(workers), os.times()
    assert workers.judge([RIGHT, WRONG, SLOW, RIGHT, WRONG]) == [True, False, False, True, False]
    after = os.times()
    assert not Path(f"/proc/{pid}").exists()
    spent_s = after.children_user + after.children_system
    spent_s -= before.children_user + before.children_system
    assert 0.5 < spent_s < 4  # starting it is in there, too


def test_two_processes_share_the_answers():
    with_two = Workers(2)
    try:
        asks = [RIGHT, WRONG] * 8
        assert with_two.judge(asks) == [True, False] * 8
        assert len(set(pids(with_two))) == 2
    finally:
        with_two.close()


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


def test_it_works_from_another_thread_and_from_two_at_once(workers):
    found = []

    def grade(asks):
        found.append((asks, workers.judge(asks)))

    threads = [threading.Thread(target=grade, args=([ask] * 5,)) for ask in (RIGHT, WRONG)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted([([RIGHT] * 5, [True] * 5), ([WRONG] * 5, [False] * 5)])


def test_after_an_interruption_no_answer_is_taken_for_anothers(workers):
    workers.judge([RIGHT])
    interruption = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

    def judge():
        interruption.start()
        workers.judge([SLOW] * 50)

    before = os.times()
    with pytest.raises(KeyboardInterrupt):
        judge()
    after = os.times()
    assert after.children_user - before.children_user < 10  # and not of all the fifty
    interruption.join()
    assert workers.judge([WRONG, RIGHT]) == [False, True]
    assert len(pids(workers)) == 1


def test_no_answer_is_run_as_code_not_even_behind_the_filters(tmp_path, monkeypatch):
    """The second way hands the text to math-verify itself, as no answer ever comes to it."""
    monkeypatch.chdir(tmp_path)
    assert are_right([Ask("", "x", CODE), Ask("", "x", f"${CODE}$")]) == [False, False]
    equal = pool._equality()
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
    asks = [RIGHT, *plain, WRONG, RIGHT]
    for _ in range(2):
        assert are_right(asks) == [True, True, False, False, False, True]
    assert counting.asked == [RIGHT, WRONG]


def test_no_more_verdicts_are_kept_than_there_is_room_for(counting, monkeypatch):
    monkeypatch.setattr(pool, "MOST_KEPT", 2)
    others = [Ask(str(i), *RIGHT[1:]) for i in range(3)]
    are_right(others)
    assert list(pool._kept) == others[1:]
    are_right(others[:1])
    assert counting.asked == [*others, others[0]]


def test_another_question_is_another_answer(counting):
    """The question decides on units and names, so it belongs to what is remembered."""
    assert are_right([RIGHT, RIGHT._replace(question="other")]) == [True, False]


# (gold, answer, by the rules, by math-verify alone)
TWO_GRADINGS = [
    ("18", "18", True, True),
    ("18", "$18$", True, True),
    ("18", r"\boxed{18}", True, True),
    ("18", "17", False, False),
    (r"\sqrt{8}", r"2\sqrt{2}", True, True),
    (r"\frac{1}{2}", "1/2", True, True),
    (r"\text{Evelyn}", "Evelyn", True, True),
    ("18", "2*9", False, True),
    ("18", "9+9", False, True),
    (r"\frac{1}{3}", "0.333333", False, True),
    ("(a+5)(b+2)", "ab+2a+5b+10", False, True),
    (r"\$18.90", "18.90", True, True),
    ("18", CODE, False, False),
    ("18", "9" * 3000, False, False),
]


def test_math_verify_alone_is_asked_where_the_recipe_says_so():
    """Finished answers are right by both gradings; unfinished ones by math-verify alone."""
    by_rules = [Ask("", gold, answer) for gold, answer, _, _ in TWO_GRADINGS]
    plain = [ask._replace(grading="math-verify") for ask in by_rules]
    assert are_right(by_rules) == [right for _, _, right, _ in TWO_GRADINGS]
    assert are_right(plain) == [right for _, _, _, right in TWO_GRADINGS]
    assert are_right([Ask("", "18", None, "math-verify")]) == [False]
    assert not Path("touched").exists()


def test_math_verify_alone_is_bounded_too(workers):
    answers = ["9^{9^{9^{9}}}", "{" * 1900, "18.0"]
    asks = [Ask("", "18", answer, "math-verify") for answer in answers]
    assert workers.judge(asks) == [False, False, True]


def test_algebra_compares_decimals_to_their_last_digit():
    """Here, and not in a process: of itself the library compares to six places."""
    equal = pool._equality()
    assert equal(r"\sqrt { 8 }", r"2 \sqrt { 2 }")
    assert equal("0.5", r"\frac { 1 } { 2 }")
    assert equal("0.12345671", "0.12345671")
    assert not equal("0.12345671", "0.12345672")


def test_the_librarys_own_verdict_finds_the_box_and_needs_none():
    assert pool.plain_verdict(r"\frac{1}{2}", r"so it is $\boxed{0.5}$")
    assert pool.plain_verdict(r"\frac{1}{2}", "0.5")
    assert not pool.plain_verdict(r"\frac{1}{2}", "0.6")


def test_nothing_is_left_when_closed(workers):
    workers.judge([RIGHT])
    (pid,) = pids(workers)
    workers.close()
    assert not Path(f"/proc/{pid}").exists()
    assert pids(workers) == []
