"""Cells: which runs the experiments need, and that one that several need is one."""

from pathlib import Path

import pytest

from potluck.objective.methods import method_of
from potluck_experiments.cells import cells_of, make_cell, runs_of
from potluck_experiments.results import read_results
from potluck_experiments.suite import ExperimentError, read_suite
from small_suite import EXPERIMENT, RECIPE, SCALE, SETTINGS, finish, make_suite


def test_what_several_experiments_need_runs_once(tmp_path):
    suite = make_suite(tmp_path)
    size, same = suite.experiments
    names = [cell.name for cell in cells_of(suite, [size], "tiny", 1)]
    assert names == [
        "digits.small+large.f-tis.0", "digits.small.alone.0", "digits.large.alone.0",
    ]  # fmt: skip
    both = cells_of(suite, [size, same], "tiny", 3)  # alone, the twin is the first one
    assert [cell.name for cell in both[:4]] == [*names, "digits.small+twin.f-tis.0"]
    assert [cell.seed for cell in both] == [0] * 4 + [1] * 4 + [2] * 4
    assert all(cell.config.seed == cell.seed for cell in both)


TOGETHER = """
[partners]
title = "LWS"
together = [[0, 2], [1]]
"""
THREE = {
    "scale": SCALE.replace("pair = { ", 'pair = { three = ["small", "large", "twin"], '),
    "settings": SETTINGS + TOGETHER,
    "others": {
        "fig04_size/experiment.toml": EXPERIMENT.replace('"alone"]', '"alone", "partners"]')
    },
}


def test_a_setting_may_say_which_models_run_together(tmp_path):
    with pytest.raises(ExperimentError, match="'partners' is about more than the 2 models"):
        make_suite(tmp_path, **THREE)
    others = {k: v.replace("digits.size", "digits.three") for k, v in THREE["others"].items()}
    suite = make_suite(tmp_path, **THREE | {"others": others})
    wanted = runs_of(suite, suite.experiments[:1], "tiny")
    assert [models for _, models, setting in wanted if setting == "partners"] == [
        ("small", "twin"), ("large",),
    ]  # fmt: skip
    for cell in cells_of(suite, suite.experiments[:1], "tiny", 2):
        finish(suite, cell)
    found = read_results(suite, "tiny")
    assert set(found.runs["digits.three", "partners"][1]) == {"small", "large", "twin"}
    assert ("digits.size", "partners") not in found.runs  # a pair of fewer models


def test_a_node_beside_is_in_every_run_of_a_setting_and_is_no_model_of_it(tmp_path):
    def taught(place):
        settings = SETTINGS + f'[taught]\ntitle = "x"\nalone = true\nbeside = "{place}"\n'
        others = {"teachers.toml": '[node.twin]\nmodel = "builtin:digits-large"\n'}
        suite = make_suite(tmp_path, settings=settings, others=others)
        return make_cell(suite, "tiny", "digits", ("small",), "taught", 0)

    cell = taught("teachers.toml#twin")
    assert (cell.models, list(cell.config.node)) == (("small",), ["small", "twin"])
    assert cell.config.node["twin"].model == "builtin:digits-large"
    for place in ("teachers.toml#none", "nowhere.toml#twin"):
        with pytest.raises(ExperimentError, match=r"\[taught\] beside is|cannot read the recipe"):
            taught(place)


def test_a_cell_is_the_files_recipe_with_its_models_and_what_the_setting_changes(tmp_path):
    suite = make_suite(tmp_path)
    cell = make_cell(suite, "tiny", "digits", ("small", "twin"), "nois", 4)
    assert cell.config.name == "digits.small-twin.nois"
    assert cell.config.seed == 4
    assert list(cell.config.node) == ["small", "twin"]
    assert cell.config.node["small"] == cell.config.node["twin"]
    assert cell.config.node["twin"].model == "builtin:digits-small"
    assert (cell.config.objective.importance, cell.config.objective.filter) == ("none", False)
    plain = make_cell(suite, "tiny", "digits", ("small", "twin"), "f-tis", 4).config
    assert plain.objective.importance == "truncated"
    assert (plain.rounds, plain.sampling) == (cell.config.rounds, cell.config.sampling)


def test_a_scale_may_change_the_rates_of_a_setting_and_of_no_other(tmp_path):
    recipe = RECIPE.replace("[node.small]", "[node.small]\nlearning_rate = 3e-4")
    recipe = recipe.replace("[node.large]", "[node.large]\nlearning_rate = 1e-4")
    plain = make_suite(tmp_path / "plain", recipe=recipe)
    changed = make_suite(tmp_path / "changed", recipe=recipe, scale="rate = { nois = 2 }" + SCALE)
    pair = "digits", ("small", "large")
    rates = {name: [node.learning_rate for node in cell.config.node.values()]
             for name in ("nois", "f-tis")
             for cell in [make_cell(changed, "tiny", *pair, name, 0)]}  # fmt: skip
    assert rates == {"nois": [6e-4, 2e-4], "f-tis": [3e-4, 1e-4]}
    digests = {name: {make_cell(its, "tiny", *pair, name, 0).digest for its in (plain, changed)}
               for name in rates}  # fmt: skip
    assert {name: len(its) for name, its in digests.items()} == {"nois": 2, "f-tis": 1}
    with pytest.raises(ExperimentError, match=r"\[rate\] names the setting 'vis'"):
        make_suite(tmp_path / "wrong", scale="rate = { vis = 2 }" + SCALE)


def test_the_digest_changes_with_whatever_the_recipe_says_and_with_nothing_else(tmp_path):
    def digest(name, *, recipe=RECIPE, settings=SETTINGS, seed=0):
        suite = make_suite(tmp_path / name, recipe=recipe, settings=settings)
        return make_cell(suite, "tiny", "digits", ("small",), "alone", seed).digest

    same = digest("a")
    assert digest("elsewhere") == same
    assert digest("b", recipe=RECIPE.replace("group_size = 2", "group_size = 2  # so")) == same
    assert digest("c", recipe=RECIPE + "learning_rate = 1e-3") == same  # of the other node
    assert digest("d", recipe=RECIPE.replace("group_size = 2", "group_size = 3")) != same
    assert digest("e", seed=1) != same
    more = SETTINGS.replace("alone = true", 'alone = true\nset = ["node.small.weight=2"]', 1)
    assert digest("f", settings=more) != same


@pytest.mark.parametrize(
    ("changes", "setting", "told"),
    [
        ({"recipe": RECIPE.replace("per_round = 2", "per_round = 3")}, "half",
         r"0\.5 of problems_per_round = 3 is 1\.5"),
        ({"scale": SCALE.replace("recipe.toml#large", "other.toml#large"),
          "others": {"other.toml": RECIPE.replace("rounds = 2", "rounds = 3")}}, "f-tis",
         r"large comes from .*other\.toml, which differs"),
        ({"scale": SCALE.replace("recipe.toml#large", "recipe.toml#lagre")}, "f-tis",
         r"large is .*#lagre', but the nodes .* are small, large"),
    ],
)  # fmt: skip
def test_what_can_be_no_cell_is_refused(tmp_path, changes, setting, told):
    suite = make_suite(tmp_path, **changes)
    with pytest.raises(ExperimentError, match=told):
        make_cell(suite, "tiny", "digits", ("small", "large"), setting, 0)


def test_a_cell_whose_files_leave_method_and_plan_out_is_what_the_default_was_when_it_ran(tmp_path):
    suite = make_suite(tmp_path, recipe=RECIPE.replace('plan = "vertical"\n', ""))
    ran = make_cell(suite, "tiny", "digits", ("small",), "alone", 0)
    assert not {"plan", "objective"} & ran.recipe.keys()  # so its digest is as it was
    assert (method_of(ran.config.objective), ran.config.plan) == ("f-tis", "vertical")


def test_an_index_stands_for_a_model_a_pair_and_a_node_of_each_number(tmp_path):
    scale = SCALE.replace("seeds = 2", "seeds = 2\nindices = [3, 12]")
    scale = scale.replace('same = ["', '"two-{index}" = ["small", "large-{index}"], same = ["')
    scale = scale.replace("model = { ", 'model = { "large-{index}" = "r.toml#big-{index}", ')
    node = '[node."big-{index}"]\nmodel = "models/big-{index}"\nlearning_rate = 0.5\n'
    recipe = RECIPE.partition("[node.")[0]
    others = {"r.toml": recipe + node, "recipe.toml": RECIPE}
    suite = make_suite(tmp_path, scale=scale, others=others)
    assert suite.pairs("tiny")[1:3] == ["digits.two-3", "digits.two-12"]
    assert suite.models("tiny", "digits.two-12") == ("small", "large-12")
    assert "digits.two-{index}" not in suite.pairs("tiny")
    cell = make_cell(suite, "tiny", "digits", ("small", "large-12"), "f-tis", 0)
    assert cell.recipe["node"]["large-12"] == {"model": "models/big-12", "learning_rate": 0.5}
    other = make_cell(suite, "tiny", "digits", ("large-3",), "alone", 0)
    assert other.recipe["node"]["large-3"]["model"] == "models/big-3"


def test_smaller_groups_on_all_problems_are_as_many_answers_as_half_the_problems():
    suite = read_suite(Path(__file__).parents[1])
    for share, name in ((2, "half"), (4, "quarter")):
        each = [
            make_cell(suite, "drawn", "near", ("terse-90",), setting, 0).config
            for setting in ("alone", name, f"{name}-smaller")
        ]
        whole, fewer, smaller = (c.problems_per_round * c.group_size for c in each)
        assert (fewer, smaller) == (whole / share, whole / share)
        assert each[2].problems_per_round == each[0].problems_per_round
        assert each[1].group_size == each[0].group_size
