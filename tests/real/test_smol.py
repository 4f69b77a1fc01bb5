"""A pretrained model, SmolLM2 of 135M weights, through all that a run does.

POTLUCK_REAL_MODELS names a folder with the model in ``smol``; without it these tests skip. Models
of a test's own making have sharp or random heads, short prompts and one tokenizer: they hide
faults that the first real model shows.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import potluck
from potluck.model import LanguageModel
from potluck.model.inputs import SharedPrompts, WholeRows
from potluck.rollout.base import EngineSettings, RandomSampler, RolloutRequest
from potluck.rollout.hf import HFEngine
from potluck.types import Problem, Sampling

pytestmark = pytest.mark.real

MODELS = os.environ.get("POTLUCK_REAL_MODELS", "")
NAMES = ("smol", "lora")


@pytest.fixture(scope="module")
def smol():
    if not MODELS:
        pytest.skip("POTLUCK_REAL_MODELS names no folder of pretrained models")
    return str(Path(MODELS, "smol").resolve())


@pytest.fixture(scope="module")
def policy(smol):
    return LanguageModel.load(smol, device="cpu")


def paid_by_length(completions, **columns):
    """Take one off for an odd number of characters, so that nearly every group has both; an answer
    that is cut off earns no more than 0, so nothing above that is paid."""
    return [-float(len(text) % 2) for text in completions]


def recipe(model, data):
    node = {"model": model, "learning_rate": 1e-5}
    return {
        "name": "real",
        "rounds": 2,
        "problems_per_round": 2,
        "group_size": 4,
        "threads": 2,
        "checkpoint_every": 1,
        "task": {"name": "jsonl", "path": str(data), "tags": False},
        "sampling": {"max_new_tokens": 10, "max_total_tokens": 100},
        "evaluation": {"every": 2, "problems": 2, "out_of_distribution": 0},
        "node": {
            "smol": node,
            "lora": node | {"lora": {"r": 8}, "learning_rate": 1e-4},
        },
    }


@pytest.fixture(scope="module")
def run(smol, tmp_path_factory):
    place = tmp_path_factory.mktemp("real")
    data = place / "sums.jsonl"
    sums = [{"question": f"{i}+{i + 3}? Only the number.", "answer": 2 * i + 3} for i in range(30)]
    data.write_text("\n".join(map(json.dumps, sums)))
    potluck.run(recipe(smol, data), place / "run", rewards=[paid_by_length], display=None)
    return place / "run"


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


def test_two_nodes_learn_from_each_other(run):
    for node in potluck.read_run(run).nodes:
        assert [round.updates for round in node.rounds] == [1, 1]
        for round in node.rounds:
            assert set(round.sources) == set(NAMES)
            assert all(source.completions == 4 for source in round.sources.values())
            assert not round.unreadable


def test_a_resumed_run_is_the_same_to_the_bit(run, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(run, again)
    for name in NAMES:
        shutil.rmtree(again / name / "checkpoints" / "000002")
    potluck.run(again / "recipe.json", again, rewards=[paid_by_length], resume=True, display=None)
    for name in NAMES:
        (file,) = (run / name / "checkpoints" / "000002").glob("*model.safetensors")
        expected = load_file(file)
        resumed = load_file(again / name / "checkpoints" / "000002" / file.name)
        assert all(torch.equal(tensor, resumed[key]) for key, tensor in expected.items())


def test_what_was_trained_is_evaluated_and_exported_as_transformers_loads_it(
    run, smol, tmp_path, potluck_says
):
    scores = tmp_path / "scores.json"
    code, _, err = potluck_says("evaluate", run / "lora", "--problems", 2, "--json", scores)
    assert (code, err) == (0, "")
    assert scores.is_file()

    code, _, err = potluck_says("export", run / "lora", tmp_path / "exported")
    assert (code, err) == (0, "")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    trained = LanguageModel.load(str(run / "lora" / "checkpoints" / "000002"))
    ids = np.arange(100, 130)
    with torch.no_grad():
        expected = trained.network(input_ids=torch.from_numpy(ids)[None]).logits
        found = exported(input_ids=torch.from_numpy(ids)[None]).logits
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def test_measured_peaks_are_near_the_estimate():
    if not MODELS:
        pytest.skip("POTLUCK_REAL_MODELS names no folder of pretrained models")
    benchmark = Path(__file__).parents[2] / "benchmarks" / "real_memory.py"
    small = ["group_size=4", "prompt=60", "new_tokens=8", "micro_batch_tokens=140", "rounds=1"]
    chosen = ["--models", "smol", "--dtypes", "bfloat16", "--ways", "lora", "--set", *small]
    words = [sys.executable, str(benchmark), MODELS, *chosen]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
    ratios = {row[4]: float(row[7].strip(" |")) for row in rows}
    # In its only round a node has no moments yet when it writes, so that is not compared.
    assert ratios.keys() == {"writing", "learning", "evaluation", "all"}
    compared = ("learning", "evaluation", "all")
    assert all(0.8 <= ratios[phase] <= 1.25 for phase in compared), ratios


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
