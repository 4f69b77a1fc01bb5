"""Time that bfloat16 costs this machine's processor, or would save, measured before a run begins.

A processor with instructions for it (AVX512-BF16, AMX) multiplies matrices in bfloat16 faster than
in float32; one without computes the same, many times slower, and nothing else says so.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

from potluck.config import NodeConfig, RunConfig
from potluck.model.loading import auto_device
from potluck.rollout.options import HFOptions

ROWS, WIDTH = 32, 1024
"""Tokens, and numbers of each, of the layer that is tried."""
REPEATS = 10
"""Times that it is tried in each format, at most; the fastest one counts."""
ENOUGH_S = 0.1
"""Seconds after which the second time is the last."""
WORTH_TELLING = 1.3
"""Times from which the formats differ by more than a busy machine's noise."""

PhaseProducts = tuple[Callable[[Tensor, Tensor, Tensor], Tensor], ...]
"""Products of a layer, each of its input, its weight and the gradient of its output."""
FORWARD: PhaseProducts = (lambda x, weight, gradient: linear(x, weight),)
BACKWARD: PhaseProducts = (
    lambda x, weight, gradient: gradient @ weight,
    lambda x, weight, gradient: gradient.T @ x,
)
PRODUCTS = {"writing": FORWARD, "learning": FORWARD + BACKWARD}
"""Products of each phase. Without such instructions one of the backward pass, gradient @ weight,
takes far longer than the others."""
PHASES = {"dtype": "learning", "sampling_dtype": "writing"}
"""Phase that computes in the format which a key of a node names."""


@cache
def times_as_long(phase: str) -> float | None:
    """Measure how many times as long the matrix products of a layer take this processor in bfloat16
    as in float32, in a ``phase`` of PRODUCTS; None where that cannot be measured.

    It takes some tenths of a second where bfloat16 is slow, else some milliseconds.
    """
    try:
        times = _measured(PRODUCTS[phase])
    except Exception:  # builds of torch lack this and that, and a line is not worth a run
        return None
    return times if 0 < times < math.inf else None


@torch.no_grad()
def _measured(products: PhaseProducts) -> float:
    # No random numbers: the run's would be other ones.
    layers = {
        dtype: (
            torch.ones(ROWS, WIDTH, dtype=dtype),
            torch.ones(WIDTH, WIDTH, dtype=dtype),
            torch.ones(ROWS, WIDTH, dtype=dtype),
        )
        for dtype in (torch.float32, torch.bfloat16)
    }
    fastest_s = dict.fromkeys(layers, math.inf)
    begun = time.perf_counter()
    for repeat in range(REPEATS):
        # The first time fetches memory and code; then the formats take turns, as others may take
        # the processor for a while.
        if repeat > 1 and time.perf_counter() - begun > ENOUGH_S:
            break
        for dtype, layer in layers.items():
            start = time.perf_counter()
            for product in products:
                product(*layer)
            fastest_s[dtype] = min(fastest_s[dtype], time.perf_counter() - start)
    return fastest_s[torch.bfloat16] / fastest_s[torch.float32]


def doubts_on_bfloat16(config: RunConfig) -> Iterator[str]:
    """Yield a line on each key by which nodes on this processor compute in bfloat16, if float32 is
    faster here."""
    for key, phase in PHASES.items():
        if names := _nodes_on_cpu(config, key, "bfloat16"):
            times = times_as_long(phase)
            if times and times >= WORTH_TELLING:
                yield f'{names}: {key} = "bfloat16": {_slower(phase, times)}; set {key} = "float32"'


def advice_on_bfloat16(config: RunConfig) -> Iterator[str]:
    """Yield a line on nodes that write in float32 on this processor, if bfloat16 is faster here."""
    if names := _nodes_on_cpu(config, "sampling_dtype", "float32"):
        times = times_as_long("writing")
        if times and 1 / times >= WORTH_TELLING:
            yield (
                f'{names}: sampling_dtype = "bfloat16" would be faster: matrix products of writing '
                f"take this processor {_number(1 / times)} times as long in float32. It rounds "
                f"log-probabilities, by .02 to .05 nats a token with pretrained models "
                f"(docs/memory.md)"
            )


def doubts_on_evaluation(dtype: str, device: str) -> Iterator[str]:
    """Yield a line if an evaluation computes in bfloat16 on this processor, and float32 is faster
    here."""
    if dtype == "bfloat16" and _is_cpu(device):
        times = times_as_long("writing")
        if times and times >= WORTH_TELLING:
            yield f"--dtype bfloat16: {_slower('writing', times)}; --dtype float32 is faster"


def _slower(phase: str, times: float) -> str:
    return (
        f"matrix products of {phase} take this processor {_number(times)} times as long as in "
        f"float32"
    )


def _nodes_on_cpu(config: RunConfig, key: str, dtype: str) -> str:
    """Name the nodes that compute on this processor in ``dtype``, by ``key``; "": none does."""
    here: Mapping[str, NodeConfig] = config.trained_here
    return ", ".join(
        name
        for name, node in here.items()
        if _is_cpu(node.device)
        and getattr(node, key) == dtype
        # A server writes in a format of its own.
        and (key != "sampling_dtype" or isinstance(node.engine, HFOptions))
    )


def _is_cpu(device: str) -> bool:
    chosen = auto_device() if device == "auto" else device
    return chosen.partition(":")[0] == "cpu"


def _number(times: float) -> str:
    return f"{times:.0f}" if times >= 10 else f"{times:.1f}"
