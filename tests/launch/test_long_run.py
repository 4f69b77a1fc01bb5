"""Runs that end early, keep their best, begin where another ended, or lose their partners."""

import json
from itertools import chain

import pytest
from msgspec.structs import replace

import tiny
from launch.runs import Hears, crash, lines
from potluck.builder.plan import check, control_lines
from potluck.config import ConfigError, StopConfig
from potluck.evaluation.grade import SplitResult
from potluck.launch import rounds
from potluck.launch import side_by_side as controls
from potluck.launch.in_process import run
from potluck.launch.rounds import Course
from potluck.launch.side_by_side import WholeRun
from potluck.model import ModelError
from potluck.node.storage import checkpoint
from potluck.node.storage.folder import rounds_saved
from potluck.node.storage.resume import whole_round
from potluck.reports import AuthorReport, Doubts, RoundReport
from potluck.reports.answers import ControlAnswer
from potluck.reports.runs import end_of, read_recipe
from potluck.types import RunFolderError
from show.terminal.test_show import shown

EVALUATION = {"every": 1, "problems": 2, "out_of_distribution": 0}
KEEP = "keep_best=true", "checkpoint_every=1"


@pytest.fixture
def recipe(tiny_models):
    def make(*overrides, names=("small",), every=1):
        nodes = {name: tiny_models[name] for name in names}
        evaluation = EVALUATION | {"every": every}
        return tiny.recipe(nodes, "rounds=6", *overrides, evaluation=evaluation)

    return make


@pytest.fixture
def measured(monkeypatch):
    """Has evaluations find these values, one after the other; at the end the last one again."""

    def script(*values):
        left = chain(values, [values[-1]] * 9)

        def evaluate(*request):
            return (
                SplitResult(next(left), 2, {}, False, full={"task": 0.0}, binary={})
                if request[4]
                else None
            )

        monkeypatch.setattr(rounds, "evaluate", evaluate)

    return script


@pytest.mark.parametrize("stop, values, is_met", [
    ({}, [1.0, 0.0, 0.0], False),
    ({"validation": 0.9}, [], False),
    ({"validation": 0.9}, [0.89, 0.5], False),
    ({"validation": 0.9}, [0.9, 0.5], True),  # it was reached once
    ({"validation": 0.0}, [0.0], True),
    ({"no_better": 2}, [0.1, 0.5, 0.4], False),
    ({"no_better": 2}, [0.1, 0.5, 0.4, 0.5], True),  # equal is not better
    ({"no_better": 2}, [0.1, 0.5, 0.4, 0.6], False),
    ({"no_better": 1, "validation": 0.9}, [0.9, 0.95], True),
])  # fmt: skip
def test_a_condition_is_met_by_the_evaluations_so_far(stop, values, is_met):
    assert StopConfig(**stop).is_met(values) == is_met


@pytest.mark.parametrize("stop, values, ends", [
    ("stop_when.rounds=3", [0.1], 3),
    ("stop_when.validation=0.9", [0.1, 0.2, 0.9], 2),
])  # fmt: skip
def test_a_run_that_ends_early_is_done_and_goes_on_if_the_condition_is_dropped(
    recipe, measured, tmp_path, stop, values, ends
):
    measured(*values)
    folder, said = tmp_path / "run", f"small: stop_when ends the run after {ends} of 6 rounds"
    result = run(recipe(stop), folder, display=(shown := Hears()))
    assert (result.rounds, result.interrupted) == (ends, False)
    assert [text.startswith(said) for text in shown.said] == [True]
    last = lines(folder, "small", "evaluation")[-1]
    assert (last["round"], last["at_end"]) == (ends, True)
    card = checkpoint.checkpoint_folder(folder / "small", ends) / "README.md"
    assert f"after round {ends})" in card.read_text()
    status = json.loads((folder / "small" / "status.json").read_bytes())["own"]
    assert (status["phase"], status["round"], status["rounds"]) == ("ended", ends, ends)
    assert WholeRun(recipe(stop), folder).is_done
    assert end_of(folder / "small", read_recipe(folder)) == ends
    assert not WholeRun(recipe(), folder).is_done
    measured(values[-1])
    again = run(recipe(stop), folder, resume=True, display=(shown := Hears()))
    assert (again.rounds, again.interrupted) == (ends, False)
    assert shown.said[-1].startswith(said)
    assert run(recipe(), folder, resume=True).rounds == 6


def test_a_resume_does_not_pass_an_end_that_was_met_behind_skipped_rounds(
    recipe, measured, tmp_path, monkeypatch
):
    monkeypatch.setattr(Course, "next_round", lambda _, done, now_s: 3 if done == 1 else done)
    config = recipe("stop_when.validation=0.9", every=2)
    for resume, values in ((False, [0.1, 0.9]), (True, [0.9])):
        measured(*values)
        assert run(config, tmp_path / "run", resume=resume).rounds == 3


def test_nodes_of_one_process_end_when_each_has_met_a_condition(recipe, measured, tmp_path):
    measured(0.1, 0.1, 0.9, 0.1, 0.1, 0.2, 0.1, 0.9)  # large, small, large, small, ...
    config = recipe("stop_when.validation=0.9", names=("large", "small"))
    assert run(config, tmp_path / "run").rounds == 3


def test_a_control_is_as_long_as_the_run_of_its_node(recipe, measured, tmp_path, monkeypatch):
    measured(0.1, 0.1, 0.9)
    stop = "stop_when.validation=0.8", 'control=["alone"]', 'node.small.lr_schedule="linear"'
    config, folder = recipe(*stop, names=("large", "small")), tmp_path / "run"
    assert run(config, folder).rounds == 1
    made, compared = [], []
    monkeypatch.setattr(controls, "run_side_by_side", lambda runs, *_, **__: made.extend(runs) or 1)
    monkeypatch.setattr(controls, "answer_of", lambda *of: compared.append(of[-1]))
    asked = recipe(*stop, "node.small.model=runs/eight/ada", names=("large", "small"))
    assert controls.run_controls(asked, folder, None)
    assert [each.config.node for each in made] == [{n: config.node[n]} for n in config.node]
    assert [(each.config.rounds, each.config.stop_when) for each in made] == [
        (6, StopConfig(rounds=1))
    ] * 2
    assert compared == [1, 1]


def test_nodes_are_compared_while_all_are_there_and_not_by_the_end(recipe, tmp_path, monkeypatch):
    folder, config = tmp_path / "run", recipe("rounds=2", names=("large", "small"))
    run(replace(config, checkpoint_every=1), folder)
    answer = ControlAnswer("large", "alone", 0.5, 0.4, (0.1, 0.0, 0.2), 9, (9, 9), (0.9, 0.1))
    monkeypatch.setattr(controls, "run_side_by_side", lambda *_, **__: True)
    monkeypatch.setattr(controls, "answer_of", lambda *of: kept.append(of[-1]) or answer)
    monkeypatch.setattr(controls, "add_answers", lambda _, found: kept.extend(found))
    for ends, greedy in (((1, 2), None), ((2, 2), (0.9, 0.1))):
        left, kept = iter(ends), []
        monkeypatch.setattr(controls, "end_of", lambda *_, left=left: next(left))
        assert controls.run_controls(replace(config, control=("alone",)), folder, None)
        assert kept == [ends[0]] * 2 + [replace(answer, greedy=greedy)] * 2


@pytest.mark.parametrize("large, small, first", [
    ([3, 4], [2], None),  # as they ended, each in its own process
    ([], [1], 0),  # killed before all had their first one
    ([1, 2], [2], 2),
])  # fmt: skip
def test_no_checkpoint_is_given_up_where_none_is_of_all_nodes(
    recipe, tmp_path, monkeypatch, large, small, first
):
    saved = {tmp_path / "large": large, tmp_path / "small": small}
    monkeypatch.setattr("potluck.node.storage.resume.rounds_saved", saved.get)
    monkeypatch.setattr(checkpoint, "damaged_file", lambda *_: None)
    config = recipe("checkpoint_every=1", names=("large", "small"))
    if first is None:
        with pytest.raises(RunFolderError, match=r"newest: .*small 2\); .* without --one-process"):
            whole_round(tmp_path, config)
    else:
        assert whole_round(tmp_path, config)[0] == first


@pytest.mark.parametrize("values, options, every, kept", [
    ([0.1, 0.9, 0.2, 0.2, 0.3, 0.9, 0.1], KEEP, 1, [1, 5, 6]),  # of equal ones the first
    ([0.1, 0.9, 0.2, 0.2, 0.3, 0.9, 0.1], ("keep_checkpoints=3", KEEP[1]), 1, [4, 5, 6]),
    ([0.1, 0.5, 0.4, 0.2], ("keep_best=true", "checkpoint_every=0"), 2, [2, 6]),
    ([0.5, 0.4, 0.3, 0.2], ("keep_best=true", "checkpoint_every=0"), 2, [6]),  # none was better
])  # fmt: skip
def test_the_newest_checkpoints_and_the_best_stay(
    recipe, measured, tmp_path, values, options, every, kept
):
    measured(*values)
    run(recipe(*options, every=every), tmp_path / "run")
    assert rounds_saved(tmp_path / "run" / "small") == kept


def test_the_best_is_named_exported_and_outlives_a_crash(recipe, measured, tmp_path, potluck_says):
    measured(0.1, 0.9, 0.2, 0.2, 0.1)
    folder = tmp_path / "run"
    config = recipe(*KEEP, names=("small",))
    crash(config, folder, 3)
    measured(0.3, 0.2, 0.2, 0.1)
    run(config, folder, resume=True)
    node = folder / "small"
    assert rounds_saved(node) == [1, 5, 6]
    assert checkpoint.best(str(node)) == str(checkpoint.checkpoint_folder(node, 1))
    card = checkpoint.checkpoint_folder(node, 6) / "README.md"
    assert "- best checkpoint: validation 0.9000, after 1 rounds" in card.read_text()
    assert "0.900 after 1 rounds" in shown(folder)
    code, said, _ = potluck_says("export", node, tmp_path / "best", "--best")
    assert code == 0
    why = "small after 1 of 6 rounds, validation 0.900, the best of the 3 that are kept and were"
    assert f"it is {why} evaluated" in " ".join(said.split())
    told = (tmp_path / "best" / "README.md").read_text()
    assert "validation: 0.9000 (greedy answers to" in told  # made before it was evaluated
    code, said, _ = potluck_says("export", node, tmp_path / "newest")
    assert "it is small after 6 of 6 rounds, validation 0.100" in " ".join(said.split())
    best = checkpoint.checkpoint_folder(node, 1) / "model.safetensors"
    assert (tmp_path / "best" / "model.safetensors").read_bytes() == best.read_bytes()
    place = checkpoint.checkpoint_folder(node, 6)
    (place / "optimizer.safetensors").write_bytes(b"!")  # the newest is damaged
    assert whole_round(folder, config)[0] == 5
    for wrong, why in ((tmp_path, "has no checkpoint that was evaluated"), (folder, "is a run")):
        code, _, complaint = potluck_says("export", wrong, tmp_path / "other", "--best")
        assert (code, why in " ".join(complaint.split())) == (2, True)


@pytest.mark.parametrize(
    "key", ["keep_best=true", "stop_when.no_better=1", "stop_when.validation=1"]
)
@pytest.mark.parametrize("missing", ["evaluation.every=0", "evaluation.problems=0"])
def test_what_goes_by_evaluations_needs_some(recipe, key, missing):
    with pytest.raises(ConfigError, match="goes by evaluations during the run; raise"):
        recipe(key, missing)


def test_a_node_begins_where_one_of_another_run_ended(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(recipe("rounds=2"), "first")
    config = recipe("rounds=1", "node.small.model=first/small")
    check(config)
    run(config, "second")
    start = "first/small/checkpoints/000002"
    assert (
        json.loads((tmp_path / "second/recipe.json").read_bytes())["node"]["small"]["model"]
        == start
    )
    run(recipe("rounds=3"), "first", resume=True)  # it may go on: the second run stays what it is
    run(recipe("rounds=2", f"node.small.model={start}"), "second", resume=True)
    for model, said in {
        "first": "is a run, not a model",
        "first/smal": "is no node of its run; name one of its nodes: .*first/small",
        "first/small/checkpoints/99": "there is no checkpoint .*99'; there is 000002, 000003",
    }.items():
        with pytest.raises(ModelError, match=said):
            run(recipe(f"node.small.model={model}"), "third")
    (tmp_path / "recipe.json").write_text("{}")
    assert checkpoint.newest("gpt2") == "gpt2"  # an id of the Hub, beside a recipe


# Alerts.


def alerts(*reports, me="north"):
    """The kinds of what is told in each round."""
    doubts = Doubts(me, "likelihood", reads_logp=False)
    return [
        [alert.kind for alert in doubts.new(RoundReport(at, **report))]
        for at, report in enumerate(reports)
    ]


def told_in(*reports):
    return [(at, *kinds) for at, kinds in enumerate(alerts(*reports)) if kinds]


@pytest.mark.parametrize("report, well, kind", [
    ({"missing": ("south", "north")}, {}, "silent"),
    ({"absent": ("south",)}, {"late": 3}, "silent"),
    ({"entropy": 0.01, "own_length_mean": 4.0}, {"entropy": 1.0, "own_length_mean": 4}, "entropy"),
])  # fmt: skip
def test_what_lasts_five_rounds_is_told_once_until_it_is_over(report, well, kind):
    assert told_in(*[report] * 4, well, *[report] * 4) == []
    assert told_in(*[report] * 9, *[well] * 5, *[report] * 9) == [(4, kind), (18, kind)]


@pytest.mark.parametrize("rewards, told", [
    ([0.8] * 5 + [0.3] * 9, [(9, "reward")]),  # .7, .6, .5 and .4 are not below .4
    ([0.8] * 5 + [0.45] * 9, []),
    ([0.8] * 5 + [0.1] * 5 + [0.8] * 5 + [0.1] * 5, [(8, "reward"), (19, "reward")]),
    ([-0.2] * 5 + [-0.9] * 9, [(8, "reward")]),
    ([0.0, 0.125] + [0.0] * 9, []),  # noise: 0.025, then 0.000
    ([None] * 9, []),
])  # fmt: skip
def test_a_reward_that_falls_below_half_of_its_best_is_told(rewards, told):
    assert told_in(*({"own_reward_mean": each} for each in rewards)) == told


def test_long_texts_of_small_entropy_a_token_are_not_equal():
    assert told_in(*[{"entropy": 0.01, "own_length_mean": 200.0}] * 9) == []


# Alone.


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now_s = 0.0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds

    time = monotonic


@pytest.fixture
def left_alone(recipe, tmp_path, monkeypatch):
    """Runs a node whose partner is there for two rounds of five seconds; then it is alone, and a
    round takes one. Returns the result, what was said, and the seconds that were waited."""

    def live(*overrides):
        clock = Clock()
        monkeypatch.setattr(rounds, "time", clock)

        def step(nodes, round):
            authors, took = (("small", "large"), 5.0) if round < 2 else (("small",), 1.0)
            report = RoundReport(
                round,
                seconds={"write": took - 0.5, "wait": 0.5},
                missing=() if round < 2 else ("large",),
                sources={author: AuthorReport() for author in authors},
            )
            return [nodes[0].keep(report)]

        monkeypatch.setattr(rounds, "step", step)
        config = recipe("rounds=15", *overrides)
        shown = Hears()
        result = run(config, tmp_path / "run", display=shown)
        return result, shown.said, clock.now_s

    return live


ENDS = "stop_when.validation=9", "evaluation.every=99"  # so the partner may have ended


@pytest.mark.parametrize("how, ends, done, waited_s", [
    ("throttle", (), 15, 13 * 4.0), ("continue", (), 15, 0.0), ("stop", (), 12, 0.0),
    ("throttle", ENDS, 15, 0.0), ("stop", ENDS, 15, 0.0),
])  # fmt: skip
def test_a_node_that_is_left_alone_does_as_its_recipe_says(left_alone, how, ends, done, waited_s):
    result, said, waited = left_alone(f"swarm.alone={how}", *ends)
    assert (result.rounds, result.interrupted) == (done, done < 15)
    assert waited == pytest.approx(waited_s, abs=13 * rounds.PAUSE_S)
    assert sum("this node trains alone" in text for text in said) == (not ends)
    assert rounds_saved(result.folder / "small")[-1] == done


def test_a_control_is_planned_for_the_rounds_that_the_run_may_have(recipe):
    config = recipe("stop_when.rounds=3", 'control=["own-part"]', names=("large", "small"))
    (line,) = control_lines(config)
    assert ", of 3 rounds each; " in line
