"""Completions of a round, found by where they stand in the files."""

import msgspec
import pytest

from potluck.reports.tokens import columns_of
from potluck.show.web import texts as texts_module
from potluck.show.web.texts import NodeTexts
from show.terminal.run_folders import played
from show.web.run_files import append, completion, lines, recorded


@pytest.fixture
def node(tmp_path):
    folder = tmp_path / "small"
    for round in range(4):
        rows = [completion(round, author, at) for author in ("small", "large") for at in (0, 1)]
        append(folder / "completions.jsonl", *rows)
    append(folder / "recorded.jsonl", recorded(1, 2.5), recorded(3, 0.5))
    return folder


def test_the_newest_round_or_the_one_that_is_asked_for(node):
    texts = NodeTexts(node)
    newest = texts.of_round(None)
    assert (newest.rounds, newest.is_cut) == ([0, 1, 2, 3], False)
    assert [(t.round, t.author, t.index) for t in newest.texts] == [
        (3, "small", 0), (3, "small", 1), (3, "large", 0), (3, "large", 1),
    ]  # fmt: skip
    assert {t.round for t in texts.of_round(1).texts} == {1}
    assert texts.of_round(99).texts == []


def test_what_was_recorded_is_joined(node):
    found = NodeTexts(node).of_round(1)
    first, second = found.texts[:2]
    assert (first.question, first.recorded.why) == ("1+2=", "P is 0.5")
    assert (second.question, second.recorded) == ("", None)


def test_each_completion_has_its_question_and_its_right_answer(node):
    question, answer = "What is 1 + 2?", "3"
    damaged = {"problem": 7}
    append(node / "problems.jsonl", damaged, {"problem": "digits/9+9", "answer": "18"})
    append(node / "problems.jsonl", {"problem": "digits/1+2", "question": question, "answer": "3"})
    for text in NodeTexts(node).of_round(1).texts:
        assert (text.question, text.answer) == (question, answer)


def test_new_rounds_are_found_and_those_of_a_resumed_run_again(node):
    texts = NodeTexts(node)
    texts.of_round(None)
    append(node / "completions.jsonl", completion(4))
    assert texts.of_round(None).rounds == [0, 1, 2, 3, 4]
    beside = node / "beside"
    beside.write_text(lines([completion(0), completion(1, text="again")]))
    beside.replace(node / "completions.jsonl")
    (node / "recorded.jsonl").unlink()
    newest = texts.of_round(None)
    assert newest.rounds == [0, 1]
    assert [text.text for text in newest.texts] == ["again"]


def test_a_round_in_two_places_is_whole_and_a_later_line_replaces_an_earlier_one(node):
    append(node / "completions.jsonl", completion(1, text="later"), completion(1, "third"))
    texts = NodeTexts(node).of_round(1).texts
    assert [text.author for text in texts] == ["small", "small", "large", "large", "third"]
    assert texts[0].text == "later"


def test_a_round_is_bounded(node, monkeypatch):
    for bound, most in (("MOST_TEXTS", 3), ("ROUND_BYTES", 400)):
        with monkeypatch.context() as patch:
            patch.setattr(texts_module, bound, most)
            found = NodeTexts(node).of_round(1)
        assert (len(found.texts), found.is_cut) == (3, True)


def test_what_a_stranger_wrote_is_cut_and_one_answer_stays_small(node):
    long, turn = 100_000 * "x", {"role": "user", "content": 15_000 * "y"}
    append(node / "problems.jsonl", {"problem": "p", "question": long, "answer": long})
    of_p = {"problem": "p", "text": long, "turns": [turn, turn, turn]}
    append(node / "completions.jsonl", completion(7, **of_p))
    append(node / "recorded.jsonl", recorded(7, 9.0, problem=long))
    found = NodeTexts(node).of_round(7)
    (text,) = found.texts
    assert {len(each) for each in (text.text, text.question, text.answer)} == {texts_module.TEXT}
    assert [len(words) for _, words in text.turns] == [15_000, 5_000]
    assert not found.is_cut
    rows = (completion(8, index=at, problem="p") for at in range(200))
    append(node / "completions.jsonl", *rows)
    found = NodeTexts(node).of_round(8)
    assert len(msgspec.json.encode(found)) < 5_100_000
    assert (len(found.texts) > 100, found.is_cut) == (True, True)


def test_an_episode_has_its_messages_and_the_tokens_of_each_turn(node):
    append(node / "completions.jsonl", played(round=5), played(round=5, index=1))
    pieces = {**columns_of(["north", "#", "I", "#"], [0.0] * 4), "turns": [2, 2]}
    append(node / "recorded.jsonl", recorded(5, 1.0, problem="maze/train/1", **pieces))
    first, second = NodeTexts(node).of_round(5).texts
    assert first.turns == second.turns == [
        ("assistant", "north"),
        ("user", "#####\n#.@G#\n#####"),
        ("assistant", 'I add.\nadd({"a":1,"b":"é"})'),
        ("tool", "2"),
    ]  # fmt: skip
    assert first.recorded.turns == (2, 2)
    assert second.recorded is None
