"""A checkpoint as a model of its own, in a folder: any adapter merged in, the optimiser's state
left out, the model card kept."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError

from potluck.files import whole_folder
from potluck.model import LanguageModel
from potluck.model.loading import base_of
from potluck.node.storage.card import merged_card
from potluck.node.storage.checkpoint import newest
from potluck.types import RunFolderError

HERE = "this/folder"
"""Name by which a checkpoint's card loads its model."""


def export(checkpoint: str, folder: Path, *, dtype: str = "float32", name: str = HERE) -> None:
    """Write a folder that ``AutoModelForCausalLM.from_pretrained`` loads without peft or us.

    W + alpha/r * B A, computed in float32 and then stored as ``dtype``.

    Args:
        checkpoint: a folder of one, of a run's node (its newest), or any model of a recipe.
        name: the folder or id from which the card's example loads the export.

    Raises:
        ModelError: there is no such model.
        RunFolderError: ``folder`` is in the way, or the disk is full.
    """
    if folder.exists():
        raise RunFolderError(f"{folder} exists; name another folder for the export")
    where = newest(checkpoint)
    policy, card = LanguageModel.load(where, device="cpu"), Path(where) / "README.md"
    try:
        with whole_folder(folder) as beside:
            policy.network.to(getattr(torch, dtype)).save_pretrained(beside)
            policy.tokenizer.save_pretrained(beside)
            if card.is_file():
                text = card.read_text(encoding="utf-8")
                text = merged_card(text) if base_of(where) else text
                text = text.replace(json.dumps(HERE), json.dumps(name))
                (beside / "README.md").write_text(text, encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"cannot write {folder}: {error}; make room, then again") from error
