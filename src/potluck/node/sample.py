"""The completions of a round that are recorded token by token, for people to look at.

Of each author, of each outcome, in turn: first the one with the most surprising token. They are cut
off where their lines take more than is allowed, so long runs stay as large as they were.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, zip_longest

import torch
from msgspec import json
from torch import Tensor

from potluck.model import Reader
from potluck.node.learning.batch import Scored
from potluck.node.learning.passes import METRICS, candidates
from potluck.objective.methods import ObjectiveConfig
from potluck.reports.tokens import Recorded, columns_of
from potluck.types import Group

QUESTION, TOKENS = 300, 1024
"""Characters of a prompt, and tokens of a completion, that are written."""


def sample(
    round: int,
    groups: Sequence[Group],
    scored: Scored,
    policy: Reader,
    objective: ObjectiveConfig,
    *,
    me: str,
    size_bytes: float,
) -> list[Recorded]:
    """Return the completions of ``groups``, packed and scored, whose lines fit ``size_bytes``."""
    rows = [(g, row, reward) for g in groups for row, reward in zip(g.rows, g.rewards, strict=True)]
    likelihood_B = scored.metrics_BK[:, METRICS.index("likelihood")]
    advantage_B, kept_B = scored.batch.advantage_B, scored.kept_advantage_B
    candidate_B, number_BT = candidates(scored.batch, me, objective), _numbers(scored)
    surprise = number_BT.abs().nan_to_num(0.0).amax(dim=1).tolist()
    outcomes = defaultdict[tuple[str, bool, bool], list[int]](list)
    for at in sorted(range(len(rows)), key=lambda at: -surprise[at]):
        author, kept = rows[at][1].completion.author, bool(kept_B[at])
        outcomes[author, kept, bool(advantage_B[at] > 0)].append(at)
    keys = sorted(outcomes)
    first = round % len(keys)  # where there is room for one a round, each has its turn
    turns = chain.from_iterable(
        zip_longest(*(outcomes[key] for key in keys[first:] + keys[:first]))
    )
    lines = []
    for at in (at for at in turns if at is not None):
        group, row, reward = rows[at]
        ids, numbers = row.token_T[:TOKENS].tolist(), number_BT[at, :TOKENS].tolist()
        numbers = [] if math.isnan(numbers[0]) else numbers[: len(ids)]
        line = Recorded(
            round=round,
            problem=row.completion.problem_id,
            author=row.completion.author,
            index=row.completion.index,
            advantage=_rounded(advantage_B[at]),
            kept=_rounded(kept_B[at]),
            reward=_rounded(reward),
            likelihood=_rounded(likelihood_B[at]) if numbers else None,
            why=_why(at, scored, candidate_B, objective, me),
            question=group.problem.question[:QUESTION],
            surprise=_rounded(surprise[at]) if numbers else None,
            measure="ln p" if row.completion.logp_T is None else "log-ratio",
            turns=row.completion.turns,
            **columns_of([str(policy.tokenizer.decode([id])) for id in ids], numbers),
        )
        size_bytes -= len(json.encode(line)) + 1
        if size_bytes < 0:
            break
        lines.append(line)
    return lines


def _numbers(scored: Scored) -> Tensor:
    """Return number_BT of ``Recorded``; NaN on padding, and in rows not read or not finite."""
    batch, start_BT = scored.batch, scored.logp_start_BT
    told_BT = ~batch.logp_gen_BT.isnan()
    number_BT = torch.where(told_BT, batch.logp_gen_BT - start_BT, start_BT)
    read_B = scored.read_B & torch.where(batch.mask_BT, number_BT, 0.0).isfinite().all(dim=1)
    return torch.where(batch.mask_BT & read_B.unsqueeze(1), number_BT, torch.nan)


def _why(at: int, scored: Scored, candidate_B: Tensor, objective: ObjectiveConfig, me: str) -> str:
    """Return in words why the kept advantage is not the advantage; "" where it is."""
    columns = scored.batch.advantage_B, candidate_B, scored.kept_advantage_B
    advantage, candidate, kept = (float(each_B[at]) for each_B in columns)
    if not advantage:
        return "its reward is the mean of its group"
    if at in scored.dropped:
        return f"left out: not finite ({scored.dropped[at]})"
    foreign = scored.batch.completions[at].author != me
    if not candidate:
        none = objective.others == "none"
        return f"not read: {'of another author' if none else 'a failure of another author'}"
    if not kept:
        far = objective.filter and candidate < 0
        return "filtered: bad, and far from what this model writes" if far else "weight 0"
    if abs(kept / advantage - 1) > 1e-3:
        return f"weight {kept / advantage:.2g}{', by its likelihood here' * foreign}"
    return ""


def _rounded(value: Tensor | float) -> float:
    return round(float(value), 3)
