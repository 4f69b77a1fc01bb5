"""What a round is learned from, out of all that came."""

from dataclasses import replace
from itertools import compress
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nouns import completion
from potluck.exchange import Round, canonical_order
from potluck.node.pace.together import Together
from potluck.schedule import Agenda, horizontal, vertical
from potluck.types import Row

IDS = [f"p{i}" for i in range(30)]
G = 4
WITHOUT_EAST = SimpleNamespace(absent=lambda round: frozenset({"east"}))


def selector(*, plan=vertical, weights=("north", "south"), group_size=G, **changes):
    agenda = Agenda(
        ids=IDS, weights=dict.fromkeys(weights, 1.0), plan=plan, group_size=group_size,
        problems_per_round=6, seed=0, stranger_problems=2,
    )  # fmt: skip
    return replace(Together(agenda, "north", 1, 0.5, 0.5), **changes)


def written(one, round, *names, absent=()):
    """All that was asked of these."""
    return canonical_order(
        completion(author=share.node, problem=share.problem_id, index=index)
        for name in names
        for share in one.agenda.shares_of(round, name, absent)
        for index in range(share.count)
    )


def select(one, round, completions=(), late=None, usable=lambda c: True):
    """What comes through, as groups of completions; ``usable`` decides what can be read."""

    def read(c):
        return Row(c, np.zeros(1, np.int32), c.token_T, "") if usable(c) else "too long"

    selection = one.select(round, Round(tuple(completions), late=late or {}), read)
    return replace(
        selection, groups=tuple(tuple(r.completion for r in g) for g in selection.groups)
    )


def counts(selection):
    names = ("unasked", "too_few", "late_used", "over_share")
    found = {name: count for name in names if (count := getattr(selection, name))}
    unreadable = {f"{author}: {why}": n for (author, why), n in selection.unreadable.items()}
    return found | unreadable


def test_all_that_was_asked_for_comes_through_in_the_order_of_the_problems():
    one = selector()
    selection = select(one, 3, written(one, 3, "south", "north"))
    drawn = [share.problem_id for share in one.agenda.members_shares(3)]
    assert [group[0].problem_id for group in selection.groups] == drawn
    assert [[c.index for c in group] for group in selection.groups] == [[0, 1, 2, 3]] * 6
    assert counts(selection) == {}


def test_horizontally_a_group_has_everybodys_part_by_author_and_index():
    one = selector(plan=horizontal)
    (group, *_) = select(one, 0, written(one, 0, "north", "south")).groups
    assert [(c.author, c.index) for c in group] == [
        ("north", 0), ("north", 1), ("south", 0), ("south", 1),
    ]  # fmt: skip


def test_what_was_asked_of_another_or_of_nobody_is_left_out_and_counted():
    one = selector()
    mine = one.agenda.shares_of(0, "north")[0].problem_id
    stray = [
        completion(author="south", problem=mine),
        completion(author="south", problem="p29" if mine != "p29" else "p28", index=77),
    ]
    selection = select(one, 0, [*written(one, 0, "north", "south"), *stray])
    assert counts(selection) == {"unasked": 2}
    assert all(c not in group for c in stray for group in selection.groups)


def test_what_cannot_be_used_is_left_out_and_counted():
    one = selector()
    selection = select(one, 0, written(one, 0, "north"), usable=lambda c: c.index != 2)
    assert counts(selection) == {"north: too long": 3}
    assert [[c.index for c in group] for group in selection.groups] == [[0, 1, 3]] * 3


def test_a_completion_without_another_of_its_problem_gives_nothing_and_is_counted():
    one = selector()
    selection = select(one, 0, written(one, 0, "north"), usable=lambda c: c.index == 0)
    assert selection.groups == ()
    assert counts(selection) == {"too_few": 3, "north: too long": 9}


def test_a_late_group_is_learned_from_behind_the_others_for_as_long_as_it_is_fresh():
    one = selector()
    late = {2: written(one, 2, "south"), 3: written(one, 3, "south")}
    selection = select(one, 4, written(one, 4, "north"), late)
    assert counts(selection) == {"late_used": 3 * G}
    assert [group[0].author for group in selection.groups] == ["north"] * 3 + ["south"] * 3
    fresh = {share.problem_id for share in one.agenda.shares_of(3, "south")}
    assert {group[0].problem_id for group in selection.groups[3:]} == fresh
    assert counts(select(selector(max_staleness=2), 4, (), late)) == {"late_used": 6 * G}
    assert counts(select(selector(max_staleness=0), 4, (), late)) == {}


def test_a_late_group_is_used_whole_or_not_at_all():
    one = selector()
    part = written(one, 0, "south")[1:]
    assert counts(select(one, 1, (), {0: part})) == {"late_used": 2 * G}
    unusable = select(one, 1, (), {0: written(one, 0, "south")}, usable=lambda c: c.index)
    assert unusable.groups == ()
    assert counts(unusable) == {"south: too long": 3}


def test_a_late_part_of_a_horizontal_group_is_never_used():
    one = selector(plan=horizontal)
    selection = select(one, 1, written(one, 1, "north"), {0: written(one, 0, "south")})
    assert selection.late_used == 0
    assert {c.author for group in selection.groups for c in group} == {"north"}


def test_a_whole_group_that_was_not_asked_of_its_author_is_not_used_late_either():
    one = selector()
    mine = one.agenda.shares_of(0, "north")[0].problem_id
    late = [completion(author="south", problem=mine, index=i) for i in range(G)]
    assert select(one, 1, (), {0: tuple(late)}).groups == ()


def test_a_stranger_is_learned_from_behind_the_members_in_groups_of_its_own():
    one = selector()
    selection = select(one, 0, written(one, 0, "north", "south", "mia"))
    assert [group[0].author for group in selection.groups[6:]] == ["mia"] * 2
    assert counts(selection) == {}


def test_a_strangers_completions_of_a_members_problem_stay_apart():
    one = selector()
    round = next(
        r for r in range(99)
        if {s.problem_id for s in one.agenda.shares_of(r, "mia")}
        & {s.problem_id for s in one.agenda.members_shares(r)}
    )  # fmt: skip
    selection = select(one, round, written(one, round, "north", "south", "mia"))
    assert len(selection.groups) == 8
    assert all(len({c.author for c in group}) == 1 for group in selection.groups)


@pytest.mark.parametrize(
    "caps, kept",
    [
        ({"stranger_share": 0.5, "strangers_share": 0.5}, 4),
        ({"stranger_share": 0.15, "strangers_share": 0.5}, 2),  # .15/.85 * 24 / 4 = 1 each
        ({"stranger_share": 0.5, "strangers_share": 0.15}, 1),
    ],
)
def test_strangers_have_no_more_than_their_part_and_the_rest_is_counted(caps, kept):
    one = selector(**caps)
    came = written(one, 0, "north", "south", "mia", "tom")
    selection = select(one, 0, came)
    assert len(selection.groups) == 6 + kept
    assert selection.over_share == (4 - kept) * G


def test_late_groups_of_strangers_count_against_their_part_too():
    one = selector(strangers_share=0.15)
    late = {0: written(one, 0, "mia")}
    selection = select(one, 1, written(one, 1, "north", "south", "mia"), late)
    assert len(selection.groups) == 7
    assert (selection.over_share, selection.late_used) == (3 * G, 0)


def test_a_stranger_does_not_count_itself_among_the_strangers():
    one = selector(strangers_share=0.0)
    assert len(select(one, 0, written(one, 0, "north", "south", "mia")).groups) == 6
    as_mia = replace(one, me="mia", max_staleness=1, stranger_share=0.0, strangers_share=0.0)
    assert len(select(as_mia, 0, written(one, 0, "north", "south", "mia")).groups) == 8


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_what_is_written_for_an_absent_member_is_learned_from_where_it_is_absent_here_too(plan):
    members = ("north", "south", "east")
    full = selector(plan=plan, weights=members)
    missed = selector(plan=plan, weights=members, attendance=WITHOUT_EAST)
    came = written(missed, 3, "north", "south", absent={"east"})
    selection = select(missed, 3, came)
    assert sum(map(len, selection.groups)) == 6 * G
    assert counts(selection) == {}
    drawn = dict.fromkeys(share.problem_id for share in missed.agenda.members_shares(3))
    assert [group[0].problem_id for group in selection.groups] == list(drawn)
    theirs = [c for c in came if c.author == "south"]
    taken = select(full, 3, theirs)
    assert counts(taken)["unasked"] == len(theirs) - 2 * G, "a node that hears all takes its part"


def test_written_twice_by_mistake_is_used_and_bounded():
    members = ("north", "south", "east", "west")
    one = selector(weights=members, attendance=WITHOUT_EAST)
    missing = [s.problem_id for s in one.agenda.members_shares(3) if s.node == "east"]
    twice = [
        completion(author=name, problem=missing[0], index=index)
        for name in ("south", "west")
        for index in range(2 * G)
    ]
    selection = select(one, 3, canonical_order(twice))
    assert [len(group) for group in selection.groups] == [G, G], "a group of each author"
    assert counts(selection) == {"unasked": 2 * G}


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_what_it_wrote_itself_it_had_asked(plan):
    one = selector(plan=plan, weights=("north", "south", "east"))
    came = written(one, 3, "north", absent={"east"})
    selection = select(one, 3, came)
    assert sum(map(len, selection.groups)) == len(came) > 2 * G
    assert counts(selection) == {}


# How much of a batch strangers may have.


def caps(groups, *, known=100, group_size=4, each=0.1, together=0.3, round=0):
    """How many groups of each stranger are taken; the members' have one row."""
    one = selector(group_size=group_size, stranger_share=each, strangers_share=together)
    authors = ["north"] * known + [name for name in groups for _ in range(groups[name])]
    rows = {n: (SimpleNamespace(completion=completion(author=n)),) for n in authors}
    kept = [*compress(authors, one.within_caps(round, [rows[name] for name in authors]))]
    assert kept[:known] == authors[:known]
    return {name: kept.count(name) for name in groups}


@given(
    st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 20)),
    st.integers(0, 300),
    st.integers(2, 16),
    st.floats(0, 0.95),
    st.floats(0, 0.95),
)
def test_no_stranger_and_not_all_of_them_have_more_than_their_part(
    groups, known, group_size, each, together
):
    allowed = caps(groups, known=known, group_size=group_size, each=each, together=together)
    assert set(allowed) == set(groups)
    rows = {name: count * group_size for name, count in allowed.items()}
    assert all(allowed[name] <= groups[name] for name in groups)
    for count in rows.values():
        assert count <= each * (known + count) + 1e-6
    assert sum(rows.values()) <= together * (known + sum(rows.values())) + 1e-6


def test_turns_go_round_so_that_many_small_ones_are_not_shut_out_by_a_large_one():
    allowed = caps({"large": 50, "a": 1, "b": 1}, each=0.5, together=0.12)  # 3 groups
    assert allowed == {"large": 1, "a": 1, "b": 1}


def test_who_is_first_changes_from_round_to_round():
    first = {next(n for n, c in caps(dict.fromkeys("abcd", 1), together=0.04, round=r).items()
                  if c) for r in range(40)}  # fmt: skip
    assert first == set("abcd")
