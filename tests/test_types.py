import math
from dataclasses import replace

import numpy as np
import pytest

from nouns import completion
from potluck.types import NODE_NAME, Completion


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        ({"logprobs": (-0.5, 0.5)}, r"logp_T\[1\] = 0.5; expected a finite number <= 0"),
        ({"logprobs": (-0.5, math.nan)}, r"logp_T\[1\] = nan"),
        ({"logprobs": (-math.inf, -0.5)}, r"logp_T\[0\] = -inf"),
        ({"tokens": (7, -1)}, r"token_T\[1\] = -1; expected an id >= 0"),
        ({"tokens": (7, 8, 9), "logprobs": (-1, -1)}, "3 tokens but 2 log-prob.* exactly one"),
        ({"tokens": (7,), "logprobs": (-1, -1)}, "1 tokens but 2 log-prob.* exactly one"),
        ({"tokens": (), "logprobs": ()}, "no tokens; even an empty answer holds a stop token"),
        ({"index": -1}, "completion -1 of 'p' by 'north' has index -1; expected a position >= 0"),
        ({"end": "tired"}, "end 'tired'; expected one of stop, length, turns, room"),
    ],
)
def test_a_completion_that_is_wrong_cannot_exist(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        completion(**wrong)


@pytest.mark.parametrize("token_T", [np.array([1.0, 2.0]), np.array([[1, 2]], np.int32)])
def test_a_completion_is_not_rounded_or_reshaped_in_silence(token_T):
    with pytest.raises(ValueError, match="expected int32 of one dimension"):
        Completion("p", "north", 0, token_T, np.float32([-0.5, -0.5]), "stop")


def test_a_completion_does_not_change_with_the_array_it_was_made_of():
    logp_T = np.float32([-0.5])
    made = Completion("p", "north", 0, np.int32([1]), logp_T, "stop")
    logp_T[0] = 3
    assert made.logp_T.tolist() == [-0.5]
    with pytest.raises(ValueError, match="read-only"):
        made.logp_T[0] = 3


def test_completions_are_equal_when_every_field_is():
    assert completion() == completion()
    others = [
        completion(tokens=(1, 3)), completion(logprobs=(-0.5, -0.5)), completion(problem="q"),
        completion(author="south"), completion(index=1), completion(end="length"),
        replace(completion(), logp_T=None), "completion", None,
    ]  # fmt: skip
    assert completion() not in others


def test_a_completion_may_tell_no_log_probabilities_and_is_checked_as_ever():
    silent = replace(completion(), logp_T=None)
    assert silent == replace(silent) != completion()
    with pytest.raises(ValueError, match=r"token_T\[1\] = -1; expected an id >= 0"):
        replace(silent, token_T=np.int32([7, -1]))
    for lengths, token_X in (((2,), np.int32([1])), ((0,), np.int32([]))):
        with pytest.raises(ValueError, match=r"1 ids and no log-prob|has no tokens"):
            Completion.cut(["p"], "north", [0], ["stop"], lengths, token_X, None)


def test_of_many_the_wrong_one_is_named():
    with pytest.raises(ValueError, match="completion -1 of 'q' by 'north' has index -1"):
        Completion.cut("pq", "north", [0, -1], ["stop"] * 2, (1, 1), np.int32([1, 2]), None)


def test_a_node_may_be_called():
    for name in ("a", "node-1", "0", "-", "x" * 32):
        assert NODE_NAME.fullmatch(name), name
    for name in ("", "x" * 33, "North", "a/b", "..", "a b", "a\n", "ä", "a_b", "a.b", "\x1b[31m"):
        assert not NODE_NAME.fullmatch(name), name
    assert not NODE_NAME.fullmatch("٣")
