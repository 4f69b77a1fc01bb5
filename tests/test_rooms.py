"""The floor plan: which room may open the door of which.

    types <- objective | tasks | model <- rollout | exchange | schedule <- node
    node <- builder <- evaluation <- launch | preflight | replay <- cli
    types <- fields <- objective, tasks, rollout <- config <- node, builder, launch, cli ...
    reports <- node; reports <- events <- launch, replay, demo, cli
    types, reports, events <- display, trackers <- launch, demo, replay, cli
    types, reports, status, recorded, display, exchange <- web <- demo, cli
    status <- exchange, launch, replay; recorded <- node

``objective``, ``tasks``, ``rollout``, ``exchange`` and ``schedule`` do not know each other;
only ``node`` sees them all. ``rollout`` sees ``model``, the policy. A room that read ``config``
could not be used without a run; the options of a task or an engine stand in its own room, where
``config`` finds them. ``display`` and ``trackers`` know what a run reports and tells, and nothing
of how it is made. ``files`` and ``version`` import nothing and are for everybody. Torch stays out
of whatever a person waits for: seconds pass while it is imported.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import potluck

ROOT = Path(potluck.__file__).parent
FIVE = {"objective", "tasks", "rollout", "exchange", "schedule"}
EVERYBODY_MAY = {"files", "version"}
MAY_IMPORT = {
    "types": set(),
    "reports": set(),
    "events": {"reports"},
    "files": set(),
    "version": set(),
    "recorded": set(),
    "status": set(),
    "config": {"exchange", "fields", "objective", "rollout", "tasks", "types"},
    "objective": {"fields", "torch"},
    "tasks": {"fields", "types"},
    "model": {"torch", "types"},
    "rollout": {"fields", "model", "torch", "types"},
    "exchange": {"fields", "status", "types"},
    "schedule": {"types"},
    "node": {"config", "model", "recorded", "reports", "torch", "types"} | FIVE,
    "display": {"events", "objective", "reports", "types"},
    "trackers": {"events", "reports", "torch", "types"},
    "builder": {"config", "model", "node", "torch", "types"} | FIVE,
    "evaluation": {"builder", "config", "model", "node", "torch", "types"} | FIVE,
    "launch": {
        "builder",
        "config",
        "evaluation",
        "events",
        "node",
        "reports",
        "status",
        "torch",
        "trackers",
        "types",
    }
    | FIVE,
    "preflight": {"builder", "config", "fields", "model", "torch", "trackers"} | FIVE,
    "replay": {
        "builder",
        "config",
        "display",
        "evaluation",
        "fields",
        "node",
        "reports",
        "status",
        "torch",
        "types",
    }
    | FIVE,
    "web": {"display", "exchange", "recorded", "reports", "status", "types"},
    "demo": {"STARTING_RECIPE", "config", "display", "events", "types", "web"},
    "cli": {
        "STARTING_RECIPE",
        "builder",
        "config",
        "demo",
        "display",
        "evaluation",
        "events",
        "exchange",
        "launch",
        "node",
        "preflight",
        "replay",
        "types",
        "web",
    },
    "__init__": {"config", "display", "launch", "preflight", "types"},
    "__main__": {"cli"},
    "fields": {"types"},
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
        assert not MAY_IMPORT[room] & (FIVE | {"config", "node", "builder", "launch"})


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_room_opens_only_its_doors(room):
    alone = ROOT / f"{room}.py"
    files = [(alone, "potluck")] if alone.exists() else []
    files += [(f, f"potluck.{room}") for f in (ROOT / room).rglob("*.py")]
    assert files
    opened = {door for file, package in files for door in doors(file.read_text(), package)}
    assert opened - {room} <= MAY_IMPORT[room] | EVERYBODY_MAY


def loaded_by(*modules):
    """What is imported in the end, in a process of its own: here everything already is."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT.parent)!r}); "
        f"import {', '.join(modules)}; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return set(done.stdout.split())


def test_whoever_only_reads_a_recipe_a_message_or_a_run_never_waits_for_torch():
    rooms = ("config", "exchange", "schedule", "display", "tasks", "trackers", "events", "reports")
    light = {
        f"potluck.{room}"
        for room in (*rooms, "launch.local_swarm", "preflight.doctor.examine", "web.serve")
    } | {"potluck.web.place", "potluck.web.kept"}
    loaded = loaded_by("potluck", "potluck.cli", *light)
    assert light | {"potluck.types"} <= loaded
    assert not {"torch", "transformers", "matplotlib", "potluck.launch.rounds"} & loaded
    # An extra brings them: nobody needs them who opens no page.
    assert not {"starlette", "uvicorn"} & loaded_by("potluck.cli", "potluck.web.kept")
    assert "torch" not in loaded_by("potluck.demo.run")  # each of its runs is another process


def test_the_public_interface_is_what_it_says_and_loads_torch_at_its_first_use():
    from potluck.display import runs
    from potluck.launch import in_process, rounds
    from potluck.preflight import plan

    assert potluck.run is in_process.run
    assert potluck.join is in_process.join
    assert potluck.RunResult is rounds.RunResult
    assert potluck.read_run is runs.read_run
    assert potluck.plan_cost is plan.plan_cost
    assert set(potluck.__all__) <= set(dir(potluck))
    for name in potluck.__all__:
        assert getattr(potluck, name) is not None
    with pytest.raises(AttributeError, match="module 'potluck' has no attribute 'walk'"):
        _ = potluck.walk


def test_the_page_of_the_interface_names_all_of_it_and_nothing_else():
    page = (ROOT.parents[1] / "docs" / "api.md").read_text()
    named = set(re.findall(r"^\| `([A-Za-z_]+)", page, re.MULTILINE))
    assert named == set(potluck.__all__)
