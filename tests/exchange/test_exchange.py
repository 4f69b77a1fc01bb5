"""What any exchange must do. A new transport joins by adding itself to EXCHANGES."""

import pytest

from nouns import completion, terms
from potluck.exchange import MemoryHub, Round
from town import LONG_S, has_looked_at, town, until

NAMES = ["large", "north", "small"]
ENOUGH_S, SHORT_S = LONG_S, 0.05


def memory(folder, sessions):
    hub = MemoryHub({name: terms(name) for name in NAMES})
    yield {name: hub.member(name) for name in NAMES}


class Arrived:
    """Collects when what was sent before has come: in memory nothing takes time."""

    def __init__(self, node, sent):
        self.node, self.sent = node, sent

    def send(self, round, batch):
        self.node.send(round, batch)
        self.sent.add((self.node._terms.node, round))

    def collect(self, round, *, deadline_s):
        for author, then in self.sent - {(self.node._terms.node, r) for r in range(9)}:
            came = lambda author=author, then=then: has_looked_at(self.node, author, then)  # noqa: E731
            until(came, f"{author}'s round {then} comes")
        return self.node.collect(round, deadline_s=deadline_s)


def zenoh(folder, sessions):
    with town(folder, sessions, *NAMES) as place:
        sent = set()
        yield {n: Arrived(node, sent) for n, node in zip(NAMES, place.nodes(*NAMES), strict=True)}


EXCHANGES = [memory, zenoh]


@pytest.fixture(params=EXCHANGES, ids=lambda make: make.__name__)
def members(request, tmp_path, sessions):
    yield from request.param(tmp_path, sessions)


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
    rounds = [members[name].collect(0, deadline_s=ENOUGH_S) for name in NAMES]
    expected = tuple(c for name in NAMES for c in reversed(batch(name, "p")))
    assert rounds == [Round(expected, missing=(), late={})] * 3


def test_the_order_in_which_an_author_sent_does_not_matter(members):
    members["north"].send(0, batch("north", "q", "p"))
    members["large"].send(0, [])
    members["small"].send(0, [])
    got = members["large"].collect(0, deadline_s=ENOUGH_S).completions
    assert [(c.index, c.problem_id) for c in got] == [(0, "p"), (0, "q"), (1, "p"), (1, "q")]


def test_a_silent_peer_is_missing_and_the_round_goes_on(members):
    all_send(members, names=["large", "north"])
    got = members["north"].collect(0, deadline_s=SHORT_S)
    assert got.missing == ("small",)
    assert {c.author for c in got.completions} == {"large", "north"}


def test_who_is_missing_is_named_in_one_order(members):
    members["north"].send(0, [])
    assert members["north"].collect(0, deadline_s=SHORT_S).missing == ("large", "small")


def test_who_has_not_sent_itself_is_missing_too(members):
    all_send(members, names=["large", "small"])
    assert members["north"].collect(0, deadline_s=SHORT_S).missing == ("north",)


def test_who_has_nothing_to_say_is_not_missing(members):
    all_send(members, names=["large", "north"])
    members["small"].send(0, [])
    assert members["north"].collect(0, deadline_s=ENOUGH_S).missing == ()


def test_what_comes_after_the_deadline_is_late_once_and_in_no_other_round(members):
    all_send(members, names=["large", "north"])
    members["north"].collect(0, deadline_s=SHORT_S)
    all_send(members, names=["small"])
    all_send(members, round=1)
    second = members["north"].collect(1, deadline_s=ENOUGH_S)
    assert second.late == {0: tuple(reversed(batch("small", "p")))}
    assert second.missing == ()
    assert len(second.completions) == 6
    all_send(members, round=2)
    assert members["north"].collect(2, deadline_s=ENOUGH_S).late == {}


def test_what_is_late_for_one_may_be_in_time_for_another(members):
    all_send(members, names=["large", "north"])
    members["north"].collect(0, deadline_s=SHORT_S)
    all_send(members, names=["small"])
    assert members["large"].collect(0, deadline_s=ENOUGH_S).missing == ()


def test_who_is_silent_for_many_rounds_is_late_for_all_of_them(members):
    for round in (0, 1):
        all_send(members, round, ["large", "north"])
        members["north"].collect(round, deadline_s=SHORT_S)
    for round in (0, 1):
        members["small"].send(round, batch("small", f"round {round}"))
    all_send(members, round=2)
    late = members["north"].collect(2, deadline_s=ENOUGH_S).late
    problems = {then: {c.problem_id for c in completions} for then, completions in late.items()}
    assert problems == {0: {"round 0"}, 1: {"round 1"}}


def test_a_round_sent_again_counts_once_and_the_first_stays(members):
    all_send(members)
    members["north"].send(0, batch("north", "another"))
    got = members["large"].collect(0, deadline_s=ENOUGH_S).completions
    assert [c.problem_id for c in got if c.author == "north"] == ["p", "p"]


def test_who_signs_with_the_name_of_another_sends_nothing_and_is_missing(members):
    all_send(members, names=["large", "north"])
    with pytest.raises(ValueError, match="not its own"):
        members["small"].send(0, batch("large", "p"))
    got = members["north"].collect(0, deadline_s=SHORT_S)
    assert got.missing == ("small",)
    assert len(got.completions) == 4


def test_who_writes_one_completion_twice_sends_nothing_and_is_missing(members):
    all_send(members, names=["large", "north"])
    with pytest.raises(ValueError, match="twice"):
        members["small"].send(0, [completion(author="small")] * 2)
    assert members["north"].collect(0, deadline_s=SHORT_S).missing == ("small",)


def test_rounds_do_not_mix(members):
    for round in (1, 0):
        for name in NAMES:
            members[name].send(round, batch(name, f"round {round}"))
    got = members["north"].collect(0, deadline_s=ENOUGH_S).completions
    assert {c.problem_id for c in got} == {"round 0"}


def test_what_arrives_is_no_longer_what_was_sent(members):
    """Own completions pass the wire as well: one set of numbers, whoever reads them."""
    (sent,) = mine = [completion(author="north")]
    members["north"].send(0, mine)
    (got,) = members["north"].collect(0, deadline_s=SHORT_S).completions
    assert got == sent
    assert got is not sent
