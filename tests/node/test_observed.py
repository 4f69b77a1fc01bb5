"""Learning from episodes: what is observed in them is read, and is no term of the loss.

The oracle is that of ``test_learner.py``: a forward pass of all ids before a token, for each token.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import tiny
from node.test_learner import Graded, assert_same_gradient, learner_of, oracle, presets
from node.test_trust import assert_same, gradient_of
from node.test_trust import oracle as bounded
from nouns import completion, group
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import silent
from potluck.node.learning.passes import micro_batches
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.types import Group, Problem

with_kl = pytest.param(ObjectiveConfig(beta=0.02), id="kl")


def episodes(*, groups=3, size=4, authors=("south", "north")):
    """Graded episodes of three turns, and one of a single turn in each group."""
    dice, made = np.random.default_rng(5), []
    for g in range(groups):
        rows = []
        for index in range(size):
            lengths = dice.integers(1, 4, 3 if index else 1).tolist()
            ids = dice.integers(3, tiny.VOCABULARY, sum(lengths))
            ids[np.cumsum(lengths) - 1] = tiny.STOP
            logps, author = -dice.exponential(2.0, len(ids)), authors[index // 2 % len(authors)]
            row = completion(ids, logps, problem=f"p{g}", author=author, index=index)
            digests = b"??" * (len(lengths) - 1)
            rows.append(replace(row, turns=tuple(lengths), observed=digests, text="seven b"))
        problem = Problem(f"p{g}", "1+2="[: 1 + g], "3")
        made.append(Graded(problem, tuple(rows), tuple(float(i % 2 == 0) for i in range(size))))
    return made


def heard(c):
    """Some ids before every turn but the first, of no turn's length; stop tokens too."""
    places = np.cumsum(c.turns)[:-1].tolist()
    return {at: [3 + (at + c.index) % 9, tiny.STOP, 4][: 1 + at % 3] for at in places}


def rows_of(policy, graded):
    made = group(*graded, policy)
    said = [heard(row.completion) for row in made.rows]
    observed = [tuple((at, np.int32(ids)) for at, ids in each.items()) for each in said]
    rows = [replace(row, observed=o) for row, o in zip(made.rows, observed, strict=True)]
    return Group(made.problem, tuple(rows), made.rewards)


def packed(policy, groups, **options):
    return pack([rows_of(policy, each) for each in groups], **options)


@pytest.mark.parametrize("objective", [*presets("f-tis", "lws"), with_kl])
def test_a_row_of_three_turns_has_the_gradient_of_the_plain_loops(objective):
    policy, groups = tiny.policy(), episodes()
    loss, gradient = oracle(policy, groups, objective, heard=heard)
    for budget in (1, 60):
        learner = learner_of(policy, objective, budget=budget)
        report = learner.learn(packed(policy, groups, scale=objective.advantage_scale), silent)
        assert_same_gradient(learner.seen, gradient, atol=1e-6)
        assert report.loss == pytest.approx(loss, abs=1e-6)
    deaf = oracle(policy, groups, objective)[1]
    assert max(float((a - b).abs().max()) for a, b in zip(deaf, gradient, strict=True)) > 1e-3


def test_an_untrusted_authors_episodes_add_what_the_plain_loops_say():
    objective = ObjectiveConfig(**METHODS["lws"].fields, untrusted_exponent=0.25)
    groups = [rows_of(tiny.policy(), each) for each in episodes(size=8)]
    tensors, shares = bounded(objective, groups)
    assert shares["south"] > 0
    for budget in (1, 10_000):
        ours = gradient_of(objective, groups, budget=budget)
        assert_same(ours.tensors, tensors, atol=1e-6)
        assert ours.shares == pytest.approx(shares, abs=1e-6)


def test_an_observed_id_changes_what_comes_behind_it_and_nothing_before():
    policy, prompt, tokens = tiny.policy(), np.int32([1, 5]), np.int32([7, 2, 8, 2, 9])
    one, two = ([((2, np.int32([3, 4])), (4, np.int32([id])))] for id in (5, 6))
    read = [
        policy.logp_and_entropy([prompt], [tokens], temperature=1.0, observed=observed)
        for observed in (one, two)
    ]
    for first, second in zip(*read, strict=True):
        assert first.shape == (1, 5)
        assert torch.equal(first[:, :4], second[:, :4])
        assert not torch.isclose(first[:, 4], second[:, 4]).any()
    every = policy.next_logp(prompt, tokens, two[0])
    wanted = torch.from_numpy(tokens).long().unsqueeze(1)
    assert_close(every.gather(1, wanted)[:, 0], read[1][0][0], rtol=0, atol=1e-6)


def test_only_sampled_tokens_are_ever_asked_for(monkeypatch):
    policy, groups, asked = tiny.policy(), episodes(), []
    plain = policy.scorer.forward

    def forward(inputs, wanted_X, temperature):
        asked.extend(wanted_X.tolist())
        passes = getattr(inputs, "passes", [inputs])
        assert sum(int(each.predicts_MS.sum()) for each in passes) == len(wanted_X)
        return plain(inputs, wanted_X, temperature)

    batch = packed(policy, groups)
    learner = learner_of(policy, ObjectiveConfig(**METHODS["nois"].fields))
    assert not learner._in_two_passes
    monkeypatch.setattr(policy.scorer, "forward", forward)
    scored, _ = learner.score_and_gradient(batch)
    assert sorted(asked) == sorted(id for t in batch.tokens for id in t.tolist())
    assert scored.metrics_BK[:, 0].tolist() == [len(t) for t in batch.tokens]


def test_a_gap_to_what_was_written_is_measured_behind_what_was_heard():
    policy, prompt, tokens = tiny.policy(), np.int32([1, 5]), np.int32([7, 2, 8, 2])
    observed = [((2, np.int32([3, 4])),)]
    with torch.no_grad():
        logp_T = policy.logp([prompt], [tokens], temperature=1.0, observed=observed)[0].numpy()
    written = [completion(tokens, logp_T)]
    assert policy.logp_gap([prompt], written, temperature=1.0, observed=observed) < 1e-6
    assert policy.logp_gap([prompt], written, temperature=1.0) > 1e-2


def test_micro_batches_cover_every_row_once_within_the_budget_longest_first():
    batch = packed(tiny.policy(), episodes(groups=5))
    size = sizes_of(batch)
    rows = torch.arange(len(size))
    cut = partial(micro_batches, batch, rows, shares_prompts=False)
    pieces = [piece.tolist() for piece in cut(token_budget=40)]
    assert sorted(row for piece in pieces for row in piece) == rows.tolist()
    assert all(len(piece) * max(size[row] for row in piece) <= 40 for piece in pieces)
    lengths = [size[row] for piece in pieces for row in piece]
    assert lengths == sorted(lengths, reverse=True)
    alone = [piece.tolist() for piece in cut(token_budget=1)]
    assert sorted(alone) == [[row] for row in rows.tolist()]


def sizes_of(batch):
    read = zip(batch.prompts, batch.tokens, batch.observed, strict=True)
    return [len(p) + len(t) + sum(len(ids) for _, ids in heard) for p, t, heard in read]


@pytest.mark.parametrize("budget", [1, 60, 150, 400, 10_000])
def test_micro_batches_keep_the_rows_of_a_prompt_together(budget):
    batch = packed(tiny.policy(), episodes(groups=5))
    size, rows = sizes_of(batch), torch.arange(len(batch.tokens))
    pieces = [
        piece.tolist()
        for piece in micro_batches(batch, rows, token_budget=budget, shares_prompts=True)
    ]
    assert sorted(row for piece in pieces for row in piece) == rows.tolist()
    for piece in pieces:
        prompts = {batch.prompts[row].tobytes() for row in piece}
        longest = max(len(batch.prompts[row]) for row in piece)
        own = max(size[row] - len(batch.prompts[row]) for row in piece)
        whole, shared = len(piece) * (longest + own), len(prompts) * longest + len(piece) * own
        # Never more than reading each row whole may hold.
        assert min(whole, shared + 0.1 * len(piece) * longest) <= budget or len(piece) == 1
    order = [batch.prompts[row].tobytes() for piece in pieces for row in piece]
    changes = sum(one != other for one, other in pairwise(order))
    assert changes == len(set(order)) - 1, "a prompt's rows come one behind another"
    first = [max(size[row] for row in piece) for piece in pieces]
    assert first[0] == max(size)


def test_bytes_of_an_episode_are_those_of_its_turns_as_they_travel():
    assert packed(tiny.policy(), episodes()).bytes_B.unique().tolist() == [len("seven b")]
