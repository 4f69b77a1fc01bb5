"""A node's own batches: the first stays, and outlives the process."""

import pytest

from nouns import completion, terms
from potluck.exchange import Key, Limits, encode
from potluck.exchange.announcement import offer_of
from potluck.exchange.shelf import BATCH, Shelf

KEY = Key.new()


def shelf(folder, *, node="north", key=KEY, kept_rounds=3):
    return Shelf(folder, kept_rounds=kept_rounds, run="run", node=node, key=key, limits=Limits())


def sealed(round, problem="p", *, key=KEY):
    batch = (completion(problem=problem),)
    return key.seal(BATCH, encode(terms("north").message(round, batch)))


def test_the_first_batch_of_a_round_stays(tmp_path):
    own = shelf(tmp_path)
    own.put(0, sealed(0, "first"))
    own.put(0, sealed(0, "second"))
    assert own.get(0) == sealed(0, "first")
    assert shelf(tmp_path).get(0) == sealed(0, "first")


def test_the_last_rounds_are_kept_in_memory_and_on_disk(tmp_path):
    own = shelf(tmp_path)
    for round in range(5):
        own.put(round, sealed(round))
    assert {p.name for p in tmp_path.iterdir()} == {f"00000{r}.ptlk" for r in (2, 3, 4)}
    again = shelf(tmp_path)
    for one in (own, again):
        assert [one.get(round) is None for round in range(5)] == [True, True, False, False, False]
        assert sorted(o.round for o in one.offers()) == [2, 3, 4]
    assert again.offers()[0] == offer_of(2, sealed(2))
    assert [o.round for o in shelf(tmp_path, kept_rounds=1).offers()] == [4]


def test_a_round_that_is_sent_is_there_but_no_later_one_goes_for_it(tmp_path):
    own = shelf(tmp_path)
    for round in (7, 8, 9, 0, 1):
        own.put(round, sealed(round))
        own.put(round, sealed(round, "second"))
        assert own.get(round) == sealed(round)
    assert sorted(o.round for o in own.offers()) == [7, 8, 9]
    assert own.get(0) is None
    own.put(7, sealed(7, "second"))
    assert own.get(7) == sealed(7)
    assert sorted(o.round for o in shelf(tmp_path).offers()) == [7, 8, 9]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"noise",
        sealed(0)[:-1],
        sealed(1),
        sealed(0, key=Key.new()),
        KEY.seal(b"announcement", sealed(0)[68:]),
    ],
    ids=["empty", "noise", "short", "another round", "another key", "no batch"],
)
def test_a_file_that_others_would_refuse_is_not_served(tmp_path, data):
    (tmp_path / "000000.ptlk").write_bytes(data)
    (tmp_path / "000001.ptlk").write_bytes(sealed(1))
    (tmp_path / "notes.ptlk").write_bytes(sealed(1))
    assert [o.round for o in shelf(tmp_path).offers()] == [1]
    assert shelf(tmp_path, node="south").offers() == []


def test_what_cannot_be_written_is_served_all_the_same(tmp_path):
    (tmp_path / "sent").write_bytes(b"a file where the folder should be")
    own = shelf(tmp_path / "elsewhere")
    own._folder = tmp_path / "sent"
    with pytest.raises(OSError):
        own.put(0, sealed(0))
    assert own.get(0) == sealed(0)
