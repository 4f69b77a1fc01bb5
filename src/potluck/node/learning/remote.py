"""The learner of a model behind the Tinker API: scores from the server, decisions here.

At a round's first update the gradient of any loss is that of

    sum_t  weights_t advantages_t R_t ,    R_t = pi_theta / pi_start,

with weights_t advantages_t = -dL / d ln pi_t, which is found here, by the losses that a ``Learner``
has. In each row the weights sum to 1, and there are as many rows in each round: servers that take
the sum, the mean over rows of their means, or the mean over all weights then differ by one factor,
which Adam does not see.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from potluck.model import LearningRate
from potluck.model.loading import SERVED
from potluck.node.learning.base import Learning, UpdateReport
from potluck.node.learning.batch import Batch, Scored
from potluck.node.learning.passes import Portion
from potluck.node.learning.score import candidates, completed, policy_loss, score_rows, unscored
from potluck.node.storage import checkpoint
from potluck.rollout.base import Progress
from potluck.rollout.tinker import TinkerSession
from potluck.types import NonFiniteError

ADAM = "beta1", "beta2", "grad_clip_norm"


@dataclass(frozen=True, eq=False)
class RemoteLearner(Learning):
    """An adapter on a server, and how it learns."""

    session: TinkerSession
    learning_rate: LearningRate
    adam: Mapping[str, float]
    """Values of ``ADAM`` for the server's optimiser."""
    rows: int
    """Rows that are sent in each round; those that are lacking teach nothing."""

    def learn(self, batch: Batch, progress: Progress, *, round: int = 0) -> UpdateReport:
        """Take one step; raise NonFiniteError if a log-probability of an own completion is not
        finite, RolloutError if the server does not do its part."""
        scored, rate = self._score(batch, progress), self.learning_rate.at(round)
        row_M = scored.kept_advantage_B.nonzero().squeeze(1)[: self.rows]  # the last came late
        if not len(row_M):
            return UpdateReport(0, 0.0, 0.0, rate, scored, {})
        micro = batch.rows(row_M)
        logp_MT = scored.logp_start_BT[row_M, : micro.mask_BT.shape[1]].requires_grad_()
        loss = policy_loss(self, Portion(row_M, micro), scored, logp_MT)
        part = len(row_M), int(micro.mask_BT.sum())
        loss = loss * self.share(part, (batch.rows_counted, batch.tokens_counted))
        loss.backward()
        assert logp_MT.grad is not None
        if not loss.isfinite():
            why = "does its weight read entropies, which no server tells?"
            raise NonFiniteError(f"{self.name!r}: the loss is {loss.item()}; {why}")
        if not logp_MT.grad.isfinite().all():
            raise NonFiniteError(f"{self.name!r}: a gradient of the loss is not finite")
        rows = list(zip(micro.prompts, micro.tokens, strict=True))
        both = logp_MT.detach().numpy(), logp_MT.grad.numpy()
        columns = [
            {"logprobs": p_T[:n], "advantages": -n * slope_T[:n], "weights": np.full(n, 1 / n)}
            for n, p_T, slope_T in zip(map(len, micro.tokens), *both, strict=True)
        ]
        nothing = {"logprobs": np.zeros(1), "advantages": np.zeros(1), "weights": np.ones(1)}
        lacking = self.rows - len(rows)
        rows += [(micro.prompts[0][:1], micro.tokens[0][:1])] * lacking
        columns += [nothing] * lacking
        norm = self.session.step(rows, columns, learning_rate=rate, **self.adam)
        return UpdateReport(1, loss.item(), norm, rate, scored, {})

    def _score(self, batch: Batch, progress: Progress) -> Scored:
        scored = unscored(batch, has_reference=False)
        row_M = candidates(batch, self.name, self.objective).nonzero().squeeze(1)
        if len(row_M):
            micro = batch.rows(row_M)
            rows = list(zip(micro.prompts, micro.tokens, strict=True))
            found = self.session.logp(rows, lambda: progress(0, len(rows)))
            logp_MT = pad_sequence([torch.from_numpy(p_T) for p_T in found], batch_first=True)
            # No entropy is told, so that a weight that reads it is not finite.
            read = logp_MT.clamp(max=0), torch.full_like(logp_MT, torch.nan)
            score_rows(self, scored, Portion(row_M, micro), read)
            progress(len(rows), len(rows))
        return completed(self, scored)

    def save(self, folder: Path, round: int, *, card: str) -> None:
        text = json.dumps(self.session.save(f"round-{round:06d}"))
        checkpoint.write(folder, round, lambda at: (at / SERVED).write_text(text), card=card)
