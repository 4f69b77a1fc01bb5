"""A server's stand-in in the place of the library, and a recipe whose node "big" is behind it."""

import pytest

import tiny
from potluck.config import from_tree
from potluck.rollout.tinker import session
from stand_in_tinker import MODEL, PRICES, FakeTinker

PAID = {f"usd_per_million_{kind}": usd for kind, usd in PRICES.items()}


@pytest.fixture
def server(monkeypatch):
    made = FakeTinker()
    monkeypatch.setattr(session, "library", lambda: made)
    monkeypatch.setattr(session, "monotonic", made.clock)
    yield made
    made.over.set()


@pytest.fixture
def recipe(tmp_path):
    """Makes it, with other keys of the engine, of the node "big", and of the whole recipe."""
    folder = tiny.save(tmp_path / "model")

    def made(engine=(), big=(), **changes):
        engine = {
            **{"name": "tinker", "url": "http://127.0.0.1:9", "tokenizer": folder, **PAID},
            **dict(engine),
        }
        big = {
            **{"model": MODEL, "lora": {"r": 4}, "learning_rate": 1e-2, "engine": engine},
            **dict(big),
        }
        small = {"model": folder, "device": "cpu", "learning_rate": 1e-2}
        tree = {**tiny.RECIPE, "node": {"big": big, "small": small}, "plan": "horizontal"}
        objective = {"method": "lws", "weight": "likelihood", **changes.pop("objective", {})}
        return from_tree({**tree, "objective": objective, **changes})

    return made
