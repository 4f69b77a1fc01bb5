"""A run of two nodes, one of them behind the Tinker API: by a fake client, see ``fake.py``."""

import pytest

import tiny
from potluck.config import from_tree
from potluck.launch.in_process import run
from potluck.rollout.tinker import session
from stand_in_tinker import MODEL, PRICES, FakeTinker

PAID = {f"usd_per_million_{kind}": usd for kind, usd in PRICES.items()}


@pytest.fixture
def server(monkeypatch):
    made = FakeTinker()
    monkeypatch.setattr(session, "library", lambda: made)
    yield made
    made.over.set()


@pytest.fixture
def recipe(tmp_path):
    def made(**changes):
        model = tiny.save(tmp_path / "model")
        engine = {"name": "tinker", "url": "http://127.0.0.1:9", "tokenizer": model, **PAID}
        big = {"model": MODEL, "lora": {"r": 4}, "learning_rate": 1e-2, "engine": engine}
        small = {"model": model, "device": "cpu", "learning_rate": 1e-2}
        tree = {**tiny.RECIPE, "node": {"big": big, "small": small}, "plan": "horizontal"}
        return from_tree(
            {**tree, "objective": {"method": "lws", "weight": "likelihood"}, **changes}
        )

    return made


def test_a_node_behind_a_server_and_one_with_weights_make_a_run(server, recipe, tmp_path):
    result = run(recipe(), tmp_path / "run", display=None)
    assert result.rounds == 2
