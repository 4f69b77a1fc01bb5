import pytest

from nouns import collect, completion, origin, prompt_digest, terms
from potluck.exchange import MemoryHub, Message, encode
from potluck.exchange.memory import KEPT_ROUNDS


def hub_of(*names):
    return MemoryHub({name: terms(name, run="first") for name in names})


@pytest.fixture
def hub():
    return hub_of("north", "south")


def from_south(run="first", round=0, sender="south", problem="p", digest=prompt_digest, **made):
    written = completion(author=sender, problem=problem)
    prompts = {problem: digest(problem)}
    return encode(Message(run, round, sender, origin(**made), prompts, (written,)))


@pytest.mark.parametrize(
    "message", [b"", from_south()[:-1], from_south(sender="north"), from_south(task=b"other")],
    ids=["empty", "short", "sender", "task"],
)  # fmt: skip
def test_a_peer_whose_bytes_are_no_message_of_theirs_is_missing(hub, message):
    north = hub.member("north")
    north.send(0, [completion()])
    hub.deliver(0, "south", message)
    got = collect(north, 0, deadline_s=5)
    assert (got.missing, got.completions) == (("south",), (completion(),))


def test_what_was_refused_is_counted_once_by_its_reason(hub):
    north = hub.member("north")
    hub.deliver(0, "south", b"noise")
    hub.deliver(1, "south", from_south(round=1, temperature=0.5))
    for round in (0, 1, 2):
        collect(north, round, deadline_s=5)
    assert north.status().peers["south"].refused == {"malformed": 1, "other sampling": 1}
    assert hub.member("south").status().peers["north"].refused == {}


def test_the_hub_does_not_grow_with_the_rounds(hub):
    for round in range(50):
        for name in ("north", "south"):
            hub.member(name).send(round, [completion(author=name)])
    assert len(hub._sent) == 2 * KEPT_ROUNDS


@pytest.mark.parametrize("rounds, late", [(KEPT_ROUNDS, {0}), (KEPT_ROUNDS + 1, set())])
def test_what_is_late_is_there_for_some_rounds(hub, rounds, late):
    north = hub.member("north")
    hub.deliver(0, "south", from_south())
    for round in range(rounds):
        north.send(round, [])
    assert collect(north, rounds - 1, deadline_s=5).late.keys() == late
    assert collect(north, rounds - 1, deadline_s=5).late == {}


def test_a_round_holds_the_bytes_it_was_read_from_and_counts_them(hub):
    north, south = hub.member("north"), hub.member("south")
    south.send(0, [completion(author="south")])
    north.send(0, [completion((1, 2, 3))])
    got = collect(north, 0, deadline_s=5)
    own, theirs = (len(data) for data in got.messages)
    assert (got.traffic.sent_bytes, got.traffic.sent_tokens) == (own, 3)
    assert (
        got.traffic.received_bytes == theirs == collect(south, 0, deadline_s=5).traffic.sent_bytes
    )
