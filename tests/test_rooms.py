"""The floor plan: which room may open the door of which.

    types <- objective | tasks | rollout | exchange | swarm <- node
    node <- assemble <- launch | check | evaluation | replay <- cli
    types <- config <- node, assemble, launch, check, evaluation, demo and cli
    types <- dashboard <- processes <- cli
    config, exchange <- doctor <- cli
    types <- dashboard <- demo, replay, cli
    types <- trackers <- launch, check
    config, dashboard, launch, check <- reproduce <- cli

The five rooms in the middle do not know each other; only ``node`` sees them all. A room
that read ``config`` could not be used without a run. ``dashboard`` reads files. Torch
stays out of whatever a person waits for: seconds pass while it is imported.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import potluck

ROOT = Path(potluck.__file__).parent
FIVE = {"objective", "tasks", "rollout", "exchange", "swarm"}
MAY_IMPORT = {
    "types": set(),
    "config": {"types"},
    "objective": {"torch"},
    "tasks": {"types"},
    "rollout": {"types", "torch"},
    "exchange": {"types"},
    "swarm": {"types"},
    "node": {"types", "config", "torch", "__version__"} | FIVE,
    "dashboard": {"types"},
    "trackers": {"types", "torch"},
    "assemble": {"types", "config", "torch", "node"} | FIVE,
    "signals": set(),
    "processes": {"signals", "types", "config", "dashboard", "exchange"},
    "doctor": {"config", "exchange", "processes"},
    "launch": {"signals", "types", "config", "torch", "node", "assemble", "trackers"} | FIVE,
    "check": {"config", "torch", "assemble", "trackers", "rollout", "swarm", "tasks"},
    "evaluation": {"types", "config", "torch", "node", "assemble", "__version__"} | FIVE,
    "replay": {"types", "config", "dashboard", "torch", "node", "assemble"} | FIVE,
    "export": {"torch", "node", "rollout"},
    "demo": {"types", "config", "dashboard", "STARTING_RECIPE"},
    "reproduce": {
        *("signals", "types", "config", "dashboard", "torch"),
        *("node", "assemble", "launch", "check", "rollout"),
    },
    "cli": {
        *("types", "config", "dashboard", "assemble", "STARTING_RECIPE", "__version__"),
        *("launch", "check", "evaluation", "replay", "export", "demo"),
        *("signals", "processes", "exchange", "doctor", "reproduce"),
    },
    "__init__": {"types", "config", "launch"},
    "__main__": {"cli"},
}
NO_CODE = {"models", "recipe.toml", "py.typed"}
"""What is in the house and is no room: it holds no Python."""


def doors(source, package):
    """The rooms (and torch, and names of the root) that a module of ``package`` imports.

    However it does so: in a function, under TYPE_CHECKING, relative to itself.
    """
    for node in ast.walk(ast.parse(source)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            module = ".".join(above + ([node.module] if node.module else []))
            names = [f"{module}.{a.name}" for a in node.names]
        for name in names:
            top, *rest = name.split(".")
            if top == "potluck" and rest:
                yield rest[0]
            elif top in ("torch", "transformers"):
                yield "torch"


@pytest.mark.parametrize(
    "source",
    [
        "import potluck.node",
        "from potluck.node.loop import Node",
        "from potluck import node",
        "from .. import node",
        "from ..node import Node",
        "def later(): from potluck import node as n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from potluck.node import Node",
    ],
)
def test_a_door_is_seen_however_it_is_opened(source):
    assert set(doors(source, "potluck.objective")) == {"node"}


@pytest.mark.parametrize("source", ["import torch.nn as nn", "from transformers import x"])
def test_torch_is_seen_by_whatever_name_it_comes(source):
    assert set(doors(source, "potluck.objective")) == {"torch"}


def test_what_is_not_a_door_is_not_taken_for_one():
    innocent = "import types\nfrom types import MappingProxyType\nfrom . import losses"
    assert set(doors(innocent, "potluck.objective")) <= {"objective"}


def test_everything_in_the_house_is_on_the_plan():
    there = {p.name for p in ROOT.iterdir() if p.name != "__pycache__"}
    rooms = {name for name in there if (ROOT / name).is_dir() and name not in NO_CODE}
    files = {name for name in there - rooms if name.endswith(".py")}
    assert rooms | {name.removesuffix(".py") for name in files} == set(MAY_IMPORT)
    assert there - rooms - files == NO_CODE
    assert not list((ROOT / "models").rglob("*.py"))


def test_the_five_rooms_do_not_know_each_other():
    for room in FIVE:
        assert not MAY_IMPORT[room] & (FIVE | {"config", "node", "assemble", "launch"})


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_room_opens_only_its_doors(room):
    alone = ROOT / f"{room}.py"
    files = [(alone, "potluck")] if alone.exists() else []
    files += [(f, f"potluck.{room}") for f in (ROOT / room).rglob("*.py")]
    assert files
    opened = {door for file, package in files for door in doors(file.read_text(), package)}
    assert opened - {room} <= MAY_IMPORT[room]


def loaded_by(*modules):
    """What is imported in the end, in a process of its own: here everything already is."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT.parent)!r}); "
        f"import {', '.join(modules)}; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_whoever_only_reads_a_recipe_a_message_or_a_run_never_waits_for_torch():
    rooms = ("config", "exchange", "swarm", "dashboard", "tasks", "trackers")
    light = {f"potluck.{room}" for room in (*rooms, "processes", "doctor")}
    loaded = loaded_by("potluck", "potluck.cli", *light)
    assert light | {"potluck.types"} <= loaded
    assert not {"torch", "transformers", "matplotlib", "potluck.launch"} & loaded
    assert "torch" not in loaded_by("potluck.demo")  # each of its runs is another process


def test_run_is_loaded_with_its_first_use_and_is_that_of_launch():
    from potluck import launch

    assert potluck.run is launch.run
    assert potluck.RunResult is launch.RunResult
    assert set(potluck.__all__) <= set(dir(potluck)) | {"run", "RunResult"}
    with pytest.raises(AttributeError, match="module 'potluck' has no attribute 'walk'"):
        _ = potluck.walk
