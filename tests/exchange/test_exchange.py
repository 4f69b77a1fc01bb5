"""What any exchange must do. A new transport joins by adding itself to EXCHANGES."""

import pytest

from nouns import collect, completion, terms
from potluck.exchange import (
    TRANSPORTS,
    ExchangeError,
    InStep,
    Key,
    Membership,
    MemoryHub,
    Newest,
    Received,
    Round,
    batches_of,
    transport,
)
from potluck.exchange.base import silent
from potluck.exchange.folder.exchange import FolderExchange, free_endpoints
from potluck.exchange.folder.store import Store
from potluck.exchange.keys.keys import KnownKeys
from town import LONG_S, has_batch, town, until

NAMES = ["large", "north", "small"]
ENOUGH_S, SHORT_S = LONG_S, 0.05


STEP, FREE = InStep(max_staleness=1, kept_rounds=8), Newest(max_staleness=1, enough=9)


def memory(folder, sessions, rule):
    hub = MemoryHub({name: terms(name) for name in NAMES}, rule=rule)
    yield {name: hub.member(name) for name in NAMES}


class Arrived:
    """Collects when what was sent before has come: in memory nothing takes time."""

    def __init__(self, name, node, sent, rule):
        self.name, self.node, self.sent = name, node, sent
        # At its own pace a node fetches the newest only.
        self.awaited = list if rule.in_step else lambda sent: dict(sorted(sent)).items()

    def __getattr__(self, method):
        return getattr(self.node, method)

    def send(self, round, batch):
        self.node.send(round, batch)
        self.sent.add((self.name, round))

    def receive(self, round, *, wait_s=0.0, waiting=silent):
        for author, then in self.awaited(self.sent):
            came = lambda a=author, r=then: a == self.name or has_batch(self.node, a, r)  # noqa: E731
            until(came, f"{author}'s round {then} comes")
        return self.node.receive(round, wait_s=wait_s, waiting=waiting)


def between(lines, folder, rule, **options):
    with town(folder, lines, *NAMES, rule=rule, **options) as place:
        sent = set()
        nodes = zip(NAMES, place.nodes(*NAMES), strict=True)
        yield {name: Arrived(name, node, sent, rule) for name, node in nodes}


def folder(folder, sessions, rule):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("potluck.exchange.folder.exchange.SHORTEST_S", 0.01)
        stores = [Store(*free_endpoints(1, folder)) for _ in NAMES]
        yield from between(stores, folder, rule, kind=FolderExchange)


def zenoh(folder, sessions, rule):
    yield from between(sessions, folder, rule)


EXCHANGES = [memory, folder, zenoh]


@pytest.fixture(params=EXCHANGES, ids=lambda make: make.__name__)
def members(request, tmp_path, sessions):
    yield from request.param(tmp_path, sessions, STEP)


@pytest.fixture(params=EXCHANGES, ids=lambda make: make.__name__)
def free(request, tmp_path, sessions):
    """Members at their own pace."""
    yield from request.param(tmp_path, sessions, FREE)


def batch(author, *problems):
    """Two completions of each problem, not in reading order."""
    return [
        completion(problem=p, author=author, index=i, logprobs=(-0.1, -i))
        for p in problems
        for i in (1, 0)
    ]


def all_send(members, round=0, names=NAMES):
    for name in names:
        members[name].send(round, batch(name, "p"))


def test_everyone_gets_the_same_by_author_and_index_with_their_own_once(members):
    all_send(members, names=reversed(NAMES))
    rounds = [collect(members[name], 0, deadline_s=ENOUGH_S) for name in NAMES]
    expected = tuple(c for name in NAMES for c in reversed(batch(name, "p")))
    assert rounds == [Round(expected, missing=(), late={})] * 3


def test_the_order_of_an_author_does_not_matter_and_an_empty_batch_is_none_missing(members):
    members["north"].send(0, batch("north", "q", "p"))
    members["large"].send(0, [])
    members["small"].send(0, [])
    got = collect(members["large"], 0, deadline_s=ENOUGH_S)
    read = [(c.index, c.problem_id) for c in got.completions]
    assert read == [(0, "p"), (0, "q"), (1, "p"), (1, "q")]
    assert got.missing == ()


def test_silent_peers_are_missing_in_one_order_and_the_round_goes_on(members):
    members["north"].send(0, batch("north", "p"))
    got = collect(members["north"], 0, deadline_s=SHORT_S)
    assert got.missing == ("large", "small")
    assert {c.author for c in got.completions} == {"north"}


def test_who_has_not_sent_itself_is_missing_too(members):
    all_send(members, names=["large", "small"])
    assert collect(members["north"], 0, deadline_s=SHORT_S).missing == ("north",)


def test_what_comes_after_the_deadline_is_late_once_and_in_no_other_round(members):
    all_send(members, names=["large", "north"])
    collect(members["north"], 0, deadline_s=SHORT_S)
    all_send(members, names=["small"])
    all_send(members, round=1)
    second = collect(members["north"], 1, deadline_s=ENOUGH_S)
    assert second.late == {0: tuple(reversed(batch("small", "p")))}
    assert second.missing == ()
    assert len(second.completions) == 6
    all_send(members, round=2)
    assert collect(members["north"], 2, deadline_s=ENOUGH_S).late == {}


def test_a_round_sent_again_counts_once_and_the_first_stays(members):
    all_send(members)
    members["north"].send(0, batch("north", "another"))
    got = collect(members["large"], 0, deadline_s=ENOUGH_S).completions
    assert [c.problem_id for c in got if c.author == "north"] == ["p", "p"]


def test_a_batch_under_anothers_name_or_of_one_completion_twice_is_not_sent(members):
    all_send(members, names=["large", "north"])
    for wrong, complaint in (
        (batch("large", "p"), "not its own"),
        ([completion(author="small")] * 2, "twice"),
    ):
        with pytest.raises(ValueError, match=complaint):
            members["small"].send(0, wrong)
    got = collect(members["north"], 0, deadline_s=SHORT_S)
    assert (got.missing, len(got.completions)) == (("small",), 4)


def test_what_arrives_is_no_longer_what_was_sent(members):
    """Own completions pass the wire as well: one set of numbers, whoever reads them."""
    (sent,) = mine = [completion(author="north")]
    members["north"].send(0, mine)
    (got,) = collect(members["north"], 0, deadline_s=SHORT_S).completions
    assert got == sent
    assert got is not sent


# At their own pace.


def rounds_of(taken):
    return sorted((each.author, each.round) for each in taken)


def test_what_others_sent_is_taken_once_whatever_its_round_and_nothing_is_waited_for(free):
    assert free["north"].receive(0).batches == ()
    all_send(free, 7, ["large"])
    all_send(free, 2, ["north", "small"])
    taken = free["north"].receive(0).batches
    assert rounds_of(taken) == [("large", 7), ("small", 2)]
    assert {c.author for each in taken for c in each.completions} == {"large", "small"}
    assert free["north"].receive(0).batches == ()
    all_send(free, 8, ["large"])
    free["north"].send(3, [])  # from here on it looks for others' again
    assert rounds_of(free["north"].receive(0).batches) == [("large", 8)]


def test_of_each_author_the_newest_rounds_are_taken(free):
    for round in range(4):
        all_send(free, round, ["small"])
    taken = rounds_of(free["north"].receive(0).batches)
    assert ("small", 3) in taken
    assert {*taken} <= {("small", 2), ("small", 3)}
    assert free["north"].receive(0).batches == ()


def test_a_round_is_finished_with_what_was_taken_and_ones_own(free):
    all_send(free, 7, ["small"])
    all_send(free, 1, ["north"])
    taken = free["north"].receive(0).batches
    got = free["north"].finish(1, Received(taken))
    assert {c.author for c in got.completions} == {"north"}
    assert [(then, {c.author for c in late}) for then, late in got.late.items()] == [(7, {"small"})]
    assert (got.missing, got.newest["small"]) == ((), 7)
    assert batches_of(got).keys() == {("north", 1), ("small", 7)}
    assert free["north"].finish(2, Received()).missing == ("north",)


# What is asked between the rounds.


def test_before_the_first_round_the_others_are_there_and_have_sent_nothing(members):
    for _ in range(2):
        assert members["north"].gather(ENOUGH_S, lambda here, awaited: None) == ()
    peers = members["north"].status().peers
    assert sorted(peers) == ["large", "small"]
    for peer in peers.values():
        assert (peer.live, peer.newest_round) == (True, None)
        assert (peer.quarantined_until_s, peer.refused) == (0, {})
        assert peer.heard_s is None or peer.heard_s >= 0


def test_the_status_has_the_newest_round_of_which_a_batch_came_at_its_moment(members):
    seen = []
    for round in (0, 1):
        all_send(members, round, names=NAMES if round else ["large", "north"])
        collect(members["north"], round, deadline_s=SHORT_S)
        seen.append(members["north"].status().peers)
    newest = [{name: peer.newest_round for name, peer in peers.items()} for peers in seen]
    assert newest == [{"large": 0, "small": None}, {"large": 1, "small": 1}]


# What opens them by name.


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_transport_is_opened_by_its_name_and_closed_again(name, tmp_path):
    own = Membership(
        agreement=terms("north"),
        key=Key.new(),
        known_keys=KnownKeys({}, ["north"], False, tmp_path / "pins.toml"),
        folder=tmp_path,
        members=["north"],
        partners=lambda round, names: names,
        codec="exact",
        rule=STEP,
        kept_rounds=4,
        quarantine_s=60.0,
        listen=tuple(transport(name).free_endpoints(1, tmp_path)),
    )
    with transport(name).open_exchange(own) as north:
        assert north.gather(0) == ()
        north.send(0, batch("north", "p"))
        assert len(collect(north, 0, deadline_s=ENOUGH_S).completions) == 2
        assert north.status().round == 0
        north.close()  # once more when the context ends


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_transport_refuses_an_address_that_it_cannot_use_with_its_key_and_value(name):
    check = transport(name).check_endpoints
    check("swarm.listen", (), tls=False, listen=True)
    with pytest.raises(ExchangeError, match=r"swarm.connect is 'smoke/signals'"):
        check("swarm.connect", ("smoke/signals",), tls=False, listen=False)


def test_a_stored_round_tells_what_the_others_sent():
    mine, late = completion(author="north"), completion(author="west")
    south = completion(author="south")
    stored = Round((mine, south), late={3: (late, mine)})
    batches = stored.received_by("north", 5).batches
    assert [(each.author, each.round, each.completions) for each in batches] == [
        ("south", 5, (south,)),
        ("west", 3, (late,)),
    ]
