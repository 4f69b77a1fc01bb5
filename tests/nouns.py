"""Nouns for tests, with whatever a test does not care about filled in."""

import numpy as np

from potluck.types import Completion


def completion(tokens=(1, 2), logprobs=None, *, problem="p", author="north", index=0, end="stop"):
    """Where a test names no log-probabilities, they are -0.5 and -0.25 in turn."""
    if logprobs is None:
        logprobs = [(-0.5, -0.25)[i % 2] for i in range(len(tokens))]
    token_T, logp_T = np.array(tokens, np.int32), np.array(logprobs, np.float32)
    return Completion(problem, author, index, token_T, logp_T, end)
