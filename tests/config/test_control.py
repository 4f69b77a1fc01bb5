"""Controls: the same recipe but for what a node learns from."""

import pytest
from msgspec.structs import replace

import potluck
from potluck.builder.memory import own_completions
from potluck.config import ConfigError
from potluck.config.control import controls_of


@pytest.fixture
def config():
    return potluck.load(potluck.STARTING_RECIPE)


def controls(config, *kinds):
    return {each.folder: each for each in controls_of(replace(config, control=kinds))}


@pytest.mark.parametrize("kind", ["half", "half-problems", "alone"])
def test_by_itself_a_node_has_the_same_recipe_but_for_how_much_it_writes(config, kind):
    for name, node in config.node.items():
        its = controls(config, kind)[f"control.{kind}.{name}"]
        assert its.nodes == (name,)
        other = {"half": {"group_size": 6}, "half-problems": {"problems_per_round": 12}}
        same = replace(config, name=f"digits.{kind}.{name}", node={name: node})
        wanted = replace(same, **other.get(kind, {}))
        assert replace(its.config, swarm=config.swarm) == wanted
        share = 2 if kind == "alone" else 1
        assert own_completions(its.config, name) == share * own_completions(config, name)


def test_weights_and_an_own_pace_make_other_parts(config):
    small = replace(config.node["small"], weight=3.0)
    heavy = replace(config, node={**config.node, "small": small})
    assert controls(heavy, "half")["control.half.small"].config.group_size == 9
    free = controls(replace(config, pace="free", intake=2.0), "half")["control.half.small"].config
    assert (free.group_size, free.pace, free.intake) == (4, "together", 0.0)


def test_own_part_is_the_whole_run_with_baselines_from_all(config):
    (folder, its), *rest = controls(config, "own-part").items()
    assert not rest
    assert folder == "control.own-part"
    assert its.nodes == tuple(config.node)
    objective = replace(config.objective, others="none")
    assert its.config == replace(config, name="digits.own-part", objective=objective)


def test_trackers_do_not_mix_a_run_with_its_controls(config):
    for group, its in (("", ""), ("team", "team.half.small")):
        logged = replace(config, log=replace(config.log, group=group, callback="own.py:told"))
        log = controls(logged, "half")["control.half.small"].config.log
        assert (log.group, log.callback) == (its, "")


def test_what_cannot_be_had_is_refused(config):
    one = replace(config, node={"small": config.node["small"]})
    with pytest.raises(ConfigError, match="the run has one node, so nothing is shared"):
        controls(one, "half")
    with pytest.raises(ConfigError, match=r"groups of 1 of 2 .*or choose 'half-problems'"):
        controls(replace(config, group_size=2), "half")
    tree = potluck.as_tree(config)
    tree["node"]["gpt"] = {"engine": {"name": "file", "path": "solutions.jsonl"}}
    author = potluck.from_tree(tree)
    with pytest.raises(ConfigError, match=r"would have \[node.gpt\] write all again"):
        controls(author, "own-part")
    assert len(controls(author, "alone")) == 2
