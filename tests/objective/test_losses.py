"""Losses: against numbers worked by hand, against the paper, and by their laws."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.testing import assert_close

import paper
from potluck.objective import losses
from potluck.objective.advantages import group_advantages
from potluck.objective.filters import divergence_from_author, filter_advantages
from potluck.objective.losses import no_is_loss, tis_loss, vis_loss
from potluck.objective.methods import METHODS, ObjectiveConfig

DEFAULT = ObjectiveConfig()
logprob = st.floats(-5, 0, width=32)
token = st.tuples(logprob, logprob, logprob)  # now, when the round began, of the author
completion = st.tuples(st.lists(token, min_size=1, max_size=5), st.floats(-3, 3, width=32))
batches = st.lists(completion, min_size=1, max_size=4)
one_of = st.sampled_from([-1.0, math.nan, math.inf, -math.inf, 1e30, -1e30])
garbage = st.tuples(one_of, one_of, one_of)
"""Of each input by itself: what one of them hides must not let another one's through."""


LOSSES = {
    no_is_loss: paper.nois_objective,
    vis_loss: paper.vis_objective,
    tis_loss: paper.tis_objective,
}
every_loss = pytest.mark.parametrize("loss_of", LOSSES, ids=lambda loss: loss.__name__)


def test_every_importance_scheme_is_tried_here():
    assert set(losses.LOSSES.values()) == set(LOSSES)


def tensors(batch, padding=math.nan, extra=0):
    """(logp, start, gen, advantage, mask) of ragged lists; ``padding`` fills the first three."""
    longest = max(len(tokens) for tokens, _ in batch) + extra
    all_BT3 = torch.tensor(padding).expand(len(batch), longest, 3).clone()
    mask_BT = torch.zeros(len(batch), longest, dtype=torch.bool)
    for i, (tokens, _) in enumerate(batch):
        all_BT3[i, : len(tokens)] = torch.tensor(tokens)
        mask_BT[i, : len(tokens)] = True
    logp_BT, start_BT, gen_BT = all_BT3.unbind(2)
    advantage_B = torch.tensor([a for _, a in batch])
    return logp_BT.clone().requires_grad_(), start_BT, gen_BT, advantage_B, mask_BT


def lists(batch):
    """The same for the paper: three ragged lists of lists, and the advantages."""
    ragged = [[[token[i] for token in tokens] for tokens, _ in batch] for i in range(3)]
    return *ragged, [a for _, a in batch]


def test_tis_in_a_later_update_worked_by_hand():
    logp_BT = torch.log(torch.tensor([[0.55, 0.9], [0.55, 0.9]])).requires_grad_()
    start_BT, gen_BT = torch.full((2, 2), math.log(0.5)), torch.full((2, 2), math.log(0.4))
    mask_BT = torch.ones(2, 2, dtype=torch.bool)
    loss = tis_loss(logp_BT, start_BT, gen_BT, torch.tensor([1.0, -1.0]), mask_BT, DEFAULT)
    # R 1.1 and 1.8, clip at 1.2; w = 0.5/0.4 = 1.25 though theta is at 0.55 and 0.9
    # A = 1: 1.25 * (1.1 + 1.2) / 2;   A = -1: -1.25 * (1.1 + 1.8) / 2;   mean of 2 rows
    assert_close(loss.item(), -(1.4375 - 1.8125) / 2)
    loss.backward()
    # -w A R / (2 tokens * 2 rows); where the clip decides, nothing flows
    assert_close(logp_BT.grad, torch.tensor([[-0.34375, 0.0], [0.34375, 0.5625]]))


def test_vis_gives_no_more_credit_than_the_clip_and_all_the_blame():
    logp_BT = torch.log(torch.tensor([[0.6, 0.2], [0.6, 0.2]])).requires_grad_()
    logp_gen_BT = torch.log(torch.tensor([[0.4, 0.4], [0.4, 0.4]]))
    mask_BT = torch.ones(2, 2, dtype=torch.bool)
    start_BT, advantage_B = logp_BT.detach(), torch.tensor([1.0, -1.0])
    loss = vis_loss(logp_BT, start_BT, logp_gen_BT, advantage_B, mask_BT, DEFAULT)
    # ratios 1.5 and 0.5, clip 0.8 .. 1.2;  A = 1: 1.2 + 0.5;  A = -1: -1.5 - 0.8
    assert_close(loss.item(), -((1.2 + 0.5) / 2 + (-1.5 - 0.8) / 2) / 2)
    loss.backward()
    # where the clip decides, nothing flows
    assert_close(logp_BT.grad, torch.tensor([[0.0, -0.125], [0.375, 0.0]]))


@every_loss
@given(batch=batches, epsilon=st.floats(0, 0.5))
def test_a_loss_equals_the_paper_term_by_term(loss_of, batch, epsilon):
    ours = loss_of(*tensors(batch), ObjectiveConfig(clip_epsilon=epsilon))
    theirs = LOSSES[loss_of](*lists(batch), epsilon=epsilon)
    assert_close(ours.item(), -theirs, rtol=1e-4, atol=1e-4)


@every_loss
@given(batch=batches)
def test_no_gradient_flows_through_the_start_of_the_round(loss_of, batch):
    logp_BT, start_BT, gen_BT, advantage_B, mask_BT = tensors(batch, 0.0)
    start_BT = start_BT.clone().requires_grad_()
    loss_of(logp_BT, start_BT, gen_BT, advantage_B, mask_BT, DEFAULT).backward()
    assert start_BT.grad is None


@every_loss
@pytest.mark.parametrize(
    "wrong, message",
    [
        ({2: torch.zeros(1, 3)}, r"logp_gen_BT has shape \[1, 3\], but B is 2 in logp_BT"),
        ({1: torch.zeros(2, 2)}, r"logp_start_BT has shape \[2, 2\], but T is 3 in logp_BT"),
        ({3: torch.zeros(2, 1)}, r"advantage_B has shape \[2, 1\]; expected \[B\]"),
        ({4: torch.ones(2, 3)}, "mask_BT is of torch.float32; expected torch.bool"),
    ],
)
def test_a_shape_that_would_broadcast_in_silence_is_refused(loss_of, wrong, message):
    good = [torch.zeros(2, 3)] * 3 + [torch.ones(2), torch.ones(2, 3, dtype=torch.bool)]
    loss_of(*good, DEFAULT)
    with pytest.raises(ValueError, match=message):
        loss_of(*[wrong.get(i, tensor) for i, tensor in enumerate(good)], DEFAULT)


@every_loss
@given(batch=batches, padding=garbage)
def test_garbage_in_the_padding_of_any_input_reaches_nothing(loss_of, batch, padding):
    dirty, clean = tensors(batch, padding, extra=1), tensors(batch, 0.0)
    both = [loss_of(*inputs, DEFAULT) for inputs in (dirty, clean)]
    for loss in both:
        loss.backward()
    assert both[0].item() == both[1].item()
    assert torch.equal(dirty[0].grad[:, :-1], clean[0].grad)
    assert (dirty[0].grad[~dirty[4]] == 0).all()


@every_loss
@given(batch=batches, rubbish=garbage)
def test_a_row_of_zero_advantage_adds_exactly_zero_and_still_counts(loss_of, batch, rubbish):
    silent = ([rubbish], 0.0)
    alone, beside = tensors(batch), tensors([*batch, silent])
    both = [loss_of(*inputs, DEFAULT) for inputs in (alone, beside)]
    for loss in both:
        loss.backward()
    share = len(batch) / (len(batch) + 1)
    assert_close(both[1], both[0] * share)
    assert_close(beside[0].grad[:-1], alone[0].grad * share)
    assert (beside[0].grad[-1] == 0).all()


@every_loss
@pytest.mark.parametrize("apart", [1000.0, -1000.0])
@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
def test_a_token_that_one_policy_excludes_costs_a_finite_number(loss_of, apart, advantage):
    logp_BT = torch.tensor([[min(apart, 0.0), -0.5]]).requires_grad_()
    other_BT = torch.tensor([[min(-apart, 0.0), -0.5]])
    mask_BT = torch.ones(1, 2, dtype=torch.bool)
    for start_BT in (logp_BT.detach(), other_BT):
        loss = loss_of(logp_BT, start_BT, other_BT, torch.tensor([advantage]), mask_BT, DEFAULT)
        (gradient_BT,) = torch.autograd.grad(loss, logp_BT)
        assert loss.isfinite()
        assert gradient_BT.isfinite().all()


# Whole presets: the loss, and the filter before it or not.

PRESETS = sorted({(method.importance, method.filter) for method in METHODS.values()})


rounds = st.lists(
    st.lists(
        st.tuples(st.lists(token, min_size=1, max_size=4), st.integers(0, 3).map(float)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=3,
)


@given(
    preset=st.sampled_from(PRESETS),
    groups=rounds,
    scale=st.sampled_from(["std", "none"]),
    estimator=st.sampled_from(["k1", "k2", "k3"]),
    reduce=st.sampled_from(["mean", "sum", "max"]),
    limit=st.sampled_from([0.1, 1.0, 10.0]),
    cap=st.sampled_from([0.5, 2.0]),
)
def test_a_whole_round_and_its_gradient_equal_the_paper(
    preset, groups, scale, estimator, reduce, limit, cap
):
    """From rewards to gradient, ours in float64 and the paper's by autograd through its loops."""
    importance, filter = preset
    kinks = (math.log(0.8), math.log(1.2))
    for now, start, gen in (t for group in groups for tokens, _ in group for t in tokens):
        assume(all(abs(now - below - k) > 1e-6 for below in (start, gen) for k in kinks))
    rewards = [[reward for _, reward in group] for group in groups]
    batch = [completion for group in groups for completion in group]
    logp_BT, start_BT, gen_BT, _, mask_BT = (x.detach() for x in tensors(batch))
    logp_BT, start_BT, gen_BT = (each.double() for each in (logp_BT, start_BT, gen_BT))
    logp_BT.requires_grad_()
    advantage_B = torch.cat(
        [group_advantages(torch.tensor(r, dtype=torch.float64), scale=scale) for r in rewards]
    )
    if filter:
        divergence_B = divergence_from_author(
            start_BT, gen_BT, mask_BT, estimator=estimator, reduce=reduce
        )
        assume(((divergence_B - limit).abs() > 1e-9).all())
        advantage_B = filter_advantages(advantage_B, divergence_B, limit=limit)
    loss_of, options = losses.LOSSES[importance], ObjectiveConfig(weight_cap=cap)
    ours = loss_of(logp_BT, start_BT, gen_BT, advantage_B, mask_BT, options)
    ours.backward()

    logp, start, gen, _ = lists(batch)
    logp = [[torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in row] for row in logp]
    theirs = paper.round_objective(
        rewards, logp, start, gen, importance=importance, filter=filter, C=cap, g=limit,
        estimator=estimator, reduce=reduce, epsilon=0.2, scale=scale,
    )  # fmt: skip
    # 0 times every input: the gradient of what the clip or the filter left out is a 0, too.
    theirs = theirs + 0 * sum(x for row in logp for x in row)
    theirs.backward()
    assert_close(ours, -theirs)
    for i, row in enumerate(logp):
        assert_close(logp_BT.grad[i, : len(row)], torch.stack([-x.grad for x in row]))
