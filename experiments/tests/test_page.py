"""The cells on the page of ``potluck watch``: found, read, and drawn in a browser."""

import json
import time
import tomllib
from importlib.metadata import EntryPoint
from itertools import product
from pathlib import Path

import pytest

from potluck.show.web.folder import NotHereError
from potluck.show.web.page import live_page
from potluck.show.web.place import Place
from show.web.browser.conftest import address, browser, show, told  # noqa: F401


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The feed as its distribution registers it, installed here or not."""
    tree = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    group = "potluck.feeds"
    entries = [EntryPoint(*each, group) for each in tree["project"]["entry-points"][group].items()]
    monkeypatch.setattr("potluck.show.web.page.entry_points", lambda group: entries)
    live_page.cache_clear()
    yield
    live_page.cache_clear()


def write_cell(folder, name):
    family, models, setting, seed = name.split(".")
    cell = {"family": family, "models": models.split("+"), "setting": setting, "seed": int(seed)}
    node = {"eval_rounds": [0, 2], "greedy": [0.25, 0.5], "sampled": [0.25, 0.5, 0.75]}
    node |= {"tokens": [9, 9, 9], "seconds": [2.5] * 3}
    tree = {**cell, "node": dict.fromkeys(cell["models"], node)}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{family}.jsonl").open("a") as file:
        file.write(json.dumps(tree) + "\n")


def test_experiments_are_the_families_of_a_scale(tmp_path):
    cells = tmp_path / "cells" / "tiny"
    for seed in range(2):
        write_cell(cells, f"digits.small+large.lws.{seed}")
    write_cell(cells, "chain.small.alone.0")
    with (cells / "digits.jsonl").open("a") as file:
        file.write('damaged\n{"family": "digits"}\n')
    write_cell(cells, "digits.small+large.lws.1")  # run again
    progress = {"total": {"digits": 8}, "running": ["digits.small.lws.0", "chain.small.lws.0"]}
    (cells / "progress.json").write_text(json.dumps({**progress, "time_s": time.time()}))
    place = Place([tmp_path])
    found = {entry.experiment: entry for entry in place.start().experiments}
    assert {name: (entry.done, entry.total, entry.running) for name, entry in found.items()} == {
        "cells/tiny:chain": (1, None, ["chain.small.lws.0"]),
        "cells/tiny:digits": (2, 8, ["digits.small.lws.0"]),
    }
    (cells / "progress.json").write_text(json.dumps({**progress, "time_s": time.time() - 3600}))
    assert not any(entry.running for entry in Place([tmp_path]).start().experiments)
    view = place.experiment("cells/tiny:digits")
    assert [(cell.group, cell.setting, cell.seed) for cell in view.cells] == [
        ("digits: small + large", "lws", 0), ("digits: small + large", "lws", 1),
    ]  # fmt: skip
    columns = view.cells[0].nodes["small"]
    assert (columns["round"], columns["greedy_round"]) == ([0, 1, 2], [0, 2])
    assert (columns["sampled"], columns["greedy"]) == ([0.25, 0.5, 0.75], [0.25, 0.5])


def test_no_id_leads_out_of_the_folder(tmp_path):
    write_cell(tmp_path / "cells" / "tiny", "digits.small.alone.0")
    (tmp_path / "here").mkdir()
    for name in ("../cells/tiny:digits", "cells/tiny:digits", ":digits", ""):
        with pytest.raises(NotHereError):
            Place([tmp_path / "here"]).experiment(name)


@pytest.fixture
def started(told, tmp_path):  # noqa: F811
    for setting, seed in product(("alone", "half", "f-tis", "lws"), range(3)):
        write_cell(tmp_path / "cells" / "tiny", f"digits.large+small.{setting}.{seed}")
    told.other = Place([tmp_path]).experiment("cells/tiny:digits")
    return told


@pytest.mark.page
def test_the_start_page_leads_to_an_experiment(started, address, show):  # noqa: F811
    page = show(address)
    page.get_by_role("link", name="fig04_size, tiny").click()
    page.get_by_role("heading", name="large: own sampled reward").wait_for()
    assert page.locator("path.band").first.get_attribute("d").endswith("Z")
    page.get_by_role("combobox", name="Measure", exact=True).select_option(label="Greedy accuracy")
    page.get_by_role("heading", name="small: greedy accuracy").wait_for()
    page.set_viewport_size({"width": 360, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("link", name="Potluck").click()
    page.get_by_text("recipe.json is not JSON").wait_for()
