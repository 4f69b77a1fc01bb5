"""A stand-in for the library reasoning-gym, which is an extra: two data sets of powers."""

import dataclasses
import importlib.metadata
import sys
from types import SimpleNamespace


@dataclasses.dataclass
class Settings:
    seed: int
    size: int
    base: int = 2
    modulus: int = 10_000

    def validate(self):
        assert self.base > 0, "base must be positive"


class Powers:
    """What a data set of the library is: made by index, and a verifier of its own."""

    def __init__(self, config):
        self.config = config

    def __getitem__(self, i):
        n = (self.config.seed + i) % self.config.modulus
        question = f"{self.config.base} to the power of {n}?"
        return {"question": question, "answer": str(n) if n else None, "metadata": {"n": n}}

    def score_answer(self, answer, entry):
        if answer == "raise":
            raise RecursionError
        if answer.startswith("score "):
            return float(answer[6:])
        return 1.0 if answer == entry["answer"] else 0.1


def install(monkeypatch):
    """The library has the data sets "powers" and, of the same kind, "countdown"."""
    known = {"powers": (Powers, Settings), "countdown": (Powers, Settings)}

    def create_dataset(name, **parameters):
        config = known[name][1](**parameters)
        config.validate()
        return known[name][0](config)

    made = SimpleNamespace(create_dataset=create_dataset, __path__=[])
    monkeypatch.setitem(sys.modules, "reasoning_gym", made)
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", SimpleNamespace(DATASETS=known))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.25")
