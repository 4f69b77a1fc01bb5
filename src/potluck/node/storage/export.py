"""A checkpoint as a model of its own, in a folder: any adapter merged in, the optimiser's state
left out, the model card kept."""

import json
import tarfile
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from potluck.config import load
from potluck.files import whole_folder
from potluck.model import LanguageModel
from potluck.model.loading import base_of, load_tokenizer
from potluck.node.storage.card import merged_card
from potluck.node.storage.checkpoint import newest, served
from potluck.rollout.texts.options import TinkerOptions
from potluck.rollout.tinker import TinkerSession
from potluck.types import RunFolderError

DAMAGED = (
    OSError, EOFError, ValueError, TypeError, RecursionError, HTTPException, TarError,
    SafetensorError,
)  # fmt: skip
"""Errors of a download that is no adapter."""


def export(checkpoint: str, folder: Path, *, dtype: str = "float32") -> None:
    """Write a folder that ``AutoModelForCausalLM.from_pretrained`` loads without peft or us; of a
    model that a server has, its adapter.

    W + alpha/r * B A, computed in float32 and then stored as ``dtype``. ``checkpoint`` is a folder
    of one, of a run's node (its newest), or any model of a recipe. Raise ModelError if there is no
    such model, RunFolderError if ``folder`` is in the way, or the disk is full.
    """
    if folder.exists():
        raise RunFolderError(f"{folder} exists; name another folder for the export")
    where, stored = newest(checkpoint), getattr(torch, dtype)
    place, card = served(Path(where)), Path(where) / "README.md"
    policy = None if place else LanguageModel.load(where, device="cpu")
    try:
        with whole_folder(folder) as beside:
            if policy:
                policy.network.to(stored).save_pretrained(beside)
                policy.tokenizer.save_pretrained(beside)
            else:
                _bring(place["weights"], Path(where), beside, stored)
            if card.is_file():
                text = card.read_text(encoding="utf-8")
                text = merged_card(text) if base_of(where) else text
                (beside / "README.md").write_text(text, encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"cannot write {folder}: {error}; make room, then again") from error


def _bring(place: str, checkpoint: Path, beside: Path, stored: torch.dtype) -> None:
    """Download an adapter that a server has, and complete it, so that peft loads all of it."""
    home, run = checkpoint.absolute().parents[1:3]
    node = load(run / "recipe.json").node[home.name]
    assert isinstance(node.engine, TinkerOptions)
    session = TinkerSession(node.engine, node.model, home)
    beside.mkdir(parents=True)
    try:
        if not (url := session.archive_url(place)).startswith(("https://", "http://")):
            raise ValueError(f"its address is {url}, and not one of a server")
        with TemporaryDirectory(dir=beside) as unpacked:
            with (
                urlopen(url, timeout=session.options.timeout_s) as answer,
                tarfile.open(fileobj=answer, mode="r|*") as archive,
            ):
                archive.extractall(unpacked, filter="data")
            (file,) = Path(unpacked).rglob("adapter_model.safetensors")
            told = dict(json.loads((file.parent / "adapter_config.json").read_text()))
            tensors = {name: each.to(stored) for name, each in load_file(file).items()}
    except DAMAGED as error:
        raise RunFolderError(
            f"no adapter comes from {place} ({error}); does the server have it?"
        ) from error
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in tensors}
    told |= {"base_model_name_or_path": node.model, "target_modules": sorted(layers)}
    save_file(tensors, beside / "adapter_model.safetensors", {"format": "pt"})
    (beside / "adapter_config.json").write_text(json.dumps(told | {"task_type": "CAUSAL_LM"}))
    load_tokenizer(node.reads).save_pretrained(beside)
