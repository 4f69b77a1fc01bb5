"""A checkpoint as a model of its own: any adapter merged in, the optimiser's state left out."""

from pathlib import Path

import torch

from potluck.files import whole_folder
from potluck.model import LanguageModel
from potluck.node import RunFolderError
from potluck.node.storage.checkpoint import newest


def export(checkpoint: str, folder: Path, *, dtype: str = "float32") -> None:
    """Write a folder that ``AutoModelForCausalLM.from_pretrained`` loads without peft or us.

    W + alpha/r * B A, computed in float32 and then stored as ``dtype``.

    Args:
        checkpoint: a folder of one, of a run's node (its newest), or any model of a recipe.

    Raises:
        ModelError: there is no such model.
        RunFolderError: ``folder`` is in the way, or the disk is full.
    """
    if folder.exists():
        raise RunFolderError(f"{folder} exists; name another folder for the export")
    policy = LanguageModel.load(newest(checkpoint), device="cpu")
    try:
        with whole_folder(folder) as beside:
            policy.network.to(getattr(torch, dtype)).save_pretrained(beside)
            policy.tokenizer.save_pretrained(beside)
    except OSError as error:
        raise RunFolderError(f"cannot write {folder}: {error}; make room, then again") from error
