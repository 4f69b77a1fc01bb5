"""``potluck compare``: what may stand for a side, and what each option changes."""

import json

import pytest

import tiny
from potluck.config import as_tree
from potluck.launch.in_process import run


@pytest.fixture
def tree(desk):
    """A recipe of a second."""
    nodes = dict.fromkeys(("small", "twin"), tiny.save(desk / "model"))
    words = ("rounds=1", "plan=horizontal", "objective.method=lws", 'control=["half"]', "seed=3")
    return as_tree(tiny.recipe(nodes, *words))


@pytest.fixture
def recipes(desk, tree):
    (desk / "a.json").write_text(json.dumps(tree))
    (desk / "b.json").write_text(json.dumps({**tree, "problems_per_round": 3}))
    return "a.json", "b.json"


@pytest.fixture
def started(monkeypatch):
    """The runs that would be processes of their own, made in this one."""
    runs = []

    def make(made, console, *, options=()):
        for each in made:
            if not each.is_done:
                run(each.config, each.folder, display=None, trust_code="--trust-code" in options)
                runs.append((each.folder.as_posix(), each.config, tuple(options)))
        return True

    monkeypatch.setattr("potluck.cli.comparing.run_side_by_side", make)
    return runs


def test_recipes_are_run_with_equal_seeds_and_then_folders_do(desk, recipes, potluck_says, started):
    words = "compare", *recipes, "--out", "found"
    code, said, complaint = potluck_says(*words, "--seeds", "2", "--set", "group_size=3")
    assert (code, complaint) == (0, "")
    assert [folder for folder, *_ in started] == [
        f"found/{side}/seed-{seed}" for side in "ab" for seed in (3, 4)
    ]
    assert [(its.seed, its.group_size, its.control) for _, its, _ in started] == [
        (3, 3, ()), (4, 3, ()), (3, 3, ()), (4, 3, ()),
    ]  # fmt: skip
    assert len({its.name for _, its, _ in started}) == 4
    assert "over 2 pairs of seeds" in said
    assert "A: found/a/seed-3 and 1 more" in said.splitlines()
    files = [desk / "found" / f"compare.{kind}" for kind in ("json", "md", "png")]
    first = [file.read_bytes() for file in files]
    for sides in (("found/a", "found/b"), ("found/a/*", "found/b/seed-3,found/b/seed-4")):
        started.clear()
        code, again, complaint = potluck_says("compare", *sides, "--out", "found")
        assert (code, complaint, again, started) == (0, "", said, [])
        assert [file.read_bytes() for file in files] == first
    assert first[-1].startswith(b"\x89PNG")


def test_a_recipe_may_meet_a_run(desk, recipes, potluck_says, started):
    assert potluck_says("compare", *recipes, "--seeds", "1", "--trust-code")[0] == 0
    assert {options for *_, options in started} == {("--trust-code",)}
    code, said, complaint = potluck_says(
        *("compare", "runs/compare/a/seed-3", "b.json", "--seeds", "1")
    )
    assert (code, complaint) == (0, "")
    found = json.loads((desk / "runs/compare/compare.json").read_text())
    assert found["runs"] == [["runs/compare/a/seed-3", "runs/compare/b/seed-3"]]
    assert found["verdict"] in said.splitlines()


def test_a_finished_run_from_a_node_of_another_is_not_made_again(
    desk, recipes, tree, potluck_says, started
):
    run(tree, desk / "begun", display=None)
    models = [f"node.{name}.model=begun/{name}" for name in tree["node"]]
    words = "compare", *recipes, "--seeds", "1", *(x for m in models for x in ("--set", m))
    for made in (2, 0):
        started.clear()
        assert potluck_says(*words)[0] == 0
        assert len(started) == made


def test_five_runs_of_each_are_made_and_ctrl_c_saves_them(recipes, potluck_says, monkeypatch):
    planned, given = [], []

    def stopped(runs, console, *, options=()):
        planned.extend(runs)
        given.extend(options)
        return False

    monkeypatch.setattr("potluck.cli.comparing.run_side_by_side", stopped)
    code, said, _ = potluck_says("compare", *recipes, "--allow-key", "KEY=host")
    assert (code, said) == (130, "stopped, saved; the same command goes on\n")
    assert [each.config.seed for each in planned] == [3, 4, 5, 6, 7] * 2
    assert given == ["--allow-key=KEY=host"]


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["a.json"], "compare takes two sides, A and B, and got 1; name a folder"),
        (["a.json", "b.json", "c"], "got 3; name a folder that holds the runs of a side, or put"),
        (["x", "y", "--seeds", "2"], "--seeds and --set are for recipes, but A and B are runs"),
        (["a.json", "other.json"], "A and B have another task or [[reward]]"),
        (["nowhere", "a.json"], "there is no run folder nowhere"),
    ],
)
def test_what_is_wrong_is_a_line(recipes, tree, desk, potluck_says, monkeypatch, words, complaint):
    monkeypatch.setattr("potluck.cli.comparing.run_side_by_side", lambda *a, **b: True)
    other = {**tree, "task": {**tree["task"], "train_problems": 100}}
    (desk / "other.json").write_text(json.dumps(other))
    code, said, complained = potluck_says("compare", *words)
    assert (code, said, complained.count("\n")) == (2, "", 1)
    assert complaint in complained
