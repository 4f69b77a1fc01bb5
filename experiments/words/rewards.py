"""The reward of the scale words."""

from collections.abc import Sequence


def right(completions: Sequence[str], answer: Sequence[str], **columns: object) -> list[float]:
    """Pay 1 where what follows the only ``####`` is the answer, as in GSM8K's solutions."""
    rewards = []
    for text, wanted in zip(completions, answer, strict=True):
        _, mark, tail = text.partition("####")
        rewards.append(float(bool(mark) and tail.strip() == wanted))
    return rewards
