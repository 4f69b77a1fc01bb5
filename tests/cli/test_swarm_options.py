"""Each key of [swarm] gets to where it matters, [objective] trust too; mistakes are one line."""

import hashlib
import json

import pytest

import tiny
from launch.runs import lines
from potluck import run
from potluck.builder.checks import notes_on_trust, require_baseline
from potluck.builder.exchange import LOCAL_SWARM, agreements_of, open_exchange, trusts_of
from potluck.builder.task import make_task
from potluck.config import ConfigError, as_tree, from_tree
from potluck.exchange import Key
from potluck.exchange.base import ExchangeError
from potluck.exchange.keys.keys import roster_text
from potluck.model import LanguageModel
from potluck.node.storage.same_run import require_folder
from potluck.types import RunFolderError, Sampling


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
def recipe(model):
    def make(*overrides):
        tree = {
            "name": "tiny",
            "task": {"name": "digits"},
            "swarm": {"stranger_share": 0.2, "strangers_share": 0.4},
            "problems_per_round": 5,
            "group_size": 4,
            "sampling": {"max_new_tokens": 6, "max_total_tokens": 32},
            "node": {name: {"model": model} for name in ("north", "south")},
        }
        return from_tree(tree, ["swarm.listen=['tcp/127.0.0.1:1']", *overrides])

    return make


@pytest.fixture
def opened(monkeypatch):
    """What ``open_exchange`` asks for, without a network."""
    seen = {}

    class Session:
        def close(self):
            seen["session"] = "closed"

    class Exchange:
        def __init__(self, session, own):
            seen.update({field: getattr(own, field) for field in own.__slots__})
            seen["max_staleness"] = own.rule.max_staleness

        def close(self):
            seen["exchange"] = "closed"

    def open_patiently(line, *, run, waiting):
        seen.update(line=line, run=run)
        return Session()

    monkeypatch.setattr("potluck.exchange.zenoh.exchange.open_patiently", open_patiently)
    monkeypatch.setattr("potluck.exchange.zenoh.exchange.ZenohExchange", Exchange)

    def ask(config, folder, name="north"):
        seen.clear()
        policy = LanguageModel.load(config.node[name].model, device="cpu")
        terms = agreements_of(config, make_task(config), {name: policy})
        with open_exchange(config, name, terms[name], folder, print, lambda *_: None):
            assert "session" not in seen
        assert (seen.pop("session"), seen.pop("exchange")) == ("closed", "closed")
        return dict(seen)

    return ask


def test_numbers_and_addresses_reach_the_exchange(recipe, opened, tmp_path):
    numbers = {"codec": "raw", "max_staleness": 7, "kept_rounds": 9, "quarantine_s": 3.5}
    plain = opened(recipe(), tmp_path)
    assert not [key for key, value in numbers.items() if plain[key] == value]
    changes = [f"swarm.{key}={value}" for key, value in numbers.items()]
    given = opened(recipe(*changes, "swarm.connect=['tcp/there:2']"), tmp_path)
    assert {key: given[key] for key in numbers} == numbers
    line = given["line"]
    assert (line.listen, line.connect, line.tls) == (("tcp/127.0.0.1:1",), ("tcp/there:2",), None)


def test_certificates_reach_the_session_with_the_names_of_all_members(recipe, opened, tmp_path):
    changes = ["swarm.listen=['tls/127.0.0.1:1']", "swarm.tls={folder='certificates'}"]
    tls = opened(recipe(*changes), tmp_path)["line"].tls
    assert (str(tls.folder), tls.name, tls.names) == ("certificates", "north", ("north", "south"))


@pytest.mark.parametrize("key", ["stranger_share", "strangers_share"])
def test_a_share_in_which_no_strangers_group_has_a_place_is_refused(recipe, key):
    with pytest.raises(ConfigError, match=rf"{key} is 0.16, but one group beside 5 others is 0.16"):
        recipe("swarm.open=true", f"swarm.{key}=0.16")
    recipe("swarm.open=true", f"swarm.{key}=0.17")
    recipe("swarm.open=true", f"swarm.{key}=0")
    recipe(f"swarm.{key}=0.16")  # nobody would ask for it


def test_the_cohort_is_as_large_as_it_says_where_there_are_many(recipe, opened, tmp_path):
    names = [f"n{i}" for i in range(100)]
    partners = opened(recipe("swarm.cohort=5"), tmp_path)["partners"]
    assert len(partners(3, names)) == 5
    assert partners(3, names[:20]) == set(names[:20])
    assert partners(3, names) != partners(4, names)


def test_a_key_is_made_in_the_runs_folder_or_where_the_recipe_says(recipe, opened, tmp_path):
    made = opened(recipe(), tmp_path)["key"].public
    assert made == opened(recipe(), tmp_path)["key"].public
    assert made == Key.load(tmp_path / LOCAL_SWARM / "north.key").public
    own = tmp_path / "mine.key"
    with pytest.raises(ExchangeError, match=r"mine\.key"):  # a slip, and no wish for a new one
        opened(recipe(f"swarm.key={own}"), tmp_path)
    Key.new().write(own)
    assert opened(recipe(f"swarm.key={own}"), tmp_path)["key"].public not in (made, None)


def bind(folder, **keys):
    place = folder / "roster.toml"
    place.write_text(roster_text({name: key.public for name, key in keys.items()}))
    return place


def test_a_roster_binds_names_to_keys(recipe, opened, tmp_path):
    mine, theirs = Key.new(), Key.new()
    mine.write(tmp_path / "mine.key")
    roster = bind(tmp_path, north=mine, south=theirs)
    config = recipe(f"swarm.roster={roster}", f"swarm.key={tmp_path / 'mine.key'}")
    known = opened(config, tmp_path)["known_keys"]
    assert known.public_key("south", theirs.public) == theirs.public
    with pytest.raises(ExchangeError, match=r"has another key for 'north' than .*put `north = "):
        opened(recipe(f"swarm.roster={roster}"), tmp_path)
    swapped = bind(tmp_path, north=theirs, south=mine)
    own = f"swarm.key={tmp_path / 'mine.key'}"
    with pytest.raises(ExchangeError, match=r"mine.key holds the key of 'south', not of 'north'"):
        opened(recipe(f"swarm.roster={swapped}", own), tmp_path)
    with pytest.raises(ConfigError, match=r"\[node.south\] is a member, but .* has no key for it"):
        opened(recipe(f"swarm.roster={bind(tmp_path, north=mine)}"), tmp_path)


def test_a_stranger_needs_no_line_in_the_roster_and_none_counts_on_it(recipe, opened, tmp_path):
    mine = Key.new()
    mine.write(tmp_path / "mine.key")
    roster = bind(tmp_path, north=mine)
    change = ["swarm.open=true", "node.south.stranger=true", f"swarm.roster={roster}"]
    config = recipe(*change, f"swarm.key={tmp_path / 'mine.key'}")
    seen = opened(config, tmp_path)
    assert list(seen["members"]) == list(config.members) == ["north"]
    with pytest.raises(ConfigError, match=r"\[node.south\] stranger is true, but the swarm takes"):
        recipe("node.south.stranger=true")


def test_who_does_not_say_where_the_others_are_is_told_how(recipe, opened, tmp_path):
    config = recipe("swarm.listen=[]")
    with pytest.raises(ConfigError, match=r"'north' does not know where the others are: .*--conn"):
        opened(config, tmp_path)
    (tmp_path / LOCAL_SWARM).mkdir(exist_ok=True)
    addresses = {"north": "tcp/127.0.0.1:1", "south": "tcp/127.0.0.1:2"}
    (tmp_path / LOCAL_SWARM / "addresses.json").write_text(json.dumps(addresses))
    # Of two nodes only the later one calls: those that call each other can lose each other.
    line = opened(config, tmp_path)["line"]
    assert (line.listen, line.connect) == (("tcp/127.0.0.1:1",), ())
    addresses = {"south": "tcp/127.0.0.1:2", "north": "tcp/127.0.0.1:1", "west": "tcp/127.0.0.1:3"}
    (tmp_path / LOCAL_SWARM / "addresses.json").write_text(json.dumps(addresses))
    line = opened(config, tmp_path)["line"]
    assert (line.listen, line.connect) == (("tcp/127.0.0.1:1",), ("tcp/127.0.0.1:2",))


def terms(config, name="north"):
    model, stop = config.node[name].model, config.sampling.stop
    policy = LanguageModel.load(model, device="cpu", stop=stop)
    return agreements_of(config, make_task(config), {name: policy})[name]


def test_nodes_with_other_problems_shares_or_limits_are_at_another_task(recipe):
    plain = terms(recipe()).provenance
    for change in (
        *("seed=1", "plan=vertical", "problems_per_round=6", "group_size=5", "task.width=5"),
        *("sampling.max_new_tokens=5", "sampling.max_total_tokens=31", "node.south.weight=2"),
        *("task.reward=hash", "swarm.open=true"),
    ):
        assert terms(recipe(change)).provenance.task != plain.task, change
    own_affairs = "node.north.learning_rate=1", "objective.method=nois", "deadline_s=3", "rounds=9"
    assert terms(recipe(*own_affairs)).provenance == plain


def test_how_it_samples_and_where_it_stops_is_in_what_a_node_says_of_itself(recipe):
    plain = terms(recipe()).provenance
    other = terms(recipe("sampling.temperature=0.5", "sampling.top_k=3", "sampling.top_p=0.5"))
    assert plain.sampling == Sampling(1.0, 0, 1.0)
    assert other.provenance.sampling == Sampling(0.5, 3, 0.5)
    assert terms(recipe("sampling.stop=['a']")).provenance.tokenizer != plain.tokenizer


def test_digests_are_those_of_the_prompts_ids_and_of_the_question_whatever_the_tokenizer(recipe):
    """None for what is not trained on."""
    config = recipe()
    task, agreed = make_task(config), terms(config)
    one, two = task.ids("train")[:2]
    problem = task.problem(one)
    asked = f'["{problem.system}", {json.dumps(problem.question)}]'
    assert agreed.question_digest(one) == hashlib.sha256(asked.encode()).digest()[:8]
    assert len(agreed.prompt_digest(one)) == 8
    for digest in (agreed.prompt_digest, agreed.question_digest):
        assert digest(one) == digest(one) != digest(two)
        assert digest(task.ids("validation")[0]) is digest("nowhere") is None
    assert agreed.question_digest(one) != agreed.prompt_digest(one)


def test_limits_are_what_a_node_may_write_in_a_round(recipe):
    limits = terms(recipe()).limits
    assert (limits.completions, limits.tokens, limits.vocabulary) == (20, 6, tiny.VOCABULARY)
    more = terms(recipe("swarm.open=true", "swarm.stranger_problems=8")).limits
    assert more.completions == 32


def test_as_much_text_is_taken_as_an_author_may_send(recipe):
    """16 bytes for each token that it may write: never fewer than it sends, whatever fits here."""
    assert terms(recipe()).limits.text_bytes == 16 * 6
    more = terms(recipe("sampling.max_new_tokens=40", "sampling.max_total_tokens=32")).limits
    assert (more.tokens, more.text_bytes) == (32, 16 * 40)
    never = terms(recipe("swarm.text=never")).limits
    assert never.text_bytes == 0
    assert terms(recipe()).limits.message_bytes - never.message_bytes == 20 * 16 * 6


def test_a_node_joins_a_folder_of_its_own_run_only(recipe, tmp_path):
    def refused(message, *changes, resume=False):
        with pytest.raises(RunFolderError, match=message):
            require_folder(tmp_path, recipe(*changes), resume, "north")

    tree = as_tree(recipe())
    require_folder(tmp_path, recipe(), False, "north")
    refused("holds no node to resume; leave --resume out", resume=True)
    (tmp_path / "recipe.json").write_text(json.dumps(tree))
    fine = ["rounds=7", "swarm.connect=['tcp/there:2']", "node.south.learning_rate=1"]
    require_folder(tmp_path, recipe(*fine), False, "north")
    refused("made with seed = 0, but the recipe now has seed = 1", "seed=1")
    refused(r"with node.north.weight = 1.0, .* = 3.0; join with", "node.north.weight=3")
    only_south = tree | {"node": {"south": tree["node"]["south"]}}
    (tmp_path / "recipe.json").write_text(json.dumps(only_south))
    refused("of a run whose recipe has no node 'north'; name a")
    (tmp_path / "recipe.json").write_text(json.dumps(tree))
    (tmp_path / "north").mkdir()
    (tmp_path / "north" / "metrics.jsonl").write_text("")
    refused("north exists; --resume goes on with it")
    require_folder(tmp_path, recipe(), True, "north")


# Trust.

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


def test_a_run_heeds_it_and_reports_the_share_of_each_that_is_not_trusted(models, tmp_path):
    gradient = {}
    for trust in ("roster", "nobody"):
        overrides = f"objective.trust={trust}", "objective.untrusted_exponent=0.1", "rounds=1"
        config = tiny.recipe(models, *overrides, plan="horizontal", group_size=6)
        run(config, tmp_path / trust)
        found = lines(tmp_path / trust, "north")
        gradient[trust] = [line["gradient_norm"] for line in found]
        shares = [line["sources"]["south"]["gradient_share"] for line in found]
        assert [share is not None for share in shares] == [trust == "nobody"] * len(found)
        assert all(0 <= share <= 1 for share in shares if share is not None)
        assert all(line["sources"]["north"]["gradient_share"] is None for line in found)
    assert gradient["roster"] != gradient["nobody"]
