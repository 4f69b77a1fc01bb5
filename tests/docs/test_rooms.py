"""The floor plan: which room may open the door of which.

    types <- objective | tasks | model <- rollout | exchange | schedule <- node
    node <- builder <- evaluation <- launch | doctor | replay <- cli
    types <- fields <- objective, tasks, rollout <- config <- node, builder, launch, cli ...
    types <- reports <- exchange, node, show.terminal, show.trackers, launch, replay, cli
    reports, show.terminal, show.trackers <- show.notebook <- launch
    reports, show.terminal, exchange <- show.web <- demo, cli

``objective``, ``tasks``, ``rollout``, ``exchange`` and ``schedule`` do not know each other;
only ``node`` sees them all. ``rollout`` sees ``model``, the policy. A room that read ``config``
could not be used without a run; the options of a task or an engine stand in its own room, where
``config`` finds them. ``show`` knows what a run reports and tells, and nothing of how it is made;
its three folders are rooms. ``confined``, ``files``, ``intervals`` and ``version`` are for
everybody. Torch stays out of whatever a person waits for: seconds pass while it is imported.
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
EVERYBODY_MAY = {"confined", "episode", "files", "intervals", "version"}
MAY_IMPORT = {
    "types": set(),
    "episode": {"types"},
    "fields": {"types"},
    "confined": set(),
    "files": set(),
    "intervals": set(),
    "template": {"torch"},
    "version": set(),
    "config": {"exchange", "fields", "objective", "rollout", "tasks", "types"},
    "objective": {"fields", "torch"},
    "tasks": {"fields", "template", "types"},
    "model": {"template", "torch", "types"},
    "rollout": {"fields", "model", "torch", "types"},
    "exchange": {"fields", "reports", "types"},
    "schedule": {"types"},
    "reports": {"types"},
    "show": {"reports", "show.terminal", "show.trackers", "types"},
    "show.terminal": {"objective", "reports", "types"},
    "show.trackers": {"reports", "torch", "types"},
    "show.web": {"exchange", "reports", "show.terminal", "types"},
    "node": {"config", "model", "reports", "torch", "types"} | FIVE,
    "builder": {"config", "fields", "model", "node", "show.trackers", "torch", "types"} | FIVE,
    "evaluation": {"builder", "config", "model", "node", "torch", "types"} | FIVE,
    "launch": {
        "builder",
        "config",
        "evaluation",
        "node",
        "reports",
        "show.notebook",
        "show.terminal",
        "show.trackers",
        "torch",
        "types",
    }
    | FIVE,
    "doctor": {"builder", "config", "fields", "torch", "types"} | FIVE,
    "replay": {
        "builder",
        "config",
        "evaluation",
        "fields",
        "model",
        "node",
        "reports",
        "show.terminal",
    }
    | {"torch", "types"}
    | FIVE,
    "demo": {
        "STARTING_RECIPE",
        "config",
        "launch",
        "reports",
        "show.terminal",
        "show.web",
        "types",
    },
    "cli": {"STARTING_RECIPE", "builder", "config", "demo", "doctor", "evaluation", "exchange"}
    | {"launch", "node", "replay", "reports", "show.terminal", "show.web", "tasks", "types"},
    "__init__": {"builder", "config", "launch", "show.notebook", "show.terminal", "types"},
    "__main__": {"cli"},
}
NO_CODE = {"models", "py.typed", "recipe.toml", "recipe-maze.toml", "recipe-calculator.toml"}
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
                yield ".".join(rest[:2]) if rest[0] == "show" else rest[0]
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
    rooms |= {f"show.{path.name}" for path in (ROOT / "show").iterdir() if path.is_dir()} - {
        "show.__pycache__"
    }
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
    folder = ROOT.joinpath(*room.split("."))
    found = folder.glob("*.py") if room == "show" else folder.rglob("*.py")
    files += [(f, f"potluck.{room}") for f in found]
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
    rooms = ("config", "exchange", "schedule", "show.terminal", "tasks", "show.trackers", "reports")
    light = {
        f"potluck.{room}"
        for room in (*rooms, "launch.local_swarm", "doctor.examine", "show.web.server")
    } | {"potluck.show.web.place", "potluck.show.web.page", "potluck.evaluation.request"}
    loaded = loaded_by("potluck", "potluck.cli", *light)
    assert light | {"potluck.types"} <= loaded
    assert not {"torch", "transformers", "matplotlib", "potluck.launch.rounds"} & loaded
    # An extra brings them: nobody needs them who opens no page.
    assert not {"starlette", "uvicorn"} & loaded_by("potluck.cli", "potluck.show.web.page")
    # Each run of the demo is another process; its picture is drawn without a window.
    assert not {"torch", "matplotlib.pyplot"} & loaded_by("potluck.demo.run")


def test_the_public_interface_is_what_it_says_and_loads_torch_at_its_first_use():
    from potluck.builder import plan
    from potluck.launch import in_process, rounds
    from potluck.show import notebook

    assert potluck.run is in_process.run
    assert potluck.join is in_process.join
    assert potluck.RunResult is rounds.RunResult
    assert potluck.BackgroundRun is in_process.BackgroundRun
    assert potluck.read_run is notebook.read_run
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
