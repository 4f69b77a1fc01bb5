"""All that can be wrong with a recipe, looked at once: for ``run``, ``join`` and ``--check``.

A run may be planned where its data is not at hand, nor models that servers have. ``absences`` names
them, and ``prepare`` leaves them out; whatever else is wrong is an error all the same.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

from huggingface_hub import constants, get_session, try_to_load_from_cache
from msgspec.structs import replace

from potluck.builder import checks
from potluck.builder.memory import Prompts
from potluck.builder.objective import digests_of
from potluck.builder.prompts import notes_on_prompts, require_prompts
from potluck.builder.task import (
    make_task,
    notes_on,
    notes_on_authors,
    notes_on_environment,
    require_problems,
)
from potluck.config import RunConfig
from potluck.model import ModelError, Reader
from potluck.model.digest import notes_on_base, require_base
from potluck.model.loading import require_device, require_plain_weights, require_weights
from potluck.node.storage import checkpoint
from potluck.proxies import proxy_remark
from potluck.show.trackers.tracked import require_trackers
from potluck.tasks import Task

TYPICAL_PROMPTS = Prompts(mean=160, longest=320)
"""Tokens, where they cannot be counted: about those of GSM8K, the system's text included."""
PATIENCE_S = 3.0
OWN_TASK, OTHER_TASK = "[task]", "[out_of_distribution]"


def pinned(config: RunConfig) -> RunConfig:
    """Name the newest checkpoint where a model is a node of another run, so that a resume starts
    from the same one; raise ModelError where there is none."""
    models = {name: checkpoint.newest(node.model) for name, node in config.trained_here.items()}
    nodes = {name: replace(config.node[name], model=model) for name, model in models.items()}
    return replace(config, node={**config.node, **nodes})


@dataclass(frozen=True, slots=True)
class Prepared:
    task: Task | None
    """None where its data is not at hand."""
    digests: dict[str, str]
    """Digests of the files of ``[objective]`` loss and weight; "" without one."""
    prompts: Prompts
    """Lengths of the prompts of this process's nodes; typical ones where they cannot be counted."""
    sends_text: bool
    """True: completions go as text, too."""
    notes: list[str]
    """Lines to read before a number of the run is trusted."""
    readers: Mapping[str, Reader]
    """Reader of each node that learns, of those that were compared."""
    unseen: list[str]
    """Parts that could not be looked at, and why."""


def prepare(
    config: RunConfig,
    names: Collection[str],
    folder: Path,
    *,
    trust_code: bool,
    all_here: bool = True,
    devices: bool = True,
    absent: Mapping[str, str] = MappingProxyType({}),
    kept: Path | None = None,
    without_functions: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Prepared:
    """Look at everything that ``config`` names but weights and servers; raise a PotluckError of
    the kind that fits what would stop the run.

    Args:
        names: nodes that this process hosts, or would host, in the run's ``folder``.
        all_here: whether the models of all nodes are on this machine, so that they are compared.
        devices: whether the nodes are for devices of this machine.
        absent: models and tables that are not at hand, with a line that says why.
        kept: folder that may remember the grade of an environment; None: none does.
        without_functions: whether reward functions were left out of ``config``, as code.
        say: is told what takes a while.
    """
    require_trackers(config.log.to, wandb_mode=config.log.wandb_mode)
    mine = replace(config, node={name: config.node[name] for name in names})
    seen = config if all_here else mine
    models = {node.reads for node in seen.learners.values()}
    known, unseen = not models & absent.keys(), [*absent.values()]
    task, prompts = None, TYPICAL_PROMPTS
    if OWN_TASK not in absent:
        there = replace(config, out_of_distribution=None) if OTHER_TASK in absent else config
        task = make_task(there, trust_code=trust_code, run=kept, say=say)
    digests = digests_of(config, trust_code=trust_code)
    readers = checks.readers_of(seen) if known else {}
    groups = checks.tokenizers_of(readers)
    sends_text = checks.sends_text(config, groups if all_here else None)
    if known:
        checks.require_tokenizers(seen, readers, groups)
    else:
        unseen.append("the tokenizers: whether all nodes have the same one")
    for name, node in seen.trained_here.items() if devices else ():
        require_device(node.device, name)
        require_weights(node.model)
        require_base(node.model)
        require_plain_weights(node.model)
    if known:
        checks.require_models_that_write(seen)
    checks.require_baseline(config, folder, names)
    checks.require_engines(config, folder, names, task)
    if not sends_text or config.sends_logp:
        checks.require_one_stop(readers)
    if task and known:
        task = checks.without_long_prompts(config, task, readers.values())
    if task:
        require_problems(config, task)
    if task and known:
        require_prompts(config, task, readers)
        checks.require_turns(readers, task)
        if not sends_text:
            checks.require_one_prompt(readers, task)
        # An author has no prompts.
        lengths = checks.require_completion_budget(mine, task, readers) or [0]
        prompts = Prompts(fmean(lengths), max(lengths))
    else:
        mean, longest = f"{prompts.mean:.0f}", prompts.longest
        unseen.append(f"the prompts: taken to have {mean} tokens, {longest} at most")
    notes = list[str]()
    if task and OTHER_TASK not in absent:
        notes += notes_on(config, task, without_functions=without_functions)
    notes += notes_on_environment(task) if task else []
    notes += checks.notes_on_trust(config, folder, names)
    notes += notes_on_authors(mine, task) if task else []
    notes += notes_on_prompts(config, task, readers) if task and known else []
    notes += checks.notes_on_tokenizers(groups)
    notes += checks.notes_on_devices(mine) if devices else []
    for node in mine.trained_here.values():
        notes += notes_on_base(node.model) if known else []
    return Prepared(task, digests, prompts, sends_text, notes, readers, unseen)


def absences(config: RunConfig) -> dict[str, str]:
    """Name the tables that are not at hand, and models that a server has, each with a line for the
    user. Raise ModelError for a model that a node here would load."""
    absent, here = {}, {node.reads for node in config.trained_here.values()}
    for model in dict.fromkeys(node.reads for node in config.learners.values()):
        if at_hand(model):
            continue
        if model in here:
            raise ModelError(
                f"cannot load model {model!r}: no such folder is here, and {constants.ENDPOINT} "
                f"does not answer to look for it there{proxy_remark(constants.ENDPOINT)}"
            )
        absent[model] = f"{model}: a server has it"
    for at, table in ((OWN_TASK, config.task), (OTHER_TASK, config.out_of_distribution)):
        if table and (hub := table.hub_name) and not (Path(hub).exists() or hub_answers()):
            name = table.__struct_config__.tag
            remark = proxy_remark(constants.ENDPOINT)
            absent[at] = f"the data of {name}: the Hub does not answer, to load {hub}{remark}"
    return absent


def at_hand(model: str) -> bool:
    """Tell whether ``model`` can be loaded: a folder, in the cache, or the Hub answers."""
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
    """Ask the Hub, once: the library would try five times for each file."""
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE_S)
    except Exception:  # of two HTTP libraries, depending on its version
        return False
    return True
