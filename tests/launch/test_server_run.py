"""Runs in which a node writes through a server and another here."""

import io
import json
import os
import signal
import threading

import pytest
from rich.console import Console

import tiny
from displays import Listener
from launch.runs import numbers
from potluck.builder.exchange import agreements_of
from potluck.builder.nodes import make_learner, make_participants
from potluck.builder.plan import check
from potluck.builder.task import make_task
from potluck.config import ConfigError, load
from potluck.exchange import MemoryHub
from potluck.launch.in_process import run
from potluck.replay.plan import make_plan
from potluck.replay.run import replay
from potluck.reports.runs import read_run
from potluck.rollout.base import RolloutError
from potluck.rollout.hf import HFEngine
from potluck.rollout.vllm.engine import ServerEngine
from stand_in_server import stand_in

NAMES = ("large", "small")
"""``small`` writes through the server."""


@pytest.fixture
def recipe(served_models, server):
    def make(*overrides, **small):
        nodes = {name: {"model": served_models[name], "learning_rate": 1e-3} for name in NAMES}
        engine = {"name": "vllm", "url": server.url, "model": "tiny"}
        nodes["small"] |= {"engine": engine} | small
        return tiny.recipe(served_models, *overrides, node=nodes)

    return make


def test_a_node_writes_through_a_server_and_another_here_and_both_learn_from_both(
    recipe, server, served_models, tmp_path
):
    result = run(recipe(), tmp_path / "run")
    assert set(result.accuracy) == set(NAMES)
    for node in NAMES:
        for line in numbers(tmp_path / "run", node):
            assert line["rows_trained"] > 0
            assert [line["sources"][author]["completions"] for author in NAMES] == [8, 8]
            own = line["sources"][node]
            if own["with_advantage"]:  # what its engine told is what it finds itself
                assert abs(own["log_ratio_mean"]) < 1e-4
                assert own["effective_sample_size"] > 0.999
    # Once before each round, and once more before the evaluation at the end.
    assert server.paths().count("/collective_rpc") == 3
    sent = server.asked()
    assert [body["temperature"] for body in sent] == [1.0] * 4 + [0.0] * 2
    assert (tmp_path / "run" / "small" / "served").is_dir()


def test_the_difference_of_writings_is_measured_and_its_growth_is_told(recipe, server, tmp_path):
    class Ages(Listener):
        """Has the server keep its weights from the second round on."""

        def round_done(self, node, report):
            server.stale = True

        def say(self, text):
            notes.append(text)

    notes, display = [], Ages()
    changes = ("rounds=3", "node.small.learning_rate=1e-4", "checkpoint_every=2")
    run(recipe(*changes), tmp_path / "run", display=display)
    lines = numbers(tmp_path / "run", "small")
    first, second, third = (line["server_apart"] for line in lines)
    assert 0 <= first < 1e-6 < 1e-4 < second < third < 0.1
    assert {line["server_apart_first"] for line in lines} == {first}
    assert {line["server_apart"] for line in numbers(tmp_path / "run", "large")} == {None}
    (told,) = [text for text in notes if "in the run's first writing" in text]
    assert told.startswith("small: the log-probabilities of its server are")


def test_an_evaluation_in_between_costs_no_reload_of_its_own_and_has_its_own_limit(
    recipe, server, tmp_path
):
    more = "evaluation.every=1", "evaluation.out_of_distribution=2", "evaluation.max_new_tokens=40"
    run(recipe(*more), tmp_path / "run")
    assert server.paths().count("/collective_rpc") == 3
    limits = [body["max_tokens"] for body in server.asked()]
    assert limits == ([40] * 2 + [6] * 2) * 2 + [40] * 4


def test_ctrl_c_while_the_server_writes_leaves_a_run_that_goes_on(recipe, server, tmp_path):
    class Pressed(threading.Event):
        """Presses Ctrl-C when the server is at work."""

        def wait(self, timeout=None):
            os.kill(os.getpid(), signal.SIGINT)
            self.wait = super().wait
            return self.wait(timeout)

    server.stalls = Pressed()
    result = run(recipe("checkpoint_every=1"), tmp_path / "run")
    assert (result.rounds, result.interrupted) == (0, True)
    server.stalls.set()
    assert run(recipe("checkpoint_every=1"), tmp_path / "run", resume=True).rounds == 2


def test_a_server_that_is_not_there_or_serves_another_model_stops_a_run_before_it_begins(
    recipe, server, tmp_path
):
    with pytest.raises(RolloutError, match=r"serves 'tiny', not 'other'"):
        run(recipe("node.small.engine.model=other"), tmp_path / "run")
    server.max_model_len = 31
    with pytest.raises(RolloutError, match="room for 31 tokens, but prompt and"):
        run(recipe(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_may_find_its_server_elsewhere_and_reads_its_key_again(
    recipe, server, served_models, tmp_path
):
    run(recipe("rounds=1"), tmp_path / "run")
    with stand_in(served_models["small"]) as other:
        moved = {"name": "vllm", "url": other.url, "model": "tiny", "timeout_s": 500.0}
        assert run(recipe(engine=moved | {"concurrency": 1}), tmp_path / "run", resume=True)
        assert other.asked()


def test_a_run_of_an_older_version_goes_on_and_is_replayed(recipe, server, tmp_path):
    """Its recipe.json has the table ``server``, null for a node without, and no transport."""
    place = tmp_path / "run"
    run(recipe("rounds=1"), place)
    tree = json.loads((place / "recipe.json").read_text())
    del tree["swarm"]["transport"], tree["SHA-256"]
    for node in tree["node"].values():
        engine = node.pop("engine")
        node["server"] = engine if engine.pop("name") == "vllm" else None
    (place / "recipe.json").write_text(json.dumps(tree))
    assert load(place / "recipe.json") == recipe("rounds=1")
    plan = make_plan(place, node="small", methods="nois", out=tmp_path / "replay")
    assert [line.node for line in replay(plan, say=print)] == ["small"]
    assert read_run(place).nodes[1].model == tree["node"]["small"]["model"]
    assert run(recipe(), place, resume=True).rounds == 2


def test_every_key_of_the_table_reaches_the_engine(recipe, server, tmp_path):
    table = {
        "name": "vllm",
        "url": server.url,
        "model": "name",
        "folder": str(tmp_path / "elsewhere"),
        "sleeps": True,
        "concurrency": 3,
        "timeout_s": 7.0,
        "tolerance": 0.01,
        "api_key_variable": "KEY",
    }
    for lora in (None, {"r": 2}):
        config = recipe(engine=table, lora=lora)
        learners = {name: make_learner(config, name, tmp_path / name, 0) for name in NAMES}
        task, here = make_task(config), tmp_path / "run"
        hub = MemoryHub(agreements_of(config, task, {n: learners[n].policy for n in NAMES}))
        exchanges = {name: hub.member(name) for name in NAMES}
        made = config, here, task, learners, exchanges, lambda *_: None
        nodes, _ = make_participants(*made, sends_text=False)
        engines = {node.name: node.engine for node in nodes}
        assert isinstance(engines["large"], HFEngine)
        engine = engines["small"]
        assert isinstance(engine, ServerEngine)
        address, options = engine.options.address, engine.options
        assert (address.url, address.timeout_s) == (server.url, 7.0)
        assert address.api_key_variable == "KEY"
        assert (options.model, options.concurrency, options.tolerance) == ("name", 3, 0.01)
        assert (engine.settings.max_new_tokens, engine.settings.max_total_tokens) == (6, 32)
        assert engine.weight_sync.folder == tmp_path / "elsewhere" / "small" / "served"
        assert engine.weight_sync.sleeps
        assert engine.weight_sync.adapter == ("name" if lora else "")


@pytest.mark.parametrize(
    "change, message",
    [
        (["node.small.engine.url=here:8000"], r"engine\] url is 'here:8000'; expected"),
        (["node.small.sampling_dtype=bfloat16"], "its server writes in a format of its own"),
        (["node.small.engine.concurrency=0"], "node.small.engine.concurrency is 0"),
        (["sampling.temperature=0.7", "sampling.top_k=5"], "temperature 0.7, top_k 5 .*; change"),
    ],
)
def test_what_makes_no_sense_with_a_server_is_refused(recipe, change, message):
    with pytest.raises(ConfigError, match=message):
        recipe(*change)
    if len(change) == 2:  # each by itself is fine
        assert all(map(recipe, change))


def test_the_check_names_the_server_and_asks_it_nothing(recipe, server):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(check(recipe()))
    text = console.export_text()
    assert f"'small' writes through {server.url}" in text
    assert server.seen == []
