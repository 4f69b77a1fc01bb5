"""A server's stand-in in the place of the library, and a recipe whose node "big" is behind it."""

import pytest

import tiny
from potluck.config import from_tree
from potluck.rollout import tinker
from potluck.rollout.texts.options import TinkerOptions
from stand_in_tinker import MODEL, PRICES, FakeTinker

PAID = {f"usd_per_million_{kind}": usd for kind, usd in PRICES.items()}
URL = "http://127.0.0.1:9"


@pytest.fixture
def server(monkeypatch):
    made = FakeTinker()
    monkeypatch.setattr(tinker, "library", lambda: made)
    monkeypatch.setattr(tinker, "monotonic", made.clock)
    yield made
    made.over.set()


@pytest.fixture
def opened(server, tmp_path):
    """Makes a session of the server with an adapter, as a run does at its start."""

    def made(**options):
        chosen = TinkerOptions(**{"url": URL, **PAID, **options})
        one = tinker.TinkerSession(chosen, MODEL, tmp_path)
        one.open(4, 0, "", (tiny.STOP, tiny.VOCABULARY - 1))
        return one

    return made


@pytest.fixture(scope="session")
def recipe(tiny_models):
    """Makes it, with other keys of the engine, of the node "big", and of the whole recipe."""
    folder = tiny_models["large"]

    def made(engine=(), big=(), **changes):
        engine = {"name": "tinker", "url": URL, "tokenizer": folder, **PAID, **dict(engine)}
        big = {
            **{"model": MODEL, "lora": {"r": 4}, "learning_rate": 1e-2, "engine": engine},
            **dict(big),
        }
        small = {"model": folder, "device": "cpu", "learning_rate": 1e-2}
        tree = {**tiny.RECIPE, "node": {"big": big, "small": small}, "plan": "horizontal"}
        objective = {"method": "lws", "weight": "likelihood", **changes.pop("objective", {})}
        return from_tree({**tree, "objective": objective, **changes})

    return made
