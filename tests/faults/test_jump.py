"""A member with its true key that claims a round far ahead, beside a real node."""

import json
import time
from contextlib import contextmanager

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
IMPOSSIBLE = 2_000_000_000
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
        # It comes last in the recipe, as each node calls those before it.
        self.line = Endpoints((addresses.pop(name),), tuple(addresses.values()))
        self.signed = {}

    @contextmanager
    def joined(self):
        run = self.agreement.run
        with open_session(self.line, run=run) as session:
            session.declare_queryable(f"{run}/q/{self.name}/*", self._answer)
            with session.liveliness().declare_token(f"{run}/live/{self.name}"):
                yield session

    def announce(self, session, round):
        """Have a valid batch of ``round``, with no completions, and say so."""
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


def test_a_claim_that_cannot_be_is_told_of_and_one_that_can_be_is_followed(tmp_path):
    """The liar, half of the swarm, is in step for a round; then it claims a round that no node can
    have reached, and when that is told the last one: another node may be faster."""
    (tmp_path / "slow.py").write_text(SLOW)
    model = tiny.save(tmp_path / "model")
    config = tiny.recipe(
        dict.fromkeys(("east", "z"), model), f"rounds={ROUNDS}", "problems_per_round=4",
        "deadline_s=3", "swarm.gather_s=60", "evaluation.problems=0",
        reward=[{"function": f"{tmp_path}/slow.py:reward"}],
    )  # fmt: skip
    swarm = Swarm(config, tmp_path, more=["--trust-code"], popen=Forked)
    task, policy = make_task(config, trust_code=True), LanguageModel.load(model, device="cpu")
    terms = agreements_of(config, task, {"z": policy})["z"]
    swarm.start("east")
    told = f"the others claim round {IMPOSSIBLE + 1}; in the"
    liar, end_s = HostileMember(swarm, "z", terms), time.monotonic() + LONG_S
    with swarm, liar.joined() as session:
        while swarm.running["east"].poll() is None:
            assert time.monotonic() < end_s, swarm.logs()
            done, is_told = swarm.round("east"), told in swarm.log("east")
            if is_told:
                liar.signed.pop(IMPOSSIBLE, None)
            claim = ROUNDS - 1 if is_told else IMPOSSIBLE
            liar.announce(session, done + 1 if done < 1 else claim)
            time.sleep(ANNOUNCE_S)
    lived, log = [line["round"] for line in swarm.metrics("east")], swarm.log("east")
    skipped = ROUNDS - len(lived)
    assert told in log
    assert lived[:2] == [0, 1]
    assert lived[-1] == ROUNDS - 1
    assert f"the others are at {ROUNDS}, so {skipped} rounds are skipped" in log
    assert f"{len(lived)} rounds were done, {skipped} skipped" in log
