"""A checkpoint for others: its README.md, as the Hub shows it, and a model of its own, in a folder:
any adapter merged in, the optimiser's state left out, the card kept.

``card.md.j2`` has the text of a card. Nothing is claimed that the run does not know: no licence, no
data set that is only a folder here. Of local folders only the last part of the path is told, since
cards are published.
"""

import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import torch
from huggingface_hub import ModelCard, ModelCardData
from jinja2 import StrictUndefined, Template
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from potluck.config import RunConfig, load
from potluck.files import whole_folder
from potluck.model import LanguageModel, ModelError
from potluck.model.digest import name_of, notes_on_base, start_of
from potluck.model.loading import base_of, load_tokenizer
from potluck.model.rounding import loses_digits, share_kept
from potluck.node.storage.checkpoint import newest, served
from potluck.objective.methods import method_of
from potluck.reports.answers import answers, sentence
from potluck.reports.runs import EVALUATION, METRICS, RunReadError, best_saved, read_lines
from potluck.rollout.texts.options import TinkerOptions
from potluck.rollout.tinker import TinkerSession
from potluck.types import RunFolderError
from potluck.version import __version__

TEMPLATE = Path(__file__).with_name("card.md.j2")
LOADING = TEMPLATE.with_name("card_loading.md")
"""End of the card of a whole model."""
HUB_ID = re.compile(r"(?!.*(?:--|\.\.))(?:\w[\w.-]*/)?\w(?:[\w.-]{0,94}\w)?", re.ASCII)
DAMAGED = (
    OSError, EOFError, ValueError, TypeError, RecursionError, HTTPException, TarError,
    SafetensorError,
)  # fmt: skip
"""Errors of a download that is no adapter."""


LEAST_KEPT = 0.9
"""Share of what was trained that the type in which a model came has to keep; else the export is in
float32. After 8 rounds at a learning rate of 1e-5 bfloat16 kept 10 % of it in a model of 135M."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of ``export``."""

    dtype: str
    """Type of the weights, as recipes name it."""
    wanted: str
    """Type that was asked for, or in which the model came; an export in float32 keeps more."""
    kept: float | None
    """Share of what was trained that ``wanted`` keeps; None: what training began with is not here,
    and some digits are lost."""
    size_bytes: int
    """Size of the files of weights."""
    notes: list[str]
    """Lines about what is not known of the model."""


def export(checkpoint: str, folder: Path, *, dtype: str = "auto") -> Exported:
    """Write a folder that ``AutoModelForCausalLM.from_pretrained`` loads without peft or us; of a
    model that a server has, its adapter.

    W + alpha/r * B A, computed in float32 and then stored as ``dtype``; "auto": the type in which
    the model came that training began with, if that keeps what was trained. ``checkpoint`` is a
    folder of one, of a run's node (its newest), or any model of a recipe. Raise ModelError if there
    is no such model, RunFolderError if ``folder`` is in the way, or the disk is full.
    """
    if folder.exists():
        raise RunFolderError(f"{folder} exists; name another folder for the export")
    where, chosen = newest(checkpoint), None if dtype == "auto" else getattr(torch, dtype)
    place, card = served(Path(where)), Path(where) / "README.md"
    policy = None if place else LanguageModel.load(where, device="cpu")
    kept: float | None = 1.0
    try:
        with whole_folder(folder) as beside:
            if policy:
                stored = wanted = chosen or policy.came_as
                kept = _share_kept(policy, where, wanted)
                if not chosen and (kept or 0.0) < LEAST_KEPT:
                    stored = torch.float32
                policy.network.to(stored).save_pretrained(beside)
                policy.tokenizer.save_pretrained(beside)
            else:
                stored = wanted = _bring(place["weights"], Path(where), beside, chosen)
            if card.is_file():
                text = card.read_text(encoding="utf-8")
                text = merged_card(text) if base_of(where) else text
                (beside / "README.md").write_text(text, encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"cannot write {folder}: {error}; make room, then again") from error
    return Exported(
        dtype=name_of(stored),
        wanted=name_of(wanted),
        kept=kept,
        size_bytes=sum(file.stat().st_size for file in folder.glob("*.safetensors")),
        notes=[] if place else notes_on_base(where),
    )


def _share_kept(policy: LanguageModel, where: str, dtype: torch.dtype) -> float | None:
    """Compute what ``Exported.kept`` has."""
    if not loses_digits(policy.network, dtype):
        return 1.0
    if not (start := start_of(Path(where))):
        return None
    try:
        before = LanguageModel.load(start, device="cpu").network
        return share_kept(policy.network, before, dtype)
    except (ModelError, AttributeError, RuntimeError):  # it is gone, or another one lies there
        return None


def _bring(place: str, checkpoint: Path, beside: Path, stored: torch.dtype | None) -> torch.dtype:
    """Download an adapter that a server has, and complete it, so that peft loads all of it. Return
    the type of its weights; None: as they come."""
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
            tensors = {
                name: each.to(stored or each.dtype) for name, each in load_file(file).items()
            }
    except DAMAGED as error:
        raise RunFolderError(f"no adapter comes from {place} ({error}); does it exist?") from error
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in tensors}
    told |= {"base_model_name_or_path": node.model, "target_modules": sorted(layers)}
    save_file(tensors, beside / "adapter_model.safetensors", {"format": "pt"})
    (beside / "adapter_config.json").write_text(json.dumps(told | {"task_type": "CAUSAL_LM"}))
    load_tokenizer(node.reads).save_pretrained(beside)
    return next(each.dtype for each in tensors.values())


def card_of(config: RunConfig, node: str, folder: Path, round: int) -> str:
    """Write ``model_card`` with what ``folder`` tells of the first ``round`` rounds."""
    # A line of metrics is of what was learned in its round, one of evaluation of before it.
    metrics = _last(folder / METRICS, before=round)
    evaluation = _last(folder / EVALUATION, before=round + 1)
    ours = [each for each in answers(folder.parent) if each.node == node]
    told = [f"against a control: {sentence(each)}" for each in ours]
    if config.keep_best and (best := best_saved(folder)):
        told.append("best checkpoint: validation {:.4f}, after {} rounds".format(*best))
    return model_card(config, node, round, metrics, evaluation, told)


def model_card(
    config: RunConfig,
    node: str,
    round: int,
    metrics: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    told: Sequence[str] = (),
) -> str:
    """Write Markdown behind YAML, whatever characters the recipe's strings have. ``metrics`` and
    ``evaluation`` are the last lines of these files, empty if there is none; ``told`` are
    further lines, such as on the node beside controls, in which it had no partners."""
    own, method, hub_data = config.node[node], method_of(config.objective), config.task.hub_name
    on_hub = own.model if _is_on_hub(own.model) else None
    data = ModelCardData(
        base_model=on_hub,
        library_name="peft" if own.lora else "transformers",
        pipeline_tag="text-generation",
        datasets=[hub_data] if _is_on_hub(hub_data) else None,
        tags=["potluck", "grpo", method, "reinforcement-learning", *["lora"] * bool(own.lora)],
    )
    other = (config.out_of_distribution or config.task).__struct_config__.tag
    template = Template(TEMPLATE.read_text(encoding="utf-8"), undefined=StrictUndefined)
    text = template.render(
        card_data=data.to_yaml(),
        version=__version__,
        config=config,
        objective=config.objective,
        node=own,
        own=node,
        round=round,
        metrics=metrics,
        evaluation=evaluation,
        told=told,
        method=method,
        task=str(config.task.__struct_config__.tag),
        base=json.dumps(on_hub or f"folder/of/{_last_part(own.model)}"),
        other=other,
        loading=LOADING.read_text().strip(),
        code=_code,
        model=_model,
        last_part=_last_part,
        g="{:g}".format,
    )
    return f"{text}\n"


def merged_card(text: str) -> str:
    """Turn an adapter's card into that of the model that it was merged into."""
    card = ModelCard(text)
    head, heading, _ = card.text.rpartition("## Loading\n")
    card.text = f"{head}{heading}\n{LOADING.read_text()}" if heading else card.text
    tags = [tag for tag in card.data.get("tags") or () if tag != "lora"]
    vars(card.data).update(library_name="transformers", tags=tags)
    return str(card)


def _model(model: str) -> str:
    if _is_on_hub(model) or model.startswith("builtin:"):
        return _code(model)
    return f"{_code(_last_part(model))}, a folder where it was trained"


def _is_on_hub(name: str) -> bool:
    return bool(HUB_ID.fullmatch(name)) and not Path(name).exists()


def _last_part(path: str) -> str:
    return Path(path).name or "model"


def _code(text: str) -> str:
    """Make a code span that nothing in ``text`` can leave, in a table either.

    >>> _code("Qwen/Qwen2.5-1.5B"), _code("a`b|c\\n# d")
    ('`Qwen/Qwen2.5-1.5B`', '``a`b\\\\|c # d``')
    """
    line = "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|")
    fence = "`" + max(re.findall("`*", line))
    padding = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def _last(file: Path, *, before: int) -> dict[str, Any]:
    """Read the last whole line of an earlier round; empty if there is none, or one is damaged: a
    checkpoint without a number on its card is better than none."""
    with suppress(RunReadError):
        lines = [line for line in read_lines(file, dict[str, Any]) if line["round"] < before]
        return lines[-1] if lines else {}
    return {}
