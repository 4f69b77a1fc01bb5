"""What every benchmark shares: the model, forced lengths, interleaved timing, the table.

Two things are never compared across runs. The machine may be shared, so contenders take
turns inside one run and what is reported is the ratio of their medians; absolute times
are in the result files, but belong to that machine and that hour.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from potluck.intervals import t_interval
from potluck.model import LanguageModel
from potluck.rollout.base import RolloutRequest, Sampler
from potluck.types import Problem

RESULTS = Path(__file__).parent / "results"
VOCABULARY = 8192
SHAPE = "Qwen2, 8 layers, hidden 256, MLP 1024, 4 heads (2 for keys), vocabulary 8192, tied: 10.0M"


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts, and how long each completion will be."""

    name: str
    requests: tuple[RolloutRequest, ...]
    """Shortest prompt first, so rows stand in one order on every side."""
    length_N: tuple[int, ...]
    """Tokens of each completion, the stop token included; order after order."""

    @property
    def title(self) -> str:
        return f"{self.name}, {len(self.length_N)} rows, {sum(self.length_N)} tokens"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a result table."""

    what: str
    measured: float
    low: float
    """Of single repetitions, as ``high``: the spread."""
    high: float
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}{self.unit}"
        return "-" if self.at_most is None else f"<= {self.at_most:g}{self.unit}"

    @property
    def verdict(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        low, high = self.at_least or -np.inf, np.inf if self.at_most is None else self.at_most
        return "PASS" if low <= self.measured <= high else "NOT REACHED"


def mean_row(what: str, values: Sequence[float], unit: str = "", **target: float) -> Row:
    """A mean and its 95 % interval by Student's t; of one value the value alone."""
    if len(values) == 1:
        return Row(what, values[0], values[0], values[0], unit, **target)
    found = t_interval(values)
    return Row(what, found.value, found.low, found.high, unit, **target)


def language_model() -> LanguageModel:
    """A random model of 10M parameters whose words are ``w0`` .. ``w8189``."""
    torch.manual_seed(0)
    network = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=256,
            intermediate_size=1024,
            num_hidden_layers=8,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=VOCABULARY - 2,
            pad_token_id=VOCABULARY - 1,
        )
    )
    return LanguageModel(network, tokenizer(VOCABULARY))


def tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """One whose words are ``w0``, ``w1`` and so on, and whose last two ids are stop and pad."""
    words = [f"w{i}" for i in range(vocabulary - 2)] + ["<stop>", "<pad>"]
    whole = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="w0"))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=whole, eos_token="<stop>", pad_token="<pad>", padding_side="left"
    )


def workloads(quick: bool, *, problems: int, group_size: int) -> list[Workload]:
    """Short prompts with long completions, and the shape of GSM8K; one tiny one if ``quick``."""
    if quick:
        return [workload(problems, group_size, prompt=12, longest=8, mean=4)]
    return [
        workload(problems, group_size, prompt=32, longest=64, mean=29),
        workload(problems, group_size, prompt=163, longest=32, mean=14.5),
    ]


def workload(
    problems: int, group_size: int, *, prompt: int, longest: int, mean: float, seed: int = 0
) -> Workload:
    """Prompts of ``prompt`` words give or take 20 %, completions of lognormal length.

    A model that nobody trained would stop at random; real ones write completions of
    which a few are several times as long as most. So lengths are drawn here (sigma 0.6,
    cut at ``longest``, scaled to ``mean``), and forced alike on every contender.
    """
    generator = np.random.default_rng(seed)
    sizes = np.linspace(0.8 * prompt, 1.2 * prompt, problems).round().astype(int)
    requests = []
    for i, size in enumerate(sizes):
        words = " ".join(f"w{word}" for word in generator.integers(0, VOCABULARY - 2, size))
        requests.append(RolloutRequest(Problem(f"bench/{i}", words, ""), group_size))
    raw_N = np.exp(0.6 * generator.standard_normal(problems * group_size))
    low, high = 0.0, float(longest)
    for _ in range(60):  # bisection: cutting off the longest makes the scale no closed formula
        scale = (low + high) / 2
        length_N = (scale * raw_N).round().clip(2, longest).astype(int)
        low, high = (scale, high) if length_N.mean() < mean else (low, scale)
    return Workload(f"prompt {prompt}", tuple(requests), tuple(length_N.tolist()))


class ForcedDraw:
    """Draws as ``sampler`` does, but each row stops where it was told to, and nowhere else.

    Rows that have ended leave the batch, not always at once. A batch that has shrunk since
    the last call lost exactly the rows that had ended by then.
    """

    def __init__(self, sampler: Sampler, length_N: Sequence[int], stop: int) -> None:
        self._draw, self._stop = sampler, stop
        self._length_N, self._step = torch.tensor(length_N), 0

    def __call__(self, logits_NV: Tensor) -> tuple[Tensor, Tensor]:
        if len(logits_NV) < len(self._length_N):
            self._length_N = self._length_N[self._length_N > self._step]
        self._step += 1
        logits_NV[:, self._stop] = -torch.inf
        token_N, logp_N = self._draw(logits_NV)
        ends_N = self._length_N == self._step
        return token_N.masked_fill(ends_N, self._stop), logp_N.masked_fill(ends_N, 0.0)


class ForcedScores(transformers.LogitsProcessor):
    """The same for ``generate``, which keeps rows that have ended."""

    def __init__(self, length_N: Sequence[int], stop: int, *, prompt: int) -> None:
        self._length_N, self._stop, self._prompt = torch.tensor(length_N), stop, prompt

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores[:, self._stop] = -torch.inf
        ends = (self._length_N == input_ids.shape[1] - self._prompt + 1).nonzero().squeeze(1)
        if len(ends):
            scores[ends] = -torch.inf
            scores[ends, self._stop] = 0.0
        return scores


def take_turns(
    contenders: Mapping[str, Callable[[], float | None]], repetitions: int, title: str
) -> dict[str, list[float]]:
    """Seconds of each contender, of ``repetitions`` turns after one to warm up.

    A contender may return its seconds itself, else its call is timed. Who begins
    changes from turn to turn.
    """
    names, seconds = list(contenders), {name: [] for name in contenders}
    for turn in range(repetitions + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = time.perf_counter()
            told = contenders[name]()
            spent = time.perf_counter() - start if told is None else told
            if turn:
                seconds[name].append(spent)
            say(f"{title}: turn {turn}/{repetitions}, {name} {spent:.2f} s")
    say("")
    return seconds


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    """(ratio of medians, smallest, largest ratio of one turn)."""
    single = [a / b for a, b in zip(above, below, strict=True)]
    return statistics.median(above) / statistics.median(below), min(single), max(single)


def say(line: str) -> None:
    """Progress: over itself on a screen, and silent in a file."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def forget_peak_mb() -> float:
    """Sets this process's high-water mark to what is resident now, and returns that."""
    Path("/proc/self/clear_refs").write_text("5")
    return status_mb("VmRSS")


def status_mb(key: str) -> float:
    """A line of /proc/self/status: VmRSS, what is resident, or VmHWM, its high-water mark."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def run(
    name: str, measure: Callable[[bool], tuple[list[Row], object]], *, model: str = SHAPE
) -> None:
    """The command line of one benchmark: measures, prints the table, keeps the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a smoke run; its numbers mean little")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    # Now, as the working tree may be another one when all is measured.
    place, start = where_and_when(), time.perf_counter()
    rows, raw = measure(quick)
    result = {
        "name": name,
        "quick": quick,
        **place,
        "model": model,
        "minutes": round((time.perf_counter() - start) / 60, 2),
        "rows": [{**asdict(row), "verdict": row.verdict} for row in rows],
        "raw": raw,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    show(name, rows, quick)


def show(name: str, rows: Sequence[Row], quick: bool) -> None:
    title = f"{name} (smoke run: the numbers mean little)" if quick else name
    table = Table("what", "measured", "min .. max", "target", "", title=title)
    for row in rows:
        spread = f"{row.low:.2f} .. {row.high:.2f}"
        table.add_row(row.what, f"{row.measured:.2f}{row.unit}", spread, row.target, row.verdict)
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def where_and_when() -> dict[str, object]:
    """What a number in a README must have behind it."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} used",
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return platform.processor() or platform.machine()


def _commit() -> str:
    git = ["git", "-C", str(RESULTS.parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        dirty = subprocess.run([*git, "status", "--porcelain", "../src"], capture_output=True)
    except OSError:
        return "unknown"
    return commit.stdout.strip() + (" and changes" if dirty.stdout else "")
