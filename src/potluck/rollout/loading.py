"""From the name of a model to its files: shape, tokenizer, stop tokens, weights.

A name is a folder, a Hugging Face id, or ``builtin:NAME``. A folder of an adapter (peft)
stands for its base model with the adapter merged into it.

``trust_remote_code`` is False wherever it may be given: left out, transformers asks whoever
sits at the terminal, and runs the code of a model folder at a "y".
"""

import hashlib
import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
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
from transformers.utils.peft_utils import find_adapter_config_file

from potluck.types import PotluckError

ADAPTER = "adapter_model.safetensors"
BUILT_IN = Path(__file__).parent.parent / "models"


class ModelError(PotluckError):
    """A model that cannot be loaded, or that does not fit this run; says which and why."""


def load_network(model: str, *, device: str, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """The weights, as ``dtype``, on ``device``, in memory of torch's own.

    Args:
        attention: as transformers names its implementations; "auto" leaves it to them.

    Raises:
        ModelError: there is no such model, or it is not one that can write.
    """
    where = locate(model)
    if Path(where).is_dir():
        # An adapter remembers where its base lies, and is read from other folders too.
        where = str(Path(where).resolve())
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = {} if attention == "auto" else {"attn_implementation": attention}
    base = base_of(where)
    try:
        made: Any = AutoModelForCausalLM.from_pretrained(
            base or where,
            dtype=dtype,
            output_loading_info=True,
            trust_remote_code=False,
            **chosen,
        )
        network, loaded = made
        if base:
            network = _merged(network, where)
        network.to(device)
        _realign(network)
    except Exception as error:  # libraries for six file formats raise what they like
        raise _cannot_load("model", model, error, base=base) from error
    if lost := sorted(loaded["missing_keys"]):
        # They would be random, and nothing would say so.
        raise ModelError(f"model {model!r} lacks {len(lost)} weights, {lost[0]!r} among them")
    return network


def base_of(where: str) -> str | None:
    """The base model of an adapter's folder or id; None where it is a model itself."""
    folder = Path(where)
    if any(folder.glob("*model*.safetensors*")) and not (folder / ADAPTER).exists():
        return None
    with suppress(OSError):
        if found := find_adapter_config_file(where):
            return str(json.loads(Path(found).read_text())["base_model_name_or_path"])
    return None


def _merged(network: PreTrainedModel, adapter: str) -> PreTrainedModel:
    # Here and not above: it takes a second to import, and few models are adapters.
    from peft import PeftModel

    with warnings.catch_warnings():
        # peft asks a model for something that transformers has given another name.
        warnings.simplefilter("ignore", FutureWarning)
        # Layers without an adapter would be the base's, and nothing would say so.
        warnings.filterwarnings("error", message="Found missing adapter keys")
        merged = PeftModel.from_pretrained(network, adapter).merge_and_unload(safe_merge=True)
    merged.requires_grad_(True)  # as any other model, it can be trained on
    return merged


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
    where = locate(model)
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            base_of(where) or where, trust_remote_code=False
        )
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
        return kind.from_pretrained(where, trust_remote_code=False)
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
            f"({first_line(error)}); 'auto' takes what is there"
        ) from error


def stop_ids(
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


def _cannot_load(what: str, model: str, error: Exception, *, base: str | None = None) -> ModelError:
    if base and not Path(base).exists():
        return ModelError(
            f"cannot load model {model!r}: it is an adapter, and its base {base!r}, which its "
            f"adapter_config.json names, is not here ({first_line(error)})"
        )
    absent = not model.startswith("builtin:") and not Path(model).exists()
    why = "no such folder is here; as a Hugging Face id: " if absent else ""
    return ModelError(f"cannot load {what} {model!r}: {why}{first_line(error)}")


def first_line(error: Exception) -> str:
    line = ""
    with suppress(StopIteration):
        line = next(line for line in str(error).splitlines() if line.strip())
    return line or type(error).__name__
