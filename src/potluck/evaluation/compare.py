"""Loads one model after the other and has each answer the same problems in tokens of its own."""

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from potluck.builder.bfloat16 import doubts_on_evaluation
from potluck.builder.checks import texts_of, without_long_prompts
from potluck.builder.prompts import require_prompts
from potluck.builder.task import make_task
from potluck.config import ConfigError, RunConfig, as_tree, load
from potluck.evaluation import grade
from potluck.evaluation.request import SPLITS, EvaluationRequest, Settings, asked_as
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
from potluck.right import TASK, merged
from potluck.rollout.base import EngineSettings, GreedySampler, RandomSampler
from potluck.rollout.cache import require_repeatable
from potluck.rollout.hf import HFEngine
from potluck.tasks import Split, Task
from potluck.tasks.base import constant_worth_telling, environment_of, guess
from potluck.types import Problem
from potluck.version import __version__

EvaluationProgress = Callable[[str, str, int, int], None]
"""Called with (model and split, "greedy" or "samples", done, total)."""


class _Stopped(Exception):
    """A request to stop, at a moment when answers are written."""


def evaluate_models(
    request: EvaluationRequest,
    *,
    progress: EvaluationProgress,
    say: Callable[[str], None] = lambda text: None,
    stops: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Return everything that is found, as data for JSON.

    Args:
        progress: is told how far a model is.
        say: gets a line before an environment is graded, where a GPU stays unused, and where
            ``dtype`` is the slower one here.
        stops: whether to stop. What was found by then is returned, as ``partial``: each part of
            the problems that a model has answered greedily, with its samples if all were written;
            no ``splits`` if there is none.

    Raise PotluckError as ``resolved`` does."""

    def told(*step: Any) -> None:
        progress(*step)
        if stops():
            raise _Stopped

    if request.device == "auto" and (unused := unused_accelerator()):
        say(f"--device auto takes the CPU, as torch cannot use what seems to be {unused}")
    settings = request.resolved()
    config = settings.config
    if config.threads:
        torch.set_num_threads(config.threads)
    scores: dict[str, dict[Split, grade.ModelScores]] = {}
    task = make_task(config, trust_code=request.trust_code, run=settings.run, say=say)
    readers = {
        model: Reader.of(model, **texts_of(config, asked_as(config, model)))
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
    for doubt in doubts_on_evaluation(request.dtype, request.device):
        say(doubt)
    is_partial = False
    try:
        for letter, model in zip("AB", settings.models, strict=False):
            gc.collect()  # the model before leaves before the next one comes
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            label = f"{letter} " if request.against else ""
            scores[letter] = {}
            _answer(model, request, settings, task, problems, told, label, scores[letter])
    except _Stopped:
        is_partial = True
    answers = [a for each in scores.values() for its in each.values() for a in its.answers]
    answered = {
        split: {letter: its[split] for letter, its in scores.items() if split in its}
        for split in problems
        if any(split in its for its in scores.values())
    }
    rule, shown = config.right_rule, request.shown
    # One notion for all splits, and for the run that the model is of.
    binary = merged(grade.binary_of(answers), _binary_in_run(settings))
    tree: dict[str, Any] = json.loads(json.dumps(as_tree(config)))
    return {
        "potluck": __version__,
        "torch": torch.__version__,
        "models": dict(zip("AB", settings.models, strict=False)),
        "partial": is_partial,
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
            "stop_texts": list(config.sampling.stop_texts),
            "device": request.device,
            "dtype": request.dtype,
            "rows": settings.rows,
        },
        "splits": [
            {"split": split}
            | (summary := grade.summary(its, settings.k, rule=rule, binary=binary, shown=shown))
            | {"constant": _constant(task, config, problems[split], summary["right"])}
            for split, its in answered.items()
        ],
    }


def _binary_in_run(settings: Settings) -> dict[str, bool]:
    """Tell what the reward functions paid in the run whose rewards these are; else nothing."""
    run = settings.run
    if run is None or load(run / "recipe.json").reward != settings.config.reward:
        return {}
    return binary_in_run(run)


def _constant(
    task: Task, config: RunConfig, problems: Sequence[Problem], decides: str | None
) -> dict[str, Any] | None:
    """Tell what one answer to all problems would earn; None: little, or it is not known, as another
    function than the task's own grading decides what is right."""
    if decides != TASK or config.task.reward != "task" or environment_of(task):
        return None
    found = constant_worth_telling(problems)
    return found._asdict() | {"guess": guess(task, problems)} if found else None


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


def _answer(
    model: str,
    request: EvaluationRequest,
    settings: Settings,
    task: Task,
    problems: Mapping[Split, Sequence[Problem]],
    progress: EvaluationProgress,
    label: str,
    found: dict[Split, grade.ModelScores],
) -> None:
    """Load ``model`` and have it answer ``problems``, greedily and, where asked, in samples; put
    what it did into ``found`` as soon as it is there."""
    how = settings.config.sampling
    dtype = getattr(torch, request.dtype)
    policy = LanguageModel.load(
        model,
        device=request.device,
        stored=dtype,
        **texts_of(settings.config, asked_as(settings.config, model)),
    )
    most, there = (how.max_new_tokens, how.max_total_tokens), environment_of(task)
    as_trained = EngineSettings(*most, request.dtype, settings.rows, environment=there)
    engine = grade.evaluation_engine(HFEngine(policy, as_trained), settings.config)

    for split, asked in problems.items():
        ask = partial(grade.grade_samples, policy, engine, task, asked)
        greedy = ask(GreedySampler(), 1, partial(progress, f"{label}{split}", "greedy"))
        found[split] = grade.ModelScores(tuple(greedy), ())
        if settings.samples:
            seed = derived_seed(f"{request.seed}/{split}", byteorder="big")
            generator = torch.Generator(policy.device).manual_seed(seed)
            moved = partial(progress, f"{label}{split}", "samples")
            sampled = ask(RandomSampler(generator, how.drawing), settings.samples, moved)
            found[split] = grade.ModelScores(tuple(greedy), tuple(sampled))
