"""A causal language model with its tokenizer: what writes, and what is trained."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import TemplateError
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from potluck.types import PotluckError, Problem

BUILT_IN = Path(__file__).parent.parent / "models"


class ModelError(PotluckError):
    """A model that cannot be loaded, or that does not fit this run; says which and why."""


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
    ) -> None:
        self.network, self.tokenizer = network.eval(), tokenizer
        # Not len(tokenizer): that is a count, and ids may have gaps.
        highest = max(tokenizer.get_vocab().values())
        self.vocabulary = min(highest + 1, network.get_output_embeddings().weight.shape[0])
        self.stop_ids = _stop_ids(network, tokenizer, stop)

    @classmethod
    def load(cls, model: str, *, device: str = "auto", stop: Sequence[str] = ()) -> "LanguageModel":
        """Loads a folder, a Hugging Face id, or ``builtin:NAME``, in float32.

        Raises:
            ModelError: there is no such model, or it is not one that can write.
        """
        where = locate(model)
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            made: Any = AutoModelForCausalLM.from_pretrained(
                where, dtype=torch.float32, output_loading_info=True
            )
            network, loaded = made
            network.to(device)
            _realign(network)
        except Exception as error:  # libraries for six file formats raise what they like
            raise _cannot_load("model", model, error) from error
        if lost := sorted(loaded["missing_keys"]):
            # They would be random, and nothing would say so.
            raise ModelError(f"model {model!r} lacks {len(lost)} weights, {lost[0]!r} among them")
        return cls(network, load_tokenizer(model), stop=stop)

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.network.parameters()).device
        return device

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
        positions that predict a completion's token, and no others.

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
        logits_XV = self._logits(token_MS, predicts_MS.to(self.device))
        wanted_X = torch.from_numpy(np.concatenate(tokens)).long().to(self.device)
        logits_XV = logits_XV[:, : self.vocabulary].float()
        if temperature != 1:
            logits_XV = logits_XV / temperature
        logp_X = -cross_entropy(logits_XV, wanted_X, reduction="none")
        mask_MT = torch.arange(int(length_M.max())) < length_M[:, None]
        logp_MT = torch.zeros(mask_MT.shape, device=self.device)
        # A rounding may lie above 0, which no log-probability does.
        return logp_MT.masked_scatter(mask_MT.to(self.device), logp_X.clamp(max=0))

    def _logits(self, token_MS: Tensor, wanted_MS: Tensor) -> Tensor:
        """Logits at the positions wanted, [X, V], row after row.

        The choice is made where hidden states enter the head, so the logits of all the
        other positions never exist, and whatever a model does to its logits afterwards
        (Gemma caps them, Cohere scales them) is done to these.
        """
        head = self.network.get_output_embeddings()
        hook = head.register_forward_pre_hook(
            lambda module, inputs: (inputs[0][wanted_MS].unsqueeze(0), *inputs[1:])
        )
        try:
            logits_1XV: Tensor = self.network(input_ids=token_MS, use_cache=False).logits
        finally:
            hook.remove()
        return logits_1XV[0]


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


def _realign(network: torch.nn.Module) -> None:
    """Moves every tensor into memory of torch's own.

    What is loaded from a file lies where it lay in the file, at any offset, and CPU kernels
    add up in another order there: a run that is resumed from a checkpoint would differ in
    the last bit from one that never stopped.
    """
    for tensor in (*network.parameters(), *network.buffers()):
        tensor.data = tensor.data.clone()


def locate(model: str) -> str:
    """Where ``transformers`` finds it: ``builtin:`` names become folders of this package.

    Raises:
        ModelError: there is no built-in model of that name.
    """
    kind, colon, name = model.partition(":")
    if not colon or kind != "builtin":
        return model
    built_in = sorted(p.name for p in BUILT_IN.iterdir() if (p / "config.json").exists())
    if name not in built_in:
        raise ModelError(f"no built-in model is named {name!r}; there is {', '.join(built_in)}")
    return str(BUILT_IN / name)


def load_config(model: str) -> PreTrainedConfig:
    """The model's shape, without its weights.

    Raises:
        ModelError: there is no such model.
    """
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(locate(model))
        return config
    except Exception as error:
        raise _cannot_load("model", model, error) from error


def load_tokenizer(model: str) -> PreTrainedTokenizerBase:
    """The tokenizer as its files say.

    ``AutoTokenizer`` gives every folder of a Qwen2 *model* a Qwen2 *tokenizer*, with that
    one's normaliser, rules and an extra token, whatever tokenizer.json holds. A tokenizer
    that calls itself a generic one is therefore loaded as one.

    Raises:
        ModelError: there is no such model, or it has no tokenizer.
    """
    where = locate(model)
    try:
        named = get_tokenizer_config(where).get("tokenizer_class")
        generic = named in ("TokenizersBackend", "PreTrainedTokenizerFast")
        kind = PreTrainedTokenizerFast if generic else AutoTokenizer
        return kind.from_pretrained(where)
    except Exception as error:
        raise _cannot_load("tokenizer of", model, error) from error


def fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of what must be equal for two models to read each other's ids.

    The sorted (token, id) pairs, the normaliser, pre-tokeniser and decoder, and the
    stop token. Neither the chat template nor the size of an embedding: those may differ.
    """
    parts: dict[str, Any] = {
        "vocabulary": sorted(tokenizer.get_vocab().items()),
        "stop": tokenizer.eos_token_id,
    }
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        whole = json.loads(backend.to_str())
        parts |= {key: whole[key] for key in ("normalizer", "pre_tokenizer", "decoder")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def named_stop_ids(tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]) -> set[int]:
    """Raises ModelError: one of the tokens named is none of the tokenizer's."""
    vocabulary = tokenizer.get_vocab()
    for token in stop:
        if token not in vocabulary:
            raise ModelError(f"[sampling] stop names {token!r}, which is no token of the model")
    return {vocabulary[token] for token in stop}


def require_device(device: str, node: str) -> None:
    """Raises ModelError: torch knows no such device here."""
    if device == "auto":
        return
    try:
        torch.empty(1, device=device).item()  # "meta" has a place for it, but no number
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            f"[node.{node}] device is {device!r}, which this machine does not have "
            f"({_first_line(error)}); 'auto' takes what is there"
        ) from error


def _stop_ids(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]
) -> frozenset[int]:
    """The ids after which nothing follows: the model's, its tokenizer's, and those named."""
    found: set[int] = set()
    generation = getattr(network, "generation_config", None)
    for ids in (getattr(generation, "eos_token_id", None), network.config.eos_token_id):
        found.update([ids] if isinstance(ids, int) else ids or [])
    if tokenizer.eos_token_id is not None:
        found.add(tokenizer.eos_token_id)
    found.update(named_stop_ids(tokenizer, stop))
    if not found:
        raise ModelError("the model names no end-of-text token; name one in [sampling] stop")
    return frozenset(found)


def _cannot_load(what: str, model: str, error: Exception) -> ModelError:
    absent = not model.startswith("builtin:") and not Path(model).exists()
    why = "no such folder is here; as a Hugging Face id: " if absent else ""
    return ModelError(f"cannot load {what} {model!r}: {why}{_first_line(error)}")


def _first_line(error: Exception) -> str:
    line = ""
    with suppress(StopIteration):
        line = next(line for line in str(error).splitlines() if line.strip())
    return line or type(error).__name__
