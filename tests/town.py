"""Nodes that meet over Zenoh on this machine, each with a session of its own; for tests."""

import itertools
import socket
import time
from contextlib import ExitStack, contextmanager

from nouns import terms
from potluck.exchange import ExchangeError, Key
from potluck.exchange.announcement import encode_announcement
from potluck.exchange.session import Line, open_session
from potluck.exchange.trust import Trust
from potluck.exchange.zenoh import ZenohExchange

LONG_S = 40.0
"""Reached only where something is broken."""
RUNS = itertools.count()


def until(holds, what):
    """Waits for what another thread does."""
    end_s = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end_s, f"it did not come to this: {what}"
        time.sleep(0.003)


def open_sessions(count):
    """Of one process; each connects to all before it, as peers do not pass on what others say."""
    sessions, endpoints = [], []
    while len(sessions) < count:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            endpoint = f"tcp/127.0.0.1:{one.getsockname()[1]}"
        try:
            sessions.append(open_session(Line((endpoint,), tuple(endpoints)), run="*"))
        except ExchangeError:  # Somebody took the port meanwhile.
            continue
        endpoints.append(endpoint)
    for session in sessions:
        until(lambda s=session: len(s.info.peers_zid()) == count - 1, "all are connected")
    return sessions


class Town:
    """Nodes of a run of their own, on sessions that outlive them."""

    def __init__(self, folder, members, sessions, **options):
        self.folder, self.members, self.options = folder, members, options
        self.sessions, self.run = list(sessions), f"run-{next(RUNS)}"
        self.keys, self.said, self.exits = {}, {}, ExitStack()

    def key(self, name):
        return self.keys.setdefault(name, Key.new())

    def terms(self, name, **changes):
        return terms(name, run=self.run, **changes)

    def node(self, name, session=None, *, terms=None, open=False, **options):
        """Joins, on a session that no other node has."""
        said = self.said.setdefault(name, [])
        pins = self.folder / name / "pins.toml"
        exchange = ZenohExchange(
            session or self.sessions.pop(),
            terms or self.terms(name),
            self.key(name),
            Trust(roster={}, members=self.members, open=open, pins=pins),
            **{
                "folder": self.folder / name,
                "members": self.members,
                "partners": lambda round, names: names,
                "codec": "exact",
                "max_staleness": 1,
                "kept_rounds": 8,
                "quarantine_s": 60.0,
                "say": said.append,
                **self.options,
                **options,
            },
        )
        self.exits.callback(exchange.close)
        return exchange

    def nodes(self, *names, **options):
        """All of them, when all have met."""
        nodes = [self.node(name, **options) for name in names]
        for node in nodes:
            others = {other._terms.node for other in nodes if other is not node}
            until(lambda node=node, others=others: others <= live(node), "all meet")
        return nodes

    def announce(self, session, name, *offers, key=None, run=None, under=None):
        """Says under the name of ``under`` what ``name`` would say, signed by ``key``."""
        said = encode_announcement(
            run or self.run, name, key or self.key(name), offers, clock_s=time.time()
        )
        session.put(f"{self.run}/ann/{under or name}", said)


@contextmanager
def town(folder, sessions, *members, **options):
    place = Town(folder, members, sessions, **options)
    with place.exits:
        yield place


def live(node):
    """Whom ``node`` sees, and has heard."""
    with node._changed:
        peers = node._mailbox.peers
        return {name for name in peers.live() if peers.get(name).public}


def has_looked_at(node, author, round):
    """Whether ``author``'s batch of ``round`` came to ``node``, good or bad."""
    with node._changed:
        return node._mailbox.wanted.is_settled(author, round)


def has_refused(node, name):
    with node._changed:
        return bool(node._mailbox.peers._refused[name])
