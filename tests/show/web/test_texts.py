"""Completions of a round, read from the files when somebody asks."""

import msgspec
import pytest

from potluck.reports.runs import RecipeRead
from potluck.reports.tokens import columns_of
from potluck.show.web import texts as texts_module
from potluck.show.web.texts import texts_of
from show.terminal.run_folders import played
from show.web.run_files import append, completion, recorded


@pytest.fixture
def node(tmp_path):
    folder = tmp_path / "small"
    for round in range(4):
        rows = [completion(round, author, at) for author in ("small", "large") for at in (0, 1)]
        append(folder / "completions.jsonl", *rows)
    append(folder / "recorded.jsonl", recorded(1, 2.5), recorded(3, 0.5))
    return folder


def test_the_newest_round_or_the_one_that_is_asked_for_with_what_was_recorded_of_it(node):
    newest = texts_of(node)
    assert (newest.rounds, newest.is_cut) == ([0, 1, 2, 3], False)
    assert [(t.round, t.author, t.index) for t in newest.texts] == [
        (3, "small", 0), (3, "small", 1), (3, "large", 0), (3, "large", 1),
    ]  # fmt: skip
    first, second, *rest = texts_of(node, 1).texts
    assert {text.round for text in (first, second, *rest)} == {1}
    assert (first.question, first.recorded.why) == ("1+2=", "P is 0.5")
    assert (second.question, second.recorded) == ("", None)
    assert texts_of(node, 99).texts == []
    assert texts_of(node / "nothing").rounds == []


def test_each_completion_has_its_question_and_its_right_answer(node):
    damaged, other = {"problem": 7}, {"problem": "digits/9+9", "answer": "18"}
    asked = {"problem": "digits/1+2", "question": "What is 1 + 2?", "answer": "3"}
    append(node / "problems.jsonl", damaged, other, asked)
    for text in texts_of(node, 1).texts:
        assert (text.question, text.answer) == ("What is 1 + 2?", "3")


def test_a_round_in_two_places_is_whole_and_a_later_line_replaces_an_earlier_one(node):
    append(node / "completions.jsonl", completion(1, text="later"), completion(1, "third"))
    append(node / "completions.jsonl", completion(-1), completion(10**30))  # of no round
    assert texts_of(node).texts[0].round == 1
    texts = texts_of(node, 1).texts
    assert [text.author for text in texts] == ["small", "small", "large", "large", "third"]
    assert texts[0].text == "later"


def test_a_completion_is_right_by_the_function_that_decides_over_all_rounds(node):
    recipe = {
        "name": "run",
        "rounds": 9,
        "node": {"small": {}},
        "reward": [{"function": "r.py:correct"}, {"function": "r.py:brief", "weight": 0.1}],
    }
    paid = {"reward": 0.9, "reward/correct": 1.0, "reward/brief": -1.0}
    cut = {**paid, "reward": 0.0, "end": "length"}
    append(node / "completions.jsonl", completion(7, **paid), completion(7, "large", **cut))
    read = msgspec.convert(recipe, RecipeRead)
    found = texts_of(node, 7, recipe=read)
    assert [text.right for text in found.texts] == [True, False]  # what is cut is not right
    assert found.right.startswith("right: what correct scores 1 or more")
    found = texts_of(node, 7, recipe=read, binary={"correct": False})  # in another round
    assert [text.right for text in found.texts] == [None, None]
    assert found.right.startswith("no answer is called right")
    assert [text.right for text in texts_of(node, 1).texts] == [True] * 4


def test_a_round_is_bounded(node, monkeypatch):
    bounds = [("MOST_TEXTS", 3, 1, (3, True)), ("OLDER_BYTES", 400, 3, (3, True))]
    bounds += [
        ("ROUND_BYTES", most, None, told) for most, told in ((400, (3, True)), (900, (4, False)))
    ]
    for bound, most, round, told in bounds:
        with monkeypatch.context() as patch:
            patch.setattr(texts_module, bound, most)
            found = texts_of(node, round)
        assert (len(found.texts), found.is_cut) == told


def test_what_a_stranger_wrote_is_cut_and_one_answer_stays_small(node):
    long, turn = 100_000 * "x", {"role": "user", "content": 15_000 * "y"}
    append(node / "problems.jsonl", {"problem": "p", "question": long, "answer": long})
    of_p = {"problem": "p", "text": long, "turns": [turn, turn, turn]}
    append(node / "completions.jsonl", completion(7, **of_p))
    append(node / "recorded.jsonl", recorded(7, 9.0, problem=long))
    found = texts_of(node, 7)
    (text,) = found.texts
    assert {len(each) for each in (text.text, text.question, text.answer)} == {texts_module.TEXT}
    assert [len(words) for _, words in text.turns] == [15_000, 5_000]
    assert not found.is_cut
    rows = (completion(8, index=at, problem="p") for at in range(200))
    append(node / "completions.jsonl", *rows)
    found = texts_of(node, 8)
    assert len(msgspec.json.encode(found)) < 5_100_000
    assert (len(found.texts) > 100, found.is_cut) == (True, True)


def test_an_episode_has_its_messages_and_the_tokens_of_each_turn(node):
    append(node / "completions.jsonl", played(round=5), played(round=5, index=1))
    pieces = {**columns_of(["north", "#", "I", "#"], [0.0] * 4), "turns": [2, 2]}
    append(node / "recorded.jsonl", recorded(5, 1.0, problem="maze/train/1", **pieces))
    first, second = texts_of(node, 5).texts
    assert first.turns == second.turns == [
        ("assistant", "north"),
        ("user", "#####\n#.@G#\n#####"),
        ("assistant", 'I add.\nadd({"a":1,"b":"é"})'),
        ("tool", "2"),
    ]  # fmt: skip
    assert first.recorded.turns == (2, 2)
    assert second.recorded is None
