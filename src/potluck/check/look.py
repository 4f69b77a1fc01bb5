"""What of a recipe can be looked at where it stands: models, tokenizers, data.

``potluck run --check`` is also for the machine at which a run is planned, where neither a
model nor its data need be at hand. What is not there and may well be where the run will be,
is named as not looked at. What is wrong is an error all the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from huggingface_hub import constants, get_session, try_to_load_from_cache
from msgspec.structs import replace

from potluck.assemble import (
    make_task,
    notes_on,
    require_devices,
    require_one_prompt,
    require_one_tokenizer,
    require_problems,
    require_room,
)
from potluck.check.memory import Prompts
from potluck.config import Gsm8kConfig, Math500Config, RunConfig
from potluck.rollout import ModelError
from potluck.rollout.loading import load_config
from potluck.rollout.shape import Shape, published_shape, shape_of
from potluck.tasks import Task

TYPICAL_PROMPTS = Prompts(mean=160, longest=320)
"""Tokens, where they cannot be counted: about those of GSM8K, the system's text included."""
PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Look:
    """What was found."""

    shapes: Mapping[str, Shape]
    """By node."""
    prompts: Prompts
    task: Task | None
    """None where its data is not at hand."""
    notes: list[str]
    """What one should know of the task's splits."""
    unseen: list[str]
    """What could not be looked at, and why."""


def look_at(config: RunConfig, *, trust_code: bool, here: bool) -> Look:
    """Looks at everything that ``config`` names, weights apart.

    Args:
        here: whether the run is to be on this machine, so that its devices must be there.

    Raises:
        PotluckError: what would stop the run wherever it is.
    """
    unseen: list[str] = []
    shapes = {name: _shape(node.model, unseen) for name, node in config.node.items()}
    known = not unseen
    if known:
        require_one_tokenizer(config)
    else:
        unseen.append("the tokenizers: whether all nodes have the same one")
    task, whole = _task(config, trust_code, unseen)
    if here:
        require_devices(config)
    prompts = TYPICAL_PROMPTS
    if task is None or not known:
        unseen.append(
            f"the prompts: taken to have {prompts.mean:.0f} tokens, {prompts.longest} at most"
        )
    else:
        require_one_prompt(config, task)
        lengths = require_room(config, task)
        prompts = Prompts(fmean(lengths), max(lengths))
    notes = notes_on(config, task) if task and whole else []
    return Look(shapes, prompts, task, notes, list(dict.fromkeys(unseen)))


def _shape(model: str, unseen: list[str]) -> Shape:
    if at_hand(model):
        return shape_of(load_config(model))
    if shape := published_shape(model):
        unseen.append(f"{model}: its shape is from Potluck's own table")
        return shape
    raise ModelError(
        f"cannot load model {model!r}: no such folder is here, and {constants.ENDPOINT} does not "
        f"answer to look for it there"
    )


def _task(config: RunConfig, trust_code: bool, unseen: list[str]) -> tuple[Task | None, bool]:
    """(the task, whether its part out of distribution is in it)."""
    absent = []
    for at in ("task", "out_of_distribution"):
        table = getattr(config, at)
        if isinstance(table, Gsm8kConfig | Math500Config) and not table.path and not hub_answers():
            name = type(table).__struct_config__.tag
            unseen.append(f"the data of {name}: the Hub does not answer, and {at}.path is empty")
            absent.append(at)
    if "task" in absent:
        return None, False
    if absent:
        config = replace(config, out_of_distribution=None)
    task = make_task(config, trust_code=trust_code)
    require_problems(config, task)
    return task, not absent


def at_hand(model: str) -> bool:
    """Whether ``model`` can be asked for: it is a folder or cached here, or the Hub answers."""
    if model.startswith("builtin:") or Path(model).exists():
        return True
    try:
        if isinstance(try_to_load_from_cache(model, "config.json"), str):
            return True
    except ValueError:  # what is no id, the Hub need not be asked for
        return True
    return hub_answers()


@cache
def hub_answers() -> bool:
    """Asked once, with little patience: the library tries five times for every file."""
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE_S)
    except Exception:  # of two HTTP libraries, depending on its version
        return False
    return True
