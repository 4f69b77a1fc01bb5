"""Which alerts eight situations of a swarm have: the true ones, and no other."""

import pytest

from potluck.reports import AuthorReport, Doubts, RoundReport

OWN = AuthorReport(completions=36, tokens=400, success_weight=1.0, likelihood_positive=0.6)
FRIEND = AuthorReport(completions=36, tokens=400, success_weight=0.7, likelihood_positive=0.5)
FOREIGN = AuthorReport(completions=36, tokens=400, success_weight=0.0, likelihood_positive=0.001)
STRANGER = AuthorReport(
    completions=36, tokens=400, success_weight=0.01, likelihood_positive=0.4, gradient_share=0.0
)
FOREIGN_STRANGER = AuthorReport(
    completions=36, tokens=400, success_weight=0.0, likelihood_positive=0.001, gradient_share=0.0
)


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
        # It would pull a foreign notation in.
        assert ("would not" in words) <= ("likelihood_exponent" not in line)
        assert ("would not" in words) <= ("roster" not in line)
