"""Loading a model by its name: a folder, a Hugging Face id, or ``builtin:NAME``. A folder of an
adapter (peft) stands for its base model with the adapter merged into it.

``trust_remote_code`` is False wherever it may be given: left out, transformers asks at the
terminal, and runs the code of a model folder at a "y".
"""

import hashlib
import importlib.util
import json
import os
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import constants
from torch.backends import mps
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils.logging import disable_progress_bar
from transformers.utils.peft_utils import find_adapter_config_file

from potluck.collector import without_collector
from potluck.files import SUMS, printable, seen_accelerator, unlike_its_sum
from potluck.proxies import proxy_remark
from potluck.types import PotluckError

ADAPTER = "adapter_model.safetensors"
TOKENIZERS = ("tok*", "tekken*", "vocab*", "*.model")  # names that the files of a tokenizer have
SERVED = "served.json"  # name of the file of a checkpoint that stands for weights that a server has
BUILT_IN = Path(__file__).parent.parent / "models"
BUILDING = threading.Lock()
"""Held while layers are made: transformers replaces functions of torch for so long, for all threads
of the process, and two at once would not put back what was there."""
SAME_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# There is a display; a bar for each file that is loaded or saved only tears it.
disable_progress_bar()


class ModelError(PotluckError):
    """A model cannot be loaded, or does not fit this run; the message says which and why."""


def load_network(model: str, *, device: str, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """Load the weights as ``dtype`` on ``device``, in memory of torch's own; raise ModelError if
    there is no such model that can write. ``attention`` is as transformers names it, or "auto"."""
    where = locate(model)
    if Path(where).is_dir():
        # An adapter remembers where its base lies, and is read from other folders too.
        where = str(Path(where).resolve())
        if file := unlike_its_sum(Path(where), but="optimizer.safetensors"):
            raise ModelError(
                f"{printable(str(file))} is not what was saved, by the {SUMS} beside it; name "
                f"another checkpoint, or remove {SUMS} to load it as it is"
            )
    device = auto_device() if device == "auto" else device
    # Its attention makes a plan for each new length: on an H200 writing took 3 times as long.
    torch.backends.cuda.enable_cudnn_sdp(False)
    chosen = {} if attention == "auto" else {"attn_implementation": attention}
    base = base_of(where)
    require_plain_weights(model)
    how = {"dtype": dtype, "output_loading_info": True, "trust_remote_code": False, **chosen}
    # What does not fit is told below, with its sizes; the library only logs them.
    how["ignore_mismatched_sizes"] = True
    try:
        with BUILDING:
            made: Any = transformers.AutoModelForCausalLM.from_pretrained(base or where, **how)
            network, loaded = made
            if base:
                network = _merged(network, where)
        network.to(device)
        _realign(network)
    except Exception as error:  # libraries for six file formats raise what they like
        raise _cannot_load("model", model, error, base=base) from error
    for name, stored, expected in sorted(loaded["mismatched_keys"]):
        raise ModelError(
            f"cannot load model {model!r}: {name!r} has shape {tuple(stored)} in its files, but by "
            f"its config.json {tuple(expected)}; mend config.json (vocab_size, hidden_size, ...), "
            f"or copy the files that belong together"
        )
    if lost := sorted(loaded["missing_keys"]):
        # They would be random, and nothing would say so.
        raise ModelError(f"model {model!r} lacks {len(lost)} weights, {lost[0]!r} among them")
    return network


def base_of(where: str) -> str | None:
    """Find the base model of an adapter's folder or id; None where it is a model itself. Raise
    ModelError for an adapter that names no base."""
    folder = Path(where)
    if any(folder.glob("*model*.safetensors*")) and not (folder / ADAPTER).exists():
        return None
    with suppress(OSError):
        if found := find_adapter_config_file(where):
            base = json.loads(Path(found).read_text()).get("base_model_name_or_path")
            if not base:
                raise ModelError(
                    f"{where!r} is an adapter that names no base; write the folder or id of its "
                    f"base model as base_model_name_or_path into {found}"
                )
            return str(base)
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
    """Move every tensor into memory of torch's own: at the offset that it had in its file, CPU
    kernels may add up in another order, and a resumed run would differ in the last bit."""
    for tensor in (*network.parameters(), *network.buffers()):
        tensor.data = tensor.data.clone()


def locate(model: str) -> str:
    """Find the folder of ``builtin:NAME`` (ModelError: there is none), or the name as it is."""
    if not model.startswith("builtin:"):
        if (Path(model) / SERVED).is_file():
            raise ModelError(
                f"the weights of {model!r} are on a server; `potluck export {model} FOLDER` brings "
                f"its adapter here"
            )
        return model
    name = model.removeprefix("builtin:")
    built_in = sorted(p.name for p in BUILT_IN.iterdir() if (p / "config.json").exists())
    if name not in built_in:
        raise ModelError(f"no built-in model is named {name!r}; there is {', '.join(built_in)}")
    return str(BUILT_IN / name)


def require_weights(model: str) -> None:
    """Raise ModelError if a folder holds no weights, before anything is started for it."""
    folder = Path(locate(model))
    if folder.is_dir() and not (any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))):
        raise ModelError(f"{model!r} has no weights; copy its model.safetensors there")


def require_plain_weights(model: str) -> None:
    """Raise ModelError for a model whose weights are quantised (bitsandbytes, GPTQ, AWQ, FP8 ...),
    by its configuration: neither the engine nor an export can round them."""
    config = load_config(model)
    for part in (config, config.get_text_config()):
        if how := getattr(part, "quantization_config", None):
            method = how.get("quant_method") if isinstance(how, dict) else None
            raise ModelError(
                f"model {model!r} has quantised weights ({method or 'quantization_config'}), which "
                f"are not supported; take the model in bfloat16: a node with lora and "
                f"dtype = 'bfloat16' needs 2 bytes for each weight"
            )


def load_config(model: str) -> transformers.PreTrainedConfig:
    """Load the configuration, without the weights; raise ModelError if there is no such model."""
    where, base = locate(model), None
    try:
        base = base_of(where)
        return transformers.AutoConfig.from_pretrained(base or where, trust_remote_code=False)
    except Exception as error:
        raise _cannot_load("model", model, error, base=base) from error


def load_tokenizer(model: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer as its files say; raise ModelError if there is none, or no such model.

    ``AutoTokenizer`` gives every folder of a Qwen2 *model* a Qwen2 *tokenizer*, whatever
    tokenizer.json holds: one that calls itself generic is loaded as a generic one.
    """
    where = locate(model)
    if (folder := Path(where)).is_dir() and not any(map(any, map(folder.glob, TOKENIZERS))):
        # The library would make an empty one, which has no token for anything.
        raise ModelError(f"{model!r} has no tokenizer.json; copy the tokenizer's files there")
    try:
        named = get_tokenizer_config(where).get("tokenizer_class")
        generic = named in ("TokenizersBackend", "PreTrainedTokenizerFast")
        kind = transformers.PreTrainedTokenizerFast if generic else transformers.AutoTokenizer
        with without_collector():
            return kind.from_pretrained(where, trust_remote_code=False)
    except Exception as error:
        raise _cannot_load("tokenizer of", model, error) from error


def fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Compute a SHA-256 that is equal where two models can read each other's ids: neither chat
    template nor size of an embedding are in it."""
    vocabulary, stop = sorted(tokenizer.get_vocab().items()), tokenizer.eos_token_id
    parts: dict[str, Any] = {"vocabulary": vocabulary, "stop": stop}
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        for name in ("normalizer", "pre_tokenizer", "decoder"):
            # Its state is JSON, as in tokenizer.json: read whole, that takes half a second.
            part = getattr(backend, name)
            parts[name] = None if part is None else json.loads(part.__getstate__())
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def weights_digest(network: torch.nn.Module, *, trained: bool) -> str:
    """Compute a name of the trained, or the frozen, weights that changes when any of them does.

    24 hex digits: SHA-256 of each tensor's name and the sum of its bits taken as integers, on
    the device. (torch's own count of changes misses optimizers with kernels of their own.) Two
    changes in one tensor could cancel out, by 2^-32 or so.
    """
    sums = {
        name: p.detach().view(SAME_WIDTH[p.element_size()]).sum(dtype=torch.int64)
        for name, p in network.named_parameters()
        if p.requires_grad == trained
    }
    text = "\n".join(f"{name} {int(total)}" for name, total in sums.items())
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def auto_device() -> str:
    """Find the device that "auto" stands for here."""
    return "cuda" if torch.cuda.is_available() else "mps" if mps.is_available() else "cpu"


def unused_accelerator() -> str:
    """Name the accelerator that "auto" leaves unused here; "": none, or hidden on purpose."""
    if auto_device() != "cpu" or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    return seen_accelerator()


def require_device(device: str, node: str) -> None:
    """Raise ModelError unless torch knows such a device here."""
    if device == "auto":
        return
    try:
        torch.empty(1, device=device).item()  # "meta" has a place for it, but no number
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            f"[node.{node}] device is {device!r}, which this machine does not have "
            f"({first_line(error)}); 'auto' takes what is there"
        ) from error


def load_generation_config(model: str) -> transformers.GenerationConfig | None:
    """Load what a model says of writing; None: it says nothing."""
    where = locate(model)
    with suppress(OSError):
        return transformers.GenerationConfig.from_pretrained(base_of(where) or where)
    return None


def stop_ids(
    tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], *configs: object
) -> frozenset[int]:
    """List the ids after which nothing follows: the model's, by its ``configs``, its tokenizer's,
    and those named; raise ModelError if the tokenizer lacks one of these, or there is none."""
    vocabulary = tokenizer.get_vocab() if stop else {}
    if absent := [token for token in stop if token not in vocabulary]:
        raise ModelError(
            f"[sampling] stop names {absent[0]!r}, which is no token of the model; a text of "
            f"several ends a completion by [sampling] stop_texts"
        )
    found = {vocabulary[token] for token in stop}
    for each in (*configs, tokenizer):
        ids = getattr(each, "eos_token_id", None)
        found.update([ids] if isinstance(ids, int) else ids or [])
    if not found:
        raise ModelError("the model names no end-of-text token; name one in [sampling] stop")
    return frozenset(found)


def _cannot_load(what: str, model: str, error: Exception, *, base: str | None = None) -> ModelError:
    if isinstance(error, ModelError):
        return error
    if base and not Path(base).exists():
        return ModelError(
            f"cannot load model {model!r}: it is an adapter, and its base {base!r}, which its "
            f"adapter_config.json names, is not here ({first_line(error)})"
        )
    if "size mismatch" in str(error):
        # torch tells the sizes in further lines: "size mismatch for NAME: copying a param ...".
        mismatch = next(line for line in str(error).splitlines() if "size mismatch" in line)
        return ModelError(
            f"cannot load {what} {model!r}: {mismatch.strip()} An adapter with tokens of its own "
            f"belongs to a base that was given as many: name that base in adapter_config.json"
        )
    folder = Path(locate(model))
    if what == "tokenizer of" and (folder / "tokenizer.model").is_file() and not _has_spiece():
        return ModelError(
            f"cannot load {what} {model!r}: it has a tokenizer.model and no tokenizer.json, which "
            f"needs the extra sentencepiece; pip install 'potluck[sentencepiece]'"
        )
    absent = not model.startswith("builtin:") and not Path(model).exists()
    if absent and model.startswith(("/", "~", ".")):
        return ModelError(f"cannot load {what} {model!r}: no such folder is here")
    why = "no such folder is here; as a Hugging Face id: " if absent else ""
    said = first_line(error)
    if absent and "connect" in said:
        said += proxy_remark(constants.ENDPOINT)
    return ModelError(f"cannot load {what} {model!r}: {why}{said}")


def _has_spiece() -> bool:
    try:
        return all(importlib.util.find_spec(name) for name in ("sentencepiece", "google.protobuf"))
    except ModuleNotFoundError:  # no package "google" at all
        return False


def first_line(error: Exception) -> str:
    """Take the first line of the message that has text; the error's type if none has. Where it
    ends in a colon, as torch's of wrong sizes does, the next one goes with it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
