"""Completions as rows of a model, and groups of rows as tensors."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from potluck.objective.trust import advantages_by_trust
from potluck.types import Completion, Group, Observed, Row


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B completions, padded at the end to the longest, on the CPU."""

    completions: tuple[Completion, ...]
    """[B] source of each row; its author decides which rows are own, and which pass reads an
    untrusted one."""
    prompts: tuple[np.ndarray, ...]
    """[B] int32 ids of what came before the completion."""
    tokens: tuple[np.ndarray, ...]
    """[B] int32 ids of the completion in the learner's own vocabulary."""
    observed: tuple[Observed, ...]
    """[B] what an environment said within the completion: read, and in no array of BT."""
    logp_gen_BT: Tensor
    """ln pi_gen, nats; NaN where the author told none."""
    advantage_B: Tensor
    mask_BT: Tensor
    bytes_B: Tensor
    """Bytes of each completion's text in UTF-8, special tokens left out; 1 at least. Of an episode
    those of its turns as they travel, tool calls included."""
    trusted_B: Tensor
    """True in rows whose author is trusted: see ``objective/trust.py``."""
    reward_B: Tensor
    group_B: Tensor
    """Number of the group in which the row is compared."""
    texts: tuple[str, ...]
    silenced_B: Tensor
    """True in rows that bear a habit that is not learned from: see ``objective/habit.py``."""
    rows_counted: int
    """Number of rows that the loss is the mean over: the trusted ones. Not counted is a trusted
    row with untrusted ones in its group, but no other trusted row and no past reward: by itself it
    would have been left out."""
    tokens_counted: int
    """Number of tokens in those rows."""

    def by(self, author: str) -> Tensor:
        """Return a mask [B] of the rows that ``author`` wrote."""
        return torch.tensor([completion.author == author for completion in self.completions])

    @property
    def untrusted(self) -> Counter[str]:
        """Number of rows of each author that is not trusted, sorted by name."""
        authors = zip(self.completions, self.trusted_B.tolist(), strict=True)
        return Counter(sorted(each.author for each, trusted in authors if not trusted))

    def rows(self, row_M: Tensor) -> "Batch":
        """Return the micro-batch of these rows, in this order, as wide as its longest."""
        chosen, width = row_M.tolist(), int(self.mask_BT[row_M].sum(dim=1).max())

        def chosen_of(column: Any) -> Any:
            if isinstance(column, Tensor):
                return column[row_M, :width] if column.ndim == 2 else column[row_M]
            return tuple(column[i] for i in chosen) if isinstance(column, tuple) else column

        return Batch(**{each.name: chosen_of(getattr(self, each.name)) for each in fields(self)})

    def read_tokens(self) -> list[int]:
        """Count the tokens of each row that a model reads: those of the prompt, the completion and
        what was observed in it."""
        columns = zip(self.prompts, self.tokens, self.observed, strict=True)
        return [len(p) + len(t) + sum(len(ids) for _, ids in heard) for p, t, heard in columns]

    def size(self, rows_B: Tensor) -> tuple[int, int]:
        """Return the number of rows where ``rows_B`` is True, and of their tokens."""
        return int(rows_B.sum()), int(self.mask_BT[rows_B].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A batch with all that is decided once a round, by the weights of the round's start. The
    pass that scores fills it in place."""

    batch: Batch
    logp_start_BT: Tensor
    """ln pi_start, nats; 0 on padding and in rows that were not read."""
    entropy_BT: Tensor
    """Entropy of pi_start in the place of each token, nats; 0 as there."""
    kept_advantage_B: Tensor
    """Advantages after the filter and the weights; 0 where they, or a fault, took the row out."""
    metrics_BK: Tensor
    """Numbers of ``score.METRICS``, float64; NaN in rows that were not read."""
    dropped: Mapping[int, str] = field(default_factory=dict)
    """Foreign rows that made a number non-finite, and which number."""
    logp_reference_BT: Tensor | None = None
    """ln p of own completions under the reference, nats; 0 elsewhere. None: there is none."""

    @property
    def read_B(self) -> Tensor:
        """True in rows that a forward pass has scored, and that were not dropped since."""
        read_B = self.metrics_BK[:, 0].isfinite()
        read_B[list(self.dropped)] = False
        return read_B

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
    silenced: Sequence[bool] = (),
) -> Batch:
    """Stack the rows of all groups; advantages are relative to each group. ``trusts`` tells of an
    author if it is trusted, ``silenced`` of each row if its habit is not learned from; empty: of
    none."""
    rows = [row for group in groups for row in group.rows]
    length_B = torch.tensor([len(row.token_T) for row in rows])
    trusted, advantages, counted = [], [], []
    for group in groups:
        count, past = len(group.rows), len(group.past_rewards)
        authors = [row.completion.author for row in group.rows]
        trusted_G = torch.tensor([trusts(author) for author in authors])
        advantage_G = advantages_by_trust(
            torch.tensor(group.rewards + group.past_rewards),
            [*authors, *[""] * past],
            torch.cat([trusted_G, torch.ones(past, dtype=torch.bool)]),
            scale=scale,
        )
        trusted.append(trusted_G)
        advantages.append(advantage_G[:count])
        counted.append(trusted_G & bool(trusted_G.all() or trusted_G.sum() + past > 1))
    counted_B = torch.cat(counted)
    return Batch(
        completions=tuple(row.completion for row in rows),
        prompts=tuple(row.prompt_P for row in rows),
        tokens=tuple(row.token_T for row in rows),
        observed=tuple(row.observed for row in rows),
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
        bytes_B=torch.tensor([max(1, len(_as_sent(row).encode())) for row in rows]),
        trusted_B=torch.cat(trusted),
        reward_B=torch.tensor([reward for group in groups for reward in group.rewards]),
        group_B=torch.tensor([at for at, group in enumerate(groups) for _ in group.rows]),
        texts=tuple(row.text for row in rows),
        silenced_B=torch.tensor(silenced or [False] * len(rows)),
        rows_counted=int(counted_B.sum()),
        tokens_counted=int(length_B[counted_B].sum()),
    )


def _as_sent(row: Row) -> str:
    return (row.completion.text or "") if row.completion.turns else row.text
