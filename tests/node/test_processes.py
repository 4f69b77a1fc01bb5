"""Two processes are one: what they learn, write and save is what a single one would.

All that they do is in ``tests/process_group_session.py``, which is started once for this file.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

import process_group_session
import tiny
from forked import fork_context
from launch.runs import Hears, lines
from potluck import node
from potluck.builder.checks import require_processes
from potluck.config import ConfigError, from_tree
from potluck.launch.in_process import run
from potluck.node.learning.group import (
    SINGLE_PROCESS,
    ProcessGroup,
    ProcessGroupError,
    process_group,
)
from potluck.node.storage import checkpoint
from potluck.rollout.base import EngineSettings, GreedySampler, RolloutRequest
from potluck.rollout.hf import HFEngine
from potluck.types import Problem

SOURCE = str(Path(node.__file__).parents[2])
CASES = process_group_session.CASES
UNLIKE = ("dropout", "nothing left", "own bad log-probability", "own bad gradient")
FINE = [name for name in CASES if name not in UNLIKE]
VLLM = {"name": "vllm", "url": "http://there:8000", "model": "it"}
OWN = [name for name, case in CASES.items() if case.poisoned_author == "north"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("processes")
    for seed, name in enumerate(("full", "adapter")):
        tiny.save(made / "models" / name, seed)
    shutil.copytree(made / "models" / "full", made / "models" / "broken")
    (made / "models" / "broken" / "model.safetensors").unlink()
    run(process_group_session.recipe(made / "models", "rounds=1"), made / "one")
    return made


@pytest.fixture(scope="module")
def both(folder):
    """What the first and the second process found."""
    launcher = fork_context().Process(target=process_group_session.launch, args=(folder,))
    launcher.start()
    try:
        # They end by themselves before that, and say where they were.
        launcher.join(process_group_session.HANGS_AFTER_S + 30)
    finally:
        launcher.terminate()
        launcher.join()
    assert launcher.exitcode == 0, (folder / "said").read_text()
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


@pytest.mark.parametrize("name", FINE)
def test_two_processes_learn_what_one_does(both, name):
    alone, case = process_group_session.learn(CASES[name]), CASES[name]
    # Rows that share a pass round each other's sums off, in bfloat16 by some 0.4 %.
    atol = 1e-5 if case.dtype == torch.float32 else 3e-2
    for found in both:
        two = found["cases"][name]
        assert len(two["gradient"]) == len(alone["gradient"])
        for key in ("gradient", "weights"):
            for ours, one in zip(two[key], alone[key], strict=True):
                assert_close(ours, one, rtol=0, atol=atol)
        assert max(float(g.abs().max()) for g in alone["gradient"]) > 1e-3
        for key in ("loss", "gradient_norm", "shares", "kept_advantage_B", "metrics_BK"):
            assert_close(two[key], alone[key], rtol=atol, atol=atol, equal_nan=True)
        assert (two["updates"], two["dropped"]) == (alone["updates"], alone["dropped"])
        assert two["steps"][-1] == alone["steps"][-1]


@pytest.mark.parametrize("name", CASES)
def test_both_hold_the_same_to_the_bit(both, name):
    first, second = (found["cases"][name] for found in both)
    assert first.keys() == second.keys()
    for key in first:
        if key in ("dropped", "error", "steps", "spread", "read") or first[key] is None:
            assert first[key] == second[key]
        else:
            assert_close(first[key], second[key], rtol=0, atol=0, equal_nan=True)


def test_the_cases_are_what_they_are_called(both):
    cases = both[0]["cases"]
    silenced = cases["rows silenced in one process and not in the other, clipped"]
    kept, read = silenced["kept_advantage_B"] != 0, silenced["metrics_BK"][:, 0] > 0
    assert 0 < int(kept.sum()) < int(read.sum())
    assert silenced["gradient_norm"] > 0.01
    assert len(cases["one process without rows"]["steps"]) == 1
    odd = process_group_session.learn(CASES["an odd number of pieces, a chunk at a time"])
    assert len(odd["steps"]) % 2
    assert cases["three updates"]["updates"] == 3
    assert int((cases["three updates"]["kept_advantage_B"] != 0).sum()) > 0
    assert list(cases["bad log-probability"]["dropped"].values()) == ["log-probability"]
    assert list(cases["bad gradient"]["dropped"].values()) == ["gradient"]
    assert list(cases["not trusted, bad gradient"]["dropped"].values()) == ["gradient"]
    assert cases["not trusted, two updates"]["shares"]["east"] > 0.1
    twice = "prompts read once in layers that compute twice"
    assert "SharedPrompts" in cases[twice]["read"]
    assert "SharedPrompts" in process_group_session.learn(CASES[twice])["read"]
    adapter = cases["kl of an adapter"]
    assert len(adapter["gradient"]) == 8 < len(adapter["weights"])
    assert cases["bfloat16"]["loss"] != cases["f-tis"]["loss"]


@pytest.mark.parametrize("name", OWN)
def test_a_row_of_our_own_that_is_not_finite_stops_both_with_the_same_words(both, name):
    alone = process_group_session.learn(CASES[name])["error"]
    assert "of completion 1 of 'p0' by 'north', its own, is not finite" in alone
    assert [found["cases"][name]["error"] for found in both] == [alone, alone]


def test_where_nothing_is_left_to_learn_neither_moves_and_the_weights_lie_apart_again(both):
    for found in both:
        report = found["cases"]["nothing left"]
        assert (report["updates"], report["gradient"], report["spread"]) == (0, None, True)
        assert not report["kept_advantage_B"].any()
        assert int((report["metrics_BK"][:, 0] > 0).sum()) == 4


def test_a_replica_is_the_whole_network_and_orders_come_back_in_order(both):
    policy = tiny.policy(sharpness=2.0)
    engine = HFEngine(policy, EngineSettings(6, 32))
    requests = [RolloutRequest(Problem(f"p{i}", "1+2="[: 1 + i % 3], "3"), i % 3) for i in range(5)]
    alone = engine.generate(
        requests, GreedySampler(), author="north", progress=lambda done, total: None
    )
    for found in both:
        wrote = found["write"]
        assert wrote["same"]
        assert len(wrote["greedy"]) == len(alone) == 4
        for ours, one in zip(wrote["greedy"], alone, strict=True):
            assert (ours.problem_id, ours.index) == (one.problem_id, one.index)
            assert np.array_equal(ours.token_T, one.token_T)
            np.testing.assert_allclose(ours.logp_T, one.logp_T, atol=1e-5)
        assert wrote["no_more_than_one"] == wrote["greedy"][:1]
        assert len(set(wrote["seeds"])) == 2
        assert wrote["sampled"] != wrote["again"]
        tokens = [completion.token_T.tolist() for completion in wrote["twins"]]
        assert tokens[:3] != tokens[3:]  # each process draws by a seed of its own
        assert wrote["trouble"] == "of the second"
    # Two layers and the rest, and of each of these half in each process.
    assert {found["write"]["apart"] for found in both} == {3}
    assert sum(found["write"]["held"] for found in both) == both[0]["write"]["numbers"]
    assert max(found["write"]["held"] for found in both) < 0.6 * both[0]["write"]["numbers"]
    assert both[0]["write"]["sampled"] == both[1]["write"]["sampled"]


def weights_of(folder, node, round):
    """As anybody loads them; of the adapter as peft's file has them."""
    place = checkpoint.checkpoint_folder(folder / node, round)
    if node == "full":
        return AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).state_dict()
    return load_file(place / "adapter_model.safetensors")


def test_a_whole_run_of_two_processes_has_one_record_and_checkpoints_as_any_other(both, folder):
    assert both[0]["run"] == both[1]["run"]
    rounds, interrupted, accuracy = both[0]["run"]
    assert (rounds, interrupted, set(accuracy)) == (2, False, {"full", "adapter"})
    for name in ("full", "adapter"):
        metrics = lines(folder / "two", name, "metrics")
        assert [line["completions"] for line in metrics] == [16, 16]
        assert all(line["rows_trained"] > 0 for line in metrics)
        # What its own model wrote is on-policy, in whichever process it was written.
        own = metrics[1]["sources"][name]
        assert own["k3"] == pytest.approx(0, abs=1e-6)
        assert metrics[1]["sources"]["full" if name == "adapter" else "adapter"]["k3"] > 1e-3
        assert len(lines(folder / "two", name, "evaluation")) == 1
        one, two = (weights_of(folder / "two", name, round) for round in (1, 2))
        assert one.keys() == weights_of(folder / "one", name, 1).keys()
        assert any(not torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("began", ["two", "one"])
def test_whoever_goes_on_from_whose_checkpoint_learns_the_same(both, folder, tmp_path, began):
    """Two processes did round 1, and here one does, of the same completions: those on disk."""
    assert both[0]["resumed"][:2] == both[0]["run"][:2] == (2, False)
    by_two, by_one, display = folder / began, tmp_path / began, Hears()
    shutil.copytree(by_two, by_one)
    for name in ("full", "adapter"):
        shutil.rmtree(checkpoint.checkpoint_folder(by_one / name, 2))
    run(process_group_session.recipe(folder / "models"), by_one, resume=True, display=display)
    told = [text for text in display.said if "'processes': 2" in text]
    assert bool(told) == (began == "two")
    assert all("not the same bits" in text for text in told)
    for name in ("full", "adapter"):
        _assert_close(weights_of(by_one, name, 2), weights_of(by_two, name, 2))
        one, two = (
            load_file(checkpoint.checkpoint_folder(run / name, 2) / "optimizer.safetensors")
            for run in (by_one, by_two)
        )
        _assert_close(one, two)
        assert max(float(tensor.max()) for tensor in one.values()) == 2  # steps


def _assert_close(one, two):
    assert one.keys() == two.keys()
    for key in one:
        assert_close(one[key], two[key], rtol=0, atol=1e-5)


def test_ctrl_c_in_the_leader_ends_both_with_a_checkpoint_to_go_on_from(both):
    assert both[0]["cut"] == both[1]["cut"] == (1, True, {})
    assert both[0]["saved"] == [1]


def test_an_error_of_the_leader_or_of_a_follower_is_that_of_both(both, folder):
    for found in both:
        assert found["refused"].startswith("ConfigError: [node.full] optimizer 'adamw-8bit' keeps")
        assert found["broken"].startswith("ModelError: cannot load model")
        assert "broken" in found["broken"]
    assert not (folder / "refused").exists()


def test_on_the_command_line_the_second_process_says_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "potluck", "show", "nowhere"],
        env=os.environ | {"PYTHONPATH": SOURCE, "WORLD_SIZE": "2", "RANK": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_an_environment_that_leads_nowhere_is_one_line(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with (
        pytest.raises(ProcessGroupError, match=r"WORLD_SIZE is 2, but .*start them with torchrun"),
        process_group(),
    ):
        pass


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("optimizer", "adamw-8bit", "moments in one process, but there are 3"),
        ("device", "cuda:1", r"each of 3 processes has its own; set device = 'auto'"),
        ("engine", VLLM, "is sent the weights of one process"),
    ],
)
def test_what_several_processes_cannot_do_is_refused_by_name(key, value, words):
    tree = {"name": "x", "node": {"one": {"model": "builtin:digits-small", key: value}}}
    require_processes(from_tree(tree), SINGLE_PROCESS, task=None)
    with pytest.raises(ConfigError, match=rf"\[node.one.*{words}"):
        require_processes(from_tree(tree), ProcessGroup(0, 3), task=None)


def test_one_that_waits_for_others_in_vain_says_so_and_ends_at_ctrl_c(tmp_path):
    (tmp_path / "case.toml").write_text(
        """
        name = "case"
        task = {name = "digits"}
        node.a = {model = "builtin:digits-small"}
        """
    )
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    left = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "potluck", "run", "case.toml"],
        cwd=tmp_path,
        env=os.environ | left,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        said = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == -signal.SIGINT
    assert said.startswith(
        f"WORLD_SIZE is 2, so this process waits for the others at 127.0.0.1:{port}"
    )
    assert "unset WORLD_SIZE" in said
    assert not (tmp_path / "runs").exists()
