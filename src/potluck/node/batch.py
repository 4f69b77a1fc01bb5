"""From groups of completions to tensors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from potluck.objective import group_advantages
from potluck.types import Completion, Group, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B completions, padded at the end to the longest, on the CPU."""

    completions: tuple[Completion, ...]
    """[B] where each row comes from; who wrote it matters to reports and faults only."""
    prompts: tuple[np.ndarray, ...]
    """[B] int32 ids of what came before the completion."""
    logp_gen_BT: Tensor
    advantage_B: Tensor
    mask_BT: Tensor

    def rows(self, row_M: Tensor) -> "Batch":
        """The micro-batch of these rows, in this order, as wide as its longest."""
        chosen = row_M.tolist()
        mask_MT = self.mask_BT[row_M]
        width = int(mask_MT.sum(dim=1).max())
        return Batch(
            completions=tuple(self.completions[i] for i in chosen),
            prompts=tuple(self.prompts[i] for i in chosen),
            logp_gen_BT=self.logp_gen_BT[row_M, :width],
            advantage_B=self.advantage_B[row_M],
            mask_BT=mask_MT[:, :width],
        )


def pack(
    groups: Sequence[Group], prompt: Callable[[Problem], np.ndarray], *, scale: str = "std"
) -> Batch:
    """Stacks the completions of all groups; advantages are relative to each group."""
    completions = tuple(c for group in groups for c in group.completions)
    prompts = {group.problem.id: prompt(group.problem) for group in groups}
    length_B = torch.tensor([len(c.token_T) for c in completions])
    mask_BT = torch.arange(int(length_B.max())) < length_B.unsqueeze(1)
    return Batch(
        completions=completions,
        prompts=tuple(prompts[c.problem_id] for c in completions),
        logp_gen_BT=pad_sequence([torch.tensor(c.logp_T) for c in completions], batch_first=True),
        advantage_B=torch.cat(
            [group_advantages(torch.tensor(g.rewards), scale=scale) for g in groups]  # type: ignore[arg-type]
        ),
        mask_BT=mask_BT,
    )


def micro_batches(batch: Batch, row_X: Tensor, *, token_budget: int) -> Iterator[Tensor]:
    """The rows ``row_X`` cut into pieces of at most ``token_budget`` tokens, padding counted.

    Longest first, so rows of like length share a piece (little padding), and what does
    not fit into memory fails in the first seconds. A row that is longer than the budget
    gets a piece of its own: nothing is ever left out.
    """
    size_B = [
        len(p) + len(c.token_T) for p, c in zip(batch.prompts, batch.completions, strict=True)
    ]
    rows = sorted(row_X.tolist(), key=lambda row: -size_B[row])
    while rows:
        count = max(1, token_budget // size_B[rows[0]])
        yield torch.tensor(rows[:count])
        rows = rows[count:]
