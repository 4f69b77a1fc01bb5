"""Runs in which a server writes the next round while its node learns from this one."""

import os
import shutil
import signal
import threading
import time

import pytest

import tiny
from displays import Listener
from launch.runs import Crash, crash, kept_round, lines
from potluck.builder.task import make_task
from potluck.config import ConfigError
from potluck.launch.in_process import run
from potluck.model import LanguageModel

ROUNDS = 3


@pytest.fixture
def recipe(served_models, server):
    def make(*overrides, overlap=True, lora=None):
        small = {"model": served_models["small"], "learning_rate": 1e-3}
        engine = {"name": "vllm", "url": server.url, "model": "adapter" if lora else "tiny"}
        # Weights of another round are 1e-3 nats away and more.
        engine |= {"overlap": overlap, "tolerance": 1e-5}
        nodes = {"small": small | {"engine": engine, "lora": lora}}
        short = f"rounds={ROUNDS}", "problems_per_round=2"
        return tiny.recipe(served_models, *short, *overrides, node=nodes)

    return make


def own_completions(folder, round):
    came = kept_round(folder, "small", round).completions
    return [c for c in came if c.author == "small"]


def is_of(completions, model, recipe):
    policy, task = LanguageModel.load(str(model), device="cpu"), make_task(recipe)
    prompts = [policy.prompt(task.problem(c.problem_id)) for c in completions]
    return policy.logp_gap(prompts, completions, temperature=1.0) < 1e-5


def test_a_round_is_written_with_the_weights_that_the_round_before_began_with(
    recipe, server, served_models, tmp_path
):
    folder = tmp_path / "run"

    class Copies(Listener):
        """Copies the checkpoint of the rounds before: older ones are removed."""

        def round_done(self, node, report):
            if report.round:
                name = f"{report.round:06d}"
                shutil.copytree(folder / "small" / "checkpoints" / name, tmp_path / name)

    run(recipe("checkpoint_every=1"), folder, display=Copies())
    weights = [served_models["small"], *(tmp_path / f"{n:06d}" for n in range(1, ROUNDS))]
    for round in range(ROUNDS):
        own = own_completions(folder, round)
        here = [at for at, model in enumerate(weights) if is_of(own, model, recipe())]
        assert here == [max(0, round - 1)]
    for line in lines(folder, "small", "metrics"):
        assert line["server_apart"] < 1e-5
        assert line["sources"]["small"]["completions"] == 8
        assert line["rows_trained"] > 0
    # Once for the first two rounds, for each other one, and for the evaluation at the end.
    assert server.paths().count("/collective_rpc") == ROUNDS
    assert len(server.asked()) == 2 * ROUNDS + 2  # and nothing for a round beyond the last


@pytest.mark.parametrize("overlap", [True, False])
def test_the_next_round_is_asked_before_this_one_is_learned_from(recipe, server, tmp_path, overlap):
    class Looks(Listener):
        def round_done(self, node, report):
            while len(server.asked()) < wanted:
                time.sleep(0.01)
            seen.append(len(server.asked()))
            raise Crash

    seen, wanted = [], 4 if overlap else 2
    with pytest.raises(Crash):
        run(recipe(overlap=overlap), tmp_path / "run", display=Looks())
    assert seen == [wanted]


def test_an_evaluation_between_two_rounds_is_of_the_newest_weights(recipe, server, tmp_path):
    run(recipe("evaluation.every=1"), tmp_path / "run")  # at a tolerance that tells them apart
    temperatures = [body["temperature"] for body in server.asked()]
    assert temperatures[:8] == [0, 0, 1, 1, 1, 1, 0, 0]
    assert len(temperatures) == 2 * ROUNDS + 2 * (ROUNDS + 1)


def test_a_lora_node_overlaps(recipe, server, tmp_path):
    run(recipe(lora={"r": 2, "targets": ["q_proj", "v_proj"]}), tmp_path / "run")
    assert all(line["server_apart"] < 1e-5 for line in lines(tmp_path / "run", "small", "metrics"))
    assert server.paths().count("/v1/load_lora_adapter") == ROUNDS


def test_what_is_learned_again_after_a_crash_ends_as_it_would_have(recipe, tmp_path):
    """The round that was being written is written again, with the weights it was begun with."""
    run(recipe(), tmp_path / "whole")
    crash(recipe(), tmp_path / "cut", 1)
    run(recipe(), tmp_path / "cut", resume=True)
    left = []
    for name in ("whole", "cut"):
        written = [own_completions(tmp_path / name, round) for round in range(ROUNDS)]
        end = tmp_path / name / "small" / "checkpoints" / f"{ROUNDS:06d}" / "model.safetensors"
        left.append((written, end.read_bytes()))
    assert left[0] == left[1]


def test_ctrl_c_while_the_next_round_is_written_leaves_a_run_that_goes_on(recipe, server, tmp_path):
    """The next round is then written with the checkpoint's weights: older ones are in none."""

    class Hurries(Listener):
        def round_done(self, node, report):
            os.kill(os.getpid(), signal.SIGINT)

        def phase(self, node, name, done, total):
            if name == "learn" and not server.stalls:  # one event: what waits for it is let go
                server.stalls = threading.Event()  # so the next round is never there

    folder = tmp_path / "run"
    result = run(recipe(), folder, display=Hurries())
    assert (result.rounds, result.interrupted) == (1, True)
    server.stalls.set()
    shutil.copytree(folder / "small" / "checkpoints" / "000001", tmp_path / "then")
    assert run(recipe(), folder, resume=True).rounds == ROUNDS
    assert is_of(own_completions(folder, 1), tmp_path / "then", recipe())


def test_at_its_own_pace_a_node_draws_before_it_learns(recipe, tmp_path):
    run(recipe("pace=free", "plan=horizontal", "objective.method=lws"), tmp_path / "run")
    came = lines(tmp_path / "run", "small", "metrics")
    assert [line["server_apart"] < 1e-5 for line in came] == [True] * ROUNDS
    written = [id for line in lines(tmp_path / "run", "small", "written") for id in line["rewards"]]
    assert len(written) == len(set(written)) == 2 * ROUNDS


def test_a_server_that_sleeps_cannot_write_meanwhile(recipe):
    with pytest.raises(ConfigError, match=r"overlap = true has the server write while .* drop one"):
        recipe("node.small.engine.sleeps=true")
