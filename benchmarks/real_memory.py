"""Memory of pretrained models on a CPU: what `potluck run --check` estimates, and measured peaks.

Nodes with real weights go through a run as users start it, in one process or each in its own.
Before each phase the kernel is asked to forget the process's high-water mark, so each has one of
its own; all that the process holds is in it: torch, the tokenizers, weights, moments. "all" is the
peak of the whole run, loading and saving included. Rewards are a hash of the tokens, so that nearly
every row teaches. Prompts are filled up to a length, and stop tokens do not end a completion: rows
are as long as the estimate takes them to be.

    python benchmarks/real_memory.py FOLDER                     # FOLDER/smol, FOLDER/gemma, ...
    python benchmarks/real_memory.py FOLDER --models smol --dtypes float32 --ways full
    python benchmarks/real_memory.py FOLDER --two               # two nodes, a process for each
    python benchmarks/real_memory.py FOLDER --drawn 3 --seed 7  # three settings drawn by lot

A setting takes about a minute. What needs more than --most-gib by its estimate is not run, and
printed with the estimate alone.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import harness
import transformers

import potluck
from potluck.builder.memory import (
    CPU_BYTES,
    GIB,
    Memory,
    Prompts,
    bytes_of_process,
    bytes_together,
    memory_of,
)
from potluck.config import LOCAL_SWARM, RunConfig, from_tree
from potluck.launch import rounds
from potluck.launch.in_process import join
from potluck.launch.local_swarm import prepare_local_swarm
from potluck.model import Reader
from potluck.model.loading import load_config
from potluck.model.policy import LanguageModel
from potluck.model.shape import shape_of
from potluck.node.learning.learner import Learner
from potluck.rollout.hf import HFEngine
from potluck.types import Problem

PHASES = ("writing", "learning", "evaluation")
PARTS = ("writing", "learning", "evaluating")
"""Their names in ``Memory``."""
HEAD = ("models", "type", "way", "rows x tokens", "phase", "estimate", "peak", "ratio")
ROWS = 40
"""Rows of the task: enough for a round's problems and the validation split."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One run whose memory is measured."""

    models: tuple[str, ...]
    """Names of folders; several: a node for each."""
    dtype: str = "float32"
    way: str = "full"
    """"full", "lora" or "recomputed" (full, with gradient checkpointing)."""
    apart: bool = False
    """True: a process for each node."""
    problems: int = 1
    group_size: int = 8
    prompt: int = 100
    """Length of the longest prompt, in tokens of the first model."""
    new_tokens: int = 32
    micro_batch_tokens: int = 600
    evaluated: int = 8
    rounds: int = 2

    @property
    def names(self) -> str:
        return " + ".join(self.models) + (", apart" if self.apart else "")

    @property
    def size(self) -> str:
        rows = self.problems * self.group_size
        return f"{rows} x {self.prompt}+{self.new_tokens} by {self.micro_batch_tokens}"


def recipe(setting: Setting, models: Path, data: Path) -> RunConfig:
    node = {
        "dtype": setting.dtype,
        "sampling_dtype": setting.dtype,
        "micro_batch_tokens": setting.micro_batch_tokens,
        "gradient_checkpointing": setting.way == "recomputed",
        "learning_rate": 1e-6,
        **({"lora": {}} if setting.way == "lora" else {}),
    }
    return from_tree(
        {
            "name": "memory",
            "rounds": setting.rounds,
            "problems_per_round": setting.problems,
            "group_size": setting.group_size,
            "threads": 1,
            "plan": "horizontal" if len(setting.models) > 1 else "vertical",
            "task": {"name": "jsonl", "path": str(data), "reward": "hash", "tags": False},
            "sampling": {"max_new_tokens": setting.new_tokens, "max_total_tokens": 4096},
            "evaluation": {"every": 0, "problems": setting.evaluated, "out_of_distribution": 0},
            "node": {name: {"model": str(models / name), **node} for name in setting.models},
        }
    )


def write_problems(setting: Setting, models: Path, data: Path) -> dict[str, int]:
    """Write questions whose prompts have between four fifths of ``setting.prompt`` and all of it;
    return the longest prompt of each model, in its own tokens."""
    readers = {name: Reader.of(str(models / name)) for name in setting.models}
    reader, dice, lines = readers[setting.models[0]], random.Random(0), []
    longest = dict.fromkeys(readers, 0)
    for number in range(ROWS):
        words = [str(number)]
        most = setting.prompt if number % 2 else round(dice.uniform(0.8, 1.0) * setting.prompt)
        while len(reader.prompt(Problem("p", " ".join([*words, *["and"] * 4]), ""))) <= most:
            words += dice.choices(("tree", "house", "river", "and", "seven", "cloud"), k=4)
        question = " ".join(words)
        lines.append(json.dumps({"question": question, "answer": number}))
        for name, each in readers.items():
            prompt_P = each.prompt(Problem("p", question, ""))
            longest[name] = max(longest[name], len(prompt_P))
    data.write_text("\n".join(lines) + "\n")
    return longest


def estimates(
    setting: Setting, config: RunConfig, models: Path, longest: Mapping[str, int]
) -> list[dict[str, float]]:
    """GiB of each phase of each process, as ``--check`` adds them up."""
    nodes = []
    for name in setting.models:
        shape = shape_of(load_config(str(models / name)))
        prompts = Prompts(mean=longest[name], longest=longest[name])
        nodes.append(memory_of(config, name, shape, prompts, gpu=False))
    found: list[dict[str, float]] = [{} for _ in (nodes if setting.apart else [nodes])]
    for phase, part in zip(PHASES, PARTS, strict=True):
        alone = [_only(node, part) for node in nodes]
        if setting.apart:
            needs = [CPU_BYTES + bytes_of_process(node, alone) for node in alone]
        else:
            needs = [bytes_together(alone, apart=False, overhead=CPU_BYTES)]
        for of_process, bytes_needed in zip(found, needs, strict=True):
            of_process[phase] = bytes_needed / GIB
    return found


def _only(node: Memory, part: str) -> Memory:
    """Leave out the phases of a node but one."""
    others = {*PARTS} - {part}
    return replace(node, **dict.fromkeys(others, 0))


def measured(setting: Setting, config: RunConfig, folder: Path) -> list[dict[str, Any]]:
    """What each process told of itself."""
    if setting.apart:
        prepare_local_swarm(config, folder)
    asked = list(config.node) if setting.apart else [""]
    words = [sys.executable, __file__, "--child", str(folder), "--node"]
    (folder.parent / "recipe.json").write_text(json.dumps(potluck.config.as_tree(config)))
    started = [
        subprocess.Popen(
            [*words, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # one core each, however many are there
        )
        for name in asked
    ]
    told = []
    for process in started:
        out, err = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{setting} ended with {process.returncode}:\n{err[-4000:]}")
        told.append(json.loads(out.splitlines()[-1]))
    return told


class Marks:
    """The highest mark of each phase of this process, and of all between them, in GiB."""

    def __init__(self) -> None:
        self.peak: dict[str, float] = {}
        self._is_inside = False

    def watch(self, owner: Any, name: str, phase: str) -> None:
        """Have every call of a function counted, unless it is within another phase."""
        inner: Callable[..., Any] = getattr(owner, name)

        @wraps(inner)
        def outer(*given: Any, **named: Any) -> Any:
            if self._is_inside:
                return inner(*given, **named)
            self._is_inside = True
            self.keep("between")
            try:
                return inner(*given, **named)
            finally:
                self.keep(phase)
                self._is_inside = False

        setattr(owner, name, outer)

    def keep(self, phase: str) -> None:
        """Keep the mark of a phase that is over, and begin another one."""
        mark = harness.status_mb("VmHWM") / 1024
        self.peak[phase] = max(self.peak.get(phase, 0.0), mark)
        harness.forget_peak_mb()


def child(folder: Path, node: str) -> None:
    """Go through a run, or through the part of ``node`` in it; print the marks."""
    marks = Marks()
    marks.watch(HFEngine, "generate", "writing")
    marks.watch(Learner, "learn", "learning")
    marks.watch(rounds, "evaluate", "evaluation")
    load = LanguageModel.__init__

    def endless(policy: LanguageModel, *given: Any, **named: Any) -> None:
        load(policy, *given, **named)
        policy.stop_ids = frozenset()

    LanguageModel.__init__ = endless  # type: ignore[method-assign]
    if node:
        config = potluck.config.load(folder / LOCAL_SWARM / "recipe.json")
        join(config, node, folder, display=None, all_here=True)
    else:
        config = potluck.config.load(folder.parent / "recipe.json")
        potluck.run(config, folder, display=None)
    marks.keep("between")
    print(json.dumps({"peak": marks.peak}))


def table_of(
    settings: Sequence[Setting], models: Path, most_gib: float
) -> Iterator[tuple[str, ...]]:
    for setting in settings:
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary)
            longest = write_problems(setting, models, place / "problems.jsonl")
            config = recipe(setting, models, place / "problems.jsonl")
            estimated = estimates(setting, config, models, longest)
            fits = sum(max(each.values()) for each in estimated) <= most_gib
            told = measured(setting, config, place / "run") if fits else [None] * len(estimated)
        for at, (each, found) in enumerate(zip(estimated, told, strict=True)):
            names = f"{setting.names}: {setting.models[at]}" if setting.apart else setting.names
            each["all"] = max(each.values())
            for phase, estimate in each.items():
                cells = names, setting.dtype, setting.way, setting.size, phase, f"{estimate:.2f}"
                if found:
                    marks = found["peak"].values() if phase == "all" else [found["peak"][phase]]
                    yield (*cells, f"{max(marks):.2f}", f"{estimate / max(marks):.2f}")
                else:
                    yield (*cells, "-", "-")


def drawn(count: int, seed: int, models: Sequence[str]) -> list[Setting]:
    dice = random.Random(seed)
    return [
        Setting(
            models=(dice.choice(models),),
            dtype=dice.choice(("float32", "bfloat16")),
            way=dice.choice(("full", "lora", "recomputed")),
            problems=dice.choice((1, 2, 3)),
            group_size=dice.choice((4, 6, 8)),
            prompt=dice.randrange(60, 300),
            new_tokens=dice.randrange(8, 80),
            micro_batch_tokens=dice.choice((400, 800, 1600, 4096)),
            evaluated=dice.choice((2, 8, 24)),
        )
        for _ in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder of the models' folders")
    parser.add_argument("--models", nargs="+", default=["smol", "gemma", "qwen05"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--ways", nargs="+", default=["full", "lora"])
    parser.add_argument("--two", action="store_true", help="all models in one run, a process each")
    parser.add_argument("--one-process", action="store_true", help="all models in one run")
    parser.add_argument("--set", nargs="*", default=[], help="KEY=VALUE of a Setting")
    parser.add_argument("--drawn", type=int, default=0, help="number of settings drawn by lot")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-gib", type=float, default=11.0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--node", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    if options.child:
        child(options.child, options.node)
        return
    together = options.two or options.one_process
    runs = [tuple(options.models)] if together else [(name,) for name in options.models]
    changed = {key: int(value) for key, _, value in (each.partition("=") for each in options.set)}
    settings = drawn(options.drawn, options.seed, options.models) or [
        Setting(models=models, dtype=dtype, way=way, apart=options.two, **changed)
        for models in runs
        for dtype in options.dtypes
        for way in options.ways
    ]
    for row in (HEAD, ("---",) * len(HEAD)):
        print(f"| {' | '.join(row)} |", flush=True)
    for row in table_of(settings, options.folder, options.most_gib):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
