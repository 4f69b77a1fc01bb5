"""What a finished run folder comes to."""

import hashlib
import json
from dataclasses import replace

import pytest

from potluck import as_tree, from_tree
from potluck_experiments.cell_files import NotationCurve
from potluck_experiments.cells import make_cell
from potluck_experiments.origin import Code, base_digest
from potluck_experiments.suite import ExperimentError
from potluck_experiments.worker import Origin, collect, config_of, pass_at_8
from small_suite import RECIPE, make_suite

CODE = Code("0123abcd", ("src/potluck/types.py",))


@pytest.fixture
def cell(tmp_path):
    return make_cell(make_suite(tmp_path), "tiny", "digits", ("small", "large"), "f-tis", 3)


def written(folder, cell, *, rounds=2, last=None, own="own_reward_mean"):
    """A run folder of two rounds, with numbers that are all different."""
    (folder / "small").mkdir(parents=True)
    (folder / "recipe.json").write_text(json.dumps(as_tree(cell.config)))
    for n, name in enumerate(cell.models):
        (folder / name).mkdir(exist_ok=True)
        metrics = [
            {
                "round": round, "reward_mean": 0.99, own: (round + 1) / 3 + n / 10,
                "filtered_share": round / 7,
                "entropy": 0.5 + n if round else None, "own_length_mean": 4.25 + round,
                "own_commonest_share": 0.125, "groups_alike": 0.75,
                "unreadable": {"x": {"inexact text": 2, "cut": n}} if round else {},
                "seconds": {"write": 1.0 + n, "exchange": 50.0, "learn": 0.25},
                "sources": {
                    name: {"tokens": 10 * round + n, "k1_positive": 9.0, "success_weight": 1.0},
                    cell.models[1 - n]: {
                        "tokens": 777, "k1_positive": -0.5 * round if n else None,
                        "success_weight": 0.12345 * n if round else None,
                        "silenced_share": 0.3456 * (1 - n) if round else None,
                    },
                },
            }
            for round in range(rounds)
        ]  # fmt: skip
        ends = {"out_of_distribution": 0.125} if last is None else last
        greedy = [{"round": 0, "validation": 0.1}, {"round": 1, "validation": 1 / 3}]
        greedy.append({"round": 2, "validation": 0.5 + n / 10, **ends})
        for kind, lines in ("metrics", metrics), ("evaluation", greedy):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / name / f"{kind}.jsonl").write_text(text)
    return folder


def collected(cell, folder):
    origin = Origin(cell.digest, {"small": "s", "large": "l"}, CODE, cpu_s=12.34)
    return collect(cell, folder, origin, {"small": 0.25, "large": 0.75})


def test_it_holds_each_models_own_curves_and_what_they_were_made_of(tmp_path, cell):
    result = collected(cell, written(tmp_path / "run", cell))
    assert (result.scale, result.family, result.models) == ("tiny", "digits", ("small", "large"))
    assert (result.setting, result.seed, result.recipe) == ("f-tis", 3, cell.digest)
    assert (result.commit, result.uncommitted, result.cpu_s) == (*CODE, 12.3)
    large = result.node["large"]
    assert large.eval_rounds == (0, 1, 2)
    assert large.greedy == (0.1, 0.333333, 0.6)
    assert large.out_of_distribution == 0.125
    assert large.sampled == (0.433333, 0.766667)
    assert large.tokens == (1, 11)  # its own, not those of the other one
    assert large.seconds == (2.25, 2.25)  # without waiting
    assert large.filtered_share == (0.0, 0.142857)
    assert (large.base, result.node["small"].base) == ("l", "s")
    assert (large.pass_at_8, result.node["small"].pass_at_8) == (0.75, 0.25)
    assert large.entropy == (None, 1.5)
    assert (large.length, large.commonest, large.groups_alike) == (
        (4.25, 5.25),
        (0.125,) * 2,
        (0.75,) * 2,
    )
    assert (large.unreadable, result.node["small"].unreadable) == ((0, 3), (0, 2))
    # Of others alone, over the rounds that have it.
    assert (large.others_k1, result.node["small"].others_k1) == (-0.25, None)
    # Taken of others' right answers; empty: nothing.
    assert (large.others_taken, result.node["small"].others_taken) == ((None, 0.123), ())


def answers(folder, *lines):
    """Writes completions.jsonl: (round, index, author, reward, text)"""
    names = "round", "index", "author", "reward", "text"
    rows = [dict(zip(names, line, strict=True), problem="digits/1+2") for line in lines]
    (folder / "completions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_it_counts_what_a_model_wrote_in_each_notation_and_what_of_it_was_right(tmp_path, cell):
    folder = written(tmp_path / "run", cell)
    answers(
        folder / "small",
        (0, 0, "small", 1.0, "4+8+0=12;3+5+1=9#92"),
        (0, 1, "small", 0.0, "480 12*351 9#93"),
        (0, 2, "small", 0.0, "480 12*351 9#94"),
        (0, 3, "small", 1.0, "#92"),  # in neither
        (0, 4, "small", 0.0, "4 8"),
        (0, 0, "large", 1.0, "480 12*351 9#92"),  # another one's
        (1, 0, "small", 0.0, "480 12*351 9#91"),
        (1, 0, "small", 1.0, "480 12*351 9#92"),  # the round was run again
    )
    result = collected(cell, folder)
    assert result.node["small"].notations == {
        "columns": NotationCurve((1, 0), (1, 0)),
        "terse": NotationCurve((2, 1), (0, 1)),
    }
    assert result.node["large"].notations == {}
    # A task of one notation is not counted, and a node beside the models has no result.
    tree = as_tree(cell.config) | {"task": {"name": "chain"}}
    (folder / "recipe.json").write_text(json.dumps(tree))
    (node,) = collected(replace(cell, models=("small",)), folder).node.values()
    assert node.notations == {}


def test_of_the_scale_real_it_counts_the_answers_that_are_numbers(tmp_path, cell):
    folder = written(tmp_path / "run", cell)
    answers(
        folder / "small",
        (0, 0, "small", 1.0, " 92\n"),
        (0, 1, "small", 0.0, " -7\nQ: 1"),
        (0, 2, "small", 0.0, " 9 apples\n"),
        (1, 0, "small", 0.0, "\n"),
    )
    result = collected(replace(cell, scale="real"), folder)
    assert result.node["small"].notations == {"number": NotationCurve((2, 0), (1, 0))}


@pytest.mark.parametrize("problems, asked", [(300, 100), (40, 40)])
def test_pass_at_8_asks_each_node_for_8_answers_to_the_first_problems(
    tmp_path, cell, monkeypatch, problems, asked
):
    requests = []

    def evaluate(request, *, progress):
        requests.append(request)
        measures = [{"measure": name, "A": {"value": value}} for name, value in
                    (("greedy", 0.1), ("pass@1", 0.2), ("pass@8", len(requests) / 3))]  # fmt: skip
        return {"splits": [{"measures": measures}]}

    monkeypatch.setattr("potluck_experiments.worker.evaluate_models", evaluate)
    recipe = as_tree(from_tree(as_tree(cell.config), [f"evaluation.problems={problems}"]))
    found = pass_at_8(replace(cell, recipe=recipe), tmp_path)
    assert found == {"small": 0.333333, "large": 0.666667}
    assert [request.model for request in requests] == [str(tmp_path / n) for n in cell.models]
    assert {(r.k, r.split, r.recipe, *r.overrides) for r in requests} == {
        (8, "validation", tmp_path, f"evaluation.problems={asked}")
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rounds": 1}, "small tells of 1 of 2 rounds"),
        ({"last": {}}, "lacks rewards or evaluations"),
        ({"last": {"out_of_distribution": 0.1, "round": 1}}, "lacks rewards or evaluations"),
        ({"own": "x"}, r"small .*lacks rewards or evaluations"),  # it wrote nothing
    ],
)
def test_a_run_that_lacks_something_is_no_result(tmp_path, cell, changes, told):
    with pytest.raises(ExperimentError, match=told):
        collected(cell, written(tmp_path / "run", cell, **changes))


def test_a_base_model_is_known_by_its_weights_and_one_from_the_hub_by_its_name(tmp_path):
    (tmp_path / "b.safetensors").write_bytes(b"second")
    (tmp_path / "a.safetensors").write_bytes(b"first")
    (tmp_path / "README.md").write_text("anything")
    assert base_digest(str(tmp_path)) == hashlib.sha256(b"firstsecond").hexdigest()[:16]
    assert base_digest("some/model") == "some/model"


@pytest.mark.parametrize("scale", ["tiny", "drawn"])
def test_a_short_cell_has_one_thread_of_the_cpu_and_is_saved_at_its_end_whatever_its_recipe_says(
    tmp_path, scale
):
    recipe = RECIPE.replace("threads = 1", "threads = 4\ncheckpoint_every = 1")
    suite = make_suite(tmp_path, recipe=recipe.replace('device = "cpu"', 'device = "cuda"'))
    pair = make_cell(suite, scale, "digits", ("small", "large"), "f-tis", 0)
    run = config_of(pair)
    assert (run.threads, run.checkpoint_every) == (1, 0)
    assert [node.device for node in run.node.values()] == ["cpu", "cpu"]
    large = make_cell(suite, "paper", "digits", ("small",), "alone", 0)
    assert config_of(large) == large.config
