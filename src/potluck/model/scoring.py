"""Log-probabilities of given tokens and entropies in their places, not all logits at once."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from potluck.model.loading import ModelError

LOGITS_AT_ONCE = 2**25
"""Numbers: 128 MiB in float32. With 151,936 tokens, the positions come in chunks of 220."""


def logits_at_once(device: str) -> int:
    """Count the logits that exist at once on a device of this type."""
    # The gradient of the head's weight is read and written once a chunk. A GPU computes a small
    # chunk in less time than that takes, so its chunks are larger (by arithmetic; not measured).
    return LOGITS_AT_ONCE if device == "cpu" else 4 * LOGITS_AT_ONCE


class Scorer(torch.nn.Module):
    """ln p of given tokens under a network, with gradient.

    All logits would be 22 GB for 48 x 768 tokens and Qwen's vocabulary, in float32. Here the hidden
    states that predict something go through the head a chunk at a time, and the backward pass
    computes a chunk's logits again instead of keeping them.

    A module, so that FSDP finds everything that uses the network's weights in one forward pass.
    """

    def __init__(self, network: PreTrainedModel, vocabulary: int) -> None:
        """Take the network; raise ModelError if it is not a body with a head on it."""
        super().__init__()
        self.network, self.vocabulary = network, vocabulary
        if network.get_decoder() is network:
            raise self._no_body()
        # One token shows whether the network calls the body, which no name tells.
        with torch.no_grad():
            one = torch.zeros(1, 1, dtype=torch.long, device=network.device)
            self(one, one == 0, one[0], 1.0)

    def forward(
        self, token_MS: Tensor, predicts_MS: Tensor, wanted_X: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Compute logp_X: log_softmax(logits / T)[wanted], nats, float32, <= 0; and entropy_X, of
        the whole distribution in each of these places, nats, without gradient. ``token_MS`` is the
        model's input, ``predicts_MS`` has the X positions whose next tokens are ``wanted_X``.
        """
        out = self.network.get_decoder()(input_ids=token_MS, use_cache=False)
        hidden_XD, kind = out.last_hidden_state[predicts_MS], type(out)
        vocabulary = self.network.get_output_embeddings().weight.shape[0]
        size = max(1, logits_at_once(hidden_XD.device.type) // vocabulary)
        if len(wanted_X) <= size:
            return self._score(hidden_XD, wanted_X, temperature, kind)
        # Nothing random happens in a head.
        again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
        chunks = zip(hidden_XD.split(size), wanted_X.split(size), strict=True)
        scored = [again(self._score, *chunk, temperature, kind) for chunk in chunks]
        logp, entropy = zip(*scored, strict=True)
        return torch.cat(logp), torch.cat(entropy)

    def every(self, token_1S: Tensor, place_T: Tensor) -> Tensor:
        """Compute logp_TV: ln p of every id behind the tokens in these places of a text, nats."""
        out = self.network.get_decoder()(input_ids=token_1S, use_cache=False)
        logits_TV = self._logits(out.last_hidden_state[0, place_T], type(out))
        return logits_TV[:, : self.vocabulary].float().log_softmax(dim=1)

    def _score(
        self, hidden_XD: Tensor, wanted_X: Tensor, temperature: float, kind: type[ModelOutput]
    ) -> tuple[Tensor, Tensor]:
        logits_XV = self._logits(hidden_XD, kind)[:, : self.vocabulary].float()
        if temperature != 1:
            logits_XV = logits_XV / temperature
        with torch.no_grad():
            entropy_X = torch.special.entr(logits_XV.softmax(dim=1)).sum(dim=1)
        # A rounding may lie above 0, which no log-probability does.
        return -cross_entropy(logits_XV, wanted_X, reduction="none").clamp(min=0), entropy_X

    def _logits(self, hidden_XD: Tensor, kind: type[ModelOutput]) -> Tensor:
        """Apply the network's head, and what follows it (Gemma caps logits, Cohere scales them): by
        its own forward pass, in which the body only returns ``hidden_XD``."""
        body: Any = self.network.get_decoder()
        before = vars(body).get("forward")
        handed_over = []

        def given(*_: object, **__: object) -> ModelOutput:
            handed_over.append(True)
            return kind(last_hidden_state=hidden_XD.unsqueeze(0))

        body.forward = given
        try:
            # Past __call__, whose hooks are for a whole pass.
            token_1X = hidden_XD.new_zeros(1, len(hidden_XD), dtype=torch.long)
            logits_1XV: Tensor = self.network.forward(input_ids=token_1X, use_cache=False).logits
        finally:
            if before is None:
                del body.forward
            else:
                body.forward = before
        if not handed_over:
            raise self._no_body()
        return logits_1XV[0]

    def _no_body(self) -> ModelError:
        return ModelError(
            f"{type(self.network).__name__} is not a body (get_decoder) with a head on it, as "
            f"scoring in chunks needs; use a model that is"
        )
