"""A whole run on this machine: every node of the recipe in one process, phase by phase.

One thread, so the same recipe gives the same numbers, and a debugger can follow it.
"""

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
import transformers

from potluck.config import (
    ConfigError,
    DigitsConfig,
    Gsm8kConfig,
    NodeConfig,
    RunConfig,
    as_tree,
)
from potluck.exchange import MemoryHub
from potluck.node import (
    Evaluation,
    Learner,
    Node,
    Record,
    RunFolderError,
    checkpoint,
    evaluate,
    make_optimizer,
    step_together,
)
from potluck.node.record import write_whole
from potluck.rollout import HFEngine, LanguageModel, ModelError
from potluck.rollout.model import fingerprint, load_tokenizer, named_stop_ids, require_device
from potluck.swarm import PLANS, problems_of_round
from potluck.tasks import Digits, Gsm8k, HashReward, Task

# A run has a display of its own; a bar for each file that is loaded or saved only tears it.
transformers.logging.disable_progress_bar()

MAY_CHANGE = ("rounds", "checkpoint_every", "threads", "deadline_s")
"""What a resumed run may have otherwise than the run that it goes on with."""


class Display(Protocol):
    """Where a run says how far it is. Called often; takes no time."""

    def phase(self, node: str, name: str, done: int, total: int) -> None: ...
    def round_done(self, node: str, metrics: dict[str, Any]) -> None: ...
    def evaluated(self, node: str, evaluation: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...


class Silent:
    """Says nothing: the display of ``run`` unless it is given one."""

    def phase(self, node: str, name: str, done: int, total: int) -> None: ...
    def round_done(self, node: str, metrics: dict[str, Any]) -> None: ...
    def evaluated(self, node: str, evaluation: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunResult:
    folder: Path
    rounds: int
    """Rounds done, those before a resume included."""
    interrupted: bool
    """Whether Ctrl-C ended it; a checkpoint stands, and ``resume`` goes on."""
    accuracy: Mapping[str, float]
    """Of each node at the end, on the validation problems; empty if none were asked for."""


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    resume: bool = False,
    display: Display | None = None,
) -> RunResult:
    """Trains every node of ``config`` together, in ``folder``.

    Args:
        folder: must not exist or be empty, unless ``resume``.
        resume: goes on from the newest checkpoint that all nodes have. On the same
            machine, torch and thread count, the whole run then equals an
            uninterrupted one to the bit.

    Raises:
        PotluckError: one of its kinds, see ``types.py``; the message says what to do.
    """
    folder, display = Path(folder), display or Silent()
    if config.threads:
        torch.set_num_threads(config.threads)
    # Nothing is written before everything that can be wrong with a recipe has been looked at.
    require_folder(folder, config, resume)
    task = make_task(config)
    require_partners(config)
    first = first_round(folder, config) if resume else 0
    learners = {name: _learner(config, name, folder / name, first) for name in config.node}
    _write_recipe(folder, config)
    with _interrupts() as interrupted:

        def progress(node: str, phase: str, done: int, total: int) -> None:
            display.phase(node, phase, done, total)
            # Learning changes the model, so it is not broken off half-way.
            if phase != "learn" and interrupted():
                raise _Stopped

        nodes = _nodes(config, folder, task, learners, progress, first)
        done, stopped = first, False
        try:
            while done < config.rounds:
                if config.evaluation.every and done % config.evaluation.every == 0:
                    _evaluate(nodes, config, done, progress, display, at_end=False)
                _round(nodes, config, done, display)
                done += 1
                if config.checkpoint_every and done % config.checkpoint_every == 0:
                    _save(nodes, done)
                if interrupted():
                    raise _Stopped
            last = _evaluate(nodes, config, done, progress, display, at_end=True)
        except _Stopped:
            last, stopped = {}, True
        _save(nodes, done)
    accuracy = {name: evaluation.accuracy for name, evaluation in last.items()}
    return RunResult(folder, done, stopped, accuracy)


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
    """Raises ModelError unless all nodes share a tokenizer, with the stop tokens, and have a device."""
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


def _nodes(
    config: RunConfig,
    folder: Path,
    task: Task,
    learners: Mapping[str, Learner],
    progress: Any,
    first: int,
) -> list[Node]:
    hub = MemoryHub(list(config.node), run=config.name)
    weights = {name: node.weight for name, node in config.node.items()}
    nodes = []
    for name, node in config.node.items():
        record = Record(folder / name, run=config.name, node=name)
        record.forget_from(first)
        learner = learners[name]
        nodes.append(
            Node(
                name=name,
                weights=weights,
                task=task,
                engine=_engine(config, node, learner.language),
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


def _learner(config: RunConfig, name: str, folder: Path, first: int) -> Learner:
    """The model as the recipe names it, or as the checkpoint of ``first`` rounds holds it."""
    node, model = config.node[name], config.node[name].model
    if first:
        model = str(checkpoint.checkpoint_folder(folder, first))
    language = LanguageModel.load(model, device=node.device, stop=config.sampling.stop)
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


def _engine(config: RunConfig, node: NodeConfig, language: LanguageModel) -> HFEngine:
    return HFEngine(
        language,
        max_new_tokens=config.sampling.max_new_tokens,
        max_total_tokens=config.sampling.max_total_tokens,
        dtype=getattr(torch, node.sampling_dtype),
        rows=node.sampling_rows,
    )


def _round(nodes: list[Node], config: RunConfig, round: int, display: Display) -> None:
    task = nodes[0].task
    ids = problems_of_round(
        task.ids("train"), seed=config.seed, round=round, count=config.problems_per_round
    )
    reports = step_together(nodes, round, [task.problem(id) for id in ids])
    for node, report in zip(nodes, reports, strict=True):
        display.round_done(node.name, asdict(report))


def _evaluate(
    nodes: list[Node],
    config: RunConfig,
    round: int,
    progress: Any,
    display: Display,
    *,
    at_end: bool,
) -> dict[str, Evaluation]:
    """Each node's accuracy by itself; returns that on the validation problems."""
    results = {}
    for node in nodes:
        language, wanted = node.learner.language, config.evaluation
        engine = HFEngine(
            language,
            max_new_tokens=wanted.max_new_tokens or config.sampling.max_new_tokens,
            max_total_tokens=config.sampling.max_total_tokens,
            rows=config.node[node.name].sampling_rows,
        )

        def moved(done: int, total: int, name: str = node.name) -> None:
            progress(name, "evaluate", done, total)

        line: dict[str, Any] = {"round": round}
        if seen := evaluate(
            language, engine, node.task, "validation", count=wanted.problems, progress=moved
        ):
            line |= {"validation": seen.accuracy, "problems": seen.problems}
            results[node.name] = seen
        if at_end and (
            other := evaluate(
                language,
                engine,
                node.task,
                "out-of-distribution",
                count=wanted.out_of_distribution,
                progress=moved,
            )
        ):
            line |= {"out_of_distribution": other.accuracy}
            line |= {"out_of_distribution_problems": other.problems}
        if len(line) > 1:
            node.record.add("evaluation", [line])
            display.evaluated(node.name, line)
    return results


def _save(nodes: list[Node], done: int) -> None:
    for node in nodes:
        folder = node.record.folder
        if done not in checkpoint.rounds_saved(folder):
            checkpoint.save(folder, done, node.learner.language, node.learner.optimizer)


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
    tree = json.loads(json.dumps(as_tree(config)))
    for key in [key for key in tree if key not in MAY_CHANGE]:
        if was.get(key) != tree[key]:
            raise RunFolderError(
                f"{folder} was made with {key} = {was.get(key)}, but the recipe now has {key} = "
                f"{tree[key]}; resume with the old value, or start another run with --out"
            )


def _write_recipe(folder: Path, config: RunConfig) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "recipe.json", (json.dumps(as_tree(config), indent=2) + "\n").encode())


def first_round(folder: Path, config: RunConfig) -> int:
    """Rounds that every node has a checkpoint of; 0: none has, so the run begins anew."""
    saved = [set(checkpoint.rounds_saved(folder / name)) for name in config.node]
    return max(set.intersection(*saved), default=0)


class _Stopped(Exception):
    """Ctrl-C at a moment when nothing is half done."""


@contextmanager
def _interrupts() -> Iterator[Any]:
    """Makes the first Ctrl-C a wish that the loop asks for; the second one is the usual."""
    wished = False

    def wish(signal_number: int, frame: FrameType | None) -> None:
        nonlocal wished
        if wished:
            raise KeyboardInterrupt
        wished = True

    try:
        before = signal.signal(signal.SIGINT, wish)
    except ValueError:  # not the main thread: whoever runs that one decides
        yield lambda: False
        return
    try:
        yield lambda: wished
    finally:
        signal.signal(signal.SIGINT, before)
