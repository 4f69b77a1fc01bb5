"""Models, learners and engines from the tables of the nodes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from potluck.builder.checks import texts_of
from potluck.builder.exchange import make_agenda, trusts_of
from potluck.builder.objective import load_loss, load_weight
from potluck.config import LoraConfig, NodeConfig, RunConfig
from potluck.exchange import Exchange
from potluck.files import derived_seed
from potluck.model import LanguageModel, LearningRate, ModelError, Reader, make_optimizer
from potluck.model.loading import base_of, locate
from potluck.model.sharding import ShardedModel
from potluck.model.training import add_adapter, restore_adapter
from potluck.node.learning.base import Learning
from potluck.node.learning.group import SINGLE_PROCESS, ProcessGroup, device_of
from potluck.node.learning.learner import Learner
from potluck.node.learning.remote import ADAM, RemoteLearner
from potluck.node.learning.workers import DistributedEngine
from potluck.node.loop import Node
from potluck.node.pace.base import PATIENCE, Attendance, Pace
from potluck.node.pace.free import Free, WrittenProblems
from potluck.node.pace.together import Together
from potluck.node.participant import Author, NodeProgress
from potluck.node.storage import checkpoint
from potluck.node.storage.record import Record
from potluck.objective.habit import HabitTest
from potluck.rollout.base import Engine, EngineSettings, ignore
from potluck.rollout.options import TextOptions
from potluck.rollout.texts.options import TinkerOptions
from potluck.rollout.tinker import TinkerEngine, TinkerSession
from potluck.schedule import Agenda
from potluck.tasks import Task
from potluck.tasks.base import environment_of
from potluck.types import PotluckError


def make_learners(
    config: RunConfig,
    folder: Path,
    first: int,
    processes: ProcessGroup = SINGLE_PROCESS,
    *,
    trust_code: bool = False,
) -> dict[str, Learning]:
    """Make all learners, after ``first`` rounds. A collective, which raises any process's error."""
    processes.broadcast("begin", first)
    learners, error = dict[str, Learning](), None
    try:
        for name, node in config.learners.items():
            made = config, name, folder / name, first
            if node.engine.trains:
                learners[name] = make_remote(*made, trust_code=trust_code)
            else:
                learners[name] = make_learner(*made, processes, trust_code=trust_code)
    except PotluckError as caught:
        error = caught
    for trouble in processes.all_gather(error):
        if trouble:
            raise trouble
    return learners


def make_learner(
    config: RunConfig,
    name: str,
    folder: Path,
    first: int,
    processes: ProcessGroup = SINGLE_PROCESS,
    *,
    trust_code: bool = False,
) -> Learner:
    """Make a learner of the recipe's model, or of the checkpoint of ``first`` rounds."""
    node = config.node[name]
    several, dtype = processes.size > 1, getattr(torch, node.dtype)
    load = partial(
        LanguageModel.load,
        # Spread over GPUs, a model need not fit into one of them: it comes from main memory.
        device="cpu" if several else node.device,
        dtype=dtype,
        attention=node.attention,
        **texts_of(config, node),
    )
    saved = checkpoint.checkpoint_folder(folder, first) if first else None
    model = node.model if node.lora or not saved else str(saved)
    # What is trained keeps its small steps in float32; what is frozen makes none.
    policy = load(model, stored=dtype if node.lora else torch.float32)
    if node.lora:
        _adapt(policy, model, node.lora, derived_seed(f"{config.seed}/{name}/adapter"), saved)
    if node.lora and first:
        checkpoint.require_same_base(folder, first, policy.network, node.model)
    if node.gradient_checkpointing:
        _checkpoint_activations(policy, name)
    if several:
        policy = ShardedModel(policy, device_of(node.device))
    # The KL is to the model that the node started from; under an adapter that is there anyway.
    reference = policy if config.objective.beta else None
    if reference and not node.lora:
        checkpoint.require_same_start(folder, node.model)
        reference = load(node.model, stored=dtype)
        reference.network.requires_grad_(False)
        reference = ShardedModel(reference, device_of(node.device)) if several else reference
    optimizer = make_optimizer(policy, node.optimizer, node.adam)
    if first:
        checkpoint.restore(folder, first, policy, optimizer)
    return Learner(
        name=name,
        policy=policy,
        optimizer=optimizer,
        objective=config.objective,
        temperature=config.sampling.temperature,
        gradient_clip_norm=node.gradient_clip_norm,
        micro_batch_tokens=node.micro_batch_tokens,
        processes=processes,
        learning_rate=_rate(config, node),
        longest=config.sampling.max_new_tokens,
        loss=load_loss(config, trust_code=trust_code),
        reference=reference,
        start=node.model,
        custom_weight=load_weight(config, trust_code=trust_code),
    )


def make_remote(
    config: RunConfig, name: str, folder: Path, first: int, *, trust_code: bool = False
) -> RemoteLearner:
    """Make a learner whose weights a server has; raise RolloutError if it cannot have them."""
    node, sampling = config.node[name], config.sampling
    assert node.lora
    assert isinstance(node.engine, TinkerOptions)
    saved = checkpoint.served(checkpoint.checkpoint_folder(folder, first)) if first else {}
    session = TinkerSession(node.engine, node.model, folder)
    seed = derived_seed(f"{config.seed}/{name}/adapter") >> 32
    reader = Reader.of(node.reads, **texts_of(config, node))
    # Of another tokenizer the last id is none of the server's.
    ids = reader.stop_id, reader.vocabulary - 1
    session.open(node.lora.r, seed, saved.get("state", ""), ids)
    return RemoteLearner(
        name,
        reader,
        config.objective,
        session,
        _rate(config, node),
        dict(zip(ADAM, (*node.adam_betas, node.gradient_clip_norm), strict=True)),
        rows=config.problems_per_round * config.group_size,
        longest=sampling.max_new_tokens,
        loss=load_loss(config, trust_code=trust_code),
        custom_weight=load_weight(config, trust_code=trust_code),
    )


def _rate(config: RunConfig, node: NodeConfig) -> LearningRate:
    updates = config.rounds * config.objective.updates_per_round
    return LearningRate(node.learning_rate, node.lr_schedule, node.warmup_updates, updates)


def _checkpoint_activations(policy: LanguageModel, name: str) -> None:
    try:
        policy.checkpoint_activations()
    except ValueError as error:
        kind = type(policy.network).__name__
        raise ModelError(
            f"[node.{name}] gradient_checkpointing is true, but {kind} cannot ({error}); set it to "
            f"false"
        ) from error


def _adapt(
    policy: LanguageModel, model: str, lora: LoraConfig, seed: int, saved: Path | None
) -> None:
    if base_of(locate(model)):
        # Its checkpoint would name the first one's base, and lose the first one.
        raise ModelError(
            f"{model!r} is an adapter itself, and an adapter on an adapter is none that peft could "
            f"load; `potluck export {model} FOLDER` first, then train on the folder"
        )
    add_adapter(
        policy.network,
        rank=lora.r,
        alpha=lora.alpha,
        dropout=lora.dropout,
        targets=lora.targets,
        seed=seed,
    )
    if saved:
        restore_adapter(policy.network, saved)


def make_participants(
    config: RunConfig,
    folder: Path,
    task: Task,
    learners: Mapping[str, Learning],
    exchanges: Mapping[str, Exchange],
    progress: NodeProgress,
    *,
    sends_text: bool,
    notify: Callable[[str], None] = ignore,
) -> tuple[list[Node], list[Author]]:
    """Make the nodes of this process, which have a learner, and its participants that only write;
    raise RolloutError if one of these cannot."""
    agenda, nodes, authors = make_agenda(config, task), list[Node](), list[Author]()
    tests = config.objective.tests_habits
    for name, exchange in exchanges.items():
        record = Record(folder / name, run=config.name, node=name)
        settings = _settings(config, name, folder, task, notify)
        if isinstance(engine := config.node[name].engine, TextOptions):
            authors.append(
                Author(
                    name=name,
                    pace=make_pace(config, agenda, record, trusts=lambda author: True),
                    task=task,
                    engine=engine.open(settings),
                    exchange=exchange,
                    record=record,
                    deadline_s=config.deadline_s,
                    progress=progress,
                )
            )
            continue
        trusts = trusts_of(config, folder, name, exchanges)
        nodes.append(
            Node(
                name=name,
                pace=make_pace(config, agenda, record, trusts),
                task=task,
                config=config,
                engine=_engine(config, learners[name], settings),
                learner=learners[name],
                sends_text=sends_text,
                exchange=exchange,
                record=record,
                trusts=trusts,
                habits=(
                    HabitTest(name, record.each("completions"), trusts=trusts) if tests else None
                ),
                deadline_s=config.deadline_s,
                progress=progress,
            )
        )
    return nodes, authors


def make_pace(
    config: RunConfig, agenda: Agenda, record: Record, trusts: Callable[[str], bool]
) -> Pace:
    """Make the pace of one node; ``rule_of`` is the rule of its mailbox."""
    swarm = config.swarm
    caps = swarm.max_staleness, swarm.stranger_share, swarm.strangers_share
    attendance = Attendance(
        agenda.weights.keys() - {record.node},
        patience=PATIENCE[config.pace],
        trusts=trusts,
        lines=record.each("metrics"),
    )
    if config.pace == "together":
        return Together(agenda, record.node, *caps, attendance=attendance)
    joint, written = config.plan == "horizontal", WrittenProblems(record)
    intake = config.taken
    return Free(agenda, record.node, *caps, written, intake, joint, trusts, attendance=attendance)


def _engine(config: RunConfig, learner: Learning, settings: EngineSettings) -> Engine:
    node = config.node[learner.name]
    if isinstance(learner, RemoteLearner):
        return TinkerEngine(learner.policy, settings, learner.session)
    assert isinstance(learner, Learner)
    if isinstance(policy := learner.policy, ShardedModel):
        picklable = replace(settings, notify=ignore)
        return DistributedEngine(policy, picklable, learner.processes, node.engine)
    assert not isinstance(node.engine, TextOptions), "a learner writes with weights of its own"
    return node.engine.build(policy, settings)


def _settings(
    config: RunConfig, name: str, folder: Path, task: Task, notify: Callable[[str], None]
) -> EngineSettings:
    node = config.node[name]
    return EngineSettings(
        max_new_tokens=config.sampling.max_new_tokens,
        max_total_tokens=config.sampling.max_total_tokens,
        dtype=node.sampling_dtype,
        rows=node.sampling_rows,
        node=name,
        folder=folder,
        adapter=node.lora is not None,
        stop_texts=config.sampling.stop_texts,
        sampling=config.sampling.drawing,
        environment=environment_of(task),
        notify=notify,
    )
