"""A pretrained model: its sampler, its learner, and what it needs of memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from potluck.model import LanguageModel
from potluck.model.inputs import SharedPrompts, WholeRows
from potluck.rollout.base import EngineSettings, RandomSampler, RolloutRequest
from potluck.rollout.hf import HFEngine
from potluck.types import Problem, Sampling

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def policy(smol):
    return LanguageModel.load(smol, device="cpu")


@pytest.mark.parametrize(("dtype", "most_nats"), [("float32", 1e-4), ("bfloat16", 0.1)])
def test_the_sampler_and_the_learner_are_one_model(policy, dtype, most_nats):
    engine = HFEngine(policy, EngineSettings(24, 200, dtype=dtype))
    questions = [
        "What is 17+5?",
        "Name a fruit.\n\nAnd say why you like it.",
        "Zähle bis drei: 一二三",
    ]
    problems = {name: Problem(name, name, "?") for name in questions}
    written = engine.generate(
        [RolloutRequest(problem, 3) for problem in problems.values()],
        RandomSampler(torch.Generator().manual_seed(0), Sampling(1.0, 0, 1.0)),
        author="me",
        progress=lambda done, total: None,
    )
    prompts = [policy.prompt(problems[completion.problem_id]) for completion in written]
    assert policy.logp_gap(prompts, written, temperature=1.0) < most_nats


def test_prompts_that_are_read_once_give_the_gradient_of_whole_rows(policy, monkeypatch):
    problems = [Problem("p", "What is 2 + 3?", "5"), Problem("q", "Count to three, slowly.", "3")]
    texts = ["5", "It is five, as 2 and 3 are 5.", "1, 2, 3", "I do not know."]
    pairs = [(policy.prompt(problem), text) for problem in problems for text in texts]
    prompts = [prompt_P for prompt_P, _ in pairs]
    tokens = [np.array(policy.encode(prompt_P, text), np.int32) for prompt_P, text in pairs]
    found = []
    for worth, kind in ((1e9, SharedPrompts), (-1.0, WholeRows)):
        monkeypatch.setattr("potluck.model.inputs.WORTH_SHARING", worth)
        assert type(policy._inputs(prompts, tokens, [()] * len(tokens))) is kind
        policy.network.zero_grad()
        logp_MT, entropy_MT = policy.logp_and_entropy(prompts, tokens, temperature=1.0)
        logp_MT.mean().backward()
        gradients = [parameter.grad for parameter in policy.network.parameters()]
        found.append((logp_MT.detach(), entropy_MT, gradients))
    (logp_MT, entropy_MT, ours), (whole_MT, of_whole_MT, theirs) = found
    torch.testing.assert_close(logp_MT, whole_MT, rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(entropy_MT, of_whole_MT, rtol=1e-5, atol=2e-5)
    apart = sum((a - b).square().sum() for a, b in zip(ours, theirs, strict=True)).sqrt()
    assert apart <= 1e-5 * sum(b.square().sum() for b in theirs).sqrt()


def test_measured_peaks_are_near_the_estimate(real_models):
    benchmark = Path(__file__).parents[2] / "benchmarks" / "real_memory.py"
    small = ["group_size=4", "prompt=60", "new_tokens=8", "micro_batch_tokens=140", "rounds=1"]
    chosen = ["--models", "smol", "--dtypes", "bfloat16", "--ways", "lora", "--set", *small]
    words = [sys.executable, str(benchmark), str(real_models), *chosen]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
    ratios = {row[4]: float(row[7].strip(" |")) for row in rows}
    # In its only round a node has no moments yet when it writes, so that is not compared.
    assert ratios.keys() == {"writing", "learning", "evaluation", "all"}
    compared = ("learning", "evaluation", "all")
    assert all(0.8 <= ratios[phase] <= 1.25 for phase in compared), ratios
