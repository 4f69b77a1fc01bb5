import pytest

from nouns import completion, origin, prompt_digest, terms
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


def test_a_peers_message_counts(hub):
    hub.deliver(0, "south", from_south())
    assert hub.member("north").collect(0, deadline_s=5).missing == ("north",)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"PTLK\xff\xff\xff\xff",
        from_south()[:-1],
        from_south(run="second"),
        from_south(round=1),
        from_south(sender="north"),
        from_south(tokenizer=b"other"),
        from_south(task=b"other"),
        from_south(temperature=0.5),
        from_south(digest=lambda id: b"another."),
        from_south(problem="nowhere/1", digest=lambda id: b"whatever"),
    ],
    ids=["empty", "noise", "short", "run", "round", "sender", "tokenizer", "task", "temperature",
         "prompt", "problem"],
)  # fmt: skip
def test_a_peer_whose_bytes_are_no_message_of_theirs_is_missing(hub, message):
    north = hub.member("north")
    north.send(0, [completion()])
    hub.deliver(0, "south", message)
    got = north.collect(0, deadline_s=5)
    assert got.missing == ("south",)
    assert got.completions == (completion(),)


def test_what_was_refused_is_counted_once_by_its_reason(hub):
    north = hub.member("north")
    hub.deliver(0, "south", b"noise")
    hub.deliver(1, "south", from_south(round=1, temperature=0.5))
    for round in (0, 1, 2):
        north.collect(round, deadline_s=5)
    assert north.status().peers["south"].refused == {"malformed": 1, "other sampling": 1}
    assert hub.member("south").status().peers["north"].refused == {}


def test_a_name_that_is_not_on_the_hub_is_refused():
    with pytest.raises(ValueError, match="'small' is not on this hub; it has north, south"):
        hub_of("south", "north").member("small")


def test_two_hubs_share_nothing():
    one, other = hub_of("north"), hub_of("north")
    one.member("north").send(0, [completion()])
    assert other.member("north").collect(0, deadline_s=5).missing == ("north",)


@pytest.mark.parametrize("ahead, missing", [(KEPT_ROUNDS - 1, ()), (KEPT_ROUNDS, ("south",))])
def test_a_round_is_kept_for_as_long_as_somebody_may_read_it(hub, ahead, missing):
    for round in range(ahead + 1):
        hub.member("south").send(round, [])
        if round == 0:
            hub.member("north").send(0, [])
    north = hub.member("north")
    assert "south" not in north.collect(ahead, deadline_s=5).missing
    assert set(north.collect(0, deadline_s=5).missing) >= set(missing)
    if not missing:
        assert north.collect(0, deadline_s=5).missing == ()


def test_the_hub_does_not_grow_with_the_rounds(hub):
    for round in range(50):
        for name in ("north", "south"):
            hub.member(name).send(round, [completion(author=name)])
    assert len(hub._sent) == 2 * KEPT_ROUNDS


def collect_while_south_is_silent(hub, north, rounds):
    for round in rounds:
        north.send(round, [])
        assert north.collect(round, deadline_s=5).missing == ("south",)


def test_what_is_late_is_waited_for_as_long_as_it_is_kept(hub):
    north = hub.member("north")
    collect_while_south_is_silent(hub, north, range(KEPT_ROUNDS))
    hub.deliver(0, "south", from_south())
    north.send(KEPT_ROUNDS, [])
    hub.deliver(0, "south", from_south())  # the hub has let go of it meanwhile
    late = north.collect(KEPT_ROUNDS, deadline_s=5).late
    assert {round: [c.author for c in came] for round, came in late.items()} == {0: ["south"]}


def test_what_is_later_than_that_is_forgotten(hub):
    north = hub.member("north")
    collect_while_south_is_silent(hub, north, range(KEPT_ROUNDS + 1))
    hub.deliver(0, "south", from_south())
    hub.deliver(KEPT_ROUNDS + 1, "south", from_south(round=KEPT_ROUNDS + 1))
    hub.deliver(0, "south", from_south())
    assert north.collect(KEPT_ROUNDS + 1, deadline_s=5).late == {}
    assert len(north._owed) < 2 * KEPT_ROUNDS


def test_a_first_message_that_is_no_message_stays_too(hub):
    """Else a peer could say one thing to who asks early, another to who asks late."""
    hub.deliver(0, "south", b"noise")
    hub.deliver(0, "south", from_south())
    assert "south" in hub.member("north").collect(0, deadline_s=5).missing


def test_a_round_holds_the_bytes_it_was_read_from_and_counts_them(hub):
    north, south = hub.member("north"), hub.member("south")
    south.send(0, [completion(author="south")])
    north.send(0, [completion((1, 2, 3))])
    got = north.collect(0, deadline_s=5)
    own, theirs = (len(data) for data in got.messages)
    assert (got.traffic.sent_bytes, got.traffic.sent_tokens) == (own, 3)
    assert got.traffic.received_bytes == theirs == south.collect(0, deadline_s=5).traffic.sent_bytes


def test_the_codec_is_that_of_the_hub():
    sizes = []
    for codec in ("raw", "compact"):
        north = MemoryHub({"north": terms()}, codec=codec).member("north")
        north.send(0, [completion(tuple(range(200)))])
        sizes.append(north.collect(0, deadline_s=5).traffic.sent_bytes)
    assert sizes[0] > 2 * sizes[1]
