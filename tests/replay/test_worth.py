"""The worth of an author's completions, against plain loops; and what is not to move."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

import paper
import tiny
from nouns import groups_by
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import Learner, silent
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.replay import worth
from potluck.replay.worth import authors_worth, sketch, worth_of

PLAIN = ObjectiveConfig(**METHODS["nois"].fields)


def learner_of(policy, objective=PLAIN, *, kind=torch.optim.Adam):
    return Learner(
        name="north",
        policy=policy,
        optimizer=kind(policy.network.parameters(), lr=1e-3),
        objective=objective,
        temperature=1.0,
        gradient_clip_norm=1.0,
        micro_batch_tokens=100,
    )


def taught(learner, groups, rounds=2):
    """Let Adam's moments be there; return the batch."""
    batch = pack(groups)
    for _ in range(rounds):
        learner.learn(batch, silent)
    return batch


def parts_by_autograd(learner, batch):
    """{author: {problem: gradient as one float64 vector}} by the paper's sums, a row at a time."""
    network = copy.deepcopy(learner.policy.network).double()
    found = {}
    for prompt, written, logp_gen_T, advantage in zip(
        batch.prompts, batch.completions, batch.logp_gen_BT.tolist(), batch.advantage_B.tolist(),
        strict=True,
    ):  # fmt: skip
        network.zero_grad()
        ids = torch.tensor([[*prompt, *written.token_T]])
        every = torch.log_softmax(network(input_ids=ids).logits[0, :, : tiny.VOCABULARY], dim=1)
        at = range(len(prompt) - 1, ids.shape[1] - 1)
        logp = [every[t, id] for t, id in zip(at, written.token_T, strict=True)]
        start, gen = [x.item() for x in logp], logp_gen_T[: len(logp)]
        far = paper.divergence(start, gen, k="k3", reduce="mean")
        (kept,) = paper.filtered([advantage], [far], g=learner.objective.divergence_limit)
        total = paper.tis_objective([logp], [start], [gen], [kept], epsilon=0.2)
        (-total / len(batch.completions)).backward()
        gradient = torch.cat([p.grad.flatten() for p in network.parameters()])
        of_author = found.setdefault(written.author, {})
        of_author[written.problem_id] = of_author.get(written.problem_id, 0.0) + gradient
    return found


def in_adams_metric(learner, parts):
    """Divide by the fourth root of what Adam's next step would divide by the root of."""
    scales = []
    for p in learner.policy.network.parameters():
        state = learner.optimizer.state[p]
        v = state["exp_avg_sq"].double().flatten()
        v = (v + 0.001 * sum(v) / len(v)) / (1 - 0.999 ** int(state["step"]))
        scales.append((v**0.5 + 1e-8) ** -0.5 if v.any() else 0 * v)
    scale = torch.cat(scales)
    return {
        author: {problem: (x * scale).tolist() for problem, x in of_author.items()}
        for author, of_author in parts.items()
    }


@pytest.mark.parametrize("writers", [[("north",), ("south",)], [("north", "south")]])
def test_a_worth_is_what_plain_loops_find_with_the_methods_weights_in_adams_metric(writers):
    """Each problem by one author, or by both; the model is so small that a sketch loses nothing."""
    learner = learner_of(tiny.policy(sharpness=2.0), tiny.f_tis(divergence_limit=0.3))
    batch = taught(learner, groups_by(learner.policy, *writers))
    assert 0 < int((learner.score(batch).kept_advantage_B == 0).sum()) < 20  # some are filtered
    assert sum(p.numel() for p in learner.policy.network.parameters()) < worth.BUCKETS
    parts = in_adams_metric(learner, parts_by_autograd(learner, batch))
    value, noise = paper.worth(parts["north"], parts["south"])
    found = authors_worth(learner, batch, seed=1)
    assert set(found) == {"south"}
    assert found["south"] == pytest.approx((value, noise), rel=2e-3)


def test_like_completions_of_other_problems_are_worth_1_opposite_ones_the_negative():
    """What the estimate is for; all but one author are paid for an odd id at first, or for none."""

    def rewarded(author, ids, dice):
        odd = ids[0] % 2
        return {"opposite": 1 - odd, "unrelated": dice.integers(2)}.get(author, odd)

    learner = learner_of(tiny.policy(sharpness=2.0), kind=torch.optim.SGD)
    writers = [("north",), ("like",), ("opposite",), ("unrelated",)]
    groups = groups_by(learner.policy, *writers, problems=24, rewarded=rewarded)
    found = authors_worth(learner, pack(groups), seed=1)
    for author, truth in {"like": 1, "opposite": -1, "unrelated": 0}.items():
        assert found[author].noise < 0.3
        assert abs(found[author].value - truth) < 2 * found[author].noise


def test_own_noise_is_no_gradient():
    """The trap: each own gradient agrees with itself, and with its copy by another author."""
    problems = [f"p{place}" for place in range(8)]
    parts = [(author, problem) for author in ("north", "copy") for problem in problems]
    unlike_XD = torch.eye(8, dtype=torch.float64).repeat(2, 1)
    assert worth_of(unlike_XD @ unlike_XD.T, parts, "north", "copy") is None
    alike_XD = torch.cat([unlike_XD, torch.ones(16, 1, dtype=torch.float64)], dim=1)
    assert worth_of(alike_XD @ alike_XD.T, parts, "north", "copy") == pytest.approx((1, 0))


@pytest.mark.parametrize("writers", [[("north",)], [("north", "south")]])
def test_no_pass_is_made_where_no_worth_can_come_of_it(writers, monkeypatch):
    learner = learner_of(tiny.policy(sharpness=2.0))
    batch = pack(groups_by(learner.policy, *writers, problems=4 if len(writers[0]) == 1 else 3))
    monkeypatch.setattr(Learner, "gradient", None)
    if len(writers[0]) == 1:
        monkeypatch.setattr(Learner, "score", None)
    assert authors_worth(learner, batch, seed=1) == {}


@pytest.mark.parametrize("left_out", ["own", "theirs", "moving"])
def test_too_few_problems_have_no_worth(left_out):
    parts = [("north", f"p{i}") for i in range(4)] + [("south", f"q{i}") for i in range(4)]
    products_XX = torch.ones(8, 8, dtype=torch.float64)
    assert worth_of(products_XX, parts, "north", "south") == (1, 0)
    if left_out == "moving":
        products_XX[0] = products_XX[:, 0] = 0
    else:
        chosen = range(1, 8) if left_out == "own" else range(7)
        parts, products_XX = [parts[i] for i in chosen], products_XX[1:, 1:]
    assert worth_of(products_XX, parts, "north", "south") is None


def test_an_inner_product_of_sketches_is_that_of_the_gradients_within_what_is_promised(monkeypatch):
    buckets = 251
    monkeypatch.setattr(worth, "BUCKETS", buckets)
    monkeypatch.setattr(worth, "ELEMENTS_AT_ONCE", 3 * buckets)
    learner = learner_of(tiny.policy())
    dice = torch.Generator().manual_seed(0)
    shapes = [p.shape for p in learner.policy.network.parameters()]
    x = [torch.randn(shape, generator=dice) for shape in shapes]
    y = [each + torch.randn(each.shape, generator=dice) for each in x]
    flat_x, flat_y = (torch.cat([each.flatten() for each in found]).double() for found in (x, y))
    truth, scale = float(flat_x @ flat_y), float(flat_x.norm() * flat_y.norm())
    errors = torch.tensor(
        [float(sketch(x, learner, seed) @ sketch(y, learner, seed)) - truth for seed in range(100)]
    )
    promised = math.sqrt(2 / buckets) * scale
    assert 0.5 * promised < errors.std() < promised
    assert abs(errors.mean()) < 3 * promised / 10
    assert_close(sketch(x, learner, 1), sketch(x, learner, 1), rtol=0, atol=0)


def test_the_worth_from_short_sketches_is_near_the_exact_one(monkeypatch):
    learner = learner_of(tiny.policy(sharpness=2.0))
    batch = pack(groups_by(learner.policy, ("north",), ("south",)))
    exact = authors_worth(learner, batch, seed=1)["south"]
    monkeypatch.setattr(worth, "BUCKETS", 2003)
    short = authors_worth(learner, batch, seed=1)["south"]
    assert exact.value != short.value == pytest.approx(exact.value, abs=exact.noise)


def test_a_tensor_that_adam_has_not_moved_is_left_out():
    learner = learner_of(tiny.policy(sharpness=2.0))
    batch = taught(learner, groups_by(learner.policy, ("north",), ("south",)))
    gradient = learner.gradient(learner.score(batch)).tensors
    head = learner.policy.network.lm_head.weight
    assert sketch(gradient, learner, 1).isfinite().all()
    learner.optimizer.state[head]["exp_avg_sq"].zero_()
    parameters = list(learner.policy.network.parameters())
    without = [None if p is head else g for p, g in zip(parameters, gradient, strict=True)]
    assert_close(sketch(gradient, learner, 1), sketch(without, learner, 1), rtol=0, atol=0)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_an_estimate_moves_nothing_and_repeats(dropout):
    def everything(*, estimates):
        learner = learner_of(tiny.policy(attention_dropout=dropout, sharpness=2.0))
        batch = taught(learner, groups_by(learner.policy, ("north",), ("south",)))
        found = []
        for seed in (4, 5):
            torch.manual_seed(seed)
            if estimates:
                found.append(authors_worth(learner, batch, seed=1))
        generator = torch.get_rng_state()
        report = learner.learn(batch, silent)
        moments = [m for state in learner.optimizer.state.values() for m in state.values()]
        weights = list(learner.policy.network.state_dict().values())
        return found, [generator, torch.tensor(report.loss), *moments, *weights]

    (one, two), with_it = everything(estimates=True)
    _, without = everything(estimates=False)
    assert one == two
    assert one
    for ours, theirs in zip(with_it, without, strict=True):
        assert_close(ours, theirs, rtol=0, atol=0)
