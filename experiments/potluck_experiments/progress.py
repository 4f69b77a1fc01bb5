"""Which cells are finished, stale or missing, and the time they take. Imports no torch."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, Self

import msgspec

import potluck
from potluck.files import write_atomically
from potluck_experiments.cells import CellSpec, Reuse
from potluck_experiments.origin import changed_since
from potluck_experiments.results import CellResult, read_result
from potluck_experiments.suite import ExperimentError, Scale, Suite

TELL_EVERY_S = 15.0
"""Time after which progress.json is written again: an old one is what a killed command left."""

CellState = Literal["to run", "stale", "finished"]
"""State of a cell; a stale one was finished with other code."""

# A GPU's hours are an estimate that no run was held against. What it assumes:
COMPLETION, PROMPT = 300.0, 160.0  # tokens in the mean
LEARNING_SHARE, WRITING_SHARE, MEMORY_SHARE = 0.35, 0.3, 0.6  # of the peaks that are reached
LAUNCH_S = 0.6e-3  # to launch a layer's kernels: 20 to 30 a layer, without CUDA graphs
CACHE_PASSES, LOGIT_BYTES = 3, 48  # times a step moves the cache, bytes that sampling moves a logit
GPUS = {"H200": (989e12, 4.8e12), "RTX 4090": (165e12, 1.008e12)}
"""The makers' peaks: bfloat16 operations and bytes a second."""
SHAPES = {"1.5B": (1_543_714_304, 28), "3B": (3_085_938_688, 36)}
"""Parameters and layers of Qwen2.5 and Qwen2.5-Coder. Source: arXiv:2412.15115, table 1."""
KEYS, VOCABULARY = 256, 151_936  # of both sizes; keys a token and layer


class CellStates(NamedTuple):
    """The state of each cell, by its name."""

    state: Mapping[str, CellState]
    changed: Mapping[str, tuple[str, ...] | None]
    """Files changed since each finished cell ran; None: git cannot tell, it counts as fresh."""
    reuse: Reuse

    def is_to_run(self, cell: CellSpec) -> bool:
        reused = {"all": ("stale", "finished"), "fresh": ("finished",), "none": ()}[self.reuse]
        return self.state[cell.name] not in reused


def states_of(suite: Suite, cells: Sequence[CellSpec], reuse: Reuse) -> CellStates:
    """Read the results and ask git. Raises ExperimentError: a result cannot be read."""
    found = [(cell, read_result(suite.folder, cell)) for cell in cells]
    changed = changed_since(suite.folder, [(cell, result) for cell, result in found if result])
    state: dict[str, CellState] = {cell.name: "to run" for cell in cells}
    state |= {name: "stale" if files else "finished" for name, files in changed.items()}
    return CellStates(state, changed, reuse)


class ToldProgress:
    """A file beside the cells as long as they run, for ``potluck watch``: progress.json."""

    def __init__(self, folder: Path, cells: Sequence[CellSpec]) -> None:
        self.running: set[str] = set()
        """Names of the cells that run; their threads change it."""
        place = folder / "cells" / cells[0].scale
        self._file = place / "progress.json"
        names = {file.stem for file in place.glob("*.json")} | {cell.name for cell in cells}
        names.discard("progress")
        self._total = Counter(name.partition(".")[0] for name in names)
        self._told: tuple[set[str], float] = (set(), 0.0)

    def __enter__(self) -> Self:
        self.write()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.unlink(missing_ok=True)

    def write(self) -> None:
        """Write it if it has changed, or is older than TELL_EVERY_S."""
        now_s, running = time.time(), self.running.copy()
        if running == self._told[0] and now_s - self._told[1] < TELL_EVERY_S:
            return
        self._told = (running, now_s)
        tree = {"total": self._total, "running": sorted(running), "time_s": now_s}
        with suppress(OSError):  # the cells matter more
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, msgspec.json.encode(tree))


class Estimates:
    """Core time of cells, from every result that a scale has. A round of half the problems counts
    as half a round."""

    def __init__(self, suite: Suite, scale: Scale) -> None:
        self._share = {name: setting.problems for name, setting in suite.settings.items()}
        found: dict[object, list[float]] = {}
        for file in sorted((suite.folder / "cells" / scale).glob("*.json")):
            # Reading the result says what is wrong with it.
            with suppress(OSError, msgspec.MsgspecError, StopIteration):
                it = msgspec.json.decode(file.read_bytes(), type=CellResult)
                sampled = next(iter(it.node.values())).sampled
                rounds = len(sampled) * self._share.get(it.setting, 1.0)
                found.setdefault((it.family, it.models, it.setting), []).append(it.cpu_s)
                found.setdefault((it.family, len(it.models)), []).append(it.cpu_s / max(rounds, 1))
        self._mean_s = {key: fmean(all_s) for key, all_s in found.items()}

    def seconds(self, cell: CellSpec) -> float | None:
        """Return the mean over other seeds, else scale runs of as many models; None: unknown."""
        same_s = self._mean_s.get((cell.family, cell.models, cell.setting))
        per_round_s = self._mean_s.get((cell.family, len(cell.models)))
        if same_s is not None or per_round_s is None:
            return same_s
        return per_round_s * cell.config.rounds * self._share[cell.setting]

    def minutes(self, cells: Sequence[CellSpec]) -> str:
        """Return the sum: "14", ">= 7" where some are unknown, or "?"."""
        known_s = [one_s for one_s in map(self.seconds, cells) if one_s is not None]
        least = ">= " if len(known_s) < len(cells) else ""
        return f"{least}{sum(known_s) / 60:.0f}" if known_s or not cells else "?"


def longest_first(suite: Suite, cells: Sequence[CellSpec]) -> list[CellSpec]:
    """Order seed by seed, the longest first, so that all cores are done at about the same time."""
    estimates = Estimates(suite, cells[0].scale)
    known = {cell.name: estimates.seconds(cell) for cell in cells}
    if None in known.values():  # guesses among measurements order nothing
        known = {cell.name: len(cell.models) * cell.config.rounds for cell in cells}
    return sorted(cells, key=lambda cell: (cell.seed, -(known[cell.name] or 0.0)))


def hours_of(config: potluck.RunConfig, gpu: str) -> float:
    """Estimate one cell on one of GPUS, all of its nodes one after the other.

    Learning takes 6 operations a weight and token, 8 where activations are computed again; adapters
    4 and 6, as frozen weights have no gradient. Evaluating is writing, of more at the end.
    """
    evaluation, sampling, total_s = config.evaluation, config.sampling, 0.0
    every = config.problems_per_round * config.group_size
    most = min(sampling.max_new_tokens, sampling.max_total_tokens - PROMPT)
    asked = evaluation.max_new_tokens or most
    times = 1 + (math.ceil(config.rounds / evaluation.every) if evaluation.every else 0)
    for node in config.node.values():
        size = node.model.rpartition("-")[2]
        if size not in SHAPES or not node.model.startswith("Qwen/Qwen2.5-"):
            raise ExperimentError(f"the shape of {node.model} is not known; add it to {__file__}")
        passes = 2 * (1 + node.gradient_checkpointing) + (2 if node.lora else 4)
        operations = passes * SHAPES[size][0] * every * (PROMPT + min(COMPLETION, most))
        learning_s = operations / (LEARNING_SHARE * GPUS[gpu][0])
        writing_s = _writing_s(node, gpu, every / len(config.node), most)
        total_s += config.rounds * (config.objective.updates_per_round * learning_s + writing_s)
        total_s += times * _writing_s(node, gpu, evaluation.problems, asked)
        total_s += _writing_s(node, gpu, evaluation.out_of_distribution, asked)
    return total_s / 3600


def _writing_s(node: Any, gpu: str, rows: float, most: float) -> float:
    """Return the seconds to write ``rows`` completions of at most ``most`` tokens, a batch of
    ``sampling_rows`` at a time: the launches of all steps, or memory and arithmetic if longer."""
    parameters, layers = SHAPES[node.model.rpartition("-")[2]]
    each, (operations_per_s, bytes_per_s) = 2 if "16" in node.sampling_dtype else 4, GPUS[gpu]
    length, steps = min(COMPLETION, most), -(-rows // node.sampling_rows) * most
    # The cache of the prompt, and in the mean half the completion, at each of its tokens.
    cache = 2 * KEYS * layers * each * (PROMPT + length / 2)
    moved = CACHE_PASSES * cache + VOCABULARY * (each + LOGIT_BYTES)
    through_s = (steps * parameters * each + rows * length * moved) / (MEMORY_SHARE * bytes_per_s)
    computing_s = 2 * parameters * rows * (PROMPT + length) / (WRITING_SHARE * operations_per_s)
    return float(max(steps * layers * LAUNCH_S, through_s + computing_s))
