"""What must hold of all nodes together, before anything is written."""

from collections.abc import Mapping

import numpy as np

from potluck.assemble.nodes import address_of
from potluck.assemble.swarm import make_agenda
from potluck.config import (
    ConfigError,
    RunConfig,
)
from potluck.node.team import Team
from potluck.rollout import LanguageModel, ModelError
from potluck.rollout.base import room_behind
from potluck.rollout.loading import (
    fingerprint,
    load_config,
    load_tokenizer,
    named_stop_ids,
    require_device,
)
from potluck.rollout.model import prompt_ids
from potluck.rollout.server import require_server
from potluck.tasks import (
    Task,
)


def require_partners(config: RunConfig) -> None:
    """Raises ModelError unless all nodes share a tokenizer, its stop tokens, and have a device."""
    require_one_tokenizer(config)
    require_devices(config)


def require_devices(config: RunConfig) -> None:
    """Raises ModelError unless every node's device is here."""
    for name, node in config.node.items():
        require_device(node.device, name)


def require_one_tokenizer(config: RunConfig) -> None:
    """Raises ModelError unless all nodes share a tokenizer, which has the stop tokens named."""
    tokenizers = {name: load_tokenizer(node.model) for name, node in config.node.items()}
    prints = {name: fingerprint(tokenizer) for name, tokenizer in tokenizers.items()}
    (one, *others) = prints
    for other in others:
        if prints[other] != prints[one]:
            sizes = {name: len(tokenizers[name]) for name in (one, other)}
            raise ModelError(
                f"the tokenizers of {one!r} ({config.node[one].model}, {sizes[one]} tokens, "
                f"{prints[one][:12]}) and {other!r} ({config.node[other].model}, {sizes[other]} "
                f"tokens, {prints[other][:12]}) differ; nodes exchange token ids, so they need "
                f"models of one tokenizer"
            )
    named_stop_ids(tokenizers[one], config.sampling.stop)


def require_one_prompt(config: RunConfig, task: Task) -> None:
    """Raises ModelError unless all nodes ask a problem with the same ids.

    Nodes take no completion that was written to another prompt (exchange/terms.py), so with
    another chat template each would be missing to the other in every round.
    """
    problem = task.problem(task.ids("train")[0])
    prompts = {
        name: prompt_ids(load_tokenizer(n.model), problem) for name, n in config.node.items()
    }
    (one, *others) = prompts
    for other in others:
        if not np.array_equal(prompts[one], prompts[other]):
            raise ModelError(
                f"{one!r} and {other!r} ask {problem.id!r} with different prompts ("
                f"{len(prompts[one])} and {len(prompts[other])} tokens), so neither could learn "
                f"from the other; give their tokenizers one chat template, or the task a system "
                f"prompt where the templates differ in their own"
            )


def require_room(config: RunConfig, task: Task) -> list[int]:
    """Lengths in tokens of the prompts that the run will use, once for each model.

    Raises:
        RolloutError: one of them leaves no room to write in.
    """
    agenda = make_agenda(config, task)
    drawn = {
        share.problem_id
        for round in range(config.rounds)
        for share in agenda.shares(round, config.node)
    }
    wanted = config.evaluation
    asked = [*drawn, *task.ids("validation")[: wanted.problems]]
    asked += task.ids("out-of-distribution")[: wanted.out_of_distribution]
    lengths = []
    for model in dict.fromkeys(node.model for node in config.node.values()):
        tokenizer, shape = load_tokenizer(model), load_config(model).get_text_config()
        context = getattr(shape, "max_position_embeddings", None)
        limit = min(config.sampling.max_total_tokens, context or config.sampling.max_total_tokens)
        for problem in map(task.problem, asked):
            prompt_P = prompt_ids(tokenizer, problem)
            room_behind(prompt_P, problem, max_total_tokens=limit)
            lengths.append(len(prompt_P))
    return lengths


def require_servers(config: RunConfig, *, longest_prompt: int) -> None:
    """Raises RolloutError unless every server that is to write is there and can.

    Args:
        longest_prompt: of all that the run asks, tokens.
    """
    for node in config.node.values():
        if node.server:
            shape = load_config(node.model).get_text_config()
            # An evaluation may have a limit of its own.
            asked = config.evaluation.max_new_tokens
            longest = max(config.sampling.max_total_tokens, asked and longest_prompt + asked)
            context = getattr(shape, "max_position_embeddings", None)
            require_server(
                address_of(node.server),
                node.server.model,
                adapter=node.lora is not None,
                longest=min(longest, context or longest),
            )


def require_one_stop(languages: Mapping[str, LanguageModel]) -> None:
    """Raises ModelError unless the same tokens end a completion on every node.

    Whether a peer's completion is finished decides what it earns, so it is looked up here
    and not believed; which needs one answer.
    """
    (one, *others) = languages
    for other in others:
        differ = languages[one].stop_ids ^ languages[other].stop_ids
        if differ:
            tokens = languages[one].tokenizer.convert_ids_to_tokens(sorted(differ))
            raise ModelError(
                f"{one!r} and {other!r} end a completion with different tokens: only one of them "
                f"stops at {', '.join(map(repr, tokens))}; name them in [sampling] stop"
            )


def require_team(config: RunConfig, team: Team) -> None:
    """Raises ConfigError unless several processes, where there are, can be each node."""
    if team.size == 1:
        return
    for name, node in config.node.items():
        if node.optimizer == "adamw-8bit":
            raise ConfigError(
                f"[node.{name}] optimizer 'adamw-8bit' keeps its moments in one process, but there "
                f"are {team.size}; set optimizer = 'adamw', whose moments are shared out"
            )
        if node.server:
            raise ConfigError(
                f"[node.{name}.server] is sent the weights of one process, but there are "
                f"{team.size}; drop the table, or start one process"
            )
        if node.device not in ("auto", "cpu", "cuda"):
            raise ConfigError(
                f"[node.{name}] device is {node.device!r}, but each of {team.size} processes has "
                f"its own; set device = 'auto', 'cuda' or 'cpu'"
            )
