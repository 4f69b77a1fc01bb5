"""Checks of a recipe that concern several keys."""

import re
from collections.abc import Sequence
from typing import get_args

from potluck.config.run import LoraConfig, NodeConfig, RunConfig, SwarmConfig
from potluck.exchange import TRANSPORTS, ExchangeError, transport
from potluck.fields import ConfigError, hint
from potluck.objective.methods import WeightName, method_of, reads_author_logp
from potluck.types import NODE_NAME

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FUNCTION = re.compile(r"task|(?:[A-Za-z_][\w.]*|.+\.py):[A-Za-z_]\w*")


def require_valid(run: RunConfig) -> None:
    """Raise ConfigError for keys that do not go together, or a name that is none."""
    if not RUN_NAME.fullmatch(run.name):
        raise ConfigError(
            f"name is {run.name!r}; a run's name is 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', "
            f"and begins with a letter or a digit"
        )
    if run.node and not run.learners:
        raise ConfigError("no node of the run has a model, so none would learn; add one")
    if not run.node:
        raise ConfigError("the run has no node; add a table [node.NAME] with a model")
    for name, node in run.node.items():
        if not NODE_NAME.fullmatch(name):
            why = "a node's name is 1 to 32 of a-z, 0-9 and '-', such as 'node-1'"
            raise ConfigError(f"[node.{name}]: {why}")
        _require_model(run, name, node)
        if node.weight_decay and node.optimizer == "adam":
            raise ConfigError(
                f"[node.{name}] weight_decay is {node.weight_decay}, but optimizer 'adam' has "
                f"none; set optimizer = 'adamw' or drop it"
            )
        if node.attention == "flash_attention_2" and "float32" in (node.dtype, node.sampling_dtype):
            raise ConfigError(
                f"[node.{name}] attention 'flash_attention_2' knows no float32; set dtype and "
                f"sampling_dtype to 'bfloat16', or attention = 'sdpa'"
            )
        if node.lora and not node.lora.targets:
            raise ConfigError(f"[node.{name}.lora] targets names no layer, so nothing would learn")
        node.engine.require_sense(
            f"node.{name}", dtype=node.sampling_dtype, sampling=run.sampling.drawing
        )
    _require_functions(run)
    _require_pace(run)
    if (prompt := run.sampling.max_prompt_tokens) >= (total := run.sampling.max_total_tokens):
        raise ConfigError(
            f"[sampling] max_prompt_tokens is {prompt}, which leaves no room to write in below "
            f"max_total_tokens = {total}; lower it, or raise the other"
        )
    by_value = run.stop_when.by_value
    if (by_value or run.keep_best) and not (run.evaluation.every and run.evaluation.problems):
        raise ConfigError(
            f"{'stop_when' if by_value else 'keep_best'} goes by evaluations during the run; raise "
            f"[evaluation] every and problems above 0, or drop it"
        )
    _require_answers(run)
    _require_swarm_sense(run)
    if (rows := run.problems_per_round * run.group_size) > 2**16:
        raise ConfigError(
            f"problems_per_round x group_size is {rows}; a round has at most {2**16} completions"
        )
    members = len(run.members)
    is_shared = run.plan == "horizontal" and run.pace == "together"
    if is_shared and run.group_size < members:
        raise ConfigError(
            f"plan 'horizontal' shares each group of {run.group_size} among {members} nodes; "
            f"raise group_size to at least {members}, or set plan = 'vertical'"
        )


def _require_model(run: RunConfig, name: str, node: NodeConfig) -> None:
    """Refuse a node without a model; of one whose engine has no weights, what it would not use."""
    plain, uses = NodeConfig(), node.engine.uses
    does = "has a server that learns" if node.engine.trains else "only writes and learns nothing"
    for key in node.__struct_fields__:
        if uses is not None and key not in uses and getattr(node, key) != getattr(plain, key):
            raise ConfigError(
                f"[node.{name}] sets {key}, but its engine {engine_name(node)!r} {does}; drop one "
                f"of the two"
            )
    if node.engine.has_weights:
        if not node.model:
            raise ConfigError(
                f"[node.{name}] names no model; give it one, or an engine that needs none "
                f'([node.{name}.engine] name = "openai" or "file")'
            )
        if node.engine.trains:
            _require_trainable(run, name, node)
        return
    if reads_author_logp(run.objective):
        raise ConfigError(
            f"[node.{name}] writes texts without log-probabilities, but method "
            f"{method_of(run.objective)!r} reads them, so nothing would be learned from it; set "
            f"[objective] method = 'lws'"
        )
    if run.swarm.text == "never":
        raise ConfigError(f"[node.{name}] writes texts, but [swarm] text is 'never'; drop it")


def _require_trainable(run: RunConfig, name: str, node: NodeConfig) -> None:
    """Refuse what no server can do that trains a node's model."""
    objective, lora = run.objective, node.lora
    typical = objective.weight == "typicality" and objective.weighs_successes
    refused = {
        f"[node.{name}] has no table lora: add lora = {{r = 32}}": not lora,
        f"[node.{name}.lora] sets more than r: drop it": lora and lora != LoraConfig(r=lora.r),
        "[objective] updates_per_round is above 1: set it to 1": objective.updates_per_round > 1,
        "[objective] beta is above 0: set it to 0": objective.beta,
        "[objective] weight is 'typicality', which needs entropies: set 'likelihood'": typical,
        "[objective] trust is 'nobody': set 'everybody' among friends": objective.trust == "nobody",
        "[swarm] open is true: set it to false": run.swarm.open,
        "pace is 'free': set 'together'": run.pace == "free",
    }
    if why := next((why for why, is_so in refused.items() if is_so), None):
        raise ConfigError(
            f"{why}, or take another engine than {engine_name(node)!r} for {name!r}: its server "
            f"cannot do that"
        )


def engine_name(node: NodeConfig) -> str:
    return str(node.engine.__struct_config__.tag)


def _require_swarm_sense(run: RunConfig) -> None:
    strangers = [name for name, node in run.node.items() if node.stranger]
    if strangers and not run.swarm.open:
        raise ConfigError(
            f"[node.{strangers[0]}] stranger is true, but the swarm takes none; set [swarm] open = "
            f"true, or drop it"
        )
    if run.swarm.transport not in TRANSPORTS:
        remedy = f"choose one of {', '.join(TRANSPORTS)}"
        if run.swarm.transport == "memory":
            remedy = "nodes of one process need none: drop it, and run them with --one-process"
        raise ConfigError(f"swarm.transport is {run.swarm.transport!r}; {remedy}")
    for key in ("listen", "connect"):
        if addresses := getattr(run.swarm, key):
            _require_addresses(run.swarm, key, addresses)
    if run.swarm.open:
        _require_room_for_strangers(run, len(run.node) > len(strangers))


def _require_addresses(swarm: SwarmConfig, key: str, addresses: Sequence[str]) -> None:
    check = transport(swarm.transport).check_endpoints
    try:
        check(f"swarm.{key}", addresses, tls=swarm.tls is not None, listen=key == "listen")
    except ExchangeError as error:
        raise ConfigError(str(error)) from error


def _require_room_for_strangers(run: RunConfig, has_members: bool) -> None:
    """Refuse a share that has no place for one group: it would leave out strangers in silence."""
    groups = run.problems_per_round if has_members else run.swarm.stranger_problems
    least = 1 / (groups + 1)
    for key in ("stranger_share", "strangers_share"):
        if 0 < (share := getattr(run.swarm, key)) < least:
            raise ConfigError(
                f"[swarm] {key} is {share:g}, but one group beside {groups} others is {least:.3g} "
                f"of a batch; raise it to that at least, or set it to 0 to learn from no stranger"
            )


def _require_functions(run: RunConfig) -> None:
    """Refuse what is no name of a function; "task" is one of ``[[reward]]`` only."""
    for reward in run.reward:
        if not FUNCTION.fullmatch(reward.function):
            wanted = "expected 'FILE.py:NAME', 'MODULE:NAME' or 'task'"
            raise ConfigError(f"[[reward]] function is {reward.function!r}; {wanted}")
    named = {"[objective] loss": run.objective.loss, "[log] callback": run.log.callback}
    for at, name in named.items():
        if name and not _is_own_function(name):
            raise ConfigError(f"{at} is {name!r}; expected 'FILE.py:NAME' or 'MODULE:NAME'")
    weight, names = run.objective.weight, get_args(WeightName)
    if weight not in names and not _is_own_function(weight):
        way = f"{hint(weight, names)}, or FILE.py:NAME"
        raise ConfigError(f"[objective] weight is {weight!r}; {way}")


def _is_own_function(name: str) -> bool:
    return name != "task" and bool(FUNCTION.fullmatch(name))


def _require_pace(run: RunConfig) -> None:
    is_free, part = run.pace == "free", 1 / (1 + run.taken) + 1e-12
    for name, node in run.node.items() if is_free else ():
        if not node.engine.has_weights:
            raise ConfigError(
                f"pace is 'free', but [node.{name}] has no model: it writes what the others' "
                f"rounds need, and at that pace there are none; set pace = 'together'"
            )
        if node.weight != 1:
            raise ConfigError(
                f"pace is 'free', but [node.{name}] has a weight of its own: at its own pace a "
                f"node writes as much as it has time for; remove the weight"
            )
    if run.shares == "speed":
        raise ConfigError(
            "shares is 'speed', which ended with release 0.2.0; set pace = 'free', so that no node "
            "waits for a slower one, or give each node a weight"
        )
    each = int(run.group_size * part)
    if is_free and run.plan == "horizontal" and each < 2:
        raise ConfigError(
            f"with an intake of {run.taken:g} a node writes {each} of the {run.group_size} "
            f"completions of a problem, and one has nothing to be compared with; raise group_size, "
            f"lower intake, or set plan = 'vertical'"
        )
    if is_free and run.plan == "vertical" and run.problems_per_round * part < 1:
        raise ConfigError(
            f"with an intake of {run.taken:g} a node writes less than one of the "
            f"{run.problems_per_round} problems of a round; raise problems_per_round, or lower "
            f"intake"
        )
    if not is_free and run.intake:
        raise ConfigError(
            f"intake is {run.intake:g}, but pace is 'together', where a round has the completions "
            f"of all; set pace = 'free', or remove intake"
        )


def _require_answers(run: RunConfig) -> None:
    ungraded = run.reward and all(reward.function != "task" for reward in run.reward)
    for at, task in (("task", run.task), ("out_of_distribution", run.out_of_distribution)):
        needs_answers = task and task.reward == "task" and not (at == "task" and ungraded)
        if task and needs_answers and not task.has_answers:
            raise ConfigError(
                f"[{at}] answer is empty, so its grading has nothing to compare with; name the "
                f"column, or in [task] grade by a [[reward]] other than 'task'"
            )
