"""How much of a batch strangers may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.node.selection import within_caps


def caps(groups, *, known=100, group_size=4, each=0.1, together=0.3, salt="0"):
    return within_caps(
        groups, known=known, group_size=group_size, each=each, together=together, salt=salt
    )


def test_by_hand():
    # each: .1 / .9 * 100 / 4 = 2.8 groups; together: .3 / .7 * 100 / 4 = 10.7 groups.
    assert caps({"mia": 9}) == {"mia": 2}
    assert sum(caps({f"s{i}": 2 for i in range(9)}).values()) == 10
    assert caps({"mia": 1, "tom": 9}) == {"mia": 1, "tom": 2}


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


def test_one_more_group_would_be_too_much():
    for each, together in ((0.1, 0.9), (0.9, 0.1)):
        taken = caps({"mia": 99}, each=each, together=together)["mia"] * 4
        assert (taken + 4) / (100 + taken + 4) > min(each, together)


def test_turns_go_round_so_that_many_small_ones_are_not_shut_out_by_a_large_one():
    allowed = caps({"large": 50, "a": 1, "b": 1}, each=0.5, together=0.12)  # 3 groups
    assert allowed == {"large": 1, "a": 1, "b": 1}


def test_who_is_first_changes_from_round_to_round():
    first = {next(n for n, c in caps(dict.fromkeys("abcd", 1), together=0.04, salt=str(r)).items()
                  if c) for r in range(40)}  # fmt: skip
    assert first == set("abcd")


@pytest.mark.parametrize("nothing", [{"each": 0}, {"together": 0}, {"known": 0}])
def test_a_part_of_nothing_is_nothing(nothing):
    assert caps({"mia": 5}, **nothing) == {"mia": 0}
