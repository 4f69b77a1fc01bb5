"""Inspection of what a recipe names, as far as it is at hand: models, tokenizers, data.

A run may be planned on another machine, where models and data are not at hand: those are named
as not looked at. What is wrong is an error all the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from huggingface_hub import constants, get_session, try_to_load_from_cache
from msgspec.structs import replace

from potluck.builder import checks
from potluck.builder.memory import Prompts
from potluck.builder.task import make_task, notes_on, notes_on_authors, require_problems
from potluck.config import RunConfig
from potluck.model import ModelError
from potluck.model.loading import load_config
from potluck.model.shape import Shape, published_shape, shape_of
from potluck.tasks import Task

TYPICAL_PROMPTS = Prompts(mean=160, longest=320)
"""Tokens, where they cannot be counted: about those of GSM8K, the system's text included."""
PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Inspection:
    """Findings about a recipe."""

    shapes: Mapping[str, Shape]
    """Shape of each node's model."""
    prompts: Prompts
    task: Task | None
    """None where its data is not at hand."""
    notes: list[str]
    """Lines to read before a number of the task is trusted."""
    unseen: list[str]
    """Parts that could not be looked at, and why."""


def inspect_recipe(config: RunConfig, *, trust_code: bool, here: bool) -> Inspection:
    """Look at everything that ``config`` names but weights; ``here``: also at the devices. Raise
    PotluckError for what would stop the run wherever it is."""
    unseen: list[str] = []
    shapes = {name: _shape(node.model, unseen) for name, node in config.learners.items()}
    if known := not unseen:
        checks.require_tokenizers(config)
    else:
        unseen.append("the tokenizers: whether all nodes have the same one")
    task, whole = _task(config, trust_code, unseen)
    if task and known:
        models = [node.model for node in config.learners.values()]
        task = checks.without_long_prompts(config, task, models)
        require_problems(config, task)
    if here:
        checks.require_devices(config)
    prompts = TYPICAL_PROMPTS
    if task is None or not known:
        mean, longest = f"{prompts.mean:.0f}", prompts.longest
        unseen.append(f"the prompts: taken to have {mean} tokens, {longest} at most")
    else:
        checks.require_one_prompt(config, task)
        lengths = checks.require_completion_budget(config, task)
        prompts = Prompts(fmean(lengths), max(lengths))
    notes = notes_on(config, task) if task and whole else []
    notes += notes_on_authors(config, task) if task else []
    notes += checks.notes_on_tokenizers(config) if known else []
    notes += checks.notes_on_devices(config) if here else []
    return Inspection(shapes, prompts, task, notes, list(dict.fromkeys(unseen)))


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
    """Return (the task, whether its part out of distribution is in it)."""
    absent = []
    for at in ("task", "out_of_distribution"):
        table = getattr(config, at)
        if table and (hub := table.hub_name) and not (Path(hub).exists() or hub_answers()):
            name = table.__struct_config__.tag
            unseen.append(f"the data of {name}: the Hub does not answer, to load {hub}")
            absent.append(at)
    if "task" in absent:
        return None, False
    if absent:
        config = replace(config, out_of_distribution=None)
    task = make_task(config, trust_code=trust_code)
    require_problems(config, task)
    return task, not absent


def at_hand(model: str) -> bool:
    """Return whether ``model`` can be loaded: a folder, in the cache, or the Hub answers."""
    if model.startswith(("builtin:", "/", "~", ".")) or Path(model).exists():
        return True
    try:
        if isinstance(try_to_load_from_cache(model, "config.json"), str):
            return True
    except ValueError:  # what is no id, the Hub need not be asked for
        return True
    return hub_answers()


@cache
def hub_answers() -> bool:
    """Return whether the Hub answers; asked once, as the library tries five times a file."""
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE_S)
    except Exception:  # of two HTTP libraries, depending on its version
        return False
    return True
