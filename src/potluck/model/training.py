"""Adapters (LoRA), which peft puts into a network in place and ``save_pretrained`` then writes
alone; the optimizer, and its learning rate at each update."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from potluck.model.loading import ADAPTER, BUILDING, ModelError, first_line
from potluck.model.policy import LanguageModel

Targets = Sequence[str] | Literal["all-linear"]
"""Names of the layers that get an adapter, or every linear one but the head."""
DEFAULT_TARGETS = ("q_proj", "v_proj")


def add_adapter(
    network: PreTrainedModel,
    *,
    rank: int,
    alpha: float,
    dropout: float,
    targets: Targets,
    seed: int,
) -> None:
    """Replace W x by W x + alpha/r * B A dropout(x); A and B are trained, in float32, and W not.

    A is random (by ``seed``; torch's own generator stays as it is), B zero: at first the network's
    output is what it was. Source: Hu et al. 2021, arXiv:2106.09685.

    ``rank`` is r. Raise ModelError if the network has no layer of ``targets`` that can be adapted.
    """
    chosen = targets_of(targets, _linear_names(network), network.config.model_type)
    targets = chosen if isinstance(chosen, str) else list(chosen)
    # Here and not above: it takes a second to import, and most nodes have no use for it.
    from peft import LoraConfig

    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # it says int, and only divides by it
        lora_dropout=dropout,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in network.modules()),
        task_type="CAUSAL_LM",
    )
    try:
        device = network.device
        with BUILDING, torch.random.fork_rng([device.index or 0] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            network.add_adapter(config)
    except ValueError as error:
        why = f"no adapter fits lora.targets = {targets!r}: {first_line(error)[:120]}"
        raise ModelError(f"{why}; {_layers(network)}") from error
    _require_all(network, targets)
    for parameter in trained(network):
        parameter.data = parameter.data.float()
    network.eval()  # new layers come in training mode


def targets_of(targets: Targets, layers: Collection[str], model_type: str) -> Targets:
    """Choose what gets an adapter in a model of these linear ``layers``: where it has none of the
    default ones, those that peft has for its architecture, if any."""
    if tuple(targets) != DEFAULT_TARGETS or {*targets} & {*layers}:
        return targets
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    known = KNOWN.get(model_type, DEFAULT_TARGETS)
    return tuple(known) if isinstance(known, list) else DEFAULT_TARGETS  # a pattern, for some


def restore_adapter(network: PreTrainedModel, folder: Path) -> None:
    """Give the adapter the weights that ``save_pretrained`` wrote to ``folder``; raise ModelError
    if they are not there, damaged, or another adapter's."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    try:
        weights = load_file(folder / ADAPTER)
        left: Any = set_peft_model_state_dict(network, weights)
    except Exception as error:  # safetensors, OS and torch each raise their own
        last = str(error).splitlines()[-1]
        raise ModelError(f"cannot load the adapter in {folder}: {last}") from error
    lost = [name for name in left.missing_keys if ".lora_" in name]
    if odd := [*lost, *left.unexpected_keys]:
        raise ModelError(f"the adapter in {folder} is not this recipe's: {odd[0]!r} does not fit")


def trained(network: torch.nn.Module) -> list[torch.nn.Parameter]:
    """List the parameters that learning moves."""
    return [p for p in network.parameters() if p.requires_grad]


@contextmanager
def adapter_off(network: PreTrainedModel) -> Iterator[None]:
    """Let the network compute as without its adapter, if it has one, inside the ``with`` block: by
    a scale of 0, as peft's own switch also stops training, for which FSDP asks once."""
    adapted: list[Any] = [m for m in network.modules() if hasattr(m, "unscale_layer")]
    for module in adapted:
        module.scale_layer(0.0)
    try:
        yield
    finally:
        for module in adapted:
            module.unscale_layer()


def _require_all(network: PreTrainedModel, targets: Targets) -> None:
    """Refuse what peft lets pass: a name that fits nothing, and a weight that has two uses."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted = {n: m for n, m in network.named_modules() if isinstance(m, BaseTunerLayer)}
    for target in () if isinstance(targets, str) else targets:
        if not any(name == target or name.endswith(f".{target}") for name in adapted):
            raise ModelError(f"lora.targets has {target!r}, which is no layer; {_layers(network)}")
    head, embedding = network.get_output_embeddings(), network.get_input_embeddings()
    if head.weight is embedding.weight and {head, embedding} & set(adapted.values()):
        raise ModelError(
            f"lora.targets = {targets!r} has the embedding or the head, which in this "
            f"{type(network).__name__} are one weight: an adapter of one of them could not be "
            f"merged; leave it out"
        )


def _layers(network: PreTrainedModel) -> str:
    names = ", ".join(_linear_names(network))
    return f'{type(network).__name__} has {names}; or set lora.targets = "all-linear"'


def _linear_names(network: PreTrainedModel) -> list[str]:
    """List the last part of the name of each linear layer but the head, once."""
    head = network.get_output_embeddings()
    return sorted(
        {
            name.removesuffix(".base_layer").rpartition(".")[2]
            for name, module in network.named_modules()
            if isinstance(module, torch.nn.Linear | Conv1D) and ".lora_" not in name
            if module is not head
        }
    )


@dataclass(frozen=True, slots=True)
class LearningRate:
    """A learning rate as a function of the update's number, so that a checkpoint need not keep it.

        warmup                u / w                         while u < w, so 0 at first
        then  "constant"      1
              "linear"        (n - u) / (n - w)
              "cosine"        (1 + cos(pi (u - w) / (n - w))) / 2

    times ``peak``; never below 0. Source: transformers' ``get_scheduler``, which TRL calls.
    Deviation: u counts the updates that rounds *may* have, round x updates_per_round and on, also
    of rounds that were skipped or had nothing to learn from; the last round has the last rates.
    """

    peak: float
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: float = 0.0  # w: a number of updates; below 1 a share of all, rounded up
    updates: int = 1  # n: updates of the whole run

    def at(self, update: int) -> float:
        """Compute the rate of an update; the first is 0.

        >>> [LearningRate(4e-6, "linear", warmup=2, updates=6).at(u) for u in (0, 1, 2, 4, 6)]
        [0.0, 2e-06, 4e-06, 2e-06, 0.0]
        """
        share = self.warmup < 1
        first = math.ceil(self.updates * self.warmup) if share else int(self.warmup)
        if update < first:
            return self.peak * (update / first)
        left = max(0.0, (self.updates - update) / max(1, self.updates - first))
        match self.schedule:
            case "constant":
                return self.peak
            case "linear":
                return self.peak * left
            case "cosine":
                return self.peak * 0.5 * (1 + math.cos(math.pi * (1 - left)))


def make_optimizer(
    policy: LanguageModel,
    name: Literal["adam", "adamw", "adamw-8bit"],
    adam: Mapping[str, float | tuple[float, float]],
) -> torch.optim.Optimizer:
    """Make Adam or AdamW over the trained parameters, with numbers by torch's names of them.
    "adamw-8bit" has moments in 8-bit numbers, but for parameters of fewer than 4,096 (Dettmers et
    al. 2021, arXiv:2110.02861). Raise ModelError if its library is not here."""
    # Adam's weight decay would be part of the gradient; a recipe cannot ask for that.
    kind: Any = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    if name == "adamw-8bit":
        try:
            kind = import_module("bitsandbytes.optim.adamw").AdamW8bit
        except ImportError as error:
            raise ModelError(
                f"optimizer 'adamw-8bit' needs the library bitsandbytes ({error}); "
                f"pip install 'potluck[eightbit]', or set optimizer = 'adamw'"
            ) from error
    return kind(trained(policy.network), **adam)
