"""Completions as rows of a model, and groups of rows as tensors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from potluck.objective.trust import advantages_by_trust
from potluck.types import Completion, Group


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B completions, padded at the end to the longest, on the CPU."""

    completions: tuple[Completion, ...]
    """[B] source of each row; the author matters to reports and faults only."""
    prompts: tuple[np.ndarray, ...]
    """[B] int32 ids of what came before the completion."""
    tokens: tuple[np.ndarray, ...]
    """[B] int32 ids of the completion in the learner's own vocabulary."""
    logp_gen_BT: Tensor
    """ln pi_gen, nats; NaN where the author told none."""
    advantage_B: Tensor
    mask_BT: Tensor
    bytes_B: Tensor
    """Bytes of each completion's text in UTF-8, special tokens left out; 1 at least."""
    trusted_B: Tensor
    """True in rows whose author is trusted: see ``objective/trust.py``."""
    rows_counted: int
    """Number of rows that the loss is the mean over: the trusted ones, but for one that no other
    trusted row of its problem stands beside; without the others it would not be here."""
    tokens_counted: int
    """Number of tokens in those rows."""

    def by(self, author: str) -> Tensor:
        """Return own_B: True at the rows that ``author`` wrote."""
        return torch.tensor([completion.author == author for completion in self.completions])

    def rows(self, row_M: Tensor) -> "Batch":
        """Return the micro-batch of these rows, in this order, as wide as its longest."""
        chosen = row_M.tolist()
        mask_MT = self.mask_BT[row_M]
        width = int(mask_MT.sum(dim=1).max())
        return Batch(
            completions=tuple(self.completions[i] for i in chosen),
            prompts=tuple(self.prompts[i] for i in chosen),
            tokens=tuple(self.tokens[i] for i in chosen),
            logp_gen_BT=self.logp_gen_BT[row_M, :width],
            advantage_B=self.advantage_B[row_M],
            mask_BT=mask_MT[:, :width],
            bytes_B=self.bytes_B[row_M],
            trusted_B=self.trusted_B[row_M],
            rows_counted=self.rows_counted,
            tokens_counted=self.tokens_counted,
        )

    def size(self, rows_B: Tensor) -> tuple[int, int]:
        """Return the number of rows where ``rows_B`` is True, and of their tokens."""
        return int(rows_B.sum()), int(self.mask_BT[rows_B].sum())


class Piece(NamedTuple):
    """The part of one process in one turn of a pass over a batch."""

    row_M: Tensor
    """Places in the batch; none where there is nothing left for this process."""
    rows: Batch
    """Rows of the forward pass: these, or one of another process, as all make a pass."""
    tethered_M: Tensor
    """True at the rows whose KL is in the loss."""
    whole: tuple[int, int]
    """Rows and tokens of the whole batch whose KL is in the loss."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A batch with all that is decided once a round, by the weights of the round's start."""

    batch: Batch
    logp_start_BT: Tensor
    """ln pi_start, nats; 0 on padding and in rows that were not read."""
    kept_advantage_B: Tensor
    """Advantages after the filter and the weights; 0 where they, or a fault, took the row out."""
    metrics_BK: Tensor
    """Numbers of ``metrics.METRICS``, float64; NaN in rows that were not read."""
    dropped: Mapping[int, str]
    """Foreign rows that made a number non-finite, and which number."""
    logp_reference_BT: Tensor | None = None
    """ln p of own completions under the reference, nats; 0 elsewhere. None: there is none."""

    def without(self, rows: Mapping[int, str]) -> "Scored":
        """Return the same with these rows dropped as well; they keep their place in B."""
        kept_advantage_B = self.kept_advantage_B.clone()
        kept_advantage_B[list(rows)] = 0.0
        return replace(self, kept_advantage_B=kept_advantage_B, dropped={**self.dropped, **rows})


def pack(
    groups: Sequence[Group],
    *,
    scale: Literal["std", "none"] = "std",
    trusts: Callable[[str], bool] = lambda author: True,
) -> Batch:
    """Stack the rows of all groups; advantages are relative to each group. ``trusts`` tells of an
    author if it is trusted."""
    rows = [row for group in groups for row in group.rows]
    length_B = torch.tensor([len(row.token_T) for row in rows])
    trusted, advantages, counted = [], [], []
    for group in groups:
        count, kept = len(group.rows), len(group.kept)
        authors = [row.completion.author for row in group.rows]
        trusted_G = torch.tensor([trusts(author) for author in authors])
        advantage_G = advantages_by_trust(
            torch.tensor(group.rewards + group.kept),
            [*authors, *[""] * kept],
            torch.cat([trusted_G, torch.ones(kept, dtype=torch.bool)]),
            scale=scale,
        )
        trusted.append(trusted_G)
        advantages.append(advantage_G[:count])
        counted.append(trusted_G & bool(trusted_G.all() or trusted_G.sum() + kept > 1))
    counted_B = torch.cat(counted)
    return Batch(
        completions=tuple(row.completion for row in rows),
        prompts=tuple(row.prompt_P for row in rows),
        tokens=tuple(row.token_T for row in rows),
        logp_gen_BT=pad_sequence(
            [
                torch.full(row.token_T.shape, torch.nan) if logp_T is None else torch.tensor(logp_T)
                for row in rows
                for logp_T in [row.completion.logp_T]
            ],
            batch_first=True,
        ),
        advantage_B=torch.cat(advantages),
        mask_BT=torch.arange(int(length_B.max())) < length_B.unsqueeze(1),
        bytes_B=torch.tensor([max(1, len(row.text.encode())) for row in rows]),
        trusted_B=torch.cat(trusted),
        rows_counted=int(counted_B.sum()),
        tokens_counted=int(length_B[counted_B].sum()),
    )


def micro_batches(batch: Batch, row_X: Tensor, *, token_budget: int) -> Iterator[Tensor]:
    """Cut the rows ``row_X`` into pieces of at most ``token_budget`` tokens, padding counted.

    Longest first, so rows of like length share a piece (little padding), and what does
    not fit into memory fails in the first seconds. A row that is longer than the budget
    gets a piece of its own: nothing is ever left out.
    """
    size_B = [len(p) + len(t) for p, t in zip(batch.prompts, batch.tokens, strict=True)]
    rows = sorted(row_X.tolist(), key=lambda row: -size_B[row])
    while rows:
        count = max(1, token_budget // size_B[rows[0]])
        yield torch.tensor(rows[:count])
        rows = rows[count:]
