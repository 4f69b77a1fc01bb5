"""Two families of models on GSM8K: tokenizers, templates and architectures that differ."""

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import potluck
from launch.runs import lines
from potluck.launch.in_process import run
from potluck.node.storage import checkpoint

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def finished(gsm8k_path, gsm8k_models, tmp_path_factory):
    """The folder of a run of two rounds: a model like Qwen2 and one like Llama 3."""
    folder = tmp_path_factory.mktemp("unlike") / "run"
    changes = (
        f"task.path={gsm8k_path}", "task.reward=hash", "objective.method=lws", "plan=horizontal",
        "rounds=2", "threads=1", "problems_per_round=4", "group_size=8",
        "sampling.max_new_tokens=6", "evaluation.problems=2",
        f"node.small.model={gsm8k_models}/gsm8k-small",
        f"node.large.model={gsm8k_models}/gsm8k-llama",
    )  # fmt: skip
    run(potluck.load(REPOSITORY / "recipes" / "gsm8k-cpu.toml", changes), folder)
    return folder


def test_the_two_read_one_text_in_other_tokens(gsm8k_models):
    text = "He paid 1234567 dollars."
    qwen, llama = (
        AutoTokenizer.from_pretrained(gsm8k_models / f"gsm8k-{name}") for name in ("small", "llama")
    )
    assert [t for t in qwen.tokenize(text) if t.isdigit()] == list("1234567")
    assert max(len(t) for t in llama.tokenize(text) if t.isdigit()) > 1


@pytest.mark.parametrize(("node", "other"), [("small", "large"), ("large", "small")])
def test_each_learns_from_what_the_other_wrote(finished, gsm8k_models, node, other):
    rounds = lines(finished, node)
    assert len(rounds) == 2
    assert sum(each["sources"][other]["rows_trained"] for each in rounds) > 0
    place = checkpoint.checkpoint_folder(finished / node, 2)
    model = {"small": "small", "large": "llama"}[node]
    before = AutoModelForCausalLM.from_pretrained(gsm8k_models / f"gsm8k-{model}").state_dict()
    after = AutoModelForCausalLM.from_pretrained(place).state_dict()
    assert any(not before[name].equal(after[name]) for name in before)
