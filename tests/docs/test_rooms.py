"""The floor plan of CONTRIBUTING.md: which room may open the door of which. Torch stays out of
whatever a person waits for: seconds pass while it is imported."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import potluck

ROOT = Path(potluck.__file__).parent
FIVE = {"objective", "tasks", "rollout", "exchange", "schedule"}
EVERYBODY_MAY = {
    "blocks",
    "collector",
    "confined",
    "episode",
    "file_forms",
    "files",
    "intervals",
    "proxies",
    "right",
    "search_path",
    "version",
}
PLAN = {
    "types": "",
    "episode": "types",
    "fields": "types",
    "blocks": "",
    "collector": "",
    "confined": "",
    "file_forms": "",
    "files": "",
    "proxies": "",
    "right": "types",
    "search_path": "",
    "intervals": "",
    "template": "torch",
    "version": "",
    "config": "exchange fields objective rollout tasks types",
    "objective": "fields torch",
    "tasks": "fields template types",
    "model": "template torch types",
    "rollout": "fields model torch types",
    "exchange": "fields reports types",
    "schedule": "types",
    "reports": "types",
    "show": "reports show.terminal show.trackers types",
    "show.terminal": "objective reports types",
    "show.trackers": "reports torch types",
    "show.web": "exchange reports show.terminal types",
    "node": "FIVE config model reports torch types",
    "builder": "FIVE config fields model node show.trackers torch types",
    "evaluation": "FIVE builder config model node reports torch types",
    "launch": "FIVE builder config evaluation node reports show.notebook show.terminal"
    " show.trackers torch types",
    "doctor": "FIVE builder config fields torch types",
    "replay": "FIVE builder config evaluation fields model node reports show.terminal torch types",
    "demo": "config launch reports show.terminal show.web types",
    "cli": "STARTING_RECIPE builder config demo doctor evaluation exchange launch node replay"
    " reports show.terminal show.web tasks types",
    "__init__": "builder config launch show.notebook show.terminal types",
    "__main__": "cli",
}
MAY_IMPORT = {
    room: {*names.removeprefix("FIVE").split()} | (FIVE if names.startswith("FIVE") else set())
    for room, names in PLAN.items()
}
NO_CODE = {"models", "py.typed", "recipe.toml", "recipe-maze.toml", "recipe-calculator.toml"}
"""What is in the house and is no room: it holds no Python."""


def doors(source, package):
    """The rooms (and torch, and names of the root) that a module of ``package`` imports."""
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


def test_torch_is_seen_by_whatever_name_it_comes_and_what_is_no_door_is_not():
    for source in ("import torch.nn as nn", "from transformers import x"):
        assert set(doors(source, "potluck.objective")) == {"torch"}
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
    code = f"import sys; sys.path.insert(0, {str(ROOT.parent)!r}); import {', '.join(modules)}"
    words = [sys.executable, "-c", f"{code}; print(*sys.modules)"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


def test_whoever_only_reads_a_recipe_a_message_or_a_run_never_waits_for_torch():
    rooms = "config exchange schedule show.terminal tasks show.trackers reports doctor.examine"
    pages = "show.web.server show.web.place show.web.page"
    others = ["launch.local_swarm", "evaluation.request"]
    light = {f"potluck.{room}" for room in [*rooms.split(), *pages.split(), *others]}
    loaded = loaded_by("potluck", "potluck.cli", *light)
    assert light | {"potluck.types"} <= loaded
    assert not {"torch", "transformers", "matplotlib", "potluck.launch.rounds"} & loaded
    # An extra brings them: nobody needs them who opens no page.
    assert not {"starlette", "uvicorn"} & loaded_by("potluck.cli", "potluck.show.web.page")
    # Each run of the demo is another process; its picture is drawn without a window.
    assert not {"torch", "matplotlib.pyplot"} & loaded_by("potluck.demo.run")


def test_the_public_interface_is_what_it_says_and_loads_torch_at_its_first_use():
    assert set(potluck.__all__) <= set(dir(potluck))
    for name in potluck.__all__:
        assert getattr(getattr(potluck, name), "__name__", name) == name
    with pytest.raises(AttributeError, match="module 'potluck' has no attribute 'walk'"):
        _ = potluck.walk


def test_the_page_of_the_interface_names_all_of_it_and_nothing_else():
    page = (ROOT.parents[1] / "docs" / "api.md").read_text()
    named = set(re.findall(r"^\| `([A-Za-z_]+)", page, re.MULTILINE))
    assert named == set(potluck.__all__)
