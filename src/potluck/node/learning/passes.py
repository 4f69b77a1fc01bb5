"""Passes over a batch: its micro-batches, what each decides and computes, its gradient.

With several processes as one node (``group.py``) every process has a micro-batch of its own in each
step of a pass; one that has no rows left goes through a row of another's.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from potluck.model import LanguageModel
from potluck.model.sharding import full_tensor
from potluck.node.learning.batch import Batch, Learning, Scored
from potluck.node.learning.group import ProcessGroup
from potluck.objective import weights
from potluck.objective.losses import clipped_loss
from potluck.objective.methods import ObjectiveConfig, Others
from potluck.rollout.base import Progress
from potluck.types import Completion, NonFiniteError

METRICS = (
    "tokens", "ratio_sum", "k1", "k3", "capped", "weight", "weight_square",
    "likelihood", "weight_min", "surprise",
)  # fmt: skip
"""Names of the K numbers that are kept of each completion."""


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """The gradient of a batch's loss, before it is clipped."""

    tensors: Sequence[Tensor | None]
    """Gradient of each trained parameter (``lora.trained``); None where the loss does not reach
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
    batch: Batch, rows_B: Tensor, token_budget: int, processes: ProcessGroup, progress: Progress
) -> Iterator[Portion]:
    """Yield this process's portion of each step of a pass over ``rows_B``."""
    row_X = rows_B.nonzero().squeeze(1)
    micros, done = list(micro_batches(batch, row_X, token_budget=token_budget)), 0
    for first in range(0, len(micros), processes.size):
        step = micros[first : first + processes.size]
        row_M = step[processes.rank] if processes.rank < len(step) else row_X[:0]
        yield Portion(row_M, batch.rows(row_M if len(row_M) else step[0][-1:]))
        done += sum(map(len, step))
        progress(done, len(row_X))


def micro_batches(batch: Batch, row_X: Tensor, *, token_budget: int) -> Iterator[Tensor]:
    """Cut the rows ``row_X`` into parts of at most ``token_budget`` tokens, padding counted.

    Longest first, so rows of like length share one (little padding), and what does not fit into
    memory fails in the first seconds. A row that is longer than the budget gets one of its own.
    """
    size_B = batch.read_tokens()
    rows = sorted(row_X.tolist(), key=lambda row: -size_B[row])
    while rows:
        count = max(1, token_budget // size_B[rows[0]])
        yield torch.tensor(rows[:count])
        rows = rows[count:]


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


def candidates(batch: Batch, me: str, objective: ObjectiveConfig) -> Tensor:
    """Return the advantages that need a forward pass, 0 for the rows that teach nothing. Of an
    author that is not trusted only successes may, as others' failures tell little of one's own."""
    # First the untrusted, whatever the method is; then the trusted others by the method.
    own_B, advantage_B = batch.by(me), torch.where(batch.silenced_B, 0.0, batch.advantage_B)
    emphasised_B = own_B & (advantage_B > 0)
    advantage_B = torch.where(emphasised_B, advantage_B * objective.own_success_weight, advantage_B)
    untrusted: Others = "none" if objective.others == "none" else "successes"
    advantage_B = weights.select_others(advantage_B, batch.trusted_B, untrusted)
    return weights.select_others(advantage_B, own_B | ~batch.trusted_B, objective.others)


def unscored(batch: Batch, *, has_reference: bool) -> Scored:
    """Make the scores of a batch of which no row was read; such a row teaches nothing."""
    rows, nothing_BT = len(batch.completions), torch.zeros_like(batch.logp_gen_BT)
    return Scored(
        batch,
        logp_start_BT=nothing_BT,
        entropy_BT=nothing_BT.clone(),
        kept_advantage_B=torch.zeros_like(batch.advantage_B),
        metrics_BK=torch.full((rows, len(METRICS)), torch.nan, dtype=torch.float64),
        logp_reference_BT=nothing_BT.clone() if has_reference else None,
    )


def score_rows(
    learner: Learning, scored: Scored, portion: Portion, found: tuple[Tensor, Tensor]
) -> None:
    """Apply the filter and the weights to the rows of a portion, and measure them, in place;
    ``found`` are their ln pi_start and entropies. A weight that needs the whole batch is left to
    ``completed``."""
    (row_M, micro), (start_MT, entropy_MT) = portion, found
    objective, weight = learner.objective, learner.weight
    kept_M = candidates(micro, learner.name, objective)
    if objective.filter:
        divergence_M = weights.divergence_from_author(
            start_MT,
            micro.logp_gen_BT,
            micro.mask_BT,
            estimator=objective.divergence_estimator,
            reduce=objective.divergence_reduce,
        )
        kept_M = weights.filter_advantages(kept_M, divergence_M, limit=objective.divergence_limit)
    rows = _rows(micro, kept_M, torch.ones_like(micro.trusted_B), found, learner.name)
    if weight and not weight.needs_batch:
        kept_M = kept_M * weight(rows, objective)
    width = start_MT.shape[1]
    scored.logp_start_BT[row_M, :width] = start_MT
    scored.entropy_BT[row_M, :width] = entropy_MT
    scored.kept_advantage_B[row_M] = kept_M * weights.untrusted_likelihood(rows, objective)
    scored.metrics_BK[row_M] = row_metrics(
        start_MT, micro.logp_gen_BT, micro.mask_BT, weight_cap=objective.weight_cap
    )


def row_metrics(
    logp_start_BT: Tensor, logp_gen_BT: Tensor, mask_BT: Tensor, *, weight_cap: float
) -> Tensor:
    """Return [B, K] float64: the numbers of ``METRICS`` for each completion; ``AuthorReport`` says
    what they mean. Where ``logp_gen_BT`` is NaN, as the author told none, so is all that needs it;
    only ``weight_min`` then takes ln pi_gen for 0."""
    claims_BT = ~logp_gen_BT.isnan()
    claimed_BT = torch.where(claims_BT, logp_gen_BT, 0.0)
    least_B = torch.where(mask_BT, logp_start_BT - claimed_BT, math.inf).amin(dim=1)
    ratio_BT = torch.where(mask_BT, logp_start_BT - logp_gen_BT, 0.0)
    capped_B = ((ratio_BT > math.log(weight_cap)) & mask_BT).sum(dim=1)
    weight_BT = torch.where(mask_BT, ratio_BT.double().exp(), 0.0)
    columns = {
        "tokens": mask_BT.sum(dim=1),
        "ratio_sum": ratio_BT.double().sum(dim=1),
        "k1": weights.divergence_from_author(logp_start_BT, logp_gen_BT, mask_BT, estimator="k1"),
        "k3": weights.divergence_from_author(logp_start_BT, logp_gen_BT, mask_BT, estimator="k3"),
        "capped": torch.where((claims_BT | ~mask_BT).all(dim=1), capped_B.double(), math.nan),
        "weight": weight_BT.sum(dim=1),
        "weight_square": weight_BT.square().sum(dim=1),
        "likelihood": weights.sequence_likelihood(logp_start_BT, mask_BT),
        "weight_min": least_B.double().exp(),
        "surprise": -torch.where(mask_BT, logp_start_BT, 0.0).double().sum(dim=1),
    }
    return torch.stack([columns[name].double() for name in METRICS], dim=1)


def completed(learner: Learning, scored: Scored, policy: LanguageModel | None = None) -> Scored:
    """Drop foreign rows whose log-probability is not finite; raise NonFiniteError for an own one,
    or a weight of a ``policy`` that is here. Apply a weight that needs the whole batch."""
    rows = (~scored.logp_start_BT.isfinite().all(dim=1)).nonzero().squeeze(1).tolist()
    for row in rows:
        require_foreign(scored.batch.completions[row], "log-probability", policy, learner.name)
    scored = scored.without(dict.fromkeys(rows, "log-probability"))
    weight, kept_B, read_B = learner.weight, scored.kept_advantage_B, scored.read_B
    if not (weight and weight.needs_batch):
        return scored
    both = scored.logp_start_BT, scored.entropy_BT
    start_BT, entropy_BT = (torch.where(read_B.unsqueeze(1), each, 0.0) for each in both)
    every = _rows(scored.batch, kept_B, read_B, (start_BT, entropy_BT), learner.name)
    weight_B = weight(every, learner.objective)
    if bad := (kept_B != 0).logical_and(~weight_B.isfinite()).sum().item():
        name = getattr(weight.of, "__name__", "a weight of one's own")
        raise NonFiniteError(
            f"the weight {name!r} is not finite for {bad} of {len(kept_B)} completions; a weight "
            f"is a finite number for each row that was read"
        )
    return replace(scored, kept_advantage_B=torch.where(kept_B == 0, 0.0, kept_B * weight_B))


def policy_loss(learner: Learning, portion: Portion, scored: Scored, logp_MT: Tensor) -> Tensor:
    """Compute the part of the batch's policy loss that a portion's rows have."""
    (row_M, micro), batch, device = portion, scored.batch, logp_MT.device
    start_MT = scored.logp_start_BT[row_M, : logp_MT.shape[1]].to(device)
    mask_MT, trusted_M = micro.mask_BT.to(device), micro.trusted_B.to(device)
    # The claims of an author that is not trusted are not read: its weight is P^c.
    gen_MT = torch.where(trusted_M.unsqueeze(1), micro.logp_gen_BT.to(device), start_MT)
    kept_M, loss = scored.kept_advantage_B[row_M].to(device), learner.loss or clipped_loss
    part = len(row_M), int(micro.mask_BT.sum())
    share = learner.share(part, (batch.rows_counted, batch.tokens_counted))
    return share * loss(logp_MT, start_MT, gen_MT, kept_M, mask_MT, learner.objective)


def _rows(
    batch: Batch, advantage_B: Tensor, read_B: Tensor, found: tuple[Tensor, Tensor], me: str
) -> weights.ScoredRows:
    logp_start_BT, entropy_BT = found
    return weights.ScoredRows(
        advantage_B=advantage_B,
        read_B=read_B,
        own_B=batch.by(me),
        trusted_B=batch.trusted_B,
        logp_start_BT=logp_start_BT,
        entropy_BT=entropy_BT,
        logp_gen_BT=batch.logp_gen_BT,
        mask_BT=batch.mask_BT,
        bytes_B=batch.bytes_B,
        reward_B=batch.reward_B,
        group_B=batch.group_B,
        texts=batch.texts,
    )
