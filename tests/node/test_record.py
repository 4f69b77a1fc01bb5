"""What a node leaves in its folder is whole, or is not there."""

import json

import pytest

from nouns import completion, terms
from potluck.exchange import Key, Round, encode, encode_round
from potluck.node.storage.record import Record
from potluck.reports.runs import LONGEST_QUESTION, GradedProblem, read_problems
from potluck.reports.tokens import Recorded
from potluck.types import Problem


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "north", run="run", node="north")


def message(author, round, *completions, run="run"):
    return encode(terms(author, run=run).message(round, completions))


def arrived(round=7, run="run"):
    """Of this round from two nodes, one of whom sealed it; and what a third one owed."""
    own, theirs = completion(), completion(author="south", index=3, end="length")
    late = completion(author="west", problem="q")
    return Round(
        (own, theirs),
        missing=("east",),
        late={round - 2: (late,)},
        messages=(
            message("north", round, own, run=run),
            Key.new().sign(b"batch", message("south", round, theirs, run=run)),
            message("west", round - 2, late, run=run),
        ),
    )


def test_a_round_comes_back_as_it_was_kept(record):
    size = record.keep_round(7, arrived())
    assert record.kept_round(7) == arrived()
    assert size == record.size(7) == (record.folder / "rounds" / "000007.ptlk").stat().st_size


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"noise",
        encode_round(6, "north", arrived(7)),
        encode_round(7, "south", arrived(7)),
        encode_round(7, "north", arrived(7, run="other")),
        encode_round(7, "north", arrived(8)),  # a message of a later round than the page's
        encode_round(7, "north", Round((), messages=(b"noise",))),
    ],
    ids=["empty", "noise", "round", "node", "run", "future", "message"],
)
def test_what_is_damaged_or_anothers_is_not_there(record, data):
    (record.folder / "rounds" / "000007.ptlk").write_bytes(data)
    assert record.kept_round(7) is None


def test_the_next_round_that_is_kept_is_found_behind_holes_and_damage(record):
    assert record.next_kept(0) is None
    for round in (3, 5, 9):
        record.keep_round(round, arrived(round))
    (record.folder / "rounds" / "000005.ptlk").write_bytes(b"noise")
    assert [record.next_kept(round) for round in (0, 3, 4, 9, 10)] == [3, 3, 9, 9, None]


def test_what_was_learned_from_is_known_by_author_and_round(record):
    for round in (3, 5, 9):
        record.keep_round(round, arrived(round))
    (record.folder / "rounds" / "000005.ptlk").write_bytes(b"noise")
    batches = record.batches(9)
    own = [("north", 3), ("north", 9), ("south", 3), ("south", 9), ("west", 1), ("west", 7)]
    assert sorted(batches) == own
    assert batches["west", 7] == arrived(9).messages[2]
    assert {round for _, round in record.batches(1)} == {7, 9}


def column(record, name, key):
    text = (record.folder / f"{name}.jsonl").read_text()
    return [json.loads(line)[key] for line in text.splitlines()]


def test_forgetting_takes_back_a_round_later_ones_and_lines_cut_short(record):
    for round in range(4):
        record.add("metrics", [{"round": round}])
        record.add("completions", [{"round": round, "index": i} for i in range(2)])
    with (record.folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 1, "los')
    record.truncate_from(2, {})
    assert column(record, "metrics", "round") == [0, 1]
    assert column(record, "completions", "round") == [0, 0, 1, 1]


def test_a_problem_has_one_line_however_often_it_comes_and_again_where_it_was_taken_back(record):
    folder = record.folder
    first, second = (Problem(id, f"{id}?", "4") for id in "ab")
    record.add_problems(0, [first, first])
    record.add_problems(1, [second, first])
    assert column(record, "problems", "problem") == ["a", "b"]
    found = read_problems(folder, {"b"})
    assert found == {"b": GradedProblem("b", "b?", "4", round=1)}
    record.truncate_from(1, {})
    again = Record(folder, run="run", node="north")
    again.add_problems(1, [first, second])
    again.add_problems(2, [Problem("c", "x" * 5000, "")])
    assert column(record, "problems", "problem") == ["a", "b", "c"]
    assert len(read_problems(folder, None)["c"].question) == LONGEST_QUESTION
    shots = Problem("d", "an example\n" * 900 + "the question", "because " * 900 + "the answer")
    again.add_problems(2, [shots])
    kept = read_problems(folder, None)["d"]
    assert (len(kept.question), len(kept.answer)) == (LONGEST_QUESTION, LONGEST_QUESTION)
    assert kept.question.startswith("an example\nan example")
    assert kept.question.endswith("an example\nthe question")
    assert kept.answer.endswith("because the answer")


def test_a_number_that_json_does_not_have_is_refused_and_not_written(record):
    with pytest.raises(ValueError, match="JSON"):
        record.add("metrics", [{"round": 0, "loss": float("nan")}])
    assert not (record.folder / "metrics.jsonl").exists()


def test_ends_of_lines_in_a_text_are_none_of_the_file(tmp_path):
    record = Record(tmp_path, run="tiny", node="north")
    kept = [Recorded(round=at, problem="p", author="a", index=0, advantage=1, kept=1,
                     text="a\u2028b\u0085c") for at in range(3)]  # fmt: skip
    record.add_sample(kept)
    record.truncate_from(2, {})
    first, second = record.each("recorded")
    assert (first["round"], second["round"]) == (0, 1)
    assert first["text"] == "a\u2028b\u0085c"
