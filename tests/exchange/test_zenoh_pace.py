"""Real nodes on loopback, each at its own pace: what came of others, whatever their rounds."""

import time

import pytest

from nouns import completion
from potluck.exchange import Newest, Received, batches_of
from town import LONG_S, has_batch, live, town, until


@pytest.fixture
def place(tmp_path, sessions):
    with town(tmp_path, sessions, "east", "north", "south", rule=Newest(enough=9)) as place:
        yield place


def batch(author, *problems):
    return [completion(problem=problem, author=author) for problem in problems or ("p",)]


def send(node, name, *rounds):
    for round in rounds:
        node.send(round, batch(name))


def keys(taken):
    return [(each.author, each.round) for each in taken]


def came(node, author, round):
    until(lambda: has_batch(node, author, round), f"round {round} of {author}")


def test_what_came_is_taken_once_and_finished_with_ones_own(place):
    north, south = place.nodes("north", "south")
    assert north.receive(0).batches == ()
    south.send(0, batch("south", "p", "q"))
    came(north, "south", 0)
    taken = north.receive(0).batches
    assert keys(taken) == [("south", 0)]
    assert {c.problem_id for c in taken[0].completions} == {"p", "q"}
    assert north.receive(0).batches == ()
    north.send(5, batch("north"))  # its own count has nothing to do with the other's
    round = north.finish(5, Received(taken))
    assert [(c.author, c.problem_id) for c in round.completions] == [("north", "p")]
    assert {then: [c.author for c in late] for then, late in round.late.items()} == {
        0: ["south", "south"]
    }
    assert round.missing == ()
    assert round.newest == {"south": 0}
    assert set(batches_of(round)) == {("north", 5), ("south", 0)}
    sizes = round.traffic.sent_bytes, round.traffic.received_bytes
    assert sizes == tuple(len(data) for data in round.messages)


def test_an_authors_rounds_since_are_told_and_nothing_waits(place):
    north, south = place.nodes("north", "south")
    send(south, "south", 0)
    came(north, "south", 0)
    taken = north.receive(0).batches
    send(south, "south", 1, 2)
    offered = north._mailbox.peers.newest_offer
    until(lambda: offered("south", 0) == 2, "the announcement of round 2")
    start_s = time.monotonic()
    north.send(0, batch("north"))
    assert north.finish(0, Received(taken)).newest == {"south": 2}
    assert north.finish(1, Received()).missing == ("north",)  # of a round that it did not send
    assert time.monotonic() - start_s < LONG_S


def test_only_the_newest_of_an_author_are_taken_and_none_between_two_rounds(place):
    north, south = place.nodes("north", "south")
    for round in range(5):
        send(south, "south", round)
        if round < 4:
            came(north, "south", round)
    until(lambda: has_batch(north, "south", 4), "round 4")
    assert keys(north.receive(0).batches) == [("south", 4), ("south", 3)]
    send(south, "south", 5)
    until(lambda: north._mailbox.peers.newest_offer("south", 0) == 5, "the announcement")
    assert not has_batch(north, "south", 5)
    assert north.receive(0).batches == ()
    north.send(0, batch("north"))  # it looks for others' again
    came(north, "south", 5)
    assert keys(north.receive(0).batches) == [("south", 5)]


def test_who_starts_again_takes_nothing_that_it_took_before(tmp_path, sessions):
    with town(tmp_path, sessions, "north", "south", rule=Newest(enough=9)) as place:
        south = place.node("south")
        send(south, "south", 0, 1, 2)
        north = place.node("north", rule=Newest(taken={"south": 2}, enough=9))
        until(lambda: "south" in live(north), "they meet")
        north.send(0, batch("north"))
        send(south, "south", 3)
        came(north, "south", 3)
        assert keys(north.receive(0).batches) == [("south", 3)]
        north.send(1, batch("north"))
        send(south, "south", 4)
        came(north, "south", 4)
        assert keys(north.receive(0).batches) == [("south", 4)]
        assert not has_batch(north, "south", 2)
