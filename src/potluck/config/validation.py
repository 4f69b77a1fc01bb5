"""Checks of a recipe that concern several keys: each message has its condition behind it."""

import re
from typing import get_args

from potluck.config.run import LoraConfig, NodeConfig, RunConfig
from potluck.exchange import TRANSPORTS, ExchangeError, transport
from potluck.fields import ConfigError, refuse
from potluck.objective.methods import WeightName, method_of
from potluck.right import TASK
from potluck.types import NODE_NAME

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FUNCTION = re.compile(r"(?:[A-Za-z_][\w.]*|.+\.py):[A-Za-z_]\w*")
MOST_ROWS = 2**16
VARIABLE = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
MOST_VARIABLES = 32
RESERVED_VARIABLES = frozenset(
    (
        "messages",
        "conversations",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "return_assistant_tokens_mask",
        "chat_template",
        "tokenize",
        "strftime_now",
        "raise_exception",
        "bos_token",
        "eos_token",
        "unk_token",
        "sep_token",
        "pad_token",
        "cls_token",
        "mask_token",
        "additional_special_tokens",
    )
)
"""Variables of a chat template that Potluck, transformers or the tokenizer sets."""


def require_valid(run: RunConfig) -> None:
    """Raise ConfigError for keys that do not go together, or a name that is none."""
    wrong = {
        f"name is {run.name!r}; a run's name is 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', and "
        f"begins with a letter or a digit": not RUN_NAME.fullmatch(run.name),
        "the run has no node; add a table [node.NAME] with a model": not run.node,
        "no node of the run has a model, so none would learn; add one": not run.learners,
    }
    refuse(wrong)
    for name, node in run.node.items():
        _require_node(run, name, node)
    _require_functions(run)
    if run.reward:  # from Python they may come later
        require_right(run)
    _require_pace(run)
    _require_sizes(run)
    _require_answers(run)
    _require_swarm_sense(run)


def _require_node(run: RunConfig, name: str, node: NodeConfig) -> None:
    at, engine, plain = f"node.{name}", node.engine, NodeConfig()
    uses, only_writes = engine.uses or node.__struct_fields__, not engine.has_weights
    needless = [key for key in node.__struct_fields__ if key not in uses]
    unused = [key for key in needless if getattr(node, key) != getattr(plain, key)]
    does = "has a server that learns" if engine.trains else "only writes and learns nothing"
    in_float, lora = "float32" in (node.dtype, node.sampling_dtype), node.lora
    wrong = {
        f"[{at}]: a node's name is 1 to 32 of a-z, 0-9 and '-', such as "
        f"'node-1'": not NODE_NAME.fullmatch(name),
        f"[{at}] sets {', '.join(unused)}, but its engine {engine_name(node)!r} {does}; drop one "
        f"of the two": unused,
        f"[{at}] names no model; give it one, or an engine that needs none ([{at}.engine] "
        f'name = "openai" or "file")': engine.has_weights and not node.model,
        f"[{at}] writes texts, but [swarm] text is 'never'; drop it": (
            only_writes and run.swarm.text == "never"
        ),
        f"[{at}] writes texts without log-probabilities, but method {method_of(run.objective)!r} "
        f"reads them, so nothing would be learned from it; set [objective] "
        f"method = 'lws'": only_writes and run.sends_logp,
        f"[{at}] weight_decay is {node.weight_decay}, but optimizer 'adam' has none; set "
        f"optimizer = 'adamw' or drop it": node.weight_decay and node.optimizer == "adam",
        f"[{at}] attention 'flash_attention_2' knows no float32; set dtype and sampling_dtype to "
        f"'bfloat16', or attention = 'sdpa'": in_float and node.attention == "flash_attention_2",
        f"[{at}.lora] targets names no layer, so nothing would learn": lora and not lora.targets,
    }
    refuse(wrong)
    _require_variables(at, node)
    if engine.trains:
        _require_trainable(run, name, node)
    engine.require_sense(at, dtype=node.sampling_dtype, sampling=run.sampling.drawing)


def _require_variables(at: str, node: NodeConfig) -> None:
    """Refuse variables of a chat template that are none, too many, or not a recipe's to set."""
    variables = node.chat_template_kwargs
    if variables and node.chat_template == "none":
        raise ConfigError(
            f"[{at}] chat_template is 'none', so nothing reads chat_template_kwargs, which sets "
            f"{', '.join(map(repr, variables))}; drop one of the two"
        )
    if len(variables) > MOST_VARIABLES:
        raise ConfigError(
            f"[{at}] chat_template_kwargs has {len(variables)} variables; a template takes "
            f"{MOST_VARIABLES} at most: drop some"
        )
    for variable in variables:
        if variable in RESERVED_VARIABLES:
            raise ConfigError(
                f"[{at}] chat_template_kwargs names {variable!r}, which Potluck or the tokenizer "
                f"sets; drop it"
            )
        if not VARIABLE.fullmatch(variable):
            raise ConfigError(
                f"[{at}] chat_template_kwargs names {variable!r:.80}; a variable is 1 to 64 of "
                f"a-z, A-Z, 0-9 and '_', and begins with no digit"
            )


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
        "[sampling] stop_texts is set: drop it": run.sampling.stop_texts,
        "pace is 'free': set 'together'": run.pace == "free",
    }
    way_out = f", or take another engine than {engine_name(node)!r} for {name!r}: its server"
    refuse({f"{why}{way_out} cannot do that": is_so for why, is_so in refused.items()})


def engine_name(node: NodeConfig) -> str:
    return str(node.engine.__struct_config__.tag)


def _require_functions(run: RunConfig) -> None:
    for at, name, *ours in (
        *(("[[reward]] function", each.function, "task") for each in run.reward),
        ("[objective] loss", run.objective.loss, ""),
        ("[objective] weight", run.objective.weight, *get_args(WeightName)),
        ("[log] callback", run.log.callback, ""),
    ):
        if name not in ours and not FUNCTION.fullmatch(name):
            known = filter(None, (*ours, "FILE.py:NAME", "MODULE:NAME"))
            raise ConfigError(f"{at} is {name!r}; expected {' or '.join(map(repr, known))}")


def require_right(run: RunConfig) -> None:
    """Raise ConfigError if ``[evaluation] right`` names no function that grades."""
    try:
        rule = run.right_rule
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if rule.named == TASK and not run.task.has_answers:
        raise ConfigError(
            "[evaluation] right is 'task', but [task] answer is empty, so its own grading has "
            "nothing to compare with; name the column, or a [[reward]]"
        )


def _require_pace(run: RunConfig) -> None:
    is_free, part = run.pace == "free", 1 / (1 + run.taken) + 1e-12
    for name, node in run.node.items() if is_free else ():
        only_writes = not node.engine.has_weights
        wrong = {
            f"pace is 'free', but [node.{name}] has no model: it writes what the others' rounds "
            f"need, and at that pace there are none; set pace = 'together'": only_writes,
            f"pace is 'free', but [node.{name}] has a weight of its own: at its own pace a node "
            f"writes as much as it has time for; remove the weight": node.weight != 1,
        }
        refuse(wrong)
    group, problems = int(run.group_size * part), run.problems_per_round * part
    writes = f"with an intake of {run.taken:g} a node writes"
    wrong = {
        "shares is 'speed', which ended with release 0.2.0; set pace = 'free', so that no node "
        "waits for a slower one, or give each node a weight": run.shares == "speed",
        f"{writes} {group} of the {run.group_size} completions of a problem, and one has nothing "
        f"to be compared with; raise group_size, lower intake, or set plan = 'vertical'": (
            is_free and run.plan == "horizontal" and group < 2
        ),
        f"{writes} less than one of the {run.problems_per_round} problems of a round; raise "
        f"problems_per_round, or lower intake": is_free and run.plan == "vertical" and problems < 1,
        f"intake is {run.intake:g}, but pace is 'together', where a round has the completions of "
        f"all; set pace = 'free', or remove intake": run.intake > 0 and not is_free,
    }
    refuse(wrong)


def _require_sizes(run: RunConfig) -> None:
    prompt, total = run.sampling.max_prompt_tokens, run.sampling.max_total_tokens
    rows, members = run.problems_per_round * run.group_size, len(run.members)
    by_value = run.stop_when.by_value
    is_evaluated = run.evaluation.every and run.evaluation.problems
    lacks_evaluations = (by_value or run.keep_best) and not is_evaluated
    is_shared = run.plan == "horizontal" and run.pace == "together"
    has_too_few = is_shared and run.group_size < members
    wrong = {
        f"[sampling] max_prompt_tokens is {prompt}, which leaves no room to write in below "
        f"max_total_tokens = {total}; lower it, or raise the other": prompt >= total,
        f"{'stop_when' if by_value else 'keep_best'} goes by evaluations during the run; raise "
        f"[evaluation] every and problems above 0, or drop it": lacks_evaluations,
        f"problems_per_round x group_size is {rows}; a round has at most {MOST_ROWS} "
        f"completions": rows > MOST_ROWS,
        f"plan 'horizontal' shares each group of {run.group_size} among {members} nodes; raise "
        f"group_size to at least {members}, or set plan = 'vertical'": has_too_few,
    }
    refuse(wrong)


def _require_answers(run: RunConfig) -> None:
    ungraded = run.reward and all(reward.function != "task" for reward in run.reward)
    for at, task in (("task", run.task), ("out_of_distribution", run.out_of_distribution)):
        needs_answers = task and task.reward == "task" and not (at == "task" and ungraded)
        if task and needs_answers and not task.has_answers:
            raise ConfigError(
                f"[{at}] answer is empty, so its grading has nothing to compare with; name the "
                f"column, or in [task] grade by a [[reward]] other than 'task'"
            )


def _require_swarm_sense(run: RunConfig) -> None:
    swarm, strangers = run.swarm, [name for name, node in run.node.items() if node.stranger]
    remedy = f"choose one of {', '.join(TRANSPORTS)}"
    if swarm.transport == "memory":
        remedy = "nodes of one process need none: drop it, and run them with --one-process"
    wrong = {
        f"[node.{next(iter(strangers), '')}] stranger is true, but the swarm takes none; set "
        f"[swarm] open = true, or drop it": strangers and not swarm.open,
        f"swarm.transport is {swarm.transport!r}; {remedy}": swarm.transport not in TRANSPORTS,
    }
    refuse(wrong)
    for key in ("listen", "connect"):
        if addresses := getattr(swarm, key):  # without them no transport is loaded
            check, with_tls = transport(swarm.transport).check_endpoints, swarm.tls is not None
            try:
                check(f"swarm.{key}", addresses, tls=with_tls, listen=key == "listen")
            except ExchangeError as error:
                raise ConfigError(str(error)) from error
    # A share that has no place for one group would leave out strangers in silence.
    groups = run.problems_per_round if len(run.node) > len(strangers) else swarm.stranger_problems
    least = 1 / (groups + 1)
    for key in ("stranger_share", "strangers_share") if swarm.open else ():
        if 0 < (share := getattr(swarm, key)) < least:
            raise ConfigError(
                f"[swarm] {key} is {share:g}, but one group beside {groups} others is {least:.3g} "
                f"of a batch; raise it to that at least, or set it to 0 to learn from no stranger"
            )
