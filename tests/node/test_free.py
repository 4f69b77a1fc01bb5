"""A node at its own pace: what it takes, what it writes, what it compares with what."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import paper
import tiny
from nouns import completion, group
from potluck.exchange import Delivery, Received, Round
from potluck.node.learning.batch import pack
from potluck.node.pace.base import Attendance
from potluck.node.pace.free import WINDOW, Free, WrittenProblems
from potluck.node.storage.record import Record
from potluck.schedule import Agenda, horizontal, vertical
from potluck.types import Group, Problem, Row

IDS = [f"p{i}" for i in range(30)]
G, PROBLEMS = 6, 4
FOUR = ("north", "south", "east", "west")


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "north", run="run", node="north")


def selector(record, *, plan=horizontal, members=("north", "south"), intake=1.0, **changes):
    agenda = Agenda(
        ids=IDS, weights=dict.fromkeys(members, 1.0), plan=plan, group_size=G,
        problems_per_round=PROBLEMS, seed=0, stranger_problems=2,
    )  # fmt: skip
    written, meets = WrittenProblems(record), plan is horizontal
    one = Free(agenda, "north", 1, 0.5, 0.5, written, intake, meets, lambda author: True)
    return replace(one, **changes)


def batch(author, problems, count=3):
    return tuple(
        completion(author=author, problem=problem, index=index)
        for problem in problems
        for index in range(count)
    )


def delivery(author, round, problems=("p1",), count=3):
    return Delivery(author, round, b"", batch(author, problems, count))


def arrived(round, own, *others, newest=None):
    """A round of one's own completions and of (author's round, completions)."""
    late = {}
    for then, completions in others:
        late[then] = (*late.get(then, ()), *completions)
    return Round((*own, *late.pop(round, ())), late=late, newest=newest or {})


def draw(one, round, *batches):
    return one.draw(round, Received(batches))


def row_of(c):
    return Row(c, np.zeros(1, np.int32), c.token_T, "")


def select(one, round, came):
    selection = one.select(round, came, row_of)
    return selection, {
        group[0].completion.problem_id: (Counter(r.completion.author for r in group), kept)
        for group, kept in zip(selection.groups, selection.past_rewards, strict=True)
    }


def remember(one, round, rewards):
    """Have a round graded in which ``north`` earned these, by problem."""
    groups = []
    for problem, paid in rewards.items():
        rows = tuple(row_of(completion(problem=problem, index=i)) for i in range(len(paid)))
        groups.append(Group(Problem(problem, "", ""), rows, tuple(paid)))
    one.remember(round, groups)


# What it takes.


def test_of_each_author_the_newest_comes_first_and_no_more_than_there_is_room_for(record):
    one = selector(record, members=FOUR, intake=1.0)  # its own part of a round: 4 problems x 3
    came = [delivery(name, r, IDS[:4]) for name in ("east", "west") for r in (5, 6)]
    chosen = one.choose(0, came)
    assert sorted((d.author, d.round) for d in chosen) == [("east", 6), ("west", 6)]
    one = selector(record, members=FOUR, intake=2.0)  # 4 problems x 2, and twice as much of others
    assert len(one.choose(0, came)) == 3  # two fill it, and one to choose from
    assert len(one.choose(0, [delivery("east", 5, IDS[:4], 2)] * 9)) == 3
    assert len(one.choose(0, came[:1])) == 1
    one = selector(record, plan=vertical, intake=1.0)  # groups of one author need no choice
    assert len(one.choose(0, [delivery("east", r, IDS[:2], G) for r in range(9)])) == 1


def test_authors_take_turns_and_trusted_ones_come_first(record):
    came = [delivery(name, 1, IDS[:4]) for name in ("east", "south", "west")]
    for name in ("east", "south", "west"):
        one = selector(record, members=FOUR, trusts=name.__eq__)
        assert one.choose(0, came)[0].author == name
    one = selector(record, members=FOUR)
    first = Counter(one.choose(round, came)[0].author for round in range(60))
    assert min(first.values()) > 10


def test_members_come_before_strangers_and_strangers_take_no_room_of_theirs(record):
    one = selector(record)
    came = [delivery("mia", 9, IDS[:4], G), delivery("south", 1, IDS[:4])]
    assert all(one.choose(round, came)[0].author == "south" for round in range(20))
    own, south = batch("north", IDS[:2]), batch("south", IDS[4:6])
    strangers = batch("mia", IDS[6:8], G)
    selection, groups = select(one, 1, arrived(1, own, (3, south), (9, strangers)))
    assert [counts for counts, _ in groups.values()] == [{"north": 3}] * 2 + [{"south": 3}] * 2
    assert selection.over_intake == 2 * G


def test_a_batch_that_is_larger_than_asked_takes_no_more_room(record):
    one = selector(record, intake=2.0, members=("north", "south", "east"))
    full = delivery("south", 1, IDS[:24], 6)  # 144 completions; 4 x 2 are asked of it
    others = [delivery("east", r, IDS[:4], 2) for r in (1, 2)]
    for round in range(10):
        assert len(one.choose(round, [full, *others])) == 3


def test_strangers_and_what_was_not_asked_decide_nothing_that_is_written(record):
    one = selector(record)
    alone = draw(one, 0)
    assert draw(one, 0, delivery("mia", 3, IDS[20:24])) == alone
    unasked = delivery("south", 3, IDS[20:30])
    assert [s.problem_id for s in draw(one, 0, unasked)] == IDS[20:24]


# What it writes.


def test_it_writes_what_others_wrote_and_its_own_part_of_each_group(record):
    one = selector(record)
    shares = draw(one, 0, delivery("south", 3, ["p9", "p2"]))
    assert [s.problem_id for s in shares][:2] == ["p9", "p2"]
    assert [(s.node, s.count) for s in shares] == [("north", 3)] * PROBLEMS
    assert [s.count for s in draw(selector(record, intake=2.0), 0)] == [2] * PROBLEMS
    assert [s.count for s in draw(selector(record, intake=0.0), 0)] == [G] * PROBLEMS


def test_nodes_that_hear_nothing_of_each_other_have_one_order_if_groups_are_joint(record):
    south = replace(selector(record), me="south")
    problems = [[s.problem_id for s in draw(one, 0)] for one in (selector(record), south)]
    assert problems[0] == problems[1]
    alone = selector(record, plan=vertical, intake=0.5)
    apart = replace(alone, me="south")
    heard = [delivery("west", 1, IDS[:4])]
    problems = [{s.problem_id for s in draw(one, 0, *heard)} for one in (alone, apart)]
    assert problems[0] != problems[1]
    assert not {*IDS[:4]} <= problems[0]  # whole groups of its own: it follows nobody
    assert {s.count for s in draw(alone, 0)} == {G}


def test_a_stranger_writes_what_is_drawn_for_its_name(record):
    mia = replace(selector(record), me="mia")
    assert draw(mia, 3, delivery("south", 3)) == mia.agenda.strangers_shares(3, "mia")


def test_problems_it_wrote_are_remembered_across_a_restart(record):
    one = selector(record)
    drawn = [s.problem_id for s in draw(one, 0)]
    remember(one, 0, {id: [1.0, 0.0, 0.0] for id in drawn})
    again = selector(record)
    assert again.written.times == one.written.times == Counter(drawn)
    nothing = selector(Record(record.folder.parent / "empty", run="run", node="north"))
    assert draw(again, 1) == draw(one, 1) != draw(nothing, 1)
    assert again.written.rewards(drawn[0]) == (1.0, 0.0, 0.0)


def test_rewards_are_kept_for_a_window_of_rounds(record):
    one = selector(record)
    remember(one, 0, {"p1": [1.0, 0.0]})
    remember(one, WINDOW - 1, {"p2": [1.0]})
    assert one.written.rewards("p1") == (1.0, 0.0)
    remember(one, WINDOW, {"p3": [1.0]})
    assert one.written.rewards("p1") == ()
    assert one.written.times["p1"] == 1


# What it learns from.


def test_completions_of_a_problem_that_it_writes_now_are_in_one_group_with_its_own(record):
    own, others = batch("north", IDS[:4]), batch("south", IDS[2:6])
    remember(one := selector(record), 0, {"p2": [1.0, 0.0], "p4": [1.0, 0.0, 0.0]})
    selection, groups = select(one, 1, arrived(1, own, (7, others)))
    assert groups == {
        "p0": ({"north": 3}, ()),
        "p1": ({"north": 3}, ()),
        "p2": ({"north": 3, "south": 3}, ()),  # it has newer ones than those of round 0
        "p3": ({"north": 3, "south": 3}, ()),
        "p4": ({"south": 3}, (1.0, 0.0, 0.0)),
        "p5": ({"south": 3}, ()),
    }
    assert selection.joint_share == 9 / 12


def test_rounds_of_authors_have_any_number_and_their_age_is_counted_by_their_own(record):
    one = selector(record, members=("north", "east", "south"), intake=2.0)
    own, east, south = (batch(name, IDS[:1], 2) for name in ("north", "east", "south"))
    came = arrived(1, own, (1, east), (70, south), newest={"east": 1, "south": 73})
    selection, groups = select(one, 1, came)
    assert groups == {"p0": ({"north": 2, "east": 2, "south": 2}, ())}
    assert selection.staleness == 1.5
    assert selection.late == 0


def test_one_completion_of_a_problem_needs_something_to_be_compared_with(record):
    remember(one := selector(record), 0, {"p1": [0.0]})
    own, others = batch("north", ["p0"]), batch("south", ["p1", "p2"], 1)
    selection, groups = select(one, 1, arrived(1, own, (4, others)))
    assert groups == {"p0": ({"north": 3}, ()), "p1": ({"south": 1}, (0.0,))}
    assert selection.too_few == 1


def test_no_author_has_more_than_a_part_of_a_round(record):
    one = selector(record, intake=2.0, members=("north", "south", "east"))
    own = batch("north", IDS[:4], 2)
    selection, groups = select(one, 0, arrived(0, own, (0, batch("south", IDS[:6], 4))))
    assert selection.unasked == 24 - 4 * 2  # four problems of its six, two of its four each
    assert all(counts["south"] <= 2 for counts, _ in groups.values())
    one = selector(record, plan=vertical)
    selection, _ = select(one, 0, arrived(0, (), (0, batch("south", IDS[:6], 7))))
    assert selection.unasked == 42 - 2 * G


def test_more_than_it_takes_is_left_out_beginning_with_what_meets_nothing(record):
    one = selector(record, intake=1.0)
    own, others = batch("north", IDS[:2]), batch("south", IDS[1:5])
    remember(one, 0, {"p3": [1.0, 0.0, 0.0]})
    selection, groups = select(one, 1, arrived(1, own, (3, others)))
    assert groups == {
        "p0": ({"north": 3}, ()),
        "p1": ({"north": 3, "south": 3}, ()),
        "p3": ({"south": 3}, (1.0, 0.0, 0.0)),
    }
    assert selection.over_intake == 6


def test_of_what_meets_nothing_trusted_authors_come_first_and_no_round_of_theirs_decides(record):
    one = selector(record, intake=1.0, members=("north", "south", "west"))
    own = batch("north", IDS[:2])
    came = ((3, batch("south", IDS[2:4])), (70, batch("west", IDS[4:6])))
    used = Counter()
    for round in range(40):
        _, groups = select(one, round, arrived(round, own, *came))
        used.update(author for counts, _ in groups.values() for author in counts)
    assert min(used["south"], used["west"]) > 20
    for author in ("south", "west"):
        trusting = replace(one, trusts={"north", author}.__contains__)
        _, groups = select(trusting, 0, arrived(0, own, *came))
        authors = {name for counts, _ in groups.values() for name in counts}
        assert authors == {"north", author}


def test_vertically_groups_are_one_authors(record):
    one = selector(record, plan=vertical)
    remember(one, 0, {"p1": [1.0] * G})
    own, others = batch("north", IDS[:2], G), batch("south", IDS[1:3], G)
    selection = select(one, 1, arrived(1, own, (3, others)))[0]
    authors = [{row.completion.author for row in group} for group in selection.groups]
    assert authors == [{"north"}, {"north"}, {"south"}, {"south"}]
    assert selection.past_rewards == ((),) * 4
    assert selection.joint_share == 0


def test_a_stranger_is_held_to_its_share_and_compared_with_itself(record):
    one = selector(record)
    drawn, other = IDS[4:6], IDS[6]
    remember(one, 0, {drawn[0]: [1.0, 0.0]})
    own = batch("north", IDS[:4], G)
    came = arrived(1, own, (9, batch("mia", [*drawn, other], G)))
    selection, groups = select(one, 1, came)
    assert selection.unasked == G
    assert groups[drawn[0]] == ({"mia": G}, ())
    selection, groups = select(replace(one, stranger_share=0.0), 1, came)
    assert selection.over_share == 2 * G
    assert drawn[0] not in groups


# What a group is compared with.


@pytest.mark.parametrize("scale", ["std", "none"])
def test_kept_rewards_are_in_the_mean_and_the_deviation_and_nowhere_else(scale):
    policy = tiny.policy()
    rows = [completion((5, 6, 2), author="south", index=i) for i in range(3)]
    paid, kept = [1.0, 0.0, 1.0], (0.0, 0.0, 0.0, 1.0)
    made = group(Problem("p", "1+2=", "3"), rows, paid, policy)
    batch_of = pack([replace(made, past_rewards=kept)], scale=scale)
    expected = paper.advantages([*paid, *kept], scale=scale)[:3]
    assert batch_of.advantage_B.tolist() == pytest.approx(expected, abs=1e-5)
    assert (batch_of.rows_counted, batch_of.tokens_counted) == (3, 9)
    assert len(batch_of.completions) == 3


def test_one_row_beside_kept_rewards_counts():
    row = completion((5, 2), author="south")
    made = group(Problem("p", "1+2=", "3"), [row], [1.0], tiny.policy())
    alone = pack([made], trusts=lambda author: True)
    beside = pack([replace(made, past_rewards=(0.0, 0.0))])
    assert torch.count_nonzero(alone.advantage_B) == 0
    assert beside.advantage_B.item() > 1
    untrusted = pack([replace(made, past_rewards=(0.0, 0.0))], trusts="north".__eq__)
    assert untrusted.advantage_B.item() > 1
    assert untrusted.rows_counted == 0


def without(*names):
    lines = [{"round": 0, "heard": [n for n in FOUR if n not in ("north", *names)]}]
    return Attendance(FOUR[1:], lines=lines)


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_it_writes_more_where_members_are_absent(record, plan):
    def part(*absent, intake=3.0):
        away = without(*absent)
        one = selector(record, plan=plan, members=FOUR, intake=intake, attendance=away)
        return sum(share.count for share in draw(one, 2)) / (G * PROBLEMS)

    parts = [part(*FOUR[4 - absent :]) for absent in range(4)]
    assert parts == pytest.approx([1 / 4, 1 / 3, 1 / 2, 1], abs=0.1), "whole groups"
    assert part("east", "west", intake=1.0) == part(intake=1.0) == 0.5, "the intake is a bound"


def test_it_takes_what_a_member_writes_for_those_that_are_absent_here_too(record):
    came = arrived(2, (), (5, batch("south", ["p1"], count=G)))
    for absent, taken in [((), 2), (("east", "west"), 3)]:
        one = selector(record, members=FOUR, intake=3.0, attendance=without(*absent))
        assert select(one, 2, came)[0].unasked == G - taken


@pytest.mark.parametrize("plan", [horizontal, vertical])
def test_a_member_that_is_back_is_heard_and_so_no_longer_absent(record, plan):
    one = selector(record, plan=plan, attendance=without("south"))
    assert len(one.choose(2, [delivery("south", 2, IDS[:1], G)])) == 1


def test_members_that_are_not_trusted_choose_a_part_of_the_problems(record):
    bad = [delivery("south", 3, IDS[:4]), delivery("east", 3, IDS[4:8])]
    nobody = {"members": FOUR, "trusts": lambda author: False}
    alone = {share.problem_id for share in draw(selector(record, **nobody), 1)}
    chosen = {share.problem_id for share in draw(selector(record, **nobody), 1, *bad)}
    assert len(chosen - alone) == 1 == PROBLEMS // 4
    trusted = selector(record, members=FOUR, trusts=lambda author: author == "south")
    assert {share.problem_id for share in draw(trusted, 1, *bad)} == {*IDS[:4]}
