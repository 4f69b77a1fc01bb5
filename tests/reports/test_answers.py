"""Answers of controls against plain loops, and where there is nothing to tell."""

import json
import random
from itertools import combinations

import pytest
from msgspec.structs import replace

from potluck.reports.answers import (
    ANSWERS,
    ControlAnswer,
    add_answers,
    answer_of,
    answers,
    sentence,
)
from potluck.reports.comparison import plain

ROUNDS = 6


def write(folder, node, rewards, greedy=None):
    """``rewards``: (round, problem, index) -> reward of a completion."""
    own = folder / node
    own.mkdir(parents=True)
    recipe = {"name": "made", "rounds": ROUNDS, "node": {node: {"model": "m"}}}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    lines = [
        {"round": r, "problem": p, "author": node, "index": i, "reward": x, "text": ""}
        for (r, p, i), x in rewards.items()
    ]
    lines += [{**line, "author": "other", "reward": 9.0} for line in lines[:5]]
    (own / "completions.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    if greedy is not None:
        lines = [{"round": 0, "validation": 0.5}, {"round": ROUNDS, "validation": greedy}]
        (own / "evaluation.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


def drawn(seed, chance, problems, each=3):
    random.seed(seed)
    return {
        (r, f"{r}-{p}", i): float(random.random() < chance)
        for r in range(ROUNDS)
        for p in problems
        for i in range(each)
    }


def means(rewards):
    late = {}
    for (r, p, _), x in rewards.items():
        if r >= ROUNDS // 2:
            late.setdefault(p, []).append(x)
    return {p: sum(xs) / len(xs) for p, xs in late.items()}


def bootstrapped(difference, draws=4000):
    """An interval that shares no formula with the package's."""
    random.seed(0)
    found = sorted(difference() for _ in range(draws))
    return found[int(0.025 * draws)], found[int(0.975 * draws)]


def test_the_same_problems_are_compared_one_by_one(tmp_path):
    ours, theirs = drawn(1, 0.7, range(40)), drawn(2, 0.5, range(40), each=6)
    write(tmp_path / "run", "small", ours, greedy=0.75)
    write(tmp_path / "control", "small", theirs, greedy=0.5)
    found = answer_of(tmp_path / "run", tmp_path / "control", "small", "half", ROUNDS)
    a, b = means(ours), means(theirs)
    differences = [a[p] - b[p] for p in a]
    assert found.together == pytest.approx(sum(a.values()) / len(a))
    assert found.alone == pytest.approx(sum(b.values()) / len(b))
    assert found.difference[0] == pytest.approx(sum(differences) / len(differences))

    def again():
        chosen = random.choices(differences, k=len(differences))
        return sum(chosen) / len(chosen)

    assert found.difference[1:] == pytest.approx(bootstrapped(again), abs=0.015)
    assert (found.problems, found.written) == (120, (len(ours), len(theirs)))
    assert found.greedy == (0.75, 0.5)
    assert found.passed is None  # three completions of a problem
    assert found.verdict == "better together"


def test_other_problems_are_compared_by_their_means(tmp_path):
    ours, theirs = drawn(1, 0.5, range(40)), drawn(2, 0.6, range(39, 89))
    write(tmp_path / "run", "small", ours)
    write(tmp_path / "control", "small", theirs)
    found = answer_of(tmp_path / "run", tmp_path / "control", "small", "half-problems", ROUNDS)
    a, b = [*means(ours).values()], [*means(theirs).values()]

    def again():
        x, y = random.choices(a, k=len(a)), random.choices(b, k=len(b))
        return sum(x) / len(x) - sum(y) / len(y)

    assert found.difference[1:] == pytest.approx(bootstrapped(again), abs=0.015)
    assert found.difference[0] == pytest.approx(sum(a) / len(a) - sum(b) / len(b))
    assert found.greedy is None
    assert found.problems == 120  # and not the three that both have


def test_pass_at_4_is_told_where_there_are_four_of_each(tmp_path):
    ours, theirs = drawn(1, 0.3, range(9), each=5), drawn(2, 0.2, range(9), each=4)
    for name, rewards in (("run", ours), ("control", theirs)):
        write(tmp_path / name, "small", rewards)
    found = answer_of(tmp_path / "run", tmp_path / "control", "small", "alone", ROUNDS)

    def passed(rewards):
        """Of all choices of four, the share with a right one."""
        by_problem = {}
        for (r, p, _), x in rewards.items():
            if r >= ROUNDS // 2:
                by_problem.setdefault(p, []).append(x)
        each = [[any(four) for four in combinations(xs, 4)] for xs in by_problem.values()]
        return sum(sum(fours) / len(fours) for fours in each) / len(each)

    assert found.passed == pytest.approx((passed(ours), passed(theirs)))
    assert f"pass@4: {plain(found.passed[0])}, {plain(found.passed[1])} there." in sentence(found)


@pytest.mark.parametrize(
    "low, high, verdict",
    [
        (0.01, 0.05, "better together"),
        (-0.05, -0.01, "worse together"),
        (-0.01, 0.05, "no difference shown"),
    ],
)
def test_the_sentence_says_what_the_interval_does(low, high, verdict):
    found = ControlAnswer("small", "alone", 0.7, 0.6, (0.02, low, high), 288, (3600, 3600))
    assert sentence(found) == (
        f"small: {verdict}. Own reward .700 together, .600 by itself with all of the writing: "
        f"+.020 [{plain(low, '+')}, {plain(high, '+')}] over 288 problems, one seed. It wrote "
        "3,600 completions together, 3,600 in the control."
    )


def test_answers_are_kept_and_a_later_one_replaces_an_earlier_one(tmp_path):
    write(tmp_path / "run", "small", drawn(1, 0.7, range(4)))
    write(tmp_path / "control", "small", drawn(2, 0.5, range(4)))
    assert answer_of(tmp_path / "run", tmp_path / "nothing", "small", "half", ROUNDS) is None
    assert answers(tmp_path) == ()
    half, alone = (
        answer_of(tmp_path / "run", tmp_path / "control", "small", kind, ROUNDS)
        for kind in ("half", "alone")
    )
    add_answers(tmp_path, [half])
    add_answers(tmp_path, [replace(alone, rounds=None), half])  # one of an older release
    old = replace(half, is_stale=True)
    for rounds, told in ((ROUNDS, half), (2 * ROUNDS, old)):
        recipe = {"name": "made", "rounds": rounds, "node": {"small": {}}}
        (tmp_path / "recipe.json").write_text(json.dumps(recipe))
        assert answers(tmp_path) == (told, replace(alone, rounds=None))
    assert f" after {ROUNDS} rounds. Own reward" in sentence(old)
    (tmp_path / ANSWERS).write_text('[{"node": 3}]')
    assert answers(tmp_path) == ()
