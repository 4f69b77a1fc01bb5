"""A causal language model with its tokenizer: what writes, and what is trained."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jinja2 import TemplateError
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from potluck.rollout.loading import load_network, load_tokenizer, stop_ids
from potluck.rollout.scoring import Scorer
from potluck.types import Problem


class LanguageModel:
    """Any ``transformers`` causal LM, restricted to the ids that its tokenizer has.

    An embedding is often padded to a round size. Ids beyond the tokenizer mean
    nothing, so they are cut off before the softmax, when writing and when learning.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        stop: Sequence[str] = (),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """
        Args:
            stop: further tokens that end a completion, beside the model's own.
            dtype: what ``logp`` computes in. The weights keep the format they have: in
                bfloat16 the trained ones, in float32, are rounded anew in each forward
                pass (autocast), so that small steps add up in them.
        """
        self.network, self.tokenizer, self.dtype = network.eval(), tokenizer, dtype
        # Not len(tokenizer): that is a count, and ids may have gaps.
        highest = max(tokenizer.get_vocab().values())
        self.vocabulary = min(highest + 1, network.get_output_embeddings().weight.shape[0])
        self.stop_ids = stop_ids(network, tokenizer, stop)
        self.scorer = Scorer(network, self.vocabulary)

    @classmethod
    def load(
        cls,
        model: str,
        *,
        device: str = "auto",
        stop: Sequence[str] = (),
        dtype: torch.dtype = torch.float32,
        stored: torch.dtype = torch.float32,
        attention: str = "auto",
    ) -> "LanguageModel":
        """Loads a folder, a Hugging Face id, or ``builtin:NAME``.

        Args:
            dtype: what ``logp`` computes in.
            stored: what the weights are held in. What is to be trained needs float32.
            attention: "auto", "eager", "sdpa" or "flash_attention_2".

        Raises:
            ModelError: there is no such model, or it is not one that can write.
        """
        network = load_network(model, device=device, dtype=stored, attention=attention)
        return cls(network, load_tokenizer(model), stop=stop, dtype=dtype)

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.network.parameters()).device
        return device

    def fingerprint(self) -> str:
        """What kind of model it is, not what it has learned: its type and its tensors' shapes."""
        shapes = {name: list(p.shape) for name, p in self.network.named_parameters()}
        kind = self.network.config.model_type
        return hashlib.sha256(json.dumps([kind, shapes]).encode()).hexdigest()

    def prompt(self, problem: Problem) -> np.ndarray:
        """int32 ids of what the model reads before it writes: see ``prompt_ids``."""
        return prompt_ids(self.tokenizer, problem)

    def text(self, token_T: np.ndarray) -> str:
        """What the tokens say, special tokens left out. Ids of a peer may be any."""
        ids = [int(id) for id in token_T if id < self.vocabulary]
        text = self.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)

    def logp(
        self, prompts: Sequence[np.ndarray], tokens: Sequence[np.ndarray], *, temperature: float
    ) -> Tensor:
        """logp_MT: ln p of each token of each completion, nats, float32, with gradient.

        Rows are padded at the end, where causal attention never looks back from, so
        no attention mask is needed and no pad id means anything. The head sees the
        positions that predict a completion's token, and no others, some at a time.

        Args:
            prompts: M arrays of ids, at least one each.
            tokens: M arrays of ids, at least one each.
            temperature: T, what logits are divided by.

        Returns:
            [M, longest of ``tokens``], <= 0; 0 on padding, through which no gradient flows.
        """
        # The last token of a completion predicts nothing that counts.
        rows = [
            torch.from_numpy(np.concatenate([p, t[:-1]])).long()
            for p, t in zip(prompts, tokens, strict=True)
        ]
        token_MS = pad_sequence(rows, batch_first=True).to(self.device)
        first_M = torch.tensor([len(p) - 1 for p in prompts])
        length_M = torch.tensor([len(t) for t in tokens])
        place_S = torch.arange(token_MS.shape[1])
        predicts_MS = (place_S >= first_M[:, None]) & (place_S < (first_M + length_M)[:, None])
        wanted_X = torch.from_numpy(np.concatenate(tokens)).long().to(self.device)
        rounds_off = self.dtype != torch.float32
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=rounds_off):
            logp_X = self.scorer(token_MS, predicts_MS.to(self.device), wanted_X, temperature)
        mask_MT = torch.arange(int(length_M.max())) < length_M[:, None]
        logp_MT = torch.zeros(mask_MT.shape, device=self.device)
        return logp_MT.masked_scatter(mask_MT.to(self.device), logp_X)

    def give_memory_back(self) -> None:
        """What torch keeps for later use goes back to the card, which models may share."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def prompt_ids(tokenizer: PreTrainedTokenizerBase, problem: Problem) -> np.ndarray:
    """int32 ids of what a model reads before it writes.

    With a chat template: a system and a user message; one message where the template knows
    no system (Gemma). Without a template: the system text, an empty line, and the question,
    as the tokenizer begins a text.
    """
    together = f"{problem.system}\n\n{problem.question}" if problem.system else problem.question
    if not tokenizer.chat_template:
        return np.array(tokenizer(together)["input_ids"], np.int32)
    system = [{"role": "system", "content": problem.system}] if problem.system else []
    try:
        ids = _templated(tokenizer, [*system, {"role": "user", "content": problem.question}])
    except TemplateError:
        ids = _templated(tokenizer, [{"role": "user", "content": together}])
    return np.array(ids, np.int32)


def _templated(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> Any:
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
