"""Members with their true key that claim a round far ahead, in swarms of real nodes."""

import json
import time
from contextlib import ExitStack, contextmanager

import pytest
import zenoh

import tiny
from faults.swarm import Swarm
from forked import Forked
from potluck.builder.exchange import agreements_of
from potluck.builder.task import make_task
from potluck.config import LOCAL_SWARM
from potluck.exchange import Key, encode
from potluck.exchange.keys.keys import BATCH
from potluck.exchange.protocol.signed import encode_announcement, encode_answer, offer_of
from potluck.exchange.zenoh.session import Endpoints, open_session
from potluck.model import LanguageModel

ROUNDS, ANNOUNCE_S, LONG_S = 20, 0.1, 1800.0
HONEST, LIARS = ("east", "north"), ("y", "z")
"""Liars come last in a recipe, as each node calls those before it."""
SLOW = """
import time


def reward(completions, **columns):
    time.sleep(0.05)
    return [float(len(text) % 3) for text in completions]
"""


class HostileMember:
    """A member without a model, which announces what rounds it likes and serves them."""

    def __init__(self, swarm, name, agreement):
        here = swarm.folder / LOCAL_SWARM
        addresses = json.loads((here / "addresses.json").read_text())
        self.agreement, self.name = agreement, name
        self.key = Key.load(here / f"{name}.key")
        before = tuple(addresses[each] for each in addresses if each in HONEST)
        self.line = Endpoints((addresses[name],), before)
        self.signed = {}

    @contextmanager
    def joined(self):
        run = self.agreement.run
        with open_session(self.line, run=run) as session:
            session.declare_queryable(f"{run}/q/{self.name}/*", self._answer)
            with session.liveliness().declare_token(f"{run}/live/{self.name}"):
                yield session

    def announce(self, session, round):
        """Have a valid batch of ``round`` from now on, with no completions, and say so."""
        data = encode(self.agreement.message(round, ()))
        self.signed[round] = self.key.sign(BATCH, data)
        key = f"{self.agreement.run}/ann/{self.name}"
        session.put(key, self._said(), congestion_control=zenoh.CongestionControl.DROP)

    def _said(self):
        offers = [offer_of(round, signed) for round, signed in self.signed.items()]
        about = {"session": bytes(16), "task": self.agreement.provenance.task}
        run, clock_s = self.agreement.run, time.time()
        return encode_announcement(run, self.name, self.key, offers, clock_s=clock_s, **about)

    def _answer(self, query):
        with query:
            what = str(query.key_expr).rpartition("/")[2]
            if what == "hello":
                answer = encode_answer(self.key, query.payload.to_bytes(), self._said())
                query.reply(query.key_expr, answer)
            elif data := self.signed.get(int(what)):
                query.reply(query.key_expr, data)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Return a function that runs honest nodes, half of the swarm, until they end, against members
    that are in step for a round and then claim another one."""
    model = tiny.save(tmp_path_factory.mktemp("models") / "model")

    def run(each, claim):
        folder, names = tmp_path_factory.mktemp("run"), [*HONEST[:each], *LIARS[:each]]
        (folder / "slow.py").write_text(SLOW)
        config = tiny.recipe(
            dict.fromkeys(names, model), f"rounds={ROUNDS}", "problems_per_round=4",
            "deadline_s=3", "swarm.gather_s=60", "evaluation.problems=0",
            reward=[{"function": f"{folder}/slow.py:reward"}],
        )  # fmt: skip
        swarm = Swarm(config, folder, more=["--trust-code"], popen=Forked)
        task, policy = make_task(config, trust_code=True), LanguageModel.load(model, device="cpu")
        terms = agreements_of(config, task, dict.fromkeys(LIARS[:each], policy))
        swarm.start(*HONEST[:each])
        liars = [HostileMember(swarm, name, its) for name, its in terms.items()]
        with swarm, ExitStack() as stack:
            sessions = [stack.enter_context(liar.joined()) for liar in liars]
            end_s = time.monotonic() + LONG_S
            while any(process.poll() is None for process in swarm.running.values()):
                assert time.monotonic() < end_s, swarm.logs()
                done = max(map(swarm.round, swarm.running))
                for liar, session in zip(liars, sessions, strict=True):
                    liar.announce(session, done + 1 if done < 1 else claim)
                time.sleep(ANNOUNCE_S)
        rounds = {name: [m["round"] for m in swarm.metrics(name)] for name in HONEST[:each]}
        return rounds, {name: swarm.log(name) for name in rounds}

    return run


@pytest.mark.parametrize("each", [1, 2])
def test_a_majority_that_claims_a_round_that_cannot_be_is_told_of_and_ends_no_run(ended, each):
    rounds, logs = ended(each, 2_000_000_000)
    assert rounds == {name: list(range(ROUNDS)) for name in logs}
    for name, log in logs.items():
        assert f"{name}: the others claim round 2000000001; in the" in log
        assert "skipped" not in log


def test_rounds_that_are_skipped_are_told_when_they_are_and_at_the_end(ended):
    """The claim can be, after a while: others may be faster."""
    rounds, logs = ended(1, ROUNDS - 1)
    lived = rounds["east"]
    assert lived[-1] == ROUNDS - 1
    skipped = ROUNDS - len(lived)
    assert f"the others are at {ROUNDS}, so {skipped} rounds are skipped" in logs["east"]
    assert f"{len(lived)} rounds were done, {skipped} skipped" in logs["east"]
