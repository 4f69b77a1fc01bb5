"""Loads one model after the other and has each answer the same problems.

The larger of two models has to fit, not both. They need not share a tokenizer: each answers
in tokens of its own.
"""

import gc
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from potluck import __version__
from potluck.assemble import make_task
from potluck.config import ConfigError, RunConfig, as_tree
from potluck.evaluation.measures import Sheet, summary
from potluck.evaluation.request import SPLITS, Request, Settings, as_options
from potluck.node import UNBOUNDED, Answers, answer, first_problems
from potluck.node.record import write_whole
from potluck.rollout import Draw, Engine, Greedy, HFEngine, LanguageModel, Sampled
from potluck.rollout.loading import load_config, load_tokenizer
from potluck.tasks import Split, Task
from potluck.types import Problem

# There is a display; a bar for each file that is loaded only tears it.
transformers.logging.disable_progress_bar()

Progress = Callable[[str, str, int, int], None]
"""Called with (whose and what problems, what is done, how many of them, of how many)."""


def evaluate_models(request: Request, *, progress: Progress) -> dict[str, Any]:
    """Everything that is found, as data for JSON; ``dashboard.show_evaluation`` prints it.

    Raises:
        ConfigError: the request contradicts itself, or there is nothing to evaluate on.
        PotluckError: a model or data that cannot be loaded, a prompt without room.
    """
    settings = request.resolved()
    config = settings.config
    if config.threads:
        torch.set_num_threads(config.threads)
    with as_options():
        task = make_task(config, trust_code=request.trust_code)
        problems = _problems(task, config, request.split)
        for model in settings.models[1:]:
            # What is wrong with it is said before the first one has worked for an hour.
            load_config(model)
            load_tokenizer(model)
        sheets: dict[str, dict[Split, Sheet]] = {}
        for letter, model in zip("AB", settings.models, strict=False):
            if sheets:
                _forget()

            def moved(split: str, what: str, done: int, total: int, who: str = letter) -> None:
                progress(f"{who} {split}" if request.against else split, what, done, total)

            sheets[letter] = _answered(model, request, settings, task, problems, moved)
    return _told(request, settings, task) | {
        "splits": [
            {"split": split}
            | summary({who: each[split] for who, each in sheets.items()}, settings.k)
            for split in problems
        ]
    }


def require_writable(file: Path) -> None:
    """Raises ConfigError: nothing can be written there, which is better known beforehand."""
    if file.is_dir() or not file.parent.is_dir():
        what = "is a folder" if file.is_dir() else f"cannot be: there is no folder {file.parent}"
        raise ConfigError(f"--json {file} {what}; name a file in a folder that is there")


def write_report(found: dict[str, Any], file: Path) -> None:
    """The whole file, or the one that stood there before."""
    write_whole(file, (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())


def _problems(task: Task, config: RunConfig, wanted: str) -> dict[Split, list[Problem]]:
    """Those of each split that is asked for and has any."""
    counts = (config.evaluation.problems, config.evaluation.out_of_distribution)
    found = {
        split: first_problems(task, split, count)
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
    request: Request,
    settings: Settings,
    task: Task,
    problems: Mapping[Split, Sequence[Problem]],
    progress: Progress,
) -> dict[Split, Sheet]:
    config = settings.config
    dtype = getattr(torch, request.dtype)
    language = LanguageModel.load(
        model, device=request.device, stop=config.sampling.stop, stored=dtype
    )
    engine: Engine = HFEngine(
        language,
        max_new_tokens=settings.max_new_tokens,
        # As in a run: a limit of the evaluation's own is bounded by the model's context alone.
        max_total_tokens=(
            UNBOUNDED if config.evaluation.max_new_tokens else config.sampling.max_total_tokens
        ),
        dtype=dtype,
        rows=settings.rows,
    )

    def answers(split: Split, draw: Draw, count: int, what: str) -> tuple[Answers, ...]:
        def moved(done: int, total: int) -> None:
            progress(split, what, done, total)

        asked = problems[split]
        return tuple(answer(language, engine, task, asked, draw, count=count, progress=moved))

    def sampled(split: Split) -> tuple[Answers, ...]:
        if not settings.samples:
            return ()
        raw = hashlib.sha256(f"{request.seed}/{split}".encode()).digest()
        dice = torch.Generator(language.device).manual_seed(int.from_bytes(raw[:8], "big") >> 1)
        how = config.sampling
        draw = Sampled(dice, how.temperature, how.top_k, how.top_p)
        return answers(split, draw, settings.samples, "samples")

    return {
        split: Sheet(answers(split, Greedy(), 1, "greedy"), sampled(split)) for split in problems
    }


def _forget() -> None:
    """The model before is to be gone before the next one comes: in cycles, and on the card."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _told(request: Request, settings: Settings, task: Task) -> dict[str, Any]:
    """What was asked, of whom, and by which code."""
    tree: dict[str, Any] = json.loads(json.dumps(as_tree(settings.config)))
    sampling = settings.config.sampling
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
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "seed": request.seed,
            "max_new_tokens": settings.max_new_tokens,
            "stop": list(sampling.stop),
            "device": request.device,
            "dtype": request.dtype,
            "rows": settings.rows,
        },
    }
