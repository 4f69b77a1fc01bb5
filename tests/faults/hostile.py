"""A member of a real swarm that announces rounds which it likes, and serves them."""

import json
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import zenoh

import tiny
from faults.swarm import Swarm
from potluck.builder.exchange import agreements_of
from potluck.builder.task import make_task
from potluck.config import LOCAL_SWARM
from potluck.exchange import Key, encode
from potluck.exchange.keys.keys import BATCH
from potluck.exchange.protocol.signed import encode_announcement, encode_answer, offer_of
from potluck.exchange.zenoh.session import Endpoints, open_session
from potluck.model import LanguageModel

HONEST, LIARS = ("east", "north"), ("y", "z")
"""Liars come last in a recipe, as each node calls those before it."""
ANNOUNCE_S, LONG_S = 0.1, 1800.0
SLOW = """
import time


def reward(completions, **columns):
    time.sleep({pause_s})
    return [float(len(text) % 3) for text in completions]
"""


class HostileMember:
    """A member with its true key and terms, and no model that learns."""

    def __init__(self, swarm, name, agreement):
        here = swarm.folder / LOCAL_SWARM
        addresses = json.loads((here / "addresses.json").read_text())
        self.agreement, self.name = agreement, name
        self.key = Key.load(here / f"{name}.key")
        before = tuple(addresses[each] for each in addresses if each in HONEST)
        self.line = Endpoints((addresses[name],), before)
        self.signed, self.offers = {}, []

    @contextmanager
    def joined(self):
        run = self.agreement.run
        session = open_session(self.line, run=run)
        served = session.declare_queryable(f"{run}/q/{self.name}/*", self._answer)
        token = session.liveliness().declare_token(f"{run}/live/{self.name}")
        try:
            yield session
        finally:
            token.undeclare()
            served.undeclare()
            session.close()

    def write(self, round):
        """Have a batch of ``round`` from now on: a valid one, with no completions."""
        data = encode(self.agreement.message(round, ()))
        self.signed[round] = self.key.sign(BATCH, data)
        self.offers = [offer_of(round, signed) for round, signed in self.signed.items()]

    def said(self):
        about = {"session": bytes(16), "task": self.agreement.provenance.task}
        run, clock_s = self.agreement.run, time.time()
        return encode_announcement(run, self.name, self.key, self.offers, clock_s=clock_s, **about)

    def announce(self, session):
        key = f"{self.agreement.run}/ann/{self.name}"
        session.put(key, self.said(), congestion_control=zenoh.CongestionControl.DROP)

    def _answer(self, query):
        with query:
            what = str(query.key_expr).rpartition("/")[2]
            if what == "hello":
                answer = encode_answer(self.key, query.payload.to_bytes(), self.said())
                query.reply(query.key_expr, answer)
                return
            if data := self.signed.get(int(what)):
                query.reply(query.key_expr, data)


def swarm_of(folder, model, honest, liars, *overrides, pause_s=0.05, **options):
    """A swarm whose honest nodes are started, with 4 x ``pause_s`` of work in each round at least;
    and its hostile members, with everybody's terms."""
    slow = Path(folder) / "slow.py"
    slow.write_text(SLOW.format(pause_s=pause_s))
    reward = {"reward": [{"function": f"{slow}:reward"}]}
    names = [*HONEST[:honest], *LIARS[:liars]]
    short = ("problems_per_round=4", "swarm.gather_s=60", "evaluation.problems=0")
    config = tiny.recipe(dict.fromkeys(names, model), *short, *overrides, **reward)
    swarm = Swarm(config, folder, more=["--trust-code"], **options)
    task, policy = make_task(config, trust_code=True), LanguageModel.load(model, device="cpu")
    terms = agreements_of(config, task, dict.fromkeys(LIARS[:liars], policy))
    swarm.start(*HONEST[:honest])
    return swarm, [HostileMember(swarm, name, terms[name]) for name in LIARS[:liars]]


def live(swarm, liars, act):
    """Let ``act`` say what each of ``liars`` announces, until the honest nodes have ended."""
    with swarm, ExitStack() as stack:
        sessions = [stack.enter_context(liar.joined()) for liar in liars]

        end_s = time.monotonic() + LONG_S
        while any(process.poll() is None for process in swarm.running.values()):
            assert time.monotonic() < end_s, swarm.logs()
            for liar, session in zip(liars, sessions, strict=True):
                act(liar, max(map(swarm.round, swarm.running)))
                liar.announce(session)
            time.sleep(ANNOUNCE_S)


def jumps(claim, after=1):
    """Be in step until round ``after`` is done, then claim round ``claim``."""

    def act(liar, round):
        liar.write(round + 1 if round < after else claim)

    return act
