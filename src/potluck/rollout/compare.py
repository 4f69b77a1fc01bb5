"""Comparison of what writes with what learns: are they one model?

Both give ln p of the same tokens, by other ways through the network: token by token with a cache,
and whole rows at once. A model whose ways differ (a rotary embedding that is rescaled beyond a
length, a window that one of them overlooks, weights that a copy has rounded) trains on importance
weights that are wrong from the first round on, and nothing else tells.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from potluck.model.policy import LanguageModel
from potluck.rollout.base import RolloutError
from potluck.types import Completion, Problem

ROWS = 3
"""Number of the longest completions that are scored again, and of the first ones."""
SURE = 2.0
"""Standard errors by which a mean difference has to be above what is allowed."""
FAR = 10.0
"""Differences of one token that are this many times the allowed mean are no rounding."""
SHOWN = 40
"""Characters before the place where a difference begins that are shown."""
LIMITS = ("original_max_position_embeddings", "sliding_window", "attention_window_size")
"""Keys of a configuration that tell of a length at which a model goes on otherwise."""


def least_mean(gap_X: np.ndarray) -> float:
    """Compute what the mean of gap_X, nats, is at least:

        mean - SURE * max(standard deviation, mean) / sqrt(X)

    One short answer decides nothing: differences of tokens have long tails, so that their standard
    deviation is near their mean, and is not known from a few.
    """
    mean = float(gap_X.mean())
    return mean - SURE * max(float(gap_X.std()), mean) / float(np.sqrt(len(gap_X)))


def require_one_model(
    policy: LanguageModel,
    problem_of: Callable[[str], Problem],
    written: Sequence[Completion],
    *,
    temperature: float,
    allowed: float,
) -> None:
    """Score completions that the node's engine has written with the network as it learns, and raise
    RolloutError if the two differ by more than ``allowed`` nats a token: in the mean of all tokens,
    or of those behind the first that is far off."""
    there = [first_turn(c) for c in written if c.logp_T is not None and len(c.token_T)]
    by_length = sorted(
        there, key=lambda c: len(policy.prompt(problem_of(c.problem_id))) + len(c.token_T)
    )
    rows = by_length[-ROWS:]
    known = {(c.problem_id, c.index) for c in rows}
    rows += [c for c in there if (c.problem_id, c.index) not in known][:ROWS]
    if not rows:
        return

    policy.network.eval()
    gaps = [_gap_T(policy, problem_of(row.problem_id), row, temperature) for row in rows]
    places = [
        len(policy.prompt(problem_of(row.problem_id))) + np.arange(len(row.token_T)) for row in rows
    ]
    gap_X, place_X = np.concatenate(gaps), np.concatenate(places)
    far_X = gap_X > FAR * allowed
    begin = int(place_X[far_X].min()) if far_X.any() else 0
    for found_X in (gap_X, gap_X[place_X >= begin]):
        if not least_mean(found_X) <= allowed:
            where = _where(policy, problem_of, rows, gaps, allowed)
            raise RolloutError(
                f"{policy.tokenizer.name_or_path}: its completions were written with other "
                f"log-probabilities than those that it learns with: {found_X.mean():.3g} nats a "
                f"token, where at most {allowed:g} was expected; {where}. transformers computes "
                f"this model in two ways when it writes and when it learns: take another model, "
                f"let a server write (docs/vllm.md), or, where this is known to be rounding, raise "
                f"tolerance in [node.NAME.engine]"
            )


def first_turn(completion: Completion) -> Completion:
    """Cut an episode behind its first turn, which is read without an environment."""
    c, logp_T = completion, completion.logp_T
    if not c.turns or logp_T is None:
        return c
    only = slice(c.turns[0])
    return Completion(c.problem_id, c.author, c.index, c.token_T[only], logp_T[only], "length")


def _gap_T(
    policy: LanguageModel, problem: Problem, row: Completion, temperature: float
) -> np.ndarray:
    """Compute |ln p as it learns - ln p as it was written| of each token, nats."""
    with torch.no_grad():
        logp_MT = policy.logp([policy.prompt(problem)], [row.token_T], temperature=temperature)
    gap_T: np.ndarray = np.abs(logp_MT[0].cpu().numpy() - row.logp_T)
    return np.nan_to_num(gap_T, nan=np.inf)


def _where(
    policy: LanguageModel,
    problem_of: Callable[[str], Problem],
    rows: Sequence[Completion],
    gaps: Sequence[np.ndarray],
    allowed: float,
) -> str:
    """Say where the first difference is that is no rounding: position, text, what ends there."""
    for row, gap_T in zip(rows, gaps, strict=True):
        if not (far_T := gap_T > FAR * allowed).any():
            continue
        at = int(far_T.argmax())
        before = len(policy.prompt(problem_of(row.problem_id)))
        limit = _limit_within(policy, before + len(row.token_T))
        text = policy.shown([*map(int, row.token_T[: at + 1])])[-SHOWN:]
        return (
            f"it begins at position {before + at} of {before + len(row.token_T)}{limit}, in "
            f"completion {row.index} of {row.problem_id!r}, at the end of {text!r}"
        )
    return "it is spread over all positions"


def _limit_within(policy: LanguageModel, length: int) -> str:
    """Name the largest limit of the model's configuration that so many tokens exceed."""
    config: Any = policy.network.config.get_text_config()
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    known = {**(scaling if isinstance(scaling, dict) else {}), **config.to_dict()}
    limits = {key: known[key] for key in LIMITS if isinstance(known.get(key), int)}
    exceeded = {key: limit for key, limit in limits.items() if 0 < limit < length}
    if not exceeded:
        return ""
    key = max(exceeded, key=lambda each: exceeded[each])
    return f", which is beyond its {key} of {exceeded[key]}"
