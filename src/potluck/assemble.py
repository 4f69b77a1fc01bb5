"""From a recipe to what it names: the task, the nodes, and a folder that is theirs."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from potluck.config import (
    ConfigError,
    DigitsConfig,
    Gsm8kConfig,
    LoraConfig,
    NodeConfig,
    RunConfig,
    ServerConfig,
    as_tree,
)
from potluck.exchange import MemoryHub
from potluck.node import (
    Learner,
    Node,
    Progress,
    Record,
    RunFolderError,
    checkpoint,
    make_optimizer,
)
from potluck.rollout import Engine, HFEngine, LanguageModel, ModelError
from potluck.rollout.base import room_behind
from potluck.rollout.line import Address
from potluck.rollout.loading import (
    fingerprint,
    load_config,
    load_tokenizer,
    named_stop_ids,
    require_device,
)
from potluck.rollout.lora import add_adapter, restore_adapter
from potluck.rollout.mirror import Mirror
from potluck.rollout.model import prompt_ids
from potluck.rollout.server import ServerEngine, require_server
from potluck.swarm import PLANS, problems_of_round
from potluck.tasks import Digits, Gsm8k, HashReward, Task

MAY_CHANGE = ("rounds", "checkpoint_every", "threads", "deadline_s", "log")
"""What a resumed run may have otherwise than the run that it goes on with."""


def make_task(config: RunConfig) -> Task:
    """The task that ``[task]`` describes.

    Raises:
        TaskError: its data cannot be read.
        ConfigError: it has too few problems for a round.
    """
    match config.task:
        case DigitsConfig(width=width, other_width=other_width):
            task: Task = Digits(width=width, other_width=other_width)
        case Gsm8kConfig(path=path, validation=validation, system_prompt=system_prompt):
            task = Gsm8k(path=path, validation=validation, system_prompt=system_prompt)
    if config.task.reward == "hash":
        task = HashReward(task)
    if (there := len(task.ids("train"))) < config.problems_per_round:
        raise ConfigError(
            f"problems_per_round is {config.problems_per_round}, but the task has {there} problems "
            f"to train on; lower it"
        )
    return task


def require_partners(config: RunConfig) -> None:
    """Raises ModelError unless all nodes share a tokenizer, its stop tokens, and have a device."""
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
    for name, node in config.node.items():
        require_device(node.device, name)


def require_room(config: RunConfig, task: Task) -> None:
    """Raises RolloutError unless every prompt that the run will use leaves room to write in."""
    rounds = range(config.rounds)
    drawn = {
        id
        for round in rounds
        for id in problems_of_round(
            task.ids("train"), seed=config.seed, round=round, count=config.problems_per_round
        )
    }
    wanted = config.evaluation
    asked = [*drawn, *task.ids("validation")[: wanted.problems]]
    asked += task.ids("out-of-distribution")[: wanted.out_of_distribution]
    for model in dict.fromkeys(node.model for node in config.node.values()):
        tokenizer, shape = load_tokenizer(model), load_config(model).get_text_config()
        context = getattr(shape, "max_position_embeddings", None)
        limit = min(config.sampling.max_total_tokens, context or config.sampling.max_total_tokens)
        for problem in map(task.problem, asked):
            room_behind(prompt_ids(tokenizer, problem), problem, max_total_tokens=limit)


def require_servers(config: RunConfig) -> None:
    """Raises RolloutError unless every server that is to write is there and can."""
    for node in config.node.values():
        if node.server:
            shape = load_config(node.model).get_text_config()
            longest = config.sampling.max_total_tokens
            context = getattr(shape, "max_position_embeddings", None)
            require_server(
                _address(node.server),
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


def go_on_from(folder: Path, config: RunConfig, first: int) -> str:
    """Takes what is newer than ``first`` rounds out of the way; returns what to say about it.

    Checkpoints of rounds that will be lived again would push the new ones out.
    """
    for name in config.node:
        checkpoint.forget_after(folder / name, first)
    if not first:
        return "no checkpoint stands that every node has: beginning anew, rounds on disk are reused"
    here = checkpoint.circumstances()
    was = [checkpoint.circumstances_of(folder / name, first) for name in config.node]
    odd = next((made for made in was if made != here), None)
    changed = f"; it was made with {odd}, this is {here}: not the same bits" if odd else ""
    return f"going on after {first} rounds{changed}"


def require_folder(folder: Path, config: RunConfig, resume: bool) -> None:
    """Raises RunFolderError unless ``folder`` is free, or, to ``resume``, is this run's."""
    if not resume:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunFolderError(
                f"{folder} exists; --resume goes on with that run, --out names another folder"
            )
        return
    try:
        was = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"{folder} holds no run to resume ({error}); leave --resume out to start one"
        ) from error
    if not isinstance(was, dict):
        raise RunFolderError(f"{folder}/recipe.json is no recipe; start another run with --out")
    if (done := first_round(folder, config)) > config.rounds:
        raise RunFolderError(
            f"{folder} has {done} rounds, but the recipe has rounds = {config.rounds}; raise it"
        )
    tree = json.loads(json.dumps(as_tree(config)))
    for key, old, new in _differences(was, tree):
        if key.partition(".")[0] not in MAY_CHANGE:
            raise RunFolderError(
                f"{folder} was made with {key} = {old}, but the recipe now has {key} = {new}; "
                f"resume with the old value, or start another run with --out"
            )


def _differences(was: Any, now: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(key, old, new) of every leaf that is not equal in two trees; None where there is none."""
    if not (isinstance(was, dict) and isinstance(now, dict)):
        if was != now:
            yield at, was, now
        return
    for key in dict.fromkeys([*was, *now]):
        yield from _differences(was.get(key), now.get(key), f"{at}.{key}" if at else key)


def first_round(folder: Path, config: RunConfig) -> int:
    """Rounds that every node has a checkpoint of; 0: none has, so the run begins anew."""
    saved = [set(checkpoint.rounds_saved(folder / name)) for name in config.node]
    return max(set.intersection(*saved), default=0)


def make_learner(config: RunConfig, name: str, folder: Path, first: int) -> Learner:
    """The model as the recipe names it, or as the checkpoint of ``first`` rounds holds it."""
    node = config.node[name]
    saved = checkpoint.checkpoint_folder(folder, first) if first else None
    language = _load(config, node, node.model if node.lora or not saved else str(saved))
    if node.lora:
        _adapt(language, node.lora, seed=_seed_of(config.seed, name), saved=saved)
    if node.gradient_checkpointing:
        # Its name until transformers 5.x, where the other one came in.
        enable = getattr(language.network, "activation_checkpointing_enable", None)
        (enable or language.network.gradient_checkpointing_enable)({"use_reentrant": False})
    optimizer = make_optimizer(language, node)
    if first:
        checkpoint.restore(folder, first, language, optimizer)
    return Learner(
        name=name,
        language=language,
        optimizer=optimizer,
        objective=config.objective,
        temperature=config.sampling.temperature,
        gradient_clip_norm=node.gradient_clip_norm,
        micro_batch_tokens=node.micro_batch_tokens,
    )


def _load(config: RunConfig, node: NodeConfig, model: str) -> LanguageModel:
    computes = getattr(torch, node.dtype)
    return LanguageModel.load(
        model,
        device=node.device,
        stop=config.sampling.stop,
        dtype=computes,
        # What is trained keeps its small steps in float32; what is frozen makes none.
        stored=computes if node.lora else torch.float32,
        attention=node.attention,
    )


def _adapt(language: LanguageModel, lora: LoraConfig, *, seed: int, saved: Path | None) -> None:
    add_adapter(
        language.network,
        rank=lora.r,
        alpha=lora.alpha,
        dropout=lora.dropout,
        targets=lora.targets,
        seed=seed,
    )
    if saved:
        restore_adapter(language.network, saved)


def _seed_of(seed: int, node: str) -> int:
    """Of a node's adapter: 63 bits that no other (run seed, node) has."""
    raw = hashlib.sha256(f"{seed}/{node}/adapter".encode()).digest()
    return int.from_bytes(raw[:8], "little") >> 1


def make_nodes(
    config: RunConfig,
    folder: Path,
    task: Task,
    learners: Mapping[str, Learner],
    progress: Progress,
    first: int,
) -> list[Node]:
    hub = MemoryHub(list(config.node), run=config.name)
    weights = {name: node.weight for name, node in config.node.items()}
    nodes = []
    for name in config.node:
        record = Record(folder / name, run=config.name, node=name)
        record.forget_from(first)
        learner = learners[name]
        nodes.append(
            Node(
                name=name,
                weights=weights,
                task=task,
                engine=_engine(config, name, learner.language, folder),
                learner=learner,
                exchange=hub.member(name),
                record=record,
                plan=PLANS[config.plan],
                group_size=config.group_size,
                sampling=config.sampling,
                seed=config.seed,
                deadline_s=config.deadline_s,
                progress=progress,
            )
        )
    return nodes


def _engine(config: RunConfig, name: str, language: LanguageModel, folder: Path) -> Engine:
    node = config.node[name]
    if node.server:
        return _server_engine(config, name, node.server, language, folder)
    return HFEngine(
        language,
        max_new_tokens=config.sampling.max_new_tokens,
        max_total_tokens=config.sampling.max_total_tokens,
        dtype=getattr(torch, node.sampling_dtype),
        rows=node.sampling_rows,
    )


def _server_engine(
    config: RunConfig, name: str, server: ServerConfig, language: LanguageModel, folder: Path
) -> ServerEngine:
    mirror = Mirror(
        language,
        (Path(server.folder) if server.folder else folder) / name / "served",
        adapter=server.model if config.node[name].lora else "",
        sleeps=server.sleeps,
    )
    return ServerEngine(
        language,
        _address(server),
        mirror,
        server.model,
        max_new_tokens=config.sampling.max_new_tokens,
        max_total_tokens=config.sampling.max_total_tokens,
        concurrency=server.concurrency,
        tolerance=server.tolerance,
    )


def _address(server: ServerConfig) -> Address:
    return Address(server.url, server.timeout_s, server.api_key_variable)
