"""From the tables of the nodes to models, learners and engines."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch

from potluck.assemble.swarm import make_agenda
from potluck.config import (
    LoraConfig,
    NodeConfig,
    RunConfig,
    ServerConfig,
)
from potluck.exchange import Exchange
from potluck.node import (
    Learner,
    Node,
    Progress,
    Record,
    Sieve,
    checkpoint,
    make_optimizer,
)
from potluck.node.followers import TeamEngine
from potluck.node.team import ALONE, Begin, Team, device_of
from potluck.rollout import Engine, HFEngine, LanguageModel, ModelError
from potluck.rollout.line import Address
from potluck.rollout.loading import base_of, locate
from potluck.rollout.lora import add_adapter, restore_adapter
from potluck.rollout.mirror import Mirror
from potluck.rollout.server import ServerEngine
from potluck.rollout.sharding import ShardedModel
from potluck.tasks import Task
from potluck.types import PotluckError


def make_learners(
    config: RunConfig, folder: Path, first: int, team: Team = ALONE
) -> dict[str, Learner]:
    """Every node's, after ``first`` rounds. All processes of a team call it, or none.

    Raises:
        PotluckError: that of any of them.
    """
    team.call(Begin(first))
    learners, error = {}, None
    try:
        for name in config.node:
            learners[name] = make_learner(config, name, folder / name, first, team)
    except PotluckError as caught:
        error = caught
    for trouble in team.gather(error):
        if trouble:
            raise trouble
    return learners


def make_learner(
    config: RunConfig, name: str, folder: Path, first: int, team: Team = ALONE
) -> Learner:
    """The model as the recipe names it, or as the checkpoint of ``first`` rounds holds it."""
    node = config.node[name]
    saved = checkpoint.checkpoint_folder(folder, first) if first else None
    model = node.model if node.lora or not saved else str(saved)
    # Spread over GPUs, a model need not fit into one of them: it comes from main memory.
    language = _load(config, node, model, node.device if team.size == 1 else "cpu")
    if node.lora:
        _adapt(language, model, node.lora, seed=_seed_of(config.seed, name), saved=saved)
        if first:
            checkpoint.require_same_base(folder, first, language.network)
    if node.gradient_checkpointing:
        _checkpoint_activations(language, name)
    if team.size > 1:
        language = ShardedModel(language, device_of(node.device))
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
        team=team,
    )


def _checkpoint_activations(language: LanguageModel, name: str) -> None:
    network = language.network
    # Its name until transformers 5.x, where the other one came in.
    enable = getattr(network, "activation_checkpointing_enable", None)
    try:
        (enable or network.gradient_checkpointing_enable)({"use_reentrant": False})
    except ValueError as error:
        raise ModelError(
            f"[node.{name}] gradient_checkpointing is true, but {type(network).__name__} cannot "
            f"({error}); set it to false"
        ) from error


def _load(config: RunConfig, node: NodeConfig, model: str, device: str) -> LanguageModel:
    computes = getattr(torch, node.dtype)
    return LanguageModel.load(
        model,
        device=device,
        stop=config.sampling.stop,
        dtype=computes,
        # What is trained keeps its small steps in float32; what is frozen makes none.
        stored=computes if node.lora else torch.float32,
        attention=node.attention,
    )


def _adapt(
    language: LanguageModel, model: str, lora: LoraConfig, *, seed: int, saved: Path | None
) -> None:
    if base_of(locate(model)):
        # Its checkpoint would name the first one's base, and lose the first one.
        raise ModelError(
            f"{model!r} is an adapter itself, and an adapter on an adapter is none that peft could "
            f"load; `potluck export {model} FOLDER` first, then train on the folder"
        )
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
    exchanges: Mapping[str, Exchange],
    progress: Progress,
    first: int,
) -> list[Node]:
    """The nodes of this process: those that have a learner."""
    agenda = make_agenda(config, task)
    nodes = []
    for name, learner in learners.items():
        record = Record(folder / name, run=config.name, node=name)
        record.forget_from(first)
        nodes.append(
            Node(
                name=name,
                agenda=agenda,
                sieve=Sieve(
                    agenda=agenda,
                    me=name,
                    max_staleness=config.swarm.max_staleness,
                    stranger_share=config.swarm.stranger_share,
                    strangers_share=config.swarm.strangers_share,
                ),
                task=task,
                engine=_engine(config, learner, folder),
                learner=learner,
                exchange=exchanges[name],
                record=record,
                sampling=config.sampling,
                deadline_s=config.deadline_s,
                progress=progress,
            )
        )
    return nodes


def _engine(config: RunConfig, learner: Learner, folder: Path) -> Engine:
    name, language = learner.name, learner.language
    node = config.node[name]
    if node.server:
        return _server_engine(config, name, node.server, language, folder)
    if isinstance(language, ShardedModel):
        return TeamEngine(
            learner.team,
            name,
            language,
            max_new_tokens=config.sampling.max_new_tokens,
            max_total_tokens=config.sampling.max_total_tokens,
            dtype=getattr(torch, node.sampling_dtype),
            rows=node.sampling_rows,
        )
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
        address_of(server),
        mirror,
        server.model,
        max_new_tokens=config.sampling.max_new_tokens,
        max_total_tokens=config.sampling.max_total_tokens,
        concurrency=server.concurrency,
        tolerance=server.tolerance,
    )


def address_of(server: ServerConfig) -> Address:
    return Address(server.url, server.timeout_s, server.api_key_variable)
