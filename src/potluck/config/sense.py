"""What no single key is wrong with, but a recipe is."""

import re

from potluck.config.kinds import ConfigError
from potluck.config.run import NodeConfig, RunConfig, SamplingConfig
from potluck.config.tasks import TableConfig
from potluck.types import NODE_NAME

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SERVER_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")
ADDRESS = re.compile(r"(tcp|tls)/(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
FUNCTION = re.compile(r"task|(?:[A-Za-z_][\w.]*|.+\.py):[A-Za-z_]\w*")


def require_sense(run: RunConfig) -> None:
    if not RUN_NAME.fullmatch(run.name):
        raise ConfigError(
            f"name is {run.name!r}; a run's name is 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', "
            f"and begins with a letter or a digit"
        )
    if not run.node:
        raise ConfigError("the run has no node; add a table [node.NAME] with a model")
    for name, node in run.node.items():
        if not NODE_NAME.fullmatch(name):
            raise ConfigError(
                f"[node.{name}]: a node's name is 1 to 32 of a-z, 0-9 and '-', such as 'node-1'"
            )
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
        if node.server:
            _require_server_sense(name, node, run.sampling)
    _require_rewards(run)
    _require_swarm_sense(run)
    if (rows := run.problems_per_round * run.group_size) > 2**16:
        raise ConfigError(
            f"problems_per_round x group_size is {rows}; a round has at most {2**16} completions"
        )
    if run.plan == "horizontal" and run.group_size < (
        members := sum(not node.stranger for node in run.node.values())
    ):
        raise ConfigError(
            f"plan 'horizontal' shares each group of {run.group_size} among {members} nodes; "
            f"raise group_size to at least {members}"
        )


def _require_swarm_sense(run: RunConfig) -> None:
    strangers = [name for name, node in run.node.items() if node.stranger]
    if strangers and not run.swarm.open:
        raise ConfigError(
            f"[node.{strangers[0]}] stranger is true, but the swarm takes none; set [swarm] open = "
            f"true, or drop it"
        )
    for key in ("listen", "connect"):
        for address in getattr(run.swarm, key):
            if not ADDRESS.fullmatch(address):
                raise ConfigError(
                    f"[swarm] {key} has {address!r}; expected tcp/HOST:PORT or tls/HOST:PORT"
                )
    if run.swarm.open:
        _require_room_for_strangers(run, any(not node.stranger for node in run.node.values()))
    if run.swarm.tls and any(
        not end.startswith("tls/") for end in (*run.swarm.listen, *run.swarm.connect)
    ):
        raise ConfigError("with [swarm.tls] every address of listen and connect begins with 'tls/'")


def _require_room_for_strangers(run: RunConfig, has_members: bool) -> None:
    """A share in which not one group has a place would leave every stranger out, unsaid."""
    groups = run.problems_per_round if has_members else run.swarm.stranger_problems
    least = 1 / (groups + 1)
    for key in ("stranger_share", "strangers_share"):
        if 0 < (share := getattr(run.swarm, key)) < least:
            raise ConfigError(
                f"[swarm] {key} is {share:g}, but one group beside {groups} others is {least:.3g} "
                f"of a batch; raise it to that at least, or set it to 0 to learn from no stranger"
            )


def _require_server_sense(name: str, node: NodeConfig, sampling: SamplingConfig) -> None:
    if node.server and not SERVER_URL.fullmatch(node.server.url):
        raise ConfigError(
            f"[node.{name}.server] url is {node.server.url!r}; expected http://HOST:PORT"
        )
    if node.sampling_dtype != "float32":
        raise ConfigError(
            f"[node.{name}] sampling_dtype is {node.sampling_dtype!r}, but its server writes in a "
            f"format of its own (vllm serve --dtype); drop one of the two"
        )
    if sampling.temperature != 1 and (sampling.top_k or sampling.top_p < 1):
        raise ConfigError(
            f"[node.{name}.server] can tell log-probabilities at temperature 1, or without top_k "
            f"and top_p, but [sampling] has temperature {sampling.temperature:g}, top_k "
            f"{sampling.top_k} and top_p {sampling.top_p:g}; change one of them"
        )


def _require_rewards(run: RunConfig) -> None:
    for reward in run.reward:
        if not FUNCTION.fullmatch(reward.function):
            raise ConfigError(
                f"[[reward]] function is {reward.function!r}; expected 'FILE.py:NAME', "
                f"'MODULE:NAME' or 'task'"
            )
    own = any(reward.function != "task" for reward in run.reward)
    mixed = any(reward.function == "task" for reward in run.reward)
    for at, task in (("task", run.task), ("out_of_distribution", run.out_of_distribution)):
        if isinstance(task, TableConfig) and not task.answer and task.reward == "task":
            if at == "task" and own and not mixed:
                continue
            raise ConfigError(
                f"[{at}] answer is empty, so its grading has nothing to compare with; name the "
                f"column, or in [task] grade by a [[reward]] other than 'task'"
            )
