"""The reward of the scale real."""

from collections.abc import Sequence


def right(completions: Sequence[str], answer: Sequence[str], **columns: object) -> list[float]:
    """Pay 1 where the first line is the answer and nothing else."""
    firsts = [text.strip().partition("\n")[0].strip() for text in completions]
    return [float(first == wanted) for first, wanted in zip(firsts, answer, strict=True)]
