"""A causal language model: a ``Reader`` with a network, which scores and learns."""

import ctypes
import hashlib
import json
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.generic import ModelOutput

from potluck.model.digest import require_base, stored_type
from potluck.model.inputs import (
    Ids,
    Inputs,
    SharedPrompts,
    WholeRows,
    can_share_prompts,
    model_input,
    pays,
    read_tokens,
)
from potluck.model.loading import ModelError, load_network, load_tokenizer, stop_ids
from potluck.model.prompt import Variables
from potluck.model.reader import Reader
from potluck.model.repeatable import computes_twice, forward_replaced
from potluck.model.token_scores import token_scores
from potluck.types import ChatTemplate, Completion, Observed

GIVE_BACK = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
"""glibc's function that gives free memory back to the system; None: another C library."""


ALIKE, ALIKE_ROUNDED = 1e-3, 0.1
"""Nats by which log-probabilities may differ that are computed in two ways, in float32 and in
bfloat16."""
SLOPES, SLOPES_ROUNDED = 1e-2, 0.3
"""Share of a gradient's norm by which it may differ where it is computed in two ways."""
PROBED_IDS = 8
"""Number of ids that are probed: from the middle of a vocabulary, where tokens are ordinary."""


class LanguageModel(Reader):
    """Any ``transformers`` causal LM, restricted to the ids that its tokenizer has: others, which
    pad an embedding, are cut off before the softmax."""

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        stop: Sequence[str] = (),
        stop_texts: Sequence[str] = (),
        dtype: torch.dtype = torch.float32,
        came_as: torch.dtype = torch.float32,
        variables: Variables | None = None,
        chat_template: ChatTemplate = "model",
    ) -> None:
        """Take further tokens and texts that end a completion as ``stop`` and ``stop_texts``.
        ``logp`` computes in ``dtype``: float32 weights are rounded to bfloat16 in each forward pass
        (autocast), so that small steps add up in them. ``came_as`` is the type of the files that
        training began with, in which others get the weights. ``variables`` are those of the chat
        template, if that is used."""
        configs = getattr(network, "generation_config", None), network.config
        # A model of images and text has the limits of its text in a part of its configuration.
        text: Any = network.config.get_text_config()
        super().__init__(
            tokenizer,
            vocabulary=network.get_output_embeddings().weight.shape[0],
            stop_ids=stop_ids(tokenizer, stop, *configs),
            stop=stop,
            stop_texts=stop_texts,
            context=getattr(text, "max_position_embeddings", None) or 0,
            variables=variables,
            chat_template=chat_template,
        )
        self.network, self.dtype, self.came_as = network.eval(), dtype, came_as
        self.scorer = Scorer(network, self.vocabulary)
        self._can_share_prompts = can_share_prompts(network) and self._reads_alike()
        self._can_share_twice = False

    @classmethod
    def load(
        cls,
        model: str,
        *,
        device: str = "auto",
        stop: Sequence[str] = (),
        stop_texts: Sequence[str] = (),
        dtype: torch.dtype = torch.float32,
        stored: torch.dtype = torch.float32,
        attention: str = "auto",
        variables: Variables | None = None,
        chat_template: ChatTemplate = "model",
    ) -> "LanguageModel":
        """Load as ``load_network`` does, weights as ``stored``: training needs float32. Raise
        ModelError for an adapter whose base is not the model that it was trained on."""
        require_base(model)
        network = load_network(model, device=device, dtype=stored, attention=attention)
        tokenizer = load_tokenizer(model)
        policy = cls(
            network,
            tokenizer,
            stop=stop,
            stop_texts=stop_texts,
            dtype=dtype,
            came_as=stored_type(model),
            variables=variables,
            chat_template=chat_template,
        )
        policy.empty_cache()
        return policy

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def fingerprint(self) -> str:
        """Hash the model's type and its tensors' shapes, not its weights."""
        shapes = {name: list(p.shape) for name, p in self.network.named_parameters()}
        kind = self.network.config.model_type
        return hashlib.sha256(json.dumps([kind, shapes]).encode()).hexdigest()

    def logp(
        self, prompts: Ids, tokens: Ids, *, temperature: float, observed: Sequence[Observed] = ()
    ) -> Tensor:
        """Compute logp_MT: ln p of each token of each completion at a ``temperature``, nats,
        float32, with gradient; 0 on padding, through which none flows. ``observed`` is what the
        model reads within each completion; empty: nothing in any.

        A prompt that several rows share is read once for all of them, where that pays
        (``inputs.py``). The head sees only the positions that predict a completion's token, some
        at a time. Call ``backward`` for the gradient: ``torch.autograd.grad`` does not see the
        passes over what rows have behind a shared prompt.
        """
        return self.logp_and_entropy(prompts, tokens, temperature=temperature, observed=observed)[0]

    def logp_and_entropy(
        self, prompts: Ids, tokens: Ids, *, temperature: float, observed: Sequence[Observed] = ()
    ) -> tuple[Tensor, Tensor]:
        """Compute ``logp``, and entropy_MT: that of the model in the place of each token, nats,
        float32, without gradient; 0 on padding."""
        inputs = self._inputs(prompts, tokens, observed or [()] * len(tokens))
        ordered = [tokens[row] for row in inputs.order]
        wanted_X = torch.from_numpy(np.concatenate(ordered)).long().to(self.device)
        with self._rounding():
            found = self.scorer(inputs, wanted_X, temperature)
        length_M = torch.tensor([len(token_T) for token_T in ordered])
        mask_MT = (torch.arange(int(length_M.max())) < length_M[:, None]).to(self.device)
        nothing_MT = torch.zeros(mask_MT.shape, device=self.device)
        as_given_M = torch.tensor(inputs.order, device=self.device).argsort()
        logp_MT, entropy_MT = (
            nothing_MT.masked_scatter(mask_MT, each_X)[as_given_M] for each_X in found
        )
        return logp_MT, entropy_MT

    def checkpoint_activations(self) -> None:
        """Have layers compute their activations again in the backward pass instead of keeping them;
        raise ValueError if the network cannot."""
        network = self.network
        # Its name until transformers 5.x, where the other one came in.
        enable = getattr(network, "activation_checkpointing_enable", None)
        (enable or network.gradient_checkpointing_enable)({"use_reentrant": False})
        self._can_share_twice = self._can_share_prompts and self._reads_alike(computes_twice=True)

    @property
    def computes_twice(self) -> bool:
        """True: layers compute their activations again in the backward pass."""
        return self.network.training and computes_twice(self.network)

    @property
    def shares_prompts(self) -> bool:
        """True: a prompt that several rows share is read once for all of them."""
        return self._can_share_twice if self.computes_twice else self._can_share_prompts

    def _reads_alike(self, *, computes_twice: bool = False) -> bool:
        """Score some rows behind prompts of unlike length both ways, and tell whether that gives
        the same: some bodies count positions by columns, and no configuration tells. With
        ``computes_twice`` compare gradients: a layer might not have its cache both times."""
        ids = (self._first_probed + np.arange(PROBED_IDS, dtype=np.int32)) % self.vocabulary
        prompts, tokens = [ids[:2], ids[:2], ids[1:6], ids[1:6]], [ids[:3], ids[2:4]] * 2
        given = prompts, tokens, [()] * len(tokens), self.device
        whole = WholeRows.of(*given)
        once = SharedPrompts.of(*given, computes_twice=computes_twice)
        is_rounded = self.dtype != torch.float32 or self.network.dtype != torch.float32
        try:
            if computes_twice:
                wanted_VD, found_VD = (
                    self._probed_slope(inputs, tokens) for inputs in (whole, once)
                )
                least = (SLOPES_ROUNDED if is_rounded else SLOPES) * wanted_VD.norm()
                return bool((wanted_VD - found_VD).norm() <= least)
            with torch.no_grad():
                gap_T = self._probed(whole, tokens) - self._probed(once, tokens)
        except Exception:  # each model's body is code of its own; whole rows say what is wrong
            return False
        return bool(gap_T.abs().max() < (ALIKE_ROUNDED if is_rounded else ALIKE))

    def _probed(self, inputs: Inputs, tokens: Ids) -> Tensor:
        """Compute the log-probabilities of ``tokens``, one behind the other as they are given."""
        ordered = np.concatenate([tokens[row] for row in inputs.order])
        wanted_X = torch.from_numpy(ordered).long().to(self.device)
        with self._rounding():
            logp_X, _ = self.scorer(inputs, wanted_X, 1.0)
        lengths = [len(tokens[row]) for row in inputs.order]
        by_row = dict(zip(inputs.order, logp_X.split(lengths), strict=True))
        return torch.cat([by_row[row] for row in range(len(tokens))])

    def _probed_slope(self, inputs: Inputs, tokens: Ids) -> Tensor:
        """Compute the gradient of the sum of ``_probed`` by the embeddings of the ids that are
        probed: it takes the way through all layers, and little memory."""
        embedded = list[tuple[Tensor, Tensor]]()

        def cut_off(_: torch.nn.Module, given: tuple[Tensor], embedded_NSD: Tensor) -> Tensor:
            leaf_NSD = embedded_NSD.detach().requires_grad_()
            embedded.append((given[0], leaf_NSD))
            return leaf_NSD

        # Gradients of all weights would be as large as the model.
        weights = [each for each in self.network.parameters() if each.requires_grad]
        hook = self.network.get_input_embeddings().register_forward_hook(cut_off)
        for weight in weights:
            weight.requires_grad_(False)
        try:
            self._probed(inputs, tokens).sum().backward()
        finally:
            hook.remove()
            for weight in weights:
                weight.requires_grad_()
        slopes = [leaf_NSD.grad for _, leaf_NSD in embedded if leaf_NSD.grad is not None]
        slope_VD = torch.zeros(PROBED_IDS, slopes[0].shape[-1], device=self.device)
        for (ids_NS, _), slope_NSD in zip(embedded, slopes, strict=True):
            place_NS = ids_NS - self._first_probed
            # Not padding: it may be embedded as 0, whose gradient some layers cannot compute.
            is_probed_NS = (place_NS >= 0) & (place_NS < PROBED_IDS)
            slope_VD.index_add_(0, place_NS[is_probed_NS], slope_NSD[is_probed_NS].float())
        return slope_VD

    @property
    def _first_probed(self) -> int:
        return max(0, self.vocabulary // 2 - PROBED_IDS)

    def _inputs(self, prompts: Ids, tokens: Ids, observed: Sequence[Observed]) -> Inputs:
        given = prompts, tokens, observed, self.device
        if self.shares_prompts and pays(*read_tokens(prompts, tokens, observed)):
            return SharedPrompts.of(*given, computes_twice=self.computes_twice)
        return WholeRows.of(*given)

    def next_logp(
        self, prompt_P: np.ndarray, token_T: np.ndarray, observed: Observed = ()
    ) -> Tensor:
        """Compute logp_TV: ln p of every id in each place of a completion, nats, float32."""
        input_S, place_T = model_input(prompt_P, token_T, observed)
        ids = torch.from_numpy(input_S).long().to(self.device)
        with self._rounding():
            return self.scorer.every(ids.unsqueeze(0), torch.from_numpy(place_T).to(self.device))

    def _rounding(self) -> torch.autocast:
        rounds = self.dtype != torch.float32
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=rounds)

    def logp_gap(
        self,
        prompts: Ids,
        written: Sequence[Completion],
        *,
        temperature: float,
        observed: Sequence[Observed] = (),
    ) -> float:
        """Compute the mean over all tokens of |ln p now - ln p when written|, nats; inf where a
        token is none of this model's. All of ``written`` have log-probabilities."""
        tokens = [c.token_T for c in written]
        if max(token_T.max() for token_T in tokens) >= self.vocabulary:
            return float("inf")
        with torch.no_grad():
            read_MT = self.logp(prompts, tokens, temperature=temperature, observed=observed)
        logp_MT = read_MT.cpu().numpy()
        pairs = zip(logp_MT, [c.logp_T for c in written if c.logp_T is not None], strict=True)
        gaps = [abs(now_T[: len(then_T)] - then_T) for now_T, then_T in pairs]
        return float(np.concatenate(gaps).mean())

    def empty_cache(self) -> None:
        """Give memory that is kept for later use back to the GPU, or to the system, as other models
        may want it: torch keeps a GPU's, the C library a CPU's."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        elif self.device.type == "cpu" and GIVE_BACK:
            GIVE_BACK(0)


LOGITS_AT_ONCE = 2**25  # numbers: 128 MiB in float32; with 151,936 tokens, chunks of 220 positions


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
            self(WholeRows(order=[0], token_MS=one, predicts_MS=one == 0), one[0], 1.0)

    def forward(
        self, inputs: Inputs, wanted_X: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Compute logp_X: log_softmax(logits / T)[wanted], nats, float32, <= 0; and entropy_X, of
        the whole distribution in each of these places, nats, without gradient. ``inputs`` are what
        the model reads, and the X places whose next tokens are ``wanted_X``.
        """
        hidden_XD, kind = inputs.hidden(self.network)
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
        return token_scores(
            self._logits(hidden_XD, kind),
            wanted_X,
            vocabulary=self.vocabulary,
            temperature=temperature,
        )

    def _logits(self, hidden_XD: Tensor, kind: type[ModelOutput]) -> Tensor:
        """Apply the network's head, and what follows it (Gemma caps logits, Cohere scales them): by
        its own forward pass, in which the body only returns ``hidden_XD``."""
        handed_over = []

        def given(*_: object, **__: object) -> ModelOutput:
            handed_over.append(True)
            return kind(last_hidden_state=hidden_XD.unsqueeze(0))

        with forward_replaced(self.network.get_decoder(), given):
            # Past __call__, whose hooks are for a whole pass.
            token_1X = hidden_XD.new_zeros(1, len(hidden_XD), dtype=torch.long)
            logits_1XV: Tensor = self.network.forward(input_ids=token_1X, use_cache=False).logits
        if not handed_over:
            raise self._no_body()
        return logits_1XV[0]

    def _no_body(self) -> ModelError:
        found = f"{type(self.network).__name__} is not a body (get_decoder) with a head on it"
        return ModelError(f"{found}, as scoring in chunks needs; use a model that is")
