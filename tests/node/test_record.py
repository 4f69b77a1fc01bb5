"""What a node leaves in its folder is whole, or is not there."""

import json

import pytest

from nouns import completion
from potluck.exchange import Message, encode
from potluck.node import Record


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "north", run="run", node="north")


def test_a_round_comes_back_as_it_was_kept(record):
    kept = (completion(), completion(author="south", index=3, end="length"))
    size = record.keep_round(7, kept)
    assert record.kept_round(7) == kept
    assert size == (record.folder / "rounds" / "000007.ptlk").stat().st_size


def test_what_is_absent_damaged_or_anothers_is_not_there(record):
    assert record.kept_round(0) is None
    file = record.folder / "rounds" / "000000.ptlk"
    for data in (
        b"",
        b"noise",
        encode(Message("run", 1, "north", (completion(),))),
        encode(Message("run", 0, "south", (completion(),))),
        encode(Message("other", 0, "north", (completion(),))),
    ):
        file.write_bytes(data)
        assert record.kept_round(0) is None


def test_forgetting_takes_back_a_round_later_ones_and_lines_cut_short(record):
    for round in range(4):
        record.add("metrics", [{"round": round}])
        record.add("completions", [{"round": round, "index": i} for i in range(2)])
    with (record.folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 1, "los')
    record.forget_from(2)

    def rounds(name):
        text = (record.folder / f"{name}.jsonl").read_text()
        return [json.loads(line)["round"] for line in text.splitlines()]

    assert rounds("metrics") == [0, 1]
    assert rounds("completions") == [0, 0, 1, 1]


def test_a_number_that_json_does_not_have_is_refused_and_not_written(record):
    with pytest.raises(ValueError, match="JSON"):
        record.add("metrics", [{"round": 0, "loss": float("nan")}])
    assert not (record.folder / "metrics.jsonl").exists()
