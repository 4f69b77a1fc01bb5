"""A disk damages a run's folder: what goes on is the run without the damage, or a line tells.

POTLUCK_SOAK=1 python -m pytest -n0 tests/faults/test_folders.py -s
"""

import json
import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tiny
from launch.runs import Hears, crash
from potluck.config import load
from potluck.launch.in_process import run
from potluck.types import PotluckError

SOAK = os.environ.get("POTLUCK_SOAK")
PACES = {"step": (), "free": ("pace=free", "plan=horizontal")}
NODES = ("large", "small")
LOOKED_AT = (
    *("README.md", "events.jsonl", "recorded.jsonl", "problems.jsonl"),
    *("evaluation.jsonl", "status.json"),
)
"""Files that nothing is calculated from, by name."""


@dataclass(frozen=True)
class Crashed:
    """A run that died in its third round of four, and what it would have come to."""

    folder: Path
    rewards: dict
    weights: dict

    @classmethod
    def make(cls, models, place, *overrides):
        several = ("rounds=4", "checkpoint_every=1", "problems_per_round=2", "evaluation.every=2")
        config = tiny.recipe(models, *several, *overrides)
        run(config, place / "whole")
        crash(config, place / "run", 2)
        return cls(place / "run", *ended(place / "whole"))


@dataclass(frozen=True)
class Outcome:
    """End of a resume: "equal", "told" or "silent"; "traceback" of an error that is no line."""

    kind: str
    file: str = ""
    lines: list = field(default_factory=list)


def ended(folder):
    """The rewards of each node by round, and its last weights."""
    rewards, weights = {}, {}
    for name in NODES:
        text = (folder / name / "metrics.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        rewards[name] = [[line[key] for key in ("round", "own_reward_mean", "sources")]
                         for line in lines]  # fmt: skip
        place = max((folder / name / "checkpoints").iterdir())
        weights[name] = (place / "model.safetensors").read_bytes()
    return rewards, weights


def resume(crashed, place, damage, *overrides):
    """Copy the folder, ``damage`` it, go on by the recipe in it; tell what came of it.

    ``damage`` returns the damaged file, of which a line must have the name.
    """
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(crashed.folder, place)
    name, ears = damage(place).relative_to(place).as_posix(), Hears()
    try:
        run(load(place / "recipe.json", overrides), place, resume=True, display=ears)
    except PotluckError as error:
        lines = [str(error)]
        is_line = "\n" not in lines[0] and is_named(name, lines)
        return Outcome("told" if is_line else "unclear", name, lines)
    except Exception as error:
        return Outcome("traceback", name, [repr(error)])
    if ended(place) == (crashed.rewards, crashed.weights):
        return Outcome("equal", name, ears.said)
    return Outcome("told" if is_named(name, ears.said) else "silent", name, ears.said)


def is_named(file, lines):
    """Whether a line names the file, or, of a checkpoint's, the sum that it lacks."""
    return any(file in line or Path(file).name in line for line in lines)


def flip(dice):
    """Damage one byte of one file: a bit of it, or all."""

    def damage(place):
        there = (each for each in place.rglob("*") if each.is_file() and each.stat().st_size)
        file = dice.choice(sorted(there))
        data = bytearray(file.read_bytes())
        bits = dice.choice([1 << dice.randrange(8), dice.randrange(1, 256)])
        data[dice.randrange(len(data))] ^= bits
        file.write_bytes(data)
        return file

    return damage


def told(outcomes):
    kinds = Counter(outcome.kind for outcome in outcomes)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def bad(outcomes):
    return [outcome for outcome in outcomes if outcome.kind not in ("equal", "told")]


def of(name, change):
    """Damage the file ``name`` of the node ``small``, or of the run: ``change`` takes bytes."""

    def damage(place):
        file = place / name if (place / name).is_file() else place / "small" / name
        file.write_bytes(change(file.read_bytes()))
        return file

    return damage


def mantissas(data):
    """Flip the lowest bits of 2,000 numbers."""
    dice, data = random.Random(3), bytearray(data)
    start = 8 + int.from_bytes(data[:8], "little")
    for _ in range(2000):
        data[start + 4 * dice.randrange((len(data) - start) // 4) + 1] ^= 1 << dice.randrange(8)
    return bytes(data)


def middle(data):
    """Cut a line in the middle short."""
    lines = data.splitlines(keepends=True)
    at = (len(lines) - 1) // 2
    return b"".join([*lines[:at], lines[at][:9] + b"\n", *lines[at + 1 :]])


def tail(data):
    return data[: data.rstrip().rindex(b"\n") + 12]


LAST, ROUND = "checkpoints/000002", "rounds/000002.ptlk"
FAULTS = {
    "weights, 2,000 mantissas": of(f"{LAST}/model.safetensors", mantissas),
    "moments, 2,000 mantissas": of(f"{LAST}/optimizer.safetensors", mantissas),
    "state.json torn": of(f"{LAST}/state.json", lambda data: data[:20]),
    "task.json torn": of("task.json", lambda data: data[:20]),
    "recipe, a digit": of("recipe.json", lambda data: data.replace(b"0.001", b"0.003")),
    "metrics, last line torn": of("metrics.jsonl", tail),
    "metrics, a line torn": of("metrics.jsonl", middle),
    "round flipped": of(ROUND, lambda data: data[:200] + b"\xff\x00" + data[202:]),
}
"""One for each way in which a file is read: weights, moments, JSON, lines, a round, a recipe."""


@pytest.fixture(scope="module", params=PACES if SOAK else ["step"])
def crashed(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    models = {name: tiny.save(place / name, seed) for seed, name in enumerate(NODES)}
    return Crashed.make(models, place, *PACES[request.param])


@pytest.mark.skipif(not SOAK, reason="a byte anywhere: looked for by make soak")
def test_a_flipped_byte_of_any_file_changes_nothing_or_is_told(crashed, tmp_path):
    dice = random.Random(2)
    outcomes = [resume(crashed, tmp_path / "run", flip(dice)) for _ in range(100)]
    print(f"\n{told(outcomes)}")
    assert not bad(outcomes)
    shown = [each for each in outcomes if each.file.endswith(LOOKED_AT)]
    assert [each for each in shown if each.kind != "equal"] == []


def test_each_fault_changes_nothing_or_is_told(crashed, tmp_path):
    outcomes = {name: resume(crashed, tmp_path / "run", make) for name, make in FAULTS.items()}
    print(f"\n{told(outcomes.values())}")
    assert not bad(outcomes.values())
    for name in ("recipe, a digit", "task.json torn"):
        assert outcomes[name].kind == "told"
    for name in ("weights, 2,000 mantissas", "moments, 2,000 mantissas", "round flipped"):
        ended = outcomes[name]
        assert ended.kind == "equal"
        assert any(ended.file in line for line in ended.lines)
