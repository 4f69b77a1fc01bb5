"""What scoring costs in memory: log-probabilities in chunks against all logits at once.

A micro-batch as the default recipe makes it of rows of 700 tokens: 4,096 tokens are 5 rows,
each of 188 read and 512 written. One forward and one backward pass, float32, gradient
checkpointing on in both. The plain path is the one that the chunks replaced: the head sees
the positions that predict something, and no others, and cross_entropy takes their logits
in one piece.

Memory is the resident set's high-water mark less what is resident with the model loaded:
"first" with nothing but weights there, so that the gradients are part of the peak, "later"
with the gradients of the micro-batches before already there. The head's part is the peak
less that of a pass whose loss is the sum of the hidden states. As that pass has a peak of
its own, elsewhere, "alone" is the head on hidden states that are given, without a body.

Each case has a process of its own, with malloc told to give large pieces back at once, so
that the high-water mark is what was alive and not what was kept for later.

    python benchmarks/memory.py [--quick]
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import harness
import torch
from harness import Row
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from potluck.config import NodeConfig
from potluck.model.inputs import WholeRows
from potluck.model.policy import Scorer

SHAPE = "Qwen2, 4 layers, hidden 896, MLP 4864, 14 heads (2 for keys), vocabulary 151936, tied"
BUDGET = NodeConfig(model="-").micro_batch_tokens
WRITTEN_SHARE = 512 / 700
PLAIN_MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
TURNS = 2
CASES = ("plain", "chunked", "body", "alone")


def measure(quick: bool) -> tuple[list[Row], object]:
    short, long = (35, 70) if quick else (350, 700)
    turns = 1 if quick else TURNS
    raw: dict[str, list[dict[str, float]]] = {}
    for turn in range(turns):
        for case in CASES:
            for tokens in (long,) if case == "plain" else (short, long):
                harness.say(f"memory: turn {turn + 1}/{turns}, {case} {tokens}")
                raw.setdefault(f"{case} {tokens}", []).append(_process(case, tokens, quick))
    harness.say("")

    def seen(case: str, tokens: int, what: str) -> list[float]:
        return [told[what] for told in raw[f"{case} {tokens}"]]

    def head(tokens: int, what: str) -> list[float]:
        pairs = zip(seen("chunked", tokens, what), seen("body", tokens, what), strict=True)
        return [whole - body for whole, body in pairs]

    rows = []
    for what in ("first", "later"):
        plain, chunked = seen("plain", long, what), seen("chunked", long, what)
        times = f"{long} tokens, {what} micro-batch: "
        rows += [
            Row(times + "peak, of the plain path's", *harness.ratio(chunked, plain), at_most=0.5),
            _of(times + "peak of the plain path", plain, " MiB"),
            _of(times + "peak in chunks", chunked, " MiB"),
            _growth(f"{what}: head's part, {short} to {long}", head(short, what), head(long, what)),
            _growth(
                f"{what}: head alone, {short} to {long}",
                seen("alone", short, what),
                seen("alone", long, what),
            ),
        ]
    seconds = [seen(case, long, "later_seconds") for case in ("chunked", "plain")]
    rows.append(Row(f"{long} tokens: CPU time, of the plain path's", *harness.ratio(*seconds)))
    return rows, raw


def _growth(what: str, before: list[float], after: list[float]) -> Row:
    sizes = f" ({statistics.median(before):.0f} to {statistics.median(after):.0f} MiB)"
    return Row(what + sizes, *harness.ratio(after, before), at_most=1.1)


def _of(what: str, values: list[float], unit: str) -> Row:
    return Row(what, statistics.median(values), min(values), max(values), unit)


def _process(case: str, tokens: int, quick: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--case", case, str(tokens), "quick" if quick else "full"]
    done = subprocess.run(
        command, env={**os.environ, **PLAIN_MALLOC}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{case} with {tokens} tokens died:\n{done.stderr[-4000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def case_of(name: str, tokens: int, quick: bool) -> dict[str, float]:
    """MiB above the loaded state, and CPU seconds, of the first and of a later micro-batch."""
    network = make_network(quick)
    once = prepare(name, network, rows=BUDGET // 700, tokens=tokens)
    told = {}
    for what in ("first", "later"):
        if what == "later":  # some parameter may have had no part in the first pass
            for parameter in network.parameters():
                if parameter.grad is None:
                    parameter.grad = torch.ones_like(parameter)
        gc.collect()
        before_mb = harness.forget_peak_mb()
        start = time.process_time()  # of the one thread: what else runs here does not count
        once()
        told[f"{what}_seconds"] = round(time.process_time() - start, 3)
        told[what] = round(harness.status_mb("VmHWM") - before_mb, 1)
    return told


def make_network(quick: bool) -> PreTrainedModel:
    torch.manual_seed(0)
    network = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=9496 if quick else 151_936,
            hidden_size=112 if quick else 896,
            intermediate_size=608 if quick else 4864,
            num_hidden_layers=4,
            num_attention_heads=14,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    )
    network.activation_checkpointing_enable({"use_reentrant": False})
    return network.train()


def prepare(name: str, network: PreTrainedModel, *, rows: int, tokens: int) -> Callable[[], None]:
    """A forward and backward pass, to be called."""
    vocabulary, written = network.config.vocab_size, round(WRITTEN_SHARE * tokens)
    # As LanguageModel.logp reads it: the last token predicts nothing.
    token_MS = torch.randint(0, vocabulary, (rows, tokens - 1))
    predicts_MS = torch.zeros(rows, tokens - 1, dtype=torch.bool)
    predicts_MS[:, -written:] = True
    wanted_X = torch.randint(0, vocabulary, (rows * written,))
    scorer = Scorer(network, vocabulary)
    whole = WholeRows(order=range(rows), token_MS=token_MS, predicts_MS=predicts_MS)
    match name:
        case "plain":
            return lambda: (-plain(network, token_MS, predicts_MS, wanted_X).mean()).backward()
        case "chunked":
            return lambda: (-scorer(whole, wanted_X, 1.0)[0].mean()).backward()
        case "body":
            return lambda: (
                network.base_model(input_ids=token_MS, use_cache=False)
                .last_hidden_state[predicts_MS]
                .sum()
                .backward()
            )
        case _:
            return alone(network, scorer, whole, wanted_X)


def plain(
    network: PreTrainedModel, token_MS: Tensor, predicts_MS: Tensor, wanted_X: Tensor
) -> Tensor:
    """logp_X as it was before the chunks: commit eadfe41, LanguageModel.logp."""
    head = network.get_output_embeddings()
    hook = head.register_forward_pre_hook(
        lambda module, inputs: (inputs[0][predicts_MS].unsqueeze(0), *inputs[1:])
    )
    try:
        logits_XV = network(input_ids=token_MS, use_cache=False).logits[0]
    finally:
        hook.remove()
    return -cross_entropy(logits_XV, wanted_X, reduction="none").clamp(min=0)


def alone(
    network: PreTrainedModel,
    scorer: Scorer,
    whole: WholeRows,
    wanted_X: Tensor,
) -> Callable[[], None]:
    """The scorer on hidden states that need a gradient and come from nowhere."""
    body = network.base_model
    with torch.no_grad():
        kind = type(body(input_ids=whole.token_MS[:1, :2], use_cache=False))
    hidden_MSD = torch.randn(*whole.token_MS.shape, network.config.hidden_size, requires_grad=True)
    body.forward = lambda **_: kind(last_hidden_state=hidden_MSD)
    return lambda: (-scorer(whole, wanted_X, 1.0)[0].mean()).backward()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        case, tokens, size = sys.argv[2:]
        torch.set_num_threads(1)
        print(json.dumps(case_of(case, int(tokens), size == "quick")))
    else:
        harness.run("memory", measure, model=SHAPE)
