"""The learner behind a server does what the local one does, whatever mean the server takes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import tiny
from nouns import completion, group
from potluck.model import LearningRate
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import Learner, silent
from potluck.node.learning.remote import RemoteLearner
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.objective.weights import WEIGHTS
from potluck.types import NonFiniteError, Problem

RATE, ROWS = 1e-2, 16
LWS = {**METHODS["lws"].fields, "weight": "likelihood"}


def batch_of(policy, seed):
    """Groups of unlike lengths of two authors, a model's own log-probabilities moved by noise; in
    each round another number of them is alike, and teaches nothing."""
    dice, groups = np.random.default_rng(seed), []
    for at in range(4):
        problem, rows = Problem(f"p{at}", "1+2="[: at + 1], "3"), []
        for index in range(4):
            ids = [*dice.integers(3, tiny.VOCABULARY, dice.integers(1, 7)), tiny.STOP]
            with torch.no_grad():
                (logp,) = policy.logp([policy.prompt(problem)], [np.int32(ids)], temperature=1.0)
            told = np.minimum(logp.numpy() + dice.normal(0, 1, len(ids)), 0)
            author = ("me", "other")[index % 2]
            rows.append(completion(ids, told, problem=problem.id, author=author, index=index))
        rewards = [1.0] * 4 if at < seed else dice.permutation([1.0, 1.0, 0.0, 0.0])
        groups.append(group(problem, rows, rewards, policy))
    return pack(groups)


@pytest.fixture(scope="module")
def batches():
    policy = tiny.policy()
    return [batch_of(policy, seed) for seed in range(2)]


def local(objective):
    policy = tiny.policy()
    optimizer = torch.optim.Adam(policy.network.parameters(), lr=RATE, eps=1e-12)
    return Learner("me", policy, objective, optimizer, 1.0, float("inf"), 4096, longest=7)


@pytest.fixture
def remote(opened):
    def made(objective):
        rate = LearningRate(RATE, "constant", 0.0, 10)
        adam = {"beta1": 0.9, "beta2": 0.999, "grad_clip_norm": 1.0}
        policy = tiny.policy(1)  # its tokenizer alone is used
        learns = "me", policy, objective, opened(), rate, adam
        return RemoteLearner(*learns, rows=ROWS, longest=7)

    return made


@pytest.mark.parametrize(
    "method, reduces",
    [
        (LWS, "weights"),
        ({**METHODS["f-tis"].fields, "loss_type": "dapo"}, "rows"),
        ({**LWS, "loss_type": "dr_grpo"}, "sum"),
    ],
)
def test_each_step_is_that_of_the_local_learner(method, reduces, batches, server, remote):
    server.reduces, objective = reduces, ObjectiveConfig(**method)
    mine, theirs = local(objective), remote(objective)
    sent, begun = set(), tiny.policy()
    for round, batch in enumerate(batches):
        here, there = (each.learn(batch, silent, round=round) for each in (mine, theirs))
        assert_close(
            there.scored.kept_advantage_B, here.scored.kept_advantage_B, rtol=1e-3, atol=1e-4
        )
        found = there.scored.metrics_BK, here.scored.metrics_BK
        assert_close(*found, rtol=1e-3, atol=1e-3, equal_nan=True)
        assert there.loss == pytest.approx(here.loss, rel=1e-3, abs=1e-5)
        divisor = {"sum": 1, "rows": ROWS, "weights": ROWS}[reduces]
        assert there.gradient_norm * divisor == pytest.approx(here.gradient_norm, rel=1e-3)
        assert here.updates == there.updates == 1
        sent.add(int((here.scored.kept_advantage_B != 0).sum()))
        with torch.no_grad():
            given = batch.prompts, batch.tokens
            logp_BT, start_BT = (
                policy.logp(*given, temperature=1.0) for policy in (mine.policy, begun)
            )
        found = theirs.session.logp(list(zip(*given, strict=True)))
        for one, other in zip(found, logp_BT, strict=True):
            assert_close(torch.tensor(one), other[: len(one)], rtol=0, atol=2e-3)
        assert (logp_BT - start_BT).abs().max() > 0.1
    assert len(sent) > 1, "unlike numbers of rows would show a mean that moves with them"


def test_a_row_that_a_server_reads_as_nan_is_left_out_or_ends_the_run(batches, remote, monkeypatch):
    theirs, batch = remote(ObjectiveConfig(**LWS)), batches[0]
    read, which = theirs.session.logp, ["other"]
    by = [c.author for c in batch.completions]

    def broken(rows, tick):
        found = read(rows, tick)
        bad = next(at for at, one in enumerate(rows) if by[_row(batch, one)] == which[0])
        found[bad] = found[bad] * np.float32("nan")
        return found

    monkeypatch.setattr(theirs.session, "logp", broken)
    report = theirs.learn(batch, silent)
    ((row, why),) = report.scored.dropped.items()
    assert (by[row], why, report.updates) == ("other", "log-probability", 1)
    which[0] = "me"
    with pytest.raises(
        NonFiniteError, match=r"log-probability of completion .* its own, is not finite"
    ):
        theirs.learn(batch, silent)


def _row(batch, pair):
    return next(at for at, token_T in enumerate(batch.tokens) if token_T is pair[1])


@pytest.mark.parametrize("rows", [2, ROWS])
def test_each_round_sends_as_many_rows(rows, batches, remote, monkeypatch):
    """More than usual come where others' come late; a server's mean would move with them."""
    theirs, sent = remote(ObjectiveConfig(**LWS)), []
    monkeypatch.setattr(theirs.session, "step", lambda *given, **_: sent.append(given) or 0.0)
    replace(theirs, rows=rows).learn(batches[0], silent)
    assert [len(column) for column in sent[0]] == [rows, rows]


def test_a_weight_that_reads_entropies_sends_no_nan(batches, server, remote):
    theirs = replace(remote(ObjectiveConfig(**LWS)), custom_weight=WEIGHTS["typicality"])
    with pytest.raises(NonFiniteError, match="read entropies"):
        theirs.learn(batches[0], silent)
    assert server.calls.count("forward_backward") == 1, "that of the probe"
