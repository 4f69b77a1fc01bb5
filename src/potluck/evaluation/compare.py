"""Loads one model after the other and has each answer the same problems in tokens of its own."""

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from potluck.builder.checks import without_long_prompts
from potluck.builder.prompts import require_prompts
from potluck.builder.task import make_task
from potluck.config import ConfigError, RunConfig, as_tree, load
from potluck.evaluation import grade
from potluck.evaluation.request import SPLITS, EvaluationRequest, Settings, variables_of
from potluck.files import derived_seed
from potluck.model import LanguageModel, Reader
from potluck.model.digest import notes_on_base, require_base
from potluck.model.loading import (
    load_config,
    load_tokenizer,
    require_plain_weights,
    unused_accelerator,
)
from potluck.reports.right import binary_in_run
from potluck.right import merged
from potluck.rollout.base import EngineSettings, GreedySampler, RandomSampler
from potluck.rollout.cache import require_repeatable
from potluck.rollout.hf import HFEngine
from potluck.tasks import Split, Task
from potluck.tasks.base import WORTH_TELLING, best_constant, environment_of
from potluck.types import Problem
from potluck.version import __version__

EvaluationProgress = Callable[[str, str, int, int], None]
"""Called with (model and split, "greedy" or "samples", done, total)."""


def evaluate_models(
    request: EvaluationRequest,
    *,
    progress: EvaluationProgress,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Return everything that is found, as data for JSON; ``say`` gets a line before an environment
    is graded, and where a GPU stays unused. Raise PotluckError as ``resolved`` does."""
    if request.device == "auto" and (unused := unused_accelerator()):
        say(f"--device auto takes the CPU, as torch cannot use what seems to be {unused}")
    settings = request.resolved()
    config = settings.config
    if config.threads:
        torch.set_num_threads(config.threads)
    scores: dict[str, dict[Split, grade.ModelScores]] = {}
    task = make_task(config, trust_code=request.trust_code, run=settings.run, say=say)
    readers = {
        model: Reader.of(model, stop=config.sampling.stop, variables=variables_of(config, model))
        for model in settings.models
    }
    task = without_long_prompts(config, task, readers.values())
    require_prompts(config, task, readers)
    problems = _problems(task, config, request.split)
    for model in settings.models:
        # What is wrong with one fails here, before the first model has worked for an hour.
        require_repeatable(load_config(model), model)
        require_plain_weights(model)
        load_tokenizer(model)
        require_base(model)
        for note in notes_on_base(model):
            say(note)
    for letter, model in zip("AB", settings.models, strict=False):
        gc.collect()  # the model before leaves before the next one comes
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        label = f"{letter} " if request.against else ""
        scores[letter] = _answered(model, request, settings, task, problems, progress, label)
    answers = [a for each in scores.values() for its in each.values() for a in its.answers]
    # One notion for all splits, and for the run that the model is of.
    binary = merged(grade.binary_of(answers), _binary_in_run(settings))
    tree: dict[str, Any] = json.loads(json.dumps(as_tree(config)))
    return {
        "potluck": __version__,
        "torch": torch.__version__,
        "models": dict(zip("AB", settings.models, strict=False)),
        "task": tree["task"] | {"digest": task.digest},
        "reward": tree["reward"],
        "out_of_distribution": tree["out_of_distribution"],
        "settings": {
            "k": settings.k,
            "samples": settings.samples,
            **asdict(config.sampling.drawing),
            "seed": request.seed,
            "max_new_tokens": config.evaluation.max_new_tokens or config.sampling.max_new_tokens,
            "stop": list(config.sampling.stop),
            "device": request.device,
            "dtype": request.dtype,
            "rows": settings.rows,
        },
        "splits": [
            {"split": split}
            | grade.summary(
                {m: each[split] for m, each in scores.items()},
                settings.k,
                rule=config.right_rule,
                binary=binary,
                shown=request.shown,
            )
            | {"constant": _constant(task, config, asked)}
            for split, asked in problems.items()
        ],
    }


def _binary_in_run(settings: Settings) -> dict[str, bool]:
    """Tell what the reward functions paid in the run whose rewards these are; else nothing."""
    run = settings.run
    if run is None or load(run / "recipe.json").reward != settings.config.reward:
        return {}
    return binary_in_run(run)


def _constant(task: Task, config: RunConfig, problems: Sequence[Problem]) -> dict[str, Any] | None:
    """Tell what one answer to all problems earns; None: it is not known, or hardly anything."""
    if config.reward or environment_of(task):
        return None
    found = best_constant(problems)
    return found._asdict() if found and found.share >= WORTH_TELLING else None


def require_writable(file: Path) -> None:
    """Raise ConfigError where nothing can be written, before an hour of work."""
    if file.is_dir() or not file.parent.is_dir():
        what = "is a folder" if file.is_dir() else f"cannot be: there is no folder {file.parent}"
        raise ConfigError(f"--json {file} {what}; name a file in a folder that is there")


def _problems(task: Task, config: RunConfig, wanted: str) -> dict[Split, list[Problem]]:
    counts = (config.evaluation.problems, config.evaluation.out_of_distribution)
    found = {
        split: grade.first_problems(task, split, count)
        for split, count in zip(SPLITS, counts, strict=True)
        if wanted in (split, "both")
    }
    if not any(found.values()):
        there = ", ".join(f"{len(task.ids(split))} {split}" for split in SPLITS)
        asked = ", ".join(f"{n} {split}" for split, n in zip(SPLITS, counts, strict=True))
        raise ConfigError(
            f"there is nothing to evaluate on: the task has {there} problems, and of them {asked} "
            f"were asked for by --split {wanted}; choose another split or raise --problems"
        )
    return {split: problems for split, problems in found.items() if problems}


def _answered(
    model: str,
    request: EvaluationRequest,
    settings: Settings,
    task: Task,
    problems: Mapping[Split, Sequence[Problem]],
    progress: EvaluationProgress,
    label: str,
) -> dict[Split, grade.ModelScores]:
    """Load ``model`` and have it answer ``problems``, greedily and, where asked, in samples."""
    how = settings.config.sampling
    dtype = getattr(torch, request.dtype)
    policy = LanguageModel.load(
        model,
        device=request.device,
        stop=how.stop,
        stored=dtype,
        variables=variables_of(settings.config, model),
    )
    most, there = (how.max_new_tokens, how.max_total_tokens), environment_of(task)
    as_trained = EngineSettings(*most, request.dtype, settings.rows, environment=there)
    engine = grade.evaluation_engine(HFEngine(policy, as_trained), settings.config)

    found = {}
    for split, asked in problems.items():
        ask = partial(grade.grade_samples, policy, engine, task, asked)
        greedy = ask(GreedySampler(), 1, partial(progress, f"{label}{split}", "greedy"))
        sampled = list[grade.ProblemScores]()
        if settings.samples:
            seed = derived_seed(f"{request.seed}/{split}", byteorder="big")
            generator = torch.Generator(policy.device).manual_seed(seed)
            moved = partial(progress, f"{label}{split}", "samples")
            sampled = ask(RandomSampler(generator, how.drawing), settings.samples, moved)
        found[split] = grade.ModelScores(tuple(greedy), tuple(sampled))
    return found
