"""Which alerts eight situations of a swarm have: the true ones, and no other."""

import dataclasses

import pytest

from potluck.reports import AuthorReport, Doubts, RewardReport, RoundReport
from potluck.right import RightRule

OWN = AuthorReport(completions=36, tokens=400, success_weight=1.0, likelihood_positive=0.6)
FRIEND = AuthorReport(completions=36, tokens=400, success_weight=0.7, likelihood_positive=0.5)
FOREIGN = AuthorReport(completions=36, tokens=400, success_weight=0.0, likelihood_positive=0.001)
STRANGER = AuthorReport(
    completions=36, tokens=400, success_weight=0.01, likelihood_positive=0.4, gradient_share=0.0
)
FOREIGN_STRANGER = AuthorReport(
    completions=36, tokens=400, success_weight=0.0, likelihood_positive=0.001, gradient_share=0.0
)
IDLE_STRANGER = AuthorReport(completions=36, tokens=400, gradient_share=0.0)


def rounds(count=9, *, of=None, **figures):
    sources = {"me": OWN} | ({"it": of} if of else {})
    return [RoundReport(0, own_reward_mean=0.5, sources=sources, **figures)] * count


SITUATIONS = {
    "all is well": (rounds(of=FRIEND, heard=("it",)), []),
    "slow: each second round lacks it": (
        [*rounds(1, missing=("it",), heard=()), *rounds(1, of=FRIEND, heard=("it",))] * 5,
        [],
    ),
    "slow: all that it writes comes late": (
        rounds(missing=("it",), late=36, late_used=36, of=FRIEND, heard=("it",)),
        [],
    ),
    "slow: too late to be used": (rounds(missing=("it",), late=36, heard=("it",)), []),
    "absent: not counted on, and it writes": (rounds(absent=("it",), of=FRIEND, heard=()), []),
    "absent: not counted on, and unreadable": (
        rounds(absent=("it",), unreadable={"it": {"inexact text": 36}}, heard=()),
        [],
    ),
    "absent: nothing comes": (rounds(absent=("it",), heard=()), ["nothing came of it"]),
    "foreign notation": (
        rounds(absent=("it",), of=FOREIGN, heard=()),
        ["it writes in a way that this model would not (P 0.001)"],
    ),
    "stranger": (rounds(of=STRANGER, heard=("it",)), ["it is not trusted"]),
    "stranger of a foreign notation": (
        rounds(absent=("it",), of=FOREIGN_STRANGER, heard=()),
        ["it writes in a way that this model would not (P 0.001)"],
    ),
    "stranger, for three rounds": (rounds(3, of=STRANGER, heard=("it",)), ["it is not trusted"]),
    "stranger, for two rounds": (rounds(2, of=STRANGER, heard=("it",)), []),
    "stranger that has nothing right: not counted on, and it writes": (
        rounds(3, absent=("it",), of=IDLE_STRANGER, heard=()),
        [
            "it is here, but in 3 rounds none of its answers taught this node, which takes it for "
            "absent and writes its part, too"
        ],
    ),
    "the same for two rounds, twice": (
        [
            *rounds(2, absent=("it",), of=IDLE_STRANGER, heard=()),
            *rounds(1, of=IDLE_STRANGER, heard=("it",)),
        ]
        * 2,
        [],
    ),
    "the same for three rounds, twice": (
        [
            *rounds(3, absent=("it",), of=IDLE_STRANGER, heard=()),
            *rounds(1, of=IDLE_STRANGER, heard=("it",)),
        ]
        * 2,
        ["it is here, but in 3 rounds"] * 2,
    ),
    "killed": (
        [*rounds(3, of=FRIEND, heard=("it",)), *rounds(6, missing=("it",), heard=())],
        ["nothing came of it in 5 rounds; if it has not ended"],
    ),
    "finished: nobody waits for it": (
        [*rounds(3, of=FRIEND, heard=("it",)), *rounds(6, heard=())],
        [],
    ),
    "paused for four rounds": (
        [
            *rounds(3, of=FRIEND, heard=("it",)),
            *rounds(4, missing=("it",), heard=()),
            *rounds(3, of=FRIEND, heard=("it",)),
        ],
        [],
    ),
    "refused": (
        rounds(missing=("it",), refused={"it": 2}, heard=()),
        ["all that came of it in 5 rounds was refused (10 messages)"],
    ),
}


@pytest.mark.parametrize("weight", ["likelihood", "typicality"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation_has_its_true_alerts_and_no_other(situation, weight):
    reports, expected = SITUATIONS[situation]
    doubts = Doubts("me", weight, reads_logp=False)
    lines = [alert.text for report in reports for alert in doubts.new(report)]
    assert len(lines) == len(expected)
    for line, words in zip(lines, expected, strict=True):
        assert words in line
        assert "\n" not in line
        # The way out is named where trust is the reason.
        assert ("trusted" in line) == ("[objective] trust = 'everybody'" in line)
        # It would pull a foreign notation in.
        assert ("would not" in words) <= ("likelihood_exponent" not in line)
        assert ("would not" in words) <= ("roster" not in line)


def zero_round(number, reward=0.0, **counts):
    return RoundReport(
        number, reward_mean=reward, groups_alike=1.0, own_cut_share=0.0, own_earned_nothing=counts
    )


def kinds_of(reports):
    doubts = Doubts("north", "typicality", reads_logp=False)
    return [(alert.kind, alert.text) for each in reports for alert in doubts.new(each)]


def test_two_rounds_in_which_nobody_earned_anything_are_told_once_with_the_reasons():
    told = kinds_of([zero_round(at, form=9, wrong=2, cut=1) for at in range(5)])
    ((kind, text),) = told
    assert kind == "all_zero"
    assert "for 2 rounds all rewards were 0" in text
    assert "18 not in the form of an answer, 4 wrong, 2 cut off; ask for the form" in text


@pytest.mark.parametrize("reason, way_out", [
    ("cut", "raise [sampling] max_new_tokens"), ("empty", "--check --prompt"),
    ("form", "tags = false"), ("wrong", "easier problems"),
])  # fmt: skip
def test_the_commonest_reason_decides_the_way_out(reason, way_out):
    ((_, text),) = kinds_of([zero_round(at, **{"wrong": 1, reason: 9}) for at in range(2)])
    assert way_out in text


def test_one_such_round_and_rounds_with_a_reward_are_not_told():
    assert kinds_of([zero_round(0, wrong=12)]) == []
    assert kinds_of([zero_round(0, wrong=12), zero_round(1, reward=0.5, wrong=6)] * 3) == []
    mixed = [zero_round(at, wrong=12) for at in range(4)]
    mixed = [dataclasses.replace(each, groups_alike=0.5) for each in mixed]  # 1 and -1
    assert kinds_of(mixed) == []


def constant_round(number, answer="1", share=0.97, right=0.25):
    return RoundReport(
        number,
        reward_mean=right,
        groups_alike=0.5,
        own_commonest_answer=answer,
        own_commonest_share=share,
        own_commonest_right=right,
    )


def test_one_answer_to_all_problems_is_told_with_what_it_earns():
    ((kind, text),) = kinds_of([constant_round(at) for at in range(5)])
    assert kind == "constant"
    assert "97% of its answers are '1', to whatever problem; this constant earns 0.25" in text


@pytest.mark.parametrize("others", [
    {"share": 0.8}, {"right": 0.9}, {"answer": ""},
])  # fmt: skip
def test_what_is_no_constant_is_not_told(others):
    assert kinds_of([constant_round(at, **others) for at in range(5)]) == []
    assert kinds_of([constant_round(at, answer=str(at)) for at in range(5)]) == []
    assert kinds_of([constant_round(at) for at in range(2)]) == []


def test_rounds_in_which_no_group_is_mixed_are_told():
    alike = [RoundReport(at, reward_mean=0.25, groups_alike=1.0) for at in range(30)]
    assert [kind for kind, _ in kinds_of(alike)] == ["alike"]
    mixed = [dataclasses.replace(each, groups_alike=0.9) for each in alike]
    assert kinds_of(mixed) == []


def of_functions(**binary):
    """A round in which these functions scored nothing but 0 and 1, or something else."""
    rewards = {name: RewardReport(0.5, binary=its) for name, its in binary.items()}
    return RoundReport(0, rewards=rewards)


PAIR = RightRule.of([("r.py:correct", 1.0), ("r.py:brief", 0.1)], "")


@pytest.mark.parametrize(
    "rounds, rule, kinds",
    [
        ([(True, False), (True, True), (True, False)], PAIR, []),  # as from the first round on
        ([(True, True), (True, False)], PAIR, ["right_found"]),
        ([(True, False), (False, True), (False, True)], PAIR, ["right_lost"]),
        ([(True, True), (True, False), (False, True)], PAIR, ["right_found", "right_lost"]),
        ([(True, None), (True, False)], PAIR, []),  # begun with a release that did not note it
        ([(True, False), (False, True)], RightRule.of([("correct", 1.0)], "correct"), []),
    ],
)
def test_another_function_that_decides_what_is_right_is_told_once(rounds, rule, kinds):
    doubts = Doubts("me", "typicality", reads_logp=False, rule=rule)
    reports = [of_functions(correct=correct, brief=brief) for correct, brief in rounds]
    found = [alert for each in reports for alert in doubts.new(each)]
    assert [alert.kind for alert in found] == kinds
    for alert in found:
        assert "[evaluation] right names the reward function" in alert.text


def test_a_resumed_node_knows_what_its_functions_scored_before():
    before = {"correct": True, "brief": False}
    doubts = Doubts("me", "typicality", reads_logp=False, rule=PAIR, binary=before)
    (alert,) = doubts.new(of_functions(correct=False, brief=True))
    assert alert.text.startswith("me: correct scored other numbers than 0 and 1, so no answer is")
