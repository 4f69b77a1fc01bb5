"""Nodes that meet over Zenoh on this machine, each with a session of its own; for tests."""

import itertools
import os
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import zenoh

from nouns import completion, terms
from potluck.exchange import ExchangeError, Key, Membership
from potluck.exchange.keys.keys import KnownKeys
from potluck.exchange.protocol.rules import InStep
from potluck.exchange.protocol.signed import encode_announcement, encode_answer, offer_of
from potluck.exchange.zenoh.exchange import ZenohExchange
from potluck.exchange.zenoh.session import Endpoints, open_session
from potluck.reports.status import PeerLine

LONG_S = 180.0
"""Reached only where something is broken."""
RUNS = itertools.count()
CERTIFICATES = Path(__file__).parents[1] / "deploy/certificates.sh"


def certify(folder, *names, hosts="", days=100):
    """Makes certificates as a person does; returns what the script said instead, if it refuses."""
    called = ["sh", str(CERTIFICATES), str(folder), hosts, *names]
    environment = os.environ | {"DAYS": str(days)}
    done = subprocess.run(called, env=environment, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def refused(call, *args, **named):
    """The one line with which ``call`` refuses."""
    with pytest.raises(ExchangeError) as caught:
        call(*args, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def until(holds, what):
    """Waits for what another thread does."""
    end_s = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end_s, f"it did not come to this: {what}"
        time.sleep(0.003)


def free_endpoint():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"tcp/127.0.0.1:{one.getsockname()[1]}"


def open_sessions(count):
    """Of one process; each connects to all before it, as peers do not pass on what others say."""
    sessions, endpoints = [], []
    while len(sessions) < count:
        endpoint = free_endpoint()
        try:
            sessions.append(open_session(Endpoints((endpoint,), tuple(endpoints)), run="*"))
        except ExchangeError:  # Somebody took the port meanwhile.
            continue
        endpoints.append(endpoint)
    for session in sessions:
        until(lambda s=session: len(s.info.peers_zid()) == count - 1, "all are connected")
    return sessions


class Town:
    """Nodes of a run of their own, on sessions that outlive them."""

    def __init__(self, folder, members, sessions, *, kind=ZenohExchange, **options):
        self.folder, self.members, self.options = folder, members, options
        self.kind = kind
        self.sessions, self.run = list(sessions), f"run-{next(RUNS)}"
        self.keys, self.said, self.exits = {}, {}, ExitStack()
        self.words, self.answering = {}, set()

    def key(self, name):
        return self.keys.setdefault(name, Key.new())

    def terms(self, name, **changes):
        return terms(name, run=self.run, **changes)

    def node(self, name, session=None, *, terms=None, open=False, **options):
        """Joins, on a session that no other node has."""
        said = self.said.setdefault(name, [])
        pins = self.folder / name / "pins.toml"
        own = Membership(
            agreement=terms or self.terms(name),
            key=self.key(name),
            known_keys=KnownKeys(roster={}, members=self.members, open=open, pins=pins),
            **{
                "folder": self.folder / name, "members": self.members, "codec": "exact",
                "partners": lambda round, names: names, "kept_rounds": 8, "quarantine_s": 60.0,
                "rule": InStep(max_staleness=1, kept_rounds=8),
                "notify": lambda told: said.append(told.text), **self.options, **options,
            },
        )  # fmt: skip
        exchange = self.kind(session or self.sessions.pop(), own)
        self.exits.callback(exchange.close)
        return exchange

    def nodes(self, *names, **options):
        """All of them, when all have met."""
        nodes = [self.node(name, **options) for name in names]
        for name, node in zip(names, nodes, strict=True):
            others = {*names} - {name}
            until(lambda node=node, others=others: others <= live(node), "all meet")
        return nodes

    def liar(self, name):
        liar = Liar(self, name, self.sessions.pop())
        self.exits.callback(liar.close)
        return liar

    def announcement(self, name, *offers, **changes):
        """What ``name`` says now, or what it would if its run, key, session or task were others."""
        fields = {
            "run": self.run, "key": self.key(name), "session": name.encode().ljust(16, b"."),
            "task": self.terms(name).provenance.task, "clock_s": time.time(), **changes,
        }  # fmt: skip
        return encode_announcement(fields.pop("run"), name, fields.pop("key"), offers, **fields)

    def announce(self, session, name, *offers, **changes):
        """Says it; what is ``name``'s own word, it also answers for."""
        said = self.announcement(name, *offers, **changes)
        if not changes:
            self.words[name] = said
            self.answer_for(session, name)
        session.put(f"{self.run}/ann/{name}", said)

    def answer_for(self, session, name):
        """Answers questions to ``name`` with its own last word, from now on."""
        if (session, name) not in self.answering:
            self.answering.add((session, name))
            key = f"{self.run}/q/{name}/hello"
            answering = session.declare_queryable(key, lambda query: self.answer(query, name))
            self.exits.callback(answering.undeclare)

    def answer(self, query, name):
        if said := self.words.get(name):
            challenge = query.payload.to_bytes()
            query.reply(query.key_expr, encode_answer(self.key(name), challenge, said))


@contextmanager
def town(folder, sessions, *members, **options):
    place = Town(folder, members, sessions, **options)
    with place.exits:
        yield place


class Liar:
    """A name, a key and a session, and no exchange: it serves and announces any bytes."""

    def __init__(self, place, name, session):
        self.place, self.name, self.session = place, name, session
        self.signed, run = {}, place.run
        self.served = session.declare_queryable(f"{run}/q/{name}/*", self._answer)
        place.answering.add((session, name))
        self.token = session.liveliness().declare_token(f"{run}/live/{name}")

    def offer(self, round, signed):
        """Serve ``signed`` from now on, unannounced."""
        self.signed[round] = signed

    def announce(self, **changes):
        offers = [offer_of(round, signed) for round, signed in self.signed.items()]
        self.place.announce(self.session, self.name, *offers, **changes)

    def close(self):
        self.token.undeclare()
        self.served.undeclare()
        self.place.answering.discard((self.session, self.name))

    def _answer(self, query):
        what = str(query.key_expr).rpartition("/")[2]
        if what == "hello":
            return self.place.answer(query, self.name)
        signed = self.signed.get(int(what))
        if signed is not None:
            query.reply(query.key_expr, signed)


def batch(author, *problems):
    return [completion(problem=problem, author=author) for problem in problems or ("p",)]


def peer(node, name):
    return node.status().peers.get(name, PeerLine())


def live(node):
    """Whom ``node`` sees, and has heard."""
    peers = node.status().peers
    return {name for name, one in peers.items() if one.live and one.heard_s is not None}


def has_batch(node, author, round):
    """Whether a usable batch of ``author`` came to ``node``."""
    with node._lock:
        return node._mailbox.fetch_queue.has_arrived(author, round)


def answers(place, key, payload=None):
    """What all that serve ``key`` answer to somebody who is no node."""
    session, asked = place.sessions[0], {"payload": payload, "target": zenoh.QueryTarget.ALL}
    got = session.get(f"{place.run}/q/{key}", timeout=LONG_S, **asked)
    return [reply.ok.payload.to_bytes() for reply in got if reply.ok]


def refusals(node, name):
    """How much was refused under ``name``, for whatever reason."""
    return sum(peer(node, name).refused.values())
