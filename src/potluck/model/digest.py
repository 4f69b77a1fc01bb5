"""What the files of a model's weights are: their type, and their digest, by which an adapter knows
its base again. Where the base lay when the adapter was trained, other weights may lie by now, and
the result would be no model that anybody trained."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers.utils import (
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
)
from transformers.utils.hub import cached_file

from potluck.model.loading import ModelError, base_of, locate

STATE = "state.json"
"""Name of the file of a checkpoint that tells the digest of its base."""
STORED = "stored:"
"""Beginning of a digest of this kind; those of 0.2.0 were of the weights as they were loaded."""
TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Types in which a model is written again, by the names that safetensors has for them."""
WEIGHT_FILES = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
"""Names of the files of weights, in the order in which transformers looks for them."""


def stored_digest(model: str) -> str:
    """Compute a digest of a model's tensors as its files store them: SHA-256 of each tensor's name,
    type, shape and bytes. So it is the same for each type that the model is loaded as, and for each
    way to spread the tensors over files. Return "" where there are no files that can be read."""
    try:
        files = [file.resolve() for file in _weight_files(locate(model))]
        # A file that was written over has another time; to hash it again takes a second a GiB.
        known = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        return _digest_of(tuple(known)) if known else ""
    except Exception:  # a damaged file may raise anything, and loading it says what is wrong
        return ""


def stored_type(model: str) -> torch.dtype:
    """Find the type that most weights of a model have in its files; of a checkpoint, that of the
    model which training began with; of an adapter, its base's. Float32 where nothing tells."""
    where = locate(model)
    with suppress(OSError, ValueError):
        state = json.loads((Path(where) / STATE).read_text())
        recorded = state.get("dtype") if isinstance(state, dict) else None
        for each in TYPES.values():
            if recorded == name_of(each):
                return each
    if base := base_of(where):
        return stored_type(base)
    counts = Counter[torch.dtype]()
    with suppress(Exception):  # loading says what is wrong
        for file in _weight_files(where):
            counts.update(_counts(file))
    return counts.most_common(1)[0][0] if counts else torch.float32


def start_of(checkpoint: Path) -> str:
    """Find the model that the training of a checkpoint, or an adapter, began with; "": unknown."""
    with suppress(OSError, ValueError):
        state = json.loads((checkpoint / STATE).read_text())
        if isinstance(state, dict) and (start := state.get("start")):
            return str(start)
    return base_of(str(checkpoint)) or ""


def name_of(dtype: torch.dtype) -> str:
    """Name a type as recipes do."""
    return str(dtype).removeprefix("torch.")


def recorded_base(checkpoint: Path) -> str:
    """Read the digest of the base of an adapter that one of our runs trained; "" for an adapter
    that was made elsewhere, or by 0.2.0."""
    with suppress(OSError, ValueError):
        state = json.loads((checkpoint / STATE).read_text())
        base = state.get("base") if isinstance(state, dict) else None
        if isinstance(base, str) and base.startswith(STORED):
            return base
    return ""


def require_base(model: str) -> None:
    """Raise ModelError if ``model`` is an adapter, and its base not the model that it was trained
    on, as far as that is known."""
    where = locate(model)
    base = base_of(where)
    recorded = recorded_base(Path(where)) if base else ""
    found = stored_digest(base) if base and recorded else ""
    if found and found != recorded:
        raise ModelError(
            f"the base of the adapter {model!r} is not the one that it was trained on: {base!r} "
            f"has other weights now; bring those back, or name their folder as "
            f"base_model_name_or_path in its adapter_config.json"
        )


def notes_on_base(model: str) -> list[str]:
    """Say of an adapter, in a line, that nothing tells whether its base is the right one."""
    where = locate(model)
    base = base_of(where)
    if base is None or recorded_base(Path(where)):
        return []
    return [
        f"{model} is an adapter that says nothing of its base's weights: whether {base} is the "
        f"model that it was trained on is not known"
    ]


def _weight_files(where: str) -> list[Path]:
    for name in WEIGHT_FILES:
        file = _file_of(where, name)
        if file is None:
            continue
        if not name.endswith(".json"):
            return [file]
        names = {str(part) for part in json.loads(file.read_text())["weight_map"].values()}
        parts = [_file_of(where, part) for part in sorted(names)]
        return [part for part in parts if part is not None]
    return []


def _file_of(where: str, name: str) -> Path | None:
    """Find a file of a folder, or of a model of the Hub, which is then in the cache."""
    if Path(where).is_dir():
        file = Path(where) / name
        return file if file.is_file() else None
    try:
        found = cached_file(where, name, _raise_exceptions_for_missing_entries=False)
    except OSError:
        return None
    return Path(found) if found else None


@lru_cache(maxsize=64)
def _digest_of(files: tuple[tuple[str, int, int], ...]) -> str:
    lines = [_line_of(name, tensor) for file, *_ in files for name, tensor in _tensors(Path(file))]
    whole = hashlib.sha256("\n".join(sorted(lines)).encode())
    return STORED + whole.hexdigest()[:32]


def _tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    if file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (it is no mapping)
                yield name, opened.get_tensor(name)
    else:
        yield from torch.load(file, map_location="cpu", weights_only=True, mmap=True).items()


def _counts(file: Path) -> Counter[torch.dtype]:
    """Count a file's numbers of each type in which a model can be written, without reading them."""
    counts = Counter[torch.dtype]()
    if file.suffix != ".safetensors":
        for _, tensor in _tensors(file):
            counts[tensor.dtype] += tensor.numel()
        return Counter({each: counts[each] for each in TYPES.values() if counts[each]})
    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118  (it is no mapping)
            part = opened.get_slice(name)
            if dtype := TYPES.get(part.get_dtype()):
                counts[dtype] += math.prod(part.get_shape())
    return counts


def _line_of(name: str, tensor: Tensor) -> str:
    flat_bytes = tensor.contiguous().reshape(-1).view(torch.uint8)
    hashed = hashlib.sha256(flat_bytes.numpy().data).hexdigest()
    return f"{name} {tensor.dtype} {tuple(tensor.shape)} {hashed}"
