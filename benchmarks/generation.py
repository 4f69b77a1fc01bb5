"""Completions per second against ``generate``, called as TRL's GRPOTrainer calls it.

Both sides write the same 48 completions of forced lengths. ``generate`` gets each prompt
repeated and padded at the left, with a mask; it returns no log-probabilities, the engine
does. In bfloat16 the engine trains float32 weights and writes with a copy, whose making is
part of the time; ``generate`` in float32 is what it replaces, ``generate`` of a bfloat16
model, which nobody could train with these learning rates, is there for comparison.

    python benchmarks/generation.py [--quick]
"""

from collections.abc import Callable
from copy import deepcopy

import harness
import torch
from harness import ForcedDraw, ForcedScores, Row, Workload
from transformers import GenerationConfig, PreTrainedModel

from potluck.model import LanguageModel
from potluck.rollout.base import EngineSettings, RandomSampler
from potluck.rollout.hf import HFEngine

TARGETS = {"prompt 32": (1.6, 2.5), "prompt 163": (3.5, 6.0)}
"""Times as fast as ``generate`` in float32: ours in float32, and in bfloat16."""


def measure(quick: bool) -> tuple[list[Row], object]:
    policy, rows, raw = harness.language_model(), [], {}
    halved = deepcopy(policy.network).to(torch.bfloat16)
    for work in harness.workloads(quick, problems=4, group_size=12):
        target, target_bf16 = TARGETS.get(work.name, (None, None))
        contenders = {
            "generate": generate(policy.network, policy, work),
            "ours": ours(policy, work, "float32"),
            "ours bf16": ours(policy, work, "bfloat16"),
            "generate bf16": generate(halved, policy, work),
        }
        s = harness.take_turns(contenders, 1 if quick else 7, work.name)
        what = f"{work.title}: "
        rows += [
            Row(what + "fp32", *harness.ratio(s["generate"], s["ours"]), at_least=target),
            Row(
                what + "bf16 against generate in fp32",
                *harness.ratio(s["generate"], s["ours bf16"]),
                at_least=target_bf16,
            ),
            Row(
                what + "bf16 against generate in bf16",
                *harness.ratio(s["generate bf16"], s["ours bf16"]),
            ),
        ]
        raw[work.name] = {"lengths": work.length_N, "seconds": s}
    return rows, raw


def ours(policy: LanguageModel, work: Workload, dtype: str) -> Callable[[], None]:
    longest = max(work.length_N)
    engine = HFEngine(policy, EngineSettings(longest, 4096, dtype))
    stop = policy.tokenizer.eos_token_id

    def write() -> None:
        sampler = ForcedDraw(RandomSampler(torch.Generator().manual_seed(0)), work.length_N, stop)
        written = engine.generate(
            work.requests, sampler, author="bench", progress=lambda done, total: None
        )
        assert tuple(len(c.token_T) for c in written) == work.length_N, "lengths were not forced"

    return write


def generate(network: PreTrainedModel, policy: LanguageModel, work: Workload) -> Callable[[], None]:
    tokenizer = policy.tokenizer
    stop, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    config = GenerationConfig(
        max_new_tokens=max(work.length_N),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=stop,
        pad_token_id=pad,
        bos_token_id=None,
        disable_compile=True,
    )
    questions = [
        request.problem.question for request in work.requests for _ in range(request.count)
    ]

    @torch.no_grad()
    def write() -> None:
        inputs = tokenizer(questions, padding=True, return_tensors="pt", padding_side="left")
        prompt = inputs["input_ids"].shape[1]
        forced = ForcedScores(work.length_N, stop, prompt=prompt)
        out = network.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            generation_config=config,
            logits_processor=[forced],
        )
        length_N = ((out[:, prompt:] == stop).int().argmax(dim=1) + 1).tolist()
        assert tuple(length_N) == work.length_N, "lengths were not forced"

    return write


if __name__ == "__main__":
    harness.run("generation", measure)
