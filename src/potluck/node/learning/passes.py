"""Parts of a pass over a batch: its micro-batches, its gradient, and what makes one fail.

With several processes as one node (``group.py``) every process has a micro-batch of its own in each
step of a pass; one that has no rows left goes through a row of another's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from potluck.model import LanguageModel
from potluck.model.inputs import pays, tokens_held
from potluck.model.sharding import full_tensor
from potluck.node.learning.batch import Batch
from potluck.node.learning.group import ProcessGroup
from potluck.rollout.base import Progress
from potluck.types import Completion, NonFiniteError


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """The gradient of a batch's loss, before it is clipped."""

    tensors: Sequence[Tensor | None]
    """Gradient of each trained parameter (``training.trained``); None where the loss does not reach
    it."""
    loss: float
    """Loss over the whole batch; dimensionless."""
    norm: float
    """L2 norm over all parameters; finite once ``Learner.gradient`` returns it."""
    dropped: Mapping[int, str] = field(default_factory=dict)
    """Foreign rows that had to be left out as they made a number non-finite, and which."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Share of each author that is not trusted in the sum of its parts' norms, 0..1."""

    def plus(self, other: "Gradient", scale: float) -> "Gradient":
        """Add ``scale`` times another gradient, in place where that can be."""
        tensors = [
            (a if b is None else b * scale) if a is None or b is None else a.add_(b, alpha=scale)
            for a, b in zip(self.tensors, other.tensors, strict=True)
        ]
        return Gradient(tensors, self.loss + scale * other.loss, norm_of(tensors))


def norm_of(tensors: Sequence[Tensor | None]) -> float:
    norm = torch.nn.utils.get_total_norm([g for g in tensors if g is not None])
    return float(full_tensor(norm))


class Portion(NamedTuple):
    """The part of one process in one step of a pass over a batch."""

    row_M: Tensor
    """Places in the batch; none where there is nothing left for this process."""
    micro: Batch
    """Rows of the forward pass: these, or one of another process, as all make a pass."""


def portions_of(
    batch: Batch,
    rows_B: Tensor,
    *,
    token_budget: int,
    shares_prompts: bool,
    computes_twice: bool,
    processes: ProcessGroup,
    progress: Progress,
) -> Iterator[Portion]:
    """Yield this process's portion of each step of a pass over ``rows_B``."""
    row_X, done = rows_B.nonzero().squeeze(1), 0
    cut = micro_batches(
        batch,
        row_X,
        token_budget=token_budget,
        shares_prompts=shares_prompts,
        computes_twice=computes_twice,
    )
    micros = list(cut)
    for first in range(0, len(micros), processes.size):
        step = micros[first : first + processes.size]
        row_M = step[processes.rank] if processes.rank < len(step) else row_X[:0]
        yield Portion(row_M, batch.rows(row_M if len(row_M) else step[0][-1:]))
        done += sum(map(len, step))
        progress(done, len(row_X))


def micro_batches(
    batch: Batch,
    row_X: Tensor,
    *,
    token_budget: int,
    shares_prompts: bool,
    computes_twice: bool = False,
) -> Iterator[Tensor]:
    """Cut the rows ``row_X`` into parts of at most ``token_budget`` tokens, by ``tokens_held``.

    Longest first, so rows of like length share one (little padding), and what does not fit into
    memory fails in the first seconds. Where the model reads a shared prompt once, and that pays for
    these rows together, the rows of a prompt stay together. A row that is longer than the budget
    gets a part of its own.
    """
    size_B = batch.read_tokens()
    rows = sorted(row_X.tolist(), key=lambda row: -size_B[row])
    key_of: dict[int, object] = {row: row for row in rows}
    if shares_prompts:
        prompts = {row: batch.prompts[row].tobytes() for row in rows}
        read_once = {prompts[row]: len(batch.prompts[row]) for row in rows}
        repeated = sum(len(batch.prompts[row]) for row in rows) - sum(read_once.values())
        whole = sum(size_B[row] for row in rows)
        if pays(whole, whole - repeated):
            key_of = dict(prompts)
    groups = dict[object, list[int]]()
    for row in rows:  # so groups are in the order of their longest rows
        groups.setdefault(key_of[row], []).append(row)

    part, keys, prompt, own = list[int](), set[object](), 0, 0
    for row in chain.from_iterable(groups.values()):
        of_row = len(batch.prompts[row])
        wider = max(prompt, of_row), max(own, size_B[row] - of_row)
        counts = len(part) + 1, len(keys | {key_of[row]})
        held = tokens_held(*counts, *wider, computes_twice=computes_twice)
        if part and held > token_budget:
            yield torch.tensor(part)
            part, keys = [], set()
            wider = of_row, size_B[row] - of_row
        part.append(row)
        keys.add(key_of[row])
        prompt, own = wider
    if part:
        yield torch.tensor(part)


def has_dropout(policy: LanguageModel) -> bool:
    """Tell if training mode draws random numbers: then it is not the evaluated policy. Ask the
    generators and not the modules, as some models keep a rate under any name."""
    device, token_T, drawn = policy.device, np.zeros(1, np.int32), list[list[float]]()
    # Layers may use the CPU's generator, or the device's own. (mps cannot fork its own.)
    forked = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(forked), torch.no_grad():
        for is_after in (False, True):
            torch.manual_seed(0)
            if is_after:
                policy.network.train()
                policy.logp([token_T], [token_T], temperature=1.0)
                policy.network.eval()
            drawn.append([torch.rand(1, device=where).item() for where in ("cpu", device)])
    return drawn[0] != drawn[1]


def require_foreign(
    completion: Completion, what: str, policy: LanguageModel | None, name: str
) -> None:
    """Raise NonFiniteError if a weight that is here is not finite, or if the completion, whose
    ``what`` is not finite, is ``name``'s own. A foreign one is left out, and the rest is learned
    from."""
    for weight, parameter in policy.network.named_parameters() if policy else ():
        if not full_tensor(parameter.isfinite().all()):
            raise NonFiniteError(
                f"{name!r}: the weights {weight!r} are not finite; lower the "
                f"learning rate, in a new run (its model can be a checkpoint of this one)"
            )
    if completion.author == name:
        raise NonFiniteError(
            f"{name!r}: the {what} of completion {completion.index} of "
            f"{completion.problem_id!r} by {completion.author!r}, its own, is not finite; "
            f"lower the learning rate"
        )
