from pathlib import Path

import pytest

from potluck.reports.runs import RunReadError, read_recipe, read_run, read_status
from potluck.types import PotluckError
from show.terminal.run_folders import make_run, metrics


def test_a_run_is_read_with_its_nodes_in_the_order_of_the_recipe(tmp_path):
    path = make_run(tmp_path / "run", "small", "large", rounds=[metrics(0), metrics(1)])
    run = read_run(path)
    assert [node.name for node in run.nodes] == ["small", "large"]
    assert [each.round for each in run.nodes[0].rounds] == [0, 1]
    assert run.nodes[0].rounds[1].sources["large"].log_ratio_mean == -3.5
    assert run.nodes[0].rounds[1].sources["large"].k3 is None


@pytest.mark.parametrize(
    "last, rounds",
    [("{", 1), ('{"round": 1, "lo', 1), ('{"round": 1, "\xc3', 1), ('{"round": 1}', 2)],
)
def test_a_last_line_that_is_cut_is_left_out_and_one_that_is_whole_counts(tmp_path, last, rounds):
    path = make_run(tmp_path / "run", "small", rounds=[metrics(0)])
    with (path / "small" / "metrics.jsonl").open("a", encoding="latin-1") as file:
        file.write(last)  # within a character, too
    assert len(read_run(path).nodes[0].rounds) == rounds


@pytest.mark.parametrize("damage", [
    b'{"round": 1, "own\n', b'{"round": 1, "own{"round": 2}\n', b'{"round": "one"}\n',
    b'{"round": "one"}', b"{}\n", b"\x00\x00\x00\x00", b'{"round": 1, "seconds": {"\xff": 1}}\n',
    b"garbage", b'{"round": 1, "loss": NaN}\n',
    b'{"round": 1, "sources": ' + b"[" * 100_000 + b"\n",
], ids=list("abcdefghij"))  # fmt: skip
def test_other_damage_is_one_error_with_file_line_and_way_out(tmp_path, damage):
    path = make_run(tmp_path / "run", "small", rounds=[metrics(0)])
    file = path / "small" / "metrics.jsonl"
    file.write_bytes(file.read_bytes() + damage)
    with pytest.raises(RunReadError, match=r"metrics\.jsonl, line 2: .*; delete that line") as told:
        read_run(path)
    assert isinstance(told.value, PotluckError)


def test_a_round_that_a_resumed_run_tells_anew_replaces_the_first_telling(tmp_path):
    lines = [metrics(0), metrics(1, completions=1), metrics(1, completions=2), metrics(2)]
    rounds = read_run(make_run(tmp_path / "run", "small", rounds=lines)).nodes[0].rounds
    assert [(each.round, each.completions) for each in rounds] == [(0, 100), (1, 2), (2, 100)]


def test_a_folder_that_is_not_there_or_has_no_recipe_is_no_run(tmp_path):
    for path, why in {
        tmp_path / "nowhere": r"there is no run folder .*nowhere; 'ls runs' lists",
        tmp_path: r"is no run: it has no recipe\.json; name the folder",
    }.items():
        with pytest.raises(RunReadError, match=why):
            read_run(path)


def test_a_run_folder_that_is_spelled_nearly_so_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/digits"), "small")
    for wrong in ("runs/digit", "digits"):
        with pytest.raises(RunReadError, match=f"folder {wrong}; did you mean runs/digits\\?"):
            read_run(Path(wrong))


def test_the_settings_are_every_key_of_the_recipe_as_text(tmp_path):
    path = make_run(tmp_path / "run", "small", swarm={"max_staleness": 3})
    recipe = read_recipe(path)
    assert (recipe.swarm.max_staleness, recipe.pace) == (3, "together")
    assert recipe.settings["swarm.max_staleness"] == "3"
    assert recipe.settings["node.small.model"] == "builtin:digits-small"


def test_a_status_that_is_not_there_or_damaged_is_none(tmp_path):
    assert read_status(tmp_path) is None
    (tmp_path / "status.json").write_text('{"own": 3}')
    assert read_status(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": 3}', b"\xff"])
def test_a_damaged_recipe_is_told(tmp_path, content):
    (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(RunReadError, match=r"recipe\.json cannot be read"):
        read_run(tmp_path)


@pytest.mark.parametrize("name", ["../other", "", "a/b", "\x1b[31m", "Small"])
def test_a_recipe_cannot_lead_out_of_the_run_folder(tmp_path, name):
    changed = {name: {"model": "m"}}
    path = make_run(tmp_path / "run", node=changed)
    with pytest.raises(RunReadError, match="has a node") as told:
        read_run(path)
    assert "\x1b" not in str(told.value)


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path):
    path = make_run(tmp_path / "run", "small")
    (path / "small" / "metrics.jsonl").mkdir()
    with pytest.raises(RunReadError, match=r"metrics\.jsonl cannot be opened"):
        read_run(path)
