"""A pretrained model through all that a run does."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import potluck
from potluck.model import LanguageModel

pytestmark = pytest.mark.real

NAMES = ("smol", "lora")


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
        "threads": 1,
        "checkpoint_every": 1,
        "task": {"name": "jsonl", "path": str(data), "tags": False},
        "sampling": {"max_new_tokens": 10, "max_total_tokens": 100},
        "evaluation": {"problems": 0, "out_of_distribution": 0},
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


def test_two_nodes_learn_from_each_other(run):
    for node in potluck.read_run(run).nodes:
        assert [round.updates for round in node.rounds] == [1, 1]
        for round in node.rounds:
            assert set(round.sources) == set(NAMES)
            assert all(source.completions == 4 for source in round.sources.values())
            assert not round.unreadable


def test_a_resumed_run_is_the_same_to_the_bit(run, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(run, again, ignore=shutil.ignore_patterns("000002"))
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
