"""A node's own batches: the first stays, and outlives the process."""

import pytest

from nouns import completion, terms
from potluck.exchange import Key, encode
from potluck.exchange.keys.keys import BATCH
from potluck.exchange.protocol.outbox import Outbox
from potluck.exchange.protocol.signed import offer_of

KEY = Key.new()


def shelf(folder, *, node="north", key=KEY, kept_rounds=3):
    return Outbox(folder, terms(node), key, kept_rounds=kept_rounds)


def signed(round, problem="p", *, key=KEY):
    batch = (completion(problem=problem),)
    return key.sign(BATCH, encode(terms("north").message(round, batch)))


def test_the_first_batch_of_a_round_stays(tmp_path):
    own = shelf(tmp_path)
    own.put(0, signed(0, "first"))
    own.put(0, signed(0, "second"))
    assert own.get(0) == signed(0, "first")
    assert shelf(tmp_path).get(0) == signed(0, "first")


def test_the_last_rounds_are_kept_in_memory_and_on_disk(tmp_path):
    own = shelf(tmp_path)
    for round in range(5):
        own.put(round, signed(round))
    assert {p.name for p in tmp_path.iterdir()} == {f"00000{r}.ptlk" for r in (2, 3, 4)}
    again = shelf(tmp_path)
    for one in (own, again):
        assert [one.get(round) is None for round in range(5)] == [True, True, False, False, False]
        assert sorted(o.round for o in one.offers()) == [2, 3, 4]
    assert again.offers()[0] == offer_of(2, signed(2))
    assert [o.round for o in shelf(tmp_path, kept_rounds=1).offers()] == [4]


def test_a_round_that_is_sent_is_there_but_no_later_one_goes_for_it(tmp_path):
    own = shelf(tmp_path)
    for round in (7, 8, 9, 0, 1):
        own.put(round, signed(round))
        own.put(round, signed(round, "second"))
        assert own.get(round) == signed(round)
    assert sorted(o.round for o in own.offers()) == [7, 8, 9]
    assert own.get(0) is None
    own.put(7, signed(7, "second"))
    assert own.get(7) == signed(7)
    assert sorted(o.round for o in shelf(tmp_path).offers()) == [7, 8, 9]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"noise",
        signed(0)[:-1],
        signed(1),
        signed(0, key=Key.new()),
        KEY.sign(b"announcement", signed(0)[68:]),
    ],
    ids=["empty", "noise", "short", "another round", "another key", "no batch"],
)
def test_a_file_that_others_would_refuse_is_not_served(tmp_path, data):
    (tmp_path / "000000.ptlk").write_bytes(data)
    (tmp_path / "000001.ptlk").write_bytes(signed(1))
    (tmp_path / "notes.ptlk").write_bytes(signed(1))
    assert [o.round for o in shelf(tmp_path).offers()] == [1]
    assert shelf(tmp_path, node="south").offers() == []


def test_what_cannot_be_written_is_served_all_the_same(tmp_path):
    own = shelf(tmp_path / "sent", kept_rounds=1)
    (tmp_path / "sent").write_bytes(b"a file where the folder should be")
    for round in (0, 1):  # for round 1 a file cannot be removed, either
        with pytest.raises(OSError):
            own.put(round, signed(round))
        assert own.get(round) == signed(round)
