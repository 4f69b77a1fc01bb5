"""A run whose method reads no author's log-probabilities: none is sent, nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest

import tiny
from launch.runs import crash, kept_round, left_by, numbers, rewrite_round
from nouns import completion
from potluck.config import RunConfig
from potluck.files import sealed, unsealed
from potluck.launch.in_process import run
from potluck.node.learning.batch import pack
from potluck.objective.methods import METHODS, ObjectiveConfig, reads_author_logp
from potluck.replay.plan import ReplayError, make_plan
from potluck.replay.run import replay
from potluck.types import Group, Problem, Row

NAMES = ("large", "small")
NOIS = "objective.method=nois"


@pytest.fixture(scope="module")
def recipe(tiny_models):
    def make(*overrides):
        return tiny.recipe({name: tiny_models[name] for name in NAMES}, *overrides)

    return make


@pytest.fixture(scope="module")
def silent(recipe, tmp_path_factory):
    """The folder of a run without log-probabilities. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("silent") / "run"
    run(recipe(NOIS), folder)
    return folder


def same_weights(one, other):
    return all(left_by(one, node, 2)[2] == left_by(other, node, 2)[2] for node in NAMES)


def with_logp(c):
    return replace(c, logp_T=np.full(len(c.token_T), -0.5, np.float32))


def without_logp(c):
    return replace(c, logp_T=None)


def rewrite_rounds(folder, change):
    """Change the completions of ``large`` in the first round of every node."""
    for node in NAMES:
        rewrite_round(folder, node, 0, "large", lambda completions: map(change, completions))


@pytest.mark.parametrize("name", ["nois", "vis", "tis", "f-nois", "f-vis", "f-tis"])
def test_of_the_papers_methods_nois_alone_reads_no_log_probability_of_an_author(name):
    method = METHODS[name]
    assert reads_author_logp(method) == (name != "nois")
    assert reads_author_logp(ObjectiveConfig(**method.fields)) == (name != "nois")


def test_no_completion_of_the_run_has_them_the_nodes_own_neither(silent):
    for node in NAMES:
        for round in (0, 1):
            came = kept_round(silent, node, round).completions
            assert {c.author for c in came} == {*NAMES}
            assert all(c.logp_T is None for c in came)


def test_nothing_that_is_learned_depends_on_them(recipe, silent, tmp_path, monkeypatch):
    monkeypatch.setattr(RunConfig, "sends_logp", True)
    run(recipe(NOIS), tmp_path / "run")
    told = kept_round(tmp_path / "run", "small", 1).completions
    assert all(c.logp_T is not None for c in told)
    assert same_weights(silent, tmp_path / "run")
    for node in NAMES:
        pairs = zip(numbers(silent, node), numbers(tmp_path / "run", node), strict=True)
        for without, line in pairs:
            assert without["sent_bytes"] < line["sent_bytes"]
            same = ("loss", "gradient_norm", "rows_trained", "dropped_nonfinite", "unusable")
            assert [without[key] for key in same] == [line[key] for key in same]
            assert without["rows_trained"] > 0


def test_a_node_that_needs_them_leaves_out_what_comes_without(recipe, tmp_path):
    crash(recipe(), tmp_path / "run")
    rewrite_rounds(tmp_path / "run", without_logp)
    run(recipe(), tmp_path / "run", resume=True)
    for node in NAMES:
        line = numbers(tmp_path / "run", node)[0]
        assert (line["unusable"], line["completions"]) == (8, 8)
        assert list(line["sources"]) == ["small"]


def test_a_node_that_needs_none_takes_those_that_come_with_them(recipe, silent, tmp_path):
    crash(recipe(NOIS), tmp_path / "run")
    rewrite_rounds(tmp_path / "run", with_logp)
    run(recipe(NOIS), tmp_path / "run", resume=True)
    assert same_weights(silent, tmp_path / "run")
    assert [line["unusable"] for line in numbers(tmp_path / "run", "small")] == [0, 0]


def test_a_row_without_them_has_nan_up_to_its_length():
    prompt_P = completion().token_T
    rows = tuple(
        Row(c, prompt_P, c.token_T, "")
        for c in (completion((1, 2, 3)), replace(completion((1, 2), author="south"), logp_T=None))
    )
    batch = pack([Group(Problem("p", "?", "!"), rows, (1.0, 0.0))])
    assert batch.logp_gen_BT[0].tolist() == [-0.5, -0.25, -0.5]
    assert batch.logp_gen_BT[1].isnan().tolist() == [True, True, False]
    assert batch.mask_BT[1].tolist() == [True, True, False]


# Replays.


def test_a_replay_by_its_own_method_ends_with_the_runs_weights(silent, tmp_path):
    plan = make_plan(silent, methods="nois", out=tmp_path / "out")
    said = []
    rows = list(replay(plan, say=said.append))
    assert said == []  # the checkpoints tell that the models are the ones that it began with
    was = [line["gradient_norm"] for node in NAMES for line in numbers(silent, node)]
    assert [row.gradient_norm for row in rows] == was
    assert {row.effective_sample_size for row in rows} == {row.log_ratio_mean for row in rows}
    assert {row.log_ratio_mean for row in rows} == {None}
    assert all(row.cosine is not None for row in rows)


def test_by_default_a_replay_takes_the_methods_that_the_run_allows(silent, tmp_path):
    assert make_plan(silent, out=tmp_path / "out").methods == ("nois", "lws")
    recipe = silent / "recipe.json"
    whole = recipe.read_bytes()
    tree = unsealed(whole)
    tree["objective"]["importance"] = "vanilla"
    recipe.write_bytes(sealed(tree))
    with_all = make_plan(silent, out=tmp_path / "all").methods
    recipe.write_bytes(whole)
    assert with_all == ("nois", "tis", "f-tis", "lws")


def test_a_replay_by_a_method_that_needs_them_is_refused_at_once(silent, tmp_path):
    plan = make_plan(silent, methods="nois,tis,f-tis", out=tmp_path / "out")
    complaint = "came without log-probabilities, .* but tis, f-tis .*; choose --method nois"
    with pytest.raises(ReplayError, match=complaint):
        next(replay(plan, say=pytest.fail))


def test_an_older_run_that_has_them_although_it_needs_none_is_replayed_by_any_method(
    recipe, tmp_path, monkeypatch
):
    with monkeypatch.context() as before:
        before.setattr(RunConfig, "sends_logp", True)
        run(recipe(NOIS, "rounds=1"), tmp_path / "run")
    plan = make_plan(tmp_path / "run", methods="f-tis", node="small", out=tmp_path / "out")
    (row,) = replay(plan, say=pytest.fail)
    assert row.effective_sample_size is not None
