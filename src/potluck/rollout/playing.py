"""Episodes that are written side by side by the model of here.

Each step draws a token of every turn that is being written, in the order of the rows. Rows that
wait for their environment keep their place; once a share of the batch has been answered, these read
what was said to them.
"""

from collections.abc import Container, Sequence

import numpy as np
import torch
from torch import Tensor

from potluck.model.policy import LanguageModel
from potluck.rollout.base import TICK_S, Sampler
from potluck.rollout.cache import TurnReader
from potluck.rollout.episodes import Episodes

RESUME_AT = 0.125
"""Share of the batch that must have been answered before these rows read on, if others write."""
FORGET_AT = 0.25
"""Share of the batch that must be over before the rest is moved together."""


class Playing:
    """A batch of episodes: a row of the reader for each that is left, in an order that stays."""

    def __init__(self, reader: TurnReader, episodes: Episodes, policy: LanguageModel) -> None:
        self._reader, self._episodes, self._policy = reader, episodes, policy
        self._logits_NV = reader.first()
        self.live = list(range(len(self._logits_NV)))
        self.over = 0
        # Tokens and log-probabilities of the turns that are being written; what others read next.
        self._turns: dict[int, tuple[list[int], list[float]]] = {i: ([], []) for i in self.live}
        self._heard: dict[int, np.ndarray] = {}

    def draw(self, sampler: Sampler) -> None:
        """Draw a token of each turn that is being written; then hear what came for the others."""
        if at := self._places(self._turns):
            logits_WV = self._logits_NV[self._index(at), : self._policy.vocabulary]
            token_W, logp_W = sampler(logits_WV)
            for place, token, logp in zip(at, token_W.tolist(), logp_W.tolist(), strict=True):
                episode = self.live[place]
                tokens, logps = self._turns[episode]
                tokens.append(token)
                logps.append(logp)
                if token in self._policy.stop_ids or len(tokens) == self._episodes.left(episode):
                    self.over += not self._episodes.wrote(episode, *self._turns.pop(episode))
        news = self._episodes.heard_in_time()
        if not (self._turns or self._heard or news):
            news = self._episodes.heard(TICK_S)
        self._heard |= {episode: ids for episode, ids in news.items() if ids is not None}
        self.over += sum(ids is None for ids in news.values())

    def read(self) -> None:
        """Read the newest token of each turn, and what was said to those that go on."""
        self._forget()
        if self._turns:
            tokens = [self._turns[i][0][-1] if i in self._turns else 0 for i in self.live]
            reads = [i in self._turns for i in self.live]
            self._logits_NV = self._reader.step(self._index(tokens), self._index(reads))
        if self._heard and (not self._turns or len(self._heard) >= RESUME_AT * len(self.live)):
            at = self._places(self._heard)
            at_W, ids = self._index(at), [self._heard[self.live[place]] for place in at]
            self._logits_NV[at_W] = self._reader.read(at_W, ids)
            self._turns |= {episode: ([], []) for episode in self._heard}
            self._heard = {}

    def _forget(self) -> None:
        left = [i for i in self.live if self._episodes.is_open(i)]
        if left and len(left) <= (1 - FORGET_AT) * len(self.live):
            kept_N = self._index(self._places(left))
            self._reader.keep(kept_N)
            self._logits_NV = self._logits_NV[kept_N]
        elif left:
            return
        self.live = left

    def _places(self, some: Container[int]) -> list[int]:
        return [place for place, episode in enumerate(self.live) if episode in some]

    def _index(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self._policy.device)
