"""[objective] trust: which authors are, what the node says about it, and that a run heeds it."""

import json

import pytest

import tiny
from potluck import run
from potluck.builder.checks import notes_on_trust, require_baseline
from potluck.builder.exchange import trusts_of
from potluck.config import ConfigError
from potluck.exchange.keys.keys import Key, roster_text

NAMES = ("north", "south", "west")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    return {name: tiny.save(place / name, seed=seed) for seed, name in enumerate(NAMES)}


def trusted(config, folder, here=("north",)):
    trusts = trusts_of(config, folder, "north", here)
    return {name for name in (*NAMES, "guest") if trusts(name)}


def write_roster(place, names):
    place.write_text(roster_text({name: Key.new().public for name in names}))


def test_without_a_roster_a_node_trusts_the_nodes_of_its_own_process(models, tmp_path):
    config = tiny.recipe(models)
    assert trusted(config, tmp_path) == {"north"}
    assert trusted(config, tmp_path, here=NAMES) == {*NAMES}


def test_the_roster_decides_that_of_the_recipe_or_that_of_a_run_on_this_machine(models, tmp_path):
    write_roster(tmp_path / "roster.toml", [*NAMES, "guest"])
    config = tiny.recipe(models, f"swarm.roster={tmp_path / 'roster.toml'}")
    assert trusted(config, tmp_path) == {*NAMES, "guest"}
    (tmp_path / "_swarm").mkdir()
    write_roster(tmp_path / "_swarm" / "roster.toml", NAMES)
    assert trusted(tiny.recipe(models), tmp_path) == {*NAMES}


def test_everybody_or_nobody_may_be_trusted_whatever_the_roster_says(models, tmp_path):
    assert trusted(tiny.recipe(models, "objective.trust=nobody"), tmp_path, NAMES) == {"north"}
    config = tiny.recipe(models, "objective.trust=everybody")
    assert trusted(config, tmp_path) == {*NAMES, "guest"}


def test_the_members_that_are_not_trusted_are_named_with_the_way_out(models, tmp_path):
    (note,) = notes_on_trust(tiny.recipe(models), tmp_path, ("north",))
    assert note.startswith("not trusted: south, west, as no [swarm] roster has their keys.")
    assert "[objective] trust = 'everybody'" in note
    nobody = tiny.recipe(models, "objective.trust=nobody")
    assert "[objective] trust is 'nobody'" in notes_on_trust(nobody, tmp_path, NAMES)[0]
    everybody = tiny.recipe(models, "objective.trust=everybody")
    assert notes_on_trust(everybody, tmp_path, ("north",)) == []
    assert notes_on_trust(tiny.recipe(models), tmp_path, NAMES) == []


@pytest.mark.parametrize(
    "overrides, here",
    [
        (["plan=vertical"], ("north",)),
        (["group_size=6"], ("north",)),
        (["node.north.weight=2"], ("north",)),
        (["objective.trust=everybody"], ("north",)),
        ([], NAMES),
    ],
)
def test_a_node_that_would_have_nothing_to_compare_with_is_refused_with_the_ways_out(
    models, tmp_path, overrides, here
):
    """Groups of four among three: each node that trusts nobody has one of its own, or two."""
    lone = ["plan=horizontal", "group_size=4"]
    with pytest.raises(ConfigError, match=r"'north' trusts 1 of the 4 completions .* 'everybody'"):
        require_baseline(tiny.recipe(models, *lone), tmp_path, ("north",))
    require_baseline(tiny.recipe(models, *lone, *overrides), tmp_path, here)


def lines(folder, name="north"):
    text = (folder / name / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_heeds_it_and_reports_the_share_of_each_that_is_not_trusted(models, tmp_path):
    gradient = {}
    for trust in ("roster", "nobody"):
        overrides = f"objective.trust={trust}", "objective.untrusted_exponent=0.1", "rounds=1"
        config = tiny.recipe(models, *overrides, plan="horizontal", group_size=6)
        run(config, tmp_path / trust)
        found = lines(tmp_path / trust)
        gradient[trust] = [line["gradient_norm"] for line in found]
        shares = [line["sources"]["south"]["gradient_share"] for line in found]
        assert [share is not None for share in shares] == [trust == "nobody"] * len(found)
        assert all(0 <= share <= 1 for share in shares if share is not None)
        assert all(line["sources"]["north"]["gradient_share"] is None for line in found)
    assert gradient["roster"] != gradient["nobody"]
