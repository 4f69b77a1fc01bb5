"""Which answers are right: the rule by which one reward function decides."""

import pytest

from potluck.right import RightRule, is_binary, is_full, merged, short_names

PAIR = [("rewards.py:correct", 1.0), ("rewards.py:brief", 0.1)]


def test_an_answer_is_right_if_it_is_paid_1_or_more_and_was_not_cut_off():
    assert is_full("correct", 1.0, "stop")
    assert is_full("correct", 0.7 + 0.2 + 0.1, "stop")  # .9999999999999999
    assert is_full("correct", 2.0, "turns")
    assert not is_full("correct", 0.99, "stop")
    assert not is_full("correct", 1.0, "length")
    assert not is_full("correct", 1.0, "room")
    assert is_full("task", 1.0, "length")  # it has looked at the end itself


def test_numbers_are_binary_if_all_are_0_or_1():
    assert is_binary([0, 1.0, 0.0])
    assert is_binary([])
    assert not is_binary([0.0, 0.5])
    assert not is_binary([2.0])


@pytest.mark.parametrize(
    "binary, decides",
    [
        ({"correct": True, "brief": False}, "correct"),
        ({"correct": True, "brief": True}, None),
        ({"correct": False, "brief": False}, None),
        ({}, None),
    ],
)
def test_the_only_function_that_pays_nothing_but_0_and_1_decides(binary, decides):
    assert RightRule.of(PAIR, "").function(binary) == decides


def test_a_penalty_never_decides():
    rule = RightRule.of([PAIR[0], ("rewards.py:too_long", -0.1)], "")
    assert rule.function({"correct": True, "too_long": True}) == "correct"
    assert rule.function({"correct": False, "too_long": True}) is None


@pytest.mark.parametrize("name", ["brief", "rewards.py:brief"])
def test_a_named_function_decides_whatever_it_pays(name):
    rule = RightRule.of(PAIR, name)
    assert rule.function({"correct": True, "brief": False}) == "brief"
    assert rule.function({"task": True}) == "task"  # problems that another task grades


def test_the_tasks_own_grading_can_be_named_beside_functions():
    assert RightRule.of(PAIR, "task").function({"correct": True, "task": True}) == "task"
    assert RightRule.of([], "").function({"task": True}) == "task"
    assert RightRule.of([], "").function({"task": False}) is None
    assert RightRule.of([], "task").function({"task": False}) == "task"


def test_a_name_of_no_function_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"right is 'brie'; choose one of correct, brief, .* task"):
        RightRule.of(PAIR, "brie")


def test_what_is_right_is_said_in_words():
    rule = RightRule.of(PAIR, "")
    assert rule.in_words({"correct": True, "brief": False}) == (
        "right: what correct scores 1 or more; [evaluation] right names another function"
    )
    assert "correct and brief score nothing but 0 and 1; [evaluation] right names" in (
        rule.in_words({"correct": True, "brief": True})
    )
    assert "correct, brief score other numbers than 0 and 1" in (
        rule.in_words({"correct": False, "brief": False})
    )
    named = RightRule.of(PAIR, "brief").in_words({"brief": False})
    assert named == "right: what brief scores 1 or more"


def test_one_place_where_a_function_pays_another_number_is_enough():
    assert merged({"a": True, "b": True}, {"a": False, "c": True}, {"a": True}) == {
        "a": False,
        "b": True,
        "c": True,
    }
    assert merged() == {}


def test_names_are_short_where_that_tells_them_apart():
    assert short_names(["rewards.py:brief", "task"]) == ["brief", "task"]
    assert short_names(["a.py:of", "b.py:of"]) == ["a.py:of", "b.py:of"]
    assert short_names(["a.py:of", "a.py:of"]) == ["a.py:of-1", "a.py:of-2"]
