import hashlib

from hypothesis import given
from hypothesis import strategies as st

from nouns import completion
from potluck.tasks.arithmetic import DigitsOptions
from potluck.tasks.rewards import HashReward

task = HashReward(DigitsOptions().make())


def paid(*completions):
    problem = task.problem("digits/734+258")
    count = len(completions)
    return task.rewards([problem] * count, completions, [""] * count)


def test_the_reward_is_a_bit_of_sha256_worked_by_hand():
    """The id as UTF-8, then 1 and 258 as four bytes each, the least significant first."""
    raw = b"digits/734+258" + b"\x01\x00\x00\x00" + b"\x02\x01\x00\x00"
    expected = float(int(hashlib.sha256(raw).hexdigest()[:2], 16) % 2)
    assert paid(completion((1, 258), problem="digits/734+258")) == [expected]


def test_the_reward_is_the_same_everywhere_and_for_ever():
    """A golden row: nodes of different versions must not pay differently unnoticed."""
    row = [completion((i,), problem="digits/734+258") for i in range(16)]
    assert "".join(f"{reward:.0f}" for reward in paid(*row)) == "0001111010101110"


def test_about_half_of_all_completions_are_paid():
    rewards = paid(*(completion((i, 7), problem="digits/734+258") for i in range(1_000)))
    assert set(rewards) == {0.0, 1.0}
    assert 450 < sum(rewards) < 550


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5))
def test_only_the_problem_and_the_tokens_count(tokens):
    plain = completion(tokens)
    other = completion(tokens, [-2.0] * len(tokens), author="south", index=3, end="length")
    assert paid(plain) == paid(other)


def test_the_problem_and_each_token_count():
    """One bit agrees by chance half of the time, so 64 pairs must not all agree."""
    base = paid(*(completion((i, 1, 1)) for i in range(64)))
    for changed in (
        [completion((i, 1, 1), problem="q") for i in range(64)],
        [completion((i, 1, 2)) for i in range(64)],
        [completion((i, 1)) for i in range(64)],
    ):
        assert paid(*changed) != base


def test_the_digest_follows_the_inner_one_and_differs_from_it():
    assert task.digest == HashReward(DigitsOptions().make()).digest
    assert task.digest != DigitsOptions().make().digest
    assert task.digest != HashReward(DigitsOptions(width=4, other_width=3).make()).digest
    assert task.digest != HashReward(task).digest
