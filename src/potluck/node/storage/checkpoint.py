"""Checkpoints: a Hugging Face folder that holds the optimiser's state as well.

    checkpoints/000010/    model.safetensors, config.json, tokenizer.json, ...: loads with
                           ``AutoModelForCausalLM.from_pretrained``; of a node with LoRA
                           adapter_model.safetensors and adapter_config.json, which peft loads
      optimizer.safetensors    one tensor per parameter and moment
      README.md                the model card, see export.py
      state.json               {"round": rounds that this policy has learned from,
                                "start": the model that training began with,
                                "dtype": type of its weights, ...}
      served.json              instead of weights, where a server has them: its address and paths
      SHA256SUMS               of each file but the card

There is no random state to keep: whatever is random in a round starts from a seed derived
from (run seed, round, node), so the state of every generator is the round's number. No pickle, so
a checkpoint of a stranger can be looked at. Of several processes the first one writes it, as one
alone would have; any number of them can go on from it.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from potluck.files import SUMS, remedy, unlike_its_sum, whole_folder, write_sums
from potluck.model import LanguageModel, ModelError
from potluck.model.digest import name_of, recorded_base, stored_digest
from potluck.model.loading import SERVED, weights_digest
from potluck.model.sharding import ShardedModel, distribute_like, full_tensor
from potluck.node.storage.folder import rounds_saved
from potluck.node.storage.record import heads_of, unlike
from potluck.reports.runs import best_saved
from potluck.types import RunFolderError


def save(
    folder: Path,
    round: int,
    policy: LanguageModel,
    optimizer: torch.optim.Optimizer,
    *,
    start: str,
    card: str,
) -> Path:
    """Write checkpoints/<round>; raise RunFolderError if it cannot: earlier ones stay. ``start`` is
    the model that training began with, which an adapter's checkpoint does not hold."""
    network, moments = full_state(policy, optimizer)

    def fill(beside: Path) -> None:
        network.save_pretrained(beside)
        policy.tokenizer.save_pretrained(beside)
        save_file(moments, beside / "optimizer.safetensors")

    began = {
        "base": stored_digest(start),
        "dtype": name_of(policy.came_as),
        # The checkpoint may be looked at from another folder.
        "start": str(Path(start).resolve()) if Path(start).exists() else start,
    }
    return write(folder, round, fill, card=card, **began)


def write(
    folder: Path, round: int, fill: Callable[[Path], object], *, card: str, **state: object
) -> Path:
    """Write checkpoints/<round> with what ``fill`` puts into its folder, as ``save`` does."""
    place = checkpoint_folder(folder, round)
    try:
        with whole_folder(place) as beside:
            beside.mkdir(parents=True, exist_ok=True)
            fill(beside)
            state = {"round": round, **reproducibility_info(), **state, "lines": heads_of(folder)}
            (beside / "state.json").write_text(json.dumps(state) + "\n")
            write_sums(beside)
            # Last, as peft writes a card of its own.
            (beside / "README.md").write_text(card, encoding="utf-8")
            shutil.rmtree(place, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise RunFolderError(
            f"cannot write checkpoint {place}: {error}; {remedy(error) or 'make room there'}, "
            f"then go on with --resume"
        ) from error
    return place


def served(place: Path) -> dict[str, str]:
    """Read where a server has the "state" and the "weights" of a checkpoint; empty: here."""
    file = place / SERVED
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def keep(folder: Path, newest: int, *, best: bool) -> None:
    """Remove all checkpoints but the newest, and the ``best`` where it is to stay."""
    _, chosen = (best_saved(folder) if best else None) or (0.0, None)
    for old in rounds_saved(folder)[:-newest]:
        if old != chosen:
            shutil.rmtree(checkpoint_folder(folder, old))


def full_state(
    policy: LanguageModel, optimizer: torch.optim.Optimizer, *, keep: bool = True
) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """Gather (network, moments) whole, in main memory if they were spread over processes. A
    collective: every process calls it, and one that does not ``keep`` them only gives its part."""
    network = policy.network
    if isinstance(policy, ShardedModel) and keep:
        network = policy.full_network(device=torch.device("cpu"))
    elif isinstance(policy, ShardedModel):
        policy.empty_cache()
        for parameter in policy.network.parameters():
            full_tensor(parameter.detach())
    return network, _optimizer_state(policy, optimizer, keep=keep)


def require_same_base(folder: Path, round: int, network: PreTrainedModel, start: str) -> None:
    """Raise RunFolderError unless the frozen weights are those that an adapter was trained on: the
    checkpoint holds the adapter alone, and at ``start``, where its base lay, another may lie."""
    place = checkpoint_folder(folder, round)
    if "base" not in (state := state_of(folder, round)):
        raise _damaged(place, "no base in state.json")
    recorded = recorded_base(place)
    # A checkpoint of 0.2.0 has a digest of the weights as they were loaded.
    now = stored_digest(start) if recorded else weights_digest(network, trained=False)
    if state["base"] != now:
        raise _other_start(place, start, "its adapter was trained on")


def require_same_start(folder: Path, start: str) -> bool:
    """Raise RunFolderError unless ``start`` is the model that the node of ``folder`` began with;
    return False if no checkpoint tells."""
    for round in rounds_saved(folder)[-1:]:
        place = checkpoint_folder(folder, round)
        if recorded := recorded_base(place):
            if recorded != stored_digest(start):
                raise _other_start(place, start, "its training began with")
            return True
    return False


def _other_start(place: Path, start: str, what: str) -> RunFolderError:
    return RunFolderError(
        f"the base model of {place} is not the one that {what}: {start!r} has other weights now; "
        f"bring those back"
    )


def _damaged(place: Path, why: object) -> RunFolderError:
    return RunFolderError(f"checkpoint {place} is damaged ({why!r}); remove it to use an older one")


def reproducibility_info() -> dict[str, object]:
    """Name the facts that change the bits of a run if they change."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    processes = torch.distributed.get_world_size() if several else 1
    return {"torch": torch.__version__, "threads": torch.get_num_threads(), "processes": processes}


def state_of(folder: Path, round: int) -> dict[str, Any]:
    """Read the state.json of a checkpoint; empty if it is damaged, as one without sums may be."""
    try:
        return dict(json.loads((checkpoint_folder(folder, round) / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def damaged_file(folder: Path, round: int) -> Path | None:
    """Find a file unlike it was at the checkpoint (of lines, its head); None: none, or of 0.2.0."""
    place = checkpoint_folder(folder, round)
    is_noted, heads = (place / SUMS).is_file(), state_of(folder, round).get("lines", {})
    return unlike_its_sum(place) or (unlike(folder, heads) if is_noted else None)


def delete_after(folder: Path, round: int) -> None:
    for later in rounds_saved(folder):
        if later > round:
            shutil.rmtree(checkpoint_folder(folder, later))


def checkpoint_folder(folder: Path, round: int) -> Path:
    return folder / "checkpoints" / f"{round:06d}"


def newest(model: str) -> str:
    """Find the newest checkpoint of a node's folder; any other model as it is. Raise ModelError for
    a run, which has several models, or what a run has not got."""
    folder = Path(model)
    if any((folder / each).is_file() for each in ("config.json", "adapter_config.json", SERVED)):
        return model
    for run in (folder, *folder.parents[: len(folder.parts) > 1]):  # an id of the Hub has no run
        if (run / "recipe.json").is_file() and not (folder / "metrics.jsonl").is_file():
            nodes = sorted(str(place.parent) for place in run.glob("*/checkpoints"))
            raise ModelError(
                f"{model!r} is {'a run, not a model' if run == folder else 'no node of its run'}; "
                f"name one of its nodes: {', '.join(nodes) or 'none has a checkpoint yet'}"
            )
    if folder.parent.name == "checkpoints" and folder.parent.is_dir():
        there = ", ".join(f"{round:06d}" for round in rounds_saved(folder.parent.parent))
        raise ModelError(f"there is no checkpoint {model!r}; there is {there or 'none yet'}")
    node = folder.parent if folder.name == "checkpoints" else folder
    rounds = rounds_saved(node)
    if not rounds and ((node / "metrics.jsonl").is_file() or (node / "checkpoints").is_dir()):
        raise ModelError(f"the node {model!r} has no checkpoint yet")
    return str(checkpoint_folder(node, rounds[-1])) if rounds else model


def best(node: str) -> str:
    """Find the checkpoint of a node's folder that was the best on the validation problems; raise
    ModelError if none was evaluated, and as ``newest``."""
    newest(node)
    if found := best_saved(Path(node)):
        return str(checkpoint_folder(Path(node), found[1]))
    raise ModelError(f"{node!r} has no checkpoint that was evaluated; name a node of a run")


def restore(
    folder: Path, round: int, policy: LanguageModel, optimizer: torch.optim.Optimizer
) -> None:
    """Give the optimiser the state it had after ``round`` rounds, of a policy that was loaded from
    their checkpoint. Raise RunFolderError if a file is missing or damaged."""
    place = checkpoint_folder(folder, round)
    try:
        moments = load_file(place / "optimizer.safetensors")
    except (OSError, SafetensorError) as error:
        raise _damaged(place, error) from error
    state: dict[str, dict[str, Tensor]] = {}
    for key, tensor in moments.items():
        name, _, moment = key.rpartition("/")
        state.setdefault(name, {})[moment] = tensor
    for name, parameter in policy.network.named_parameters():
        if name in state:
            # A step count stays where it is kept; moments live beside their parameter.
            optimizer.state[parameter] = {
                moment: _moment(moment, tensor, parameter) for moment, tensor in state[name].items()
            }


def _moment(name: str, tensor: Tensor, parameter: Tensor) -> Tensor | int:
    if name == "step":
        # torch counts in a tensor of floats, bitsandbytes in an int.
        return tensor.clone() if tensor.is_floating_point() else int(tensor)
    # A copy: where a file is mapped to is not where torch would put it.
    return distribute_like(parameter, tensor)


def _optimizer_state(
    policy: LanguageModel, optimizer: torch.optim.Optimizer, *, keep: bool
) -> dict[str, Tensor]:
    tensors: dict[str, Any] = {}
    seen: set[int] = set()
    for name, parameter in policy.network.named_parameters():
        for moment, value in optimizer.state.get(parameter, {}).items():
            tensor = full_tensor(torch.as_tensor(value)).contiguous()
            if not keep:
                continue
            if isinstance(value, DTensor):
                tensor = tensor.cpu()
            # A table that all parameters share (bitsandbytes) is stored with each.
            shared = tensor.data_ptr() in seen
            tensors[f"{name}/{moment}"] = tensor.clone() if shared else tensor
            seen.add(tensor.data_ptr())
    return tensors
