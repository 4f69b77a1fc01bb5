"""An observer of real nodes: through one of them, through a relay, and with certificates."""

import time
from contextlib import ExitStack

import pytest

from potluck.exchange.keys.certificates import write_certificates
from potluck.exchange.zenoh import exchange
from potluck.exchange.zenoh.observer import observe
from potluck.exchange.zenoh.session import Endpoints, Tls, open_router, open_session
from potluck.reports.status import StatusLine
from town import free_endpoint, live, town, until

NAMES = ("north", "south")


@pytest.fixture
def stack(monkeypatch):
    monkeypatch.setattr(exchange, "LINE_PAUSE_S", 0.0)
    with ExitStack() as stack:
        yield stack


def tell(place, nodes, **changes):
    for name, node in nodes.items():
        node.tell(StatusLine(node=name, run=place.run, time_s=time.time(), **changes))


def joined(stack, folder, lines):
    """A town with a node on a session of its own for each line."""
    sessions = [stack.enter_context(open_session(line, run="*")) for line in lines]
    place = stack.enter_context(town(folder, sessions[::-1], *NAMES))
    nodes = dict(zip(NAMES, [place.node(name) for name in NAMES], strict=True))
    return place, nodes


def meet(place, nodes, observer):
    """All nodes see each other, and the observer sees a line of each."""
    for name, node in nodes.items():
        until(lambda node=node, name=name: live(node) == {*NAMES} - {name}, "the nodes meet")

    def all_told():
        tell(place, nodes, round=3)
        seen = observer.seen()
        return all((its := seen.get(n)) and its.live and its.line for n in NAMES)

    until(all_told, "all have told their status")


def test_through_one_node_the_others_are_seen_and_nobody_sees_the_observer(stack, tmp_path):
    first, second = free_endpoint(), free_endpoint()
    lines = Endpoints((first,)), Endpoints((second,), (first,))
    place, nodes = joined(stack, tmp_path, lines)
    roster = {"north": place.key("north").public}
    observer = stack.enter_context(observe(Endpoints(connect=(first,)), place.run, roster))
    meet(place, nodes, observer)
    nodes["south"].send(5, [])
    until(lambda: observer.seen()["south"].newest_round == 5, "its round is seen")
    seen = observer.seen()
    assert (set(seen), observer.roster) == ({"north", "south"}, {"north"})
    assert seen["north"].line.round == 3
    assert observer.is_connected()
    assert observer.refused() == {}
    for name, node in nodes.items():
        assert set(node.status().peers) == {*NAMES} - {name}
    nodes["south"].close()
    until(lambda: not observer.seen()["south"].live, "it is seen to leave")


def test_an_observer_that_comes_first_sees_a_relay_and_its_nodes_when_they_come(stack, tmp_path):
    endpoint = free_endpoint()
    observer = stack.enter_context(observe(Endpoints(connect=(endpoint,)), "run-of-relay", {}))
    assert not observer.is_connected()
    stack.enter_context(open_router(Endpoints((endpoint,))))
    lines = [Endpoints(connect=(endpoint,))] * 2
    sessions = [stack.enter_context(open_session(line, run="*")) for line in lines]
    place = stack.enter_context(town(tmp_path, sessions, *NAMES))
    place.run = "run-of-relay"
    nodes = {name: place.node(name) for name in NAMES}
    meet(place, nodes, observer)
    assert set(observer.seen()) == set(NAMES)


def test_an_observer_with_a_certificate_sees_what_nodes_with_certificates_tell(stack, tmp_path):
    write_certificates(tmp_path / "ours", [*NAMES, "relay", "watcher"])
    endpoint = free_endpoint().replace("tcp", "tls")

    def tls(name):
        return Tls(tmp_path / "ours", name, (*NAMES, "watcher"))

    stack.enter_context(open_router(Endpoints((endpoint,), (), tls("relay"))))
    lines = [Endpoints(connect=(endpoint,), tls=tls(name)) for name in NAMES]
    place, nodes = joined(stack, tmp_path, lines)
    roster = {name: place.key(name).public for name in NAMES}
    line = Endpoints(connect=(endpoint,), tls=tls("watcher"))
    observer = stack.enter_context(observe(line, place.run, roster))
    meet(place, nodes, observer)
    assert set(observer.seen()) == observer.roster == set(NAMES)
