"""Passes over a batch: turns, micro-batches, the collectives of several processes, backward.

With several processes as one node the model is spread over all of them, so a pass is made by all
or by none. In each turn every process has a micro-batch of its own; one that has no rows left goes
through a row of another's.

One pass serves both needs: with ``Scoring`` it makes the scores of its rows, by the model of the
round's start; with ``Scored`` it looks them up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from potluck.model import LanguageModel
from potluck.model.lora import adapter_off, trained
from potluck.model.sharding import full_tensor
from potluck.node.learning.batch import Batch, Scored, Turn
from potluck.node.learning.group import ProcessGroup
from potluck.node.learning.score import Scoring
from potluck.node.learning.terms import KLTerm, Term
from potluck.objective.trust import bounded_scale
from potluck.rollout.base import Progress


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """The gradient of a batch's loss, before it is clipped."""

    tensors: Sequence[Tensor | None]
    """Gradient of each trained parameter (``lora.trained``); None where the loss does not reach
    it."""
    loss: float
    """Loss over the whole batch; dimensionless."""
    norm: float
    """L2 norm over all parameters; finite."""
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
        return Gradient(tensors, self.loss + scale * other.loss, _norm(tensors))


Scores = Scoring | Scored


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """The passes of one learner; its fields are those of ``Learner``."""

    policy: LanguageModel
    reference: LanguageModel | None
    temperature: float
    micro_batch_tokens: int
    processes: ProcessGroup

    def score(self, batch: Batch, rows_B: Tensor, scores: Scoring) -> None:
        """Read ``rows_B`` without gradient and without dropout."""
        self.policy.network.eval()
        with torch.no_grad():
            for turn in self._turns(batch, rows_B, scores.unread_B, lambda done, total: None):
                read = self._read(turn.micro)
                if len(turn.row_M):
                    scores.of(turn, *read)

    def bounded_sum(
        self, batch: Batch, terms: Mapping[str, Sequence[Term]], scores: Scores, progress: Progress
    ) -> Gradient:
        """Compute the gradient of all terms: a pass for those under "", and one for each author
        that is not trusted, whose part is added within its bound."""
        total = self.gradient(batch, terms[""], scores, progress)
        rows, norms, trusted_norm = batch.untrusted, dict[str, float](), total.norm
        for author in rows:
            added = self.gradient(batch, terms[author], scores, progress)
            scale = bounded_scale(
                added.norm,
                rows[author],
                trusted_norm=trusted_norm,
                trusted_rows=batch.rows_counted,
                untrusted_rows=rows.total(),
            )
            norms[author] = scale * added.norm
            total = total.plus(added, scale)
            del added  # the next author's part needs its memory
        whole = sum(norms.values()) + trusted_norm
        shares = {author: norm / whole if whole else 0.0 for author, norm in norms.items()}
        return replace(total, shares=shares)

    def gradient(
        self, batch: Batch, terms: Sequence[Term], scores: Scores, progress: Progress
    ) -> Gradient:
        """Compute the gradient of the sum of ``terms``, in one pass; it may be infinite."""
        network, loss = self.policy.network, 0.0
        rows_B = torch.stack([term.rows_B for term in terms]).any(dim=0)
        network.zero_grad()
        network.train()
        unread_B = scores.unread_B if any(isinstance(term, KLTerm) for term in terms) else None
        for turn in self._turns(batch, rows_B, unread_B, progress):
            loss += self._forward_backward(turn, terms, scores)
        network.eval()
        tensors = [parameter.grad for parameter in trained(network)]
        network.zero_grad()
        loss = sum(self.processes.all_gather(loss)) / self.processes.size
        return Gradient(tensors, loss, _norm(tensors))

    def _forward_backward(self, turn: Turn, terms: Sequence[Term], scores: Scores) -> float:
        """Add the gradient of a turn's part of the loss; return that part. No graph outlives it."""
        (logp_MT, entropy_MT), parts = self._read(turn.micro), list[Tensor]()
        if len(turn.row_M):
            known = scores.of(turn, logp_MT.detach(), entropy_MT)
            losses = [term.loss(turn, logp_MT, known) for term in terms]
            parts = [loss for loss in losses if loss is not None]
        if not parts:
            if self.processes.size > 1:  # the others' collectives wait for this process
                (0.0 * logp_MT.sum()).backward()
            return 0.0
        loss = sum(parts[1:], parts[0])
        loss.backward()
        return loss.item()

    def _turns(
        self, batch: Batch, rows_B: Tensor, unread_B: Tensor | None, progress: Progress
    ) -> Iterator[Turn]:
        """Yield this process's part of each turn. The reference reads its rows before the policy
        does, whose graph takes memory."""
        row_X = rows_B.nonzero().squeeze(1)
        micros = list(micro_batches(batch, row_X, token_budget=self.micro_batch_tokens))
        done = 0
        for first in range(0, len(micros), self.processes.size):
            turn = micros[first : first + self.processes.size]
            row_M = turn[self.processes.rank] if self.processes.rank < len(turn) else row_X[:0]
            micro = batch.rows(row_M if len(row_M) else turn[0][-1:])
            yield Turn(row_M, micro, self._reference_logp(row_M, micro, unread_B))
            done += sum(map(len, turn))
            progress(done, len(row_X))

    def _read(self, micro: Batch) -> tuple[Tensor, Tensor]:
        given = micro.prompts, micro.tokens
        return self.policy.logp_and_entropy(*given, temperature=self.temperature)

    def _reference_logp(
        self, row_M: Tensor, micro: Batch, unread_B: Tensor | None
    ) -> Tensor | None:
        if self.reference is None or unread_B is None:
            return None
        logp_MT = torch.zeros(micro.mask_BT.shape)
        at = unread_B[row_M].nonzero().squeeze(1)
        # Of several processes all make a pass, or none.
        if len(at) or (self.processes.size > 1 and unread_B.any()):
            rows = micro.rows(at if len(at) else torch.tensor([0]))
            with torch.no_grad(), adapter_off(self.reference.network):
                read = self.reference.logp(rows.prompts, rows.tokens, temperature=self.temperature)
            logp_MT[at, : read.shape[1]] = read[: len(at)].cpu()
        return logp_MT


def micro_batches(batch: Batch, row_X: Tensor, *, token_budget: int) -> Iterator[Tensor]:
    """Cut the rows ``row_X`` into parts of at most ``token_budget`` tokens, padding counted.

    Longest first, so rows of like length share one (little padding), and what does not fit into
    memory fails in the first seconds. A row that is longer than the budget gets one of its own:
    nothing is ever left out.
    """
    size_B = [len(p) + len(t) for p, t in zip(batch.prompts, batch.tokens, strict=True)]
    rows = sorted(row_X.tolist(), key=lambda row: -size_B[row])
    while rows:
        count = max(1, token_budget // size_B[rows[0]])
        yield torch.tensor(rows[:count])
        rows = rows[count:]


def has_dropout(policy: LanguageModel) -> bool:
    """Tell if training mode draws random numbers: then it is not the evaluated policy.

    It asks the random generators, not the modules: some models keep a rate under any name.
    """
    device, token_T = policy.device, np.zeros(1, np.int32)
    before = _random_states(device)
    policy.network.train()
    with torch.no_grad():
        policy.logp([token_T], [token_T], temperature=1.0)
    policy.network.eval()
    drawn = not all(map(torch.equal, before, _random_states(device)))
    torch.set_rng_state(before[0])
    if device.type != "cpu":
        torch.get_device_module(device).set_rng_state(before[1], *_index(device))
    return drawn


def _norm(tensors: Sequence[Tensor | None]) -> float:
    norm = torch.nn.utils.get_total_norm([g for g in tensors if g is not None])
    return float(full_tensor(norm))


def _random_states(device: torch.device) -> list[Tensor]:
    """Return the state of the CPU's generator, and of the device's own: layers may use either."""
    if device.type == "cpu":
        return [torch.get_rng_state()]
    own = torch.get_device_module(device).get_rng_state(*_index(device))
    return [torch.get_rng_state(), own]


def _index(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # mps is one device
