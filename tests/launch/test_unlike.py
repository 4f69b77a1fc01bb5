"""Runs of nodes with unlike tokenizers, and of authors without weights."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import tiny
import unlike
from forked import FORKING
from launch.runs import Hears, crash, left_by, lines
from potluck.builder.prepare import prepare
from potluck.builder.task import notes_on_authors
from potluck.config import ConfigError, as_tree, from_tree
from potluck.launch import children
from potluck.launch.in_process import run
from potluck.launch.local_swarm import run_local_swarm
from potluck.model import ModelError
from potluck.node.storage.resume import first_round
from potluck.rollout.base import RolloutError
from stand_in_chat import stand_in_chat

LWS = {"method": "lws"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unlike")
    return {
        "letters": tiny.save(folder / "letters", seed=1),
        "other": tiny.save(folder / "other", seed=2),
        "pairs": unlike.save_pairs(folder / "pairs"),
    }


def recipe(models, *names, rounds=3, authors=None, **tables):
    tables = {"plan": "horizontal", "objective": LWS, "rounds": rounds, **tables}
    made = tiny.recipe({name: models[name] for name in names}, "checkpoint_every=1", **tables)
    if not authors:
        return made
    tree = as_tree(made)
    tree["node"] |= {name: {"engine": engine} for name, engine in authors.items()}
    return from_tree(tree)


def looked_at(config, folder, *, all_here=True):
    return prepare(config, config.node, folder, trust_code=False, all_here=all_here)


def of_author(folder, node, author, key):
    """The sum of a count that a node has of an author."""
    sources = (line["sources"].get(author, {}) for line in lines(folder, node))
    return sum(each.get(key, 0) for each in sources)


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory):
    """A run of two tokenizers, by its recipe and its folder. Nobody may write to it."""
    room, folder = {"max_new_tokens": 12, "max_total_tokens": 40}, tmp_path_factory.mktemp("run")
    config = recipe(models, "letters", "pairs", sampling=room)
    run(config, folder)
    return config, folder


def test_nodes_of_unlike_tokenizers_learn_from_each_other(whole):
    _, folder = whole
    for me, other in (("letters", "pairs"), ("pairs", "letters")):
        came = lines(folder, me)
        assert of_author(folder, me, other, "rows_trained") > 0
        assert all(line["missing"] == [] for line in came)
        texts = {line["text"] for line in lines(folder, me, "completions")}
        assert any(len(text) > 3 for text in texts)
    # A pair is one token to the one and two to the other, so what it takes per byte differs.
    one, two = (
        of_author(folder, me, "pairs", "tokens") / of_author(folder, me, "pairs", "completions")
        for me in ("letters", "pairs")
    )
    assert one != two


def test_what_is_resumed_is_what_was_never_stopped(whole, tmp_path):
    config, folder = whole
    crash(config, tmp_path / "run", 1)
    run(config, tmp_path / "run", resume=True)
    for name in config.node:
        assert left_by(tmp_path / "run", name, 3) == left_by(folder, name, 3)


def test_texts_change_no_number_where_tokenizers_are_equal_but_the_sizes(models, tmp_path):
    never = recipe(models, "letters", "other", swarm={"text": "never"})
    assert not looked_at(never, tmp_path).sends_text
    for text in ("auto", "always"):
        config = recipe(models, "letters", "other", rounds=2, swarm={"text": text})
        assert looked_at(config, tmp_path).sends_text == (text == "always")
        run(config, tmp_path / text)
    auto, always = (left_by(tmp_path / text, "letters", 2)[:3] for text in ("auto", "always"))
    assert auto == always
    sent = {text: lines(tmp_path / text, "letters")[0]["sent_bytes"] for text in ("auto", "always")}
    assert sent["always"] > sent["auto"]


def test_a_node_that_cannot_see_the_others_sends_texts_unless_all_name_one_model(models, tmp_path):
    same, strangers = dict.fromkeys("ab", models["letters"]), {"open": True, "stranger_share": 0.3}
    one, two = recipe(same, "a", "b"), recipe(models, "letters", "other")
    opened = recipe(same, "a", "b", swarm=strangers)
    for all_here, expected in ((False, [False, True, True]), (True, [False] * 3)):
        found = [looked_at(each, tmp_path, all_here=all_here) for each in (one, two, opened)]
        assert [each.sends_text for each in found] == expected


def test_unlike_tokenizers_need_a_method_that_reads_no_claims(models, tmp_path):
    with pytest.raises(ModelError, match=r"'letters' \(.* but method 'f-tis' reads them; .*'lws'"):
        run(recipe(models, "letters", "pairs", objective={"method": "f-tis"}), tmp_path / "run")
    with pytest.raises(ModelError, match=r"\[swarm\] text is 'never'; drop it"):
        run(recipe(models, "letters", "pairs", swarm={"text": "never"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def solutions(folder, rounds=3):
    """A file with a solution of every problem that is asked."""
    task = recipe({"letters": "-"}, "letters").task.make()
    rows = [{"problem": id, "solution": ["1+1=2", "2+2=4"]} for id in task.ids("train")]
    file = folder / "solutions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"name": "file", "path": str(file)}


class Says(Hears):
    def __init__(self):
        super().__init__()
        self.reports = {}

    def round_done(self, node, report):
        self.reports.setdefault(node, []).append(report)


def test_a_file_of_solutions_teaches_and_learns_nothing(models, tmp_path):
    shown = Says()
    config = recipe(models, "letters", "pairs", authors={"people": solutions(tmp_path)})
    result = run(config, tmp_path / "run", display=shown)
    assert set(result.accuracy) == {"letters", "pairs"}
    assert any(text.startswith("people has solutions of 2,000 of 2,000") for text in shown.said)
    for me in ("letters", "pairs"):
        assert of_author(tmp_path / "run", me, "people", "rows_trained") > 0
    assert {r.texts for r in shown.reports["people"]} <= {5, 6}  # a third of 16
    assert all(r.texts is None for r in shown.reports["letters"])
    assert not (tmp_path / "run" / "people" / "checkpoints").exists()


def test_each_in_a_process_of_its_own_finds_the_same(models, tmp_path, monkeypatch):
    monkeypatch.setattr(children, "subprocess", FORKING)
    config = recipe(models, "letters", rounds=2, authors={"people": solutions(tmp_path)})
    run(config, tmp_path / "one")
    ended = run_local_swarm(config, tmp_path / "many", resume=False, display=Says())
    assert ended.codes == {"letters": 0, "people": 0}, ended.complaints
    one, many = (lines(tmp_path / name, "letters", "completions") for name in ("one", "many"))
    assert one == many
    assert {line["author"] for line in one} == {"letters", "people"}


def test_an_author_goes_on_after_a_crash_and_pays_nothing_twice(models, tmp_path):
    with stand_in_chat() as server:
        engine = {
            "name": "openai", "url": server.url, "model": "teacher",
            "usd_per_million_prompt": 1.0, "usd_per_million_completion": 2.0,
        }  # fmt: skip
        config = recipe(models, "letters", authors={"served": engine})
        crash(config, tmp_path / "run", 2)
        before = json.loads((tmp_path / "run" / "served" / "cost.json").read_text())
        asked = len(server.asked())
        assert before["requests"] == asked > 0
        run(config, tmp_path / "run", resume=True)
        after = json.loads((tmp_path / "run" / "served" / "cost.json").read_text())
        # The round that crashed is learned from again, and not asked for again.
        assert after["requests"] == len(server.asked())
        assert len(server.asked()) == asked  # three rounds, and the last was written already
    first = lines(tmp_path / "run", "served")[0]
    assert first["cost"]["requests"] > 0
    assert first["cost"]["usd"] > 0
    written = lines(tmp_path / "run", "letters", "completions")
    assert {line["author"] for line in written} == {"letters"}  # "text 7" has no spelling here
    unread = [line["unreadable"]["served"] for line in lines(tmp_path / "run", "letters")]
    assert all(each.keys() == {"inexact text"} for each in unread)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"model": "y"}, "sets model, but its engine"),
        ({"learning_rate": 1e-3}, "sets learning_rate, but"),
        ({}, "but method 'f-tis' reads them, so nothing"),
    ],
)
def test_a_node_has_a_model_or_an_engine_that_needs_none(models, node, message):
    file = {"engine": {"name": "file", "path": "x"}}
    nodes = {"a": {"model": models["letters"]}, "b": file | node}
    with pytest.raises(ConfigError, match=message):
        from_tree({**tiny.RECIPE, "objective": {"method": "f-tis"}, "node": nodes})


def test_a_run_of_authors_alone_is_refused():
    node = {"engine": {"name": "file", "path": "x"}}
    with pytest.raises(ConfigError, match="no node of the run has a model, so none would learn"):
        from_tree({**tiny.RECIPE, "node": {"a": node}})


def test_a_file_that_fits_no_problem_is_refused_before_the_first_round(models, tmp_path):
    (file := tmp_path / "none.jsonl").write_text('{"problem": "gsm8k/train/1", "solution": "2"}\n')
    config = recipe(models, "letters", authors={"people": {"name": "file", "path": str(file)}})
    with pytest.raises(RolloutError, match=r"has no solution of any of 2000 problems"):
        run(config, tmp_path / "run")
    assert not Path(tmp_path / "run" / "recipe.json").exists()


def test_an_author_that_joins_alone_has_no_tokenizer_to_compare(models, tmp_path):
    authors, trusting = {"people": solutions(tmp_path)}, LWS | {"trust": "everybody"}
    config = recipe(models, "letters", "pairs", authors=authors, objective=trusting)
    note = "2 tokenizers (letters | pairs): each reads the others' texts (docs/tokenizers.md)"
    alone = prepare(config, ["people"], tmp_path, trust_code=False, all_here=False)
    assert (alone.prompts.longest, note in alone.notes) == (0, False)
    assert note in looked_at(config, tmp_path).notes


def test_an_author_needs_texts_to_travel(models, tmp_path):
    with pytest.raises(ConfigError, match=r"\[node.people\] writes texts, but .* 'never'; drop it"):
        recipe(models, "letters", authors={"people": solutions(tmp_path)}, swarm={"text": "never"})


def test_an_author_in_a_vertical_plan_is_told_of(models, tmp_path):
    config = recipe(models, "letters", authors={"people": solutions(tmp_path)})
    task = config.task.make()
    assert not any("horizontal" in note for note in notes_on_authors(config, task))
    _, note = notes_on_authors(replace(config, plan="vertical"), task)
    assert note.startswith("people only writes: in plan 'vertical' a group that it solved")


def test_a_stop_that_is_text_is_refused_where_texts_are_read(models, tmp_path):
    config = recipe(models, "letters", authors={"people": solutions(tmp_path)})
    text = replace(config, sampling=replace(config.sampling, stop=("c",)))
    with pytest.raises(ModelError, match=r"stop names 'c', which is plain text to 'letters'"):
        looked_at(text, tmp_path)
    special = replace(config, sampling=replace(config.sampling, stop=("<bos>",)))
    looked_at(special, tmp_path)
    alone = recipe(models, "letters")
    looked_at(replace(alone, sampling=replace(alone.sampling, stop=("c",))), tmp_path)


def test_an_author_by_itself_goes_on_after_its_last_line(models, tmp_path):
    config = recipe(models, "letters", authors={"people": solutions(tmp_path)})
    alone = replace(config, node={"people": config.node["people"]})
    assert first_round(tmp_path, alone) == 0
    (tmp_path / "people").mkdir(exist_ok=True)
    (tmp_path / "people" / "metrics.jsonl").write_text('{"round": 0}\n{"round": 2}\n')
    assert first_round(tmp_path, alone) == 0  # a digit of a line is not believed by itself
    (tmp_path / "people" / "rounds").mkdir()
    (tmp_path / "people" / "rounds" / "000002.ptlk").touch()
    assert first_round(tmp_path, alone) == 3
