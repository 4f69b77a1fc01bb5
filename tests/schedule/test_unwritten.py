"""The problems that a node at its own pace draws."""

import random
from collections import Counter

import pytest

from potluck.schedule import problems_of_round, unwritten_problems

IDS = [f"p{i}" for i in range(30)]


def draws(rounds, wanted=lambda round: (), *, count=4, seed=0):
    times, drawn = Counter(), []
    for round in range(rounds):
        drawn.append(unwritten_problems(IDS, times, wanted=wanted(round), seed=seed, count=count))
        times.update(drawn[-1])
    return drawn


def test_without_others_it_is_the_order_of_the_rounds_that_all_do_together():
    together = [problems_of_round(IDS, seed=0, round=round, count=5) for round in range(12)]
    assert draws(12, count=5) == together  # 30 problems: no round reaches over the end of a pass


def test_what_others_wrote_comes_first_in_its_order():
    (drawn,) = draws(1, lambda round: ["p7", "p3", "p7"])
    assert drawn[:2] == ["p7", "p3"]
    assert len(set(drawn)) == 4
    (drawn,) = draws(1, lambda round: IDS)
    assert drawn == IDS[:4]


def test_a_problem_that_was_written_in_this_pass_is_not_written_again_for_others():
    first, second = draws(2, lambda round: ["p7", "p3"])
    assert {"p7", "p3"} & {*second} == set()
    assert len({*first, *second}) == 8


@pytest.mark.parametrize("seed", range(5))
def test_whatever_others_send_each_pass_has_every_problem_once(seed):
    dice = random.Random(seed)
    others = [dice.choices([*IDS, "unknown"], k=dice.randrange(9)) for _ in range(60)]
    written = [id for drawn in draws(60, lambda round: others[round]) for id in drawn]
    assert set(written) == set(IDS)
    for end in range(4, 241, 4):  # after each round: no problem is two passes ahead of another
        times = Counter(written[:end])
        assert max(times.values()) - min(times.get(id, 0) for id in IDS) <= 1 + (end % 30 < 4)
    assert all(len(set(written[at : at + 4])) == 4 for at in range(0, 240, 4))


def test_too_few_problems_are_named():
    with pytest.raises(ValueError, match="a round takes 31 problems, but the task has 30"):
        draws(1, count=31)
