"""A checkpoint as a model of its own, in a folder and on the Hub: any adapter merged in, the
optimiser's state left out, the model card kept."""

import json
import shlex
import tarfile
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.request import urlopen

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError

from potluck.files import one_line, whole_folder
from potluck.node.storage.card import HUB_ID, merged_card
from potluck.types import PotluckError, RunFolderError
from potluck.version import __version__

if TYPE_CHECKING:
    import torch

HERE = "this/folder"
"""Name by which a checkpoint's card loads its model."""
DAMAGED = (OSError, EOFError, ValueError, TypeError, RecursionError, HTTPException, TarError)
"""Errors of a download that is no adapter, but for those of safetensors."""


class UploadError(PotluckError):
    """An export that did not reach the Hub; the message says how to go on."""


def export(checkpoint: str, folder: Path, *, dtype: str = "float32", name: str = HERE) -> None:
    """Write a folder that ``AutoModelForCausalLM.from_pretrained`` loads without peft or us; of a
    model that a server has, its adapter.

    W + alpha/r * B A, computed in float32 and then stored as ``dtype``. ``checkpoint`` is a folder
    of one, of a run's node (its newest), or any model of a recipe; ``name`` the folder or id from
    which the card's example loads the export. Raise ModelError if there is no such model,
    RunFolderError if ``folder`` is in the way, or the disk is full.
    """
    # Here and not above: they take seconds, and what cannot be uploaded is refused at once.
    import torch
    from safetensors import SafetensorError

    from potluck.model import LanguageModel
    from potluck.model.loading import base_of
    from potluck.node.storage.checkpoint import newest, served

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
                for here in (json.dumps(HERE), f"export {HERE} "):
                    text = text.replace(here, here.replace(HERE, name))
                (beside / "README.md").write_text(text, encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"cannot write {folder}: {error}; make room, then again") from error


def _bring(place: str, checkpoint: Path, beside: Path, stored: "torch.dtype") -> None:
    """Download an adapter that a server has, and complete it, so that peft loads all of it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    from potluck.config import load
    from potluck.model.loading import load_tokenizer
    from potluck.rollout.tinker.options import TinkerOptions
    from potluck.rollout.tinker.session import TinkerSession

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
    except (*DAMAGED, SafetensorError) as error:
        raise RunFolderError(
            f"no adapter comes from {place} ({error}); does the server have it?"
        ) from error
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in tensors}
    told |= {"base_model_name_or_path": node.model, "target_modules": sorted(layers)}
    save_file(tensors, beside / "adapter_model.safetensors", {"format": "pt"})
    (beside / "adapter_config.json").write_text(json.dumps(told | {"task_type": "CAUSAL_LM"}))
    load_tokenizer(node.reads).save_pretrained(beside)


def require_uploadable(repo: str) -> None:
    """Raise UploadError for what can be known before anything is written or sent."""
    if "/" not in repo or not HUB_ID.fullmatch(repo):
        raise UploadError(
            f"--push is {repo!r}; expected USER/NAME, each of letters, digits, '-', '_' and '.'"
        )
    if not get_token():
        raise UploadError(
            "--push needs a token of the Hub with the right to write: 'hf auth login' keeps one, "
            "or set HF_TOKEN"
        )


def upload(folder: Path, repo: str, *, private: bool = False) -> str:
    """Make a new model of the Hub, USER/NAME, from an export, and return its address.

    Files of another model that stay beside the new ones may change how it is loaded, so a model
    that is there already is left alone. ``private``: show it to its owners alone; False: as the
    account has it, public as a rule. Raise UploadError if it did not get there, or not whole.
    """
    api = HfApi()
    try:
        address = api.create_repo(repo, private=private or None)
        message = f"Export of Potluck {__version__}"
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
    except Exception as error:  # of two HTTP libraries, and of threads that upload
        why = _reason(error, repo, api.endpoint)
        raise UploadError(f"{why}. {way_on(folder, repo, private=private)}") from error
    return str(address)


def way_on(folder: Path, repo: str, *, private: bool) -> str:
    """Say where the export is, and the command of the Hub's own client that uploads it."""
    words = ["hf", "upload", repo, str(folder), *(["--private"] if private else [])]
    return f"The export is in {folder}; to go on: {shlex.join(words)}"


def _reason(error: BaseException, repo: str, endpoint: str) -> str:
    """Write a line about what the client raised, with what its user can do."""
    while not isinstance(error, HfHubHTTPError) and error.__cause__:
        error = error.__cause__  # a thread's error says which file, its cause says why
    status, answer = 0, ""
    if isinstance(error, HfHubHTTPError):
        status, answer = error.response.status_code, one_line(error.server_message or "", 200)
    ways = {
        401: f"{endpoint} refuses the token; make a new one with the right to write at "
        f"{endpoint}/settings/tokens, then 'hf auth login' or HF_TOKEN",
        403: f"the token may not write to {repo}; it needs the right to write, and the name "
        f"before '/' must be yours or your organisation's (the Hub: {answer or 'no reason'})",
        409: f"{repo} is on the Hub already; choose another name, or add to it as below",
    }
    said = " ".join(str(error).split()) or type(error).__name__
    return ways.get(status, f"{repo} did not get to {endpoint}: {said.rstrip('.')}")
