"""Losses, KL and learning rates beside TRL's: by its own code, and by plain loops.

Compared with TRL 1.16.0 and transformers 5.23, ``GRPOTrainer._compute_loss`` and
``transformers.get_scheduler``, on random tensors: values and gradients within 1e-6, but for the
departures that ``losses.py`` names. TRL's off-policy weight is for its vLLM, and caps nothing.
"""

import math
import os
from collections import defaultdict
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import paper
from potluck.model import LearningRate
from potluck.objective.losses import kl_loss, mean_of, no_is_loss, share_of
from potluck.objective.methods import ObjectiveConfig

LONGEST = 9
TYPES = ("grpo", "dr_grpo", "bnpo", "dapo")


def tensors(seed, rows=6, *, moved=0.5):
    """(logp, start, reference, advantage, mask) of unlike lengths; one advantage is 0."""
    dice = torch.Generator().manual_seed(seed)
    length_B = torch.randint(1, LONGEST, (rows,), generator=dice)
    mask_BT = torch.arange(int(length_B.max())) < length_B.unsqueeze(1)
    start_BT = -3 * torch.rand(mask_BT.shape, generator=dice) - 0.5
    logp_BT, reference_BT = (
        start_BT + moved * torch.randn(mask_BT.shape, generator=dice) for _ in range(2)
    )
    advantage_B = torch.randn(rows, generator=dice)
    advantage_B[1] = 0.0
    return logp_BT.requires_grad_(), start_BT, reference_BT, advantage_B, mask_BT


def ours(given, options):
    """The loss as a learner adds it up, of a batch in one piece."""
    logp_BT, start_BT, reference_BT, advantage_B, mask_BT = given
    size = len(mask_BT), int(mask_BT.sum())
    loss = no_is_loss(logp_BT, start_BT, start_BT, advantage_B, mask_BT, options)
    if options.beta:
        loss = loss + kl_loss(logp_BT, reference_BT, mask_BT, options)
    return loss * share_of(size, size, options.loss_type, longest=LONGEST)


def ragged(value_BT, mask_BT):
    return [row[kept].tolist() for row, kept in zip(value_BT, mask_BT, strict=True)]


def by_loops(given, options):
    logp_BT, start_BT, reference_BT, advantage_B, mask_BT = given
    logp, start, reference = (
        ragged(each.detach(), mask_BT) for each in (logp_BT, start_BT, reference_BT)
    )
    counted = {"loss_type": options.loss_type, "longest": LONGEST}
    low = options.clip_epsilon
    high = options.clip_epsilon_high or low
    parts = paper.surrogates(
        logp, start, start, advantage_B.tolist(), importance="none", low=low, high=high
    )
    kl = paper.normalised(paper.distances(logp, reference), **counted)
    return -paper.normalised(parts, **counted) + options.beta * kl


def trainer_of_trl():
    try:
        from trl import GRPOTrainer
    except ImportError as error:
        refuse = pytest.fail if os.environ.get("POTLUCK_TRL_REQUIRED") else pytest.skip
        refuse(f"trl is not here: {error}; pip install -e '.[dev]'")
    return GRPOTrainer


def by_trl(given, options):
    """``GRPOTrainer._compute_loss`` with nothing around it: one process, one micro-batch."""
    trainer = trainer_of_trl()
    logp_BT, start_BT, reference_BT, advantage_B, mask_BT = given
    kept = {"epsilon_high": options.clip_epsilon_high or options.clip_epsilon}
    itself = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp_BT, 0 * start_BT, None),
        accelerator=SimpleNamespace(
            num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x
        ),
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)},
        _entropy_bonus_enabled=False,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        loss_type=options.loss_type,
        epsilon_low=options.clip_epsilon,
        beta=options.beta,
        use_vllm=False,
        max_completion_length=LONGEST,
        current_gradient_accumulation_steps=1,
        **kept,
    )
    inputs = {
        "prompt_ids": torch.ones(len(mask_BT), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(mask_BT), 1, dtype=torch.long),
        "completion_ids": torch.ones(mask_BT.shape, dtype=torch.long),
        "completion_mask": mask_BT.long(),
        "advantages": advantage_B,
        "old_per_token_logps": start_BT,
        "ref_per_token_logps": reference_BT,
        "num_items_in_batch": mask_BT.sum(),
    }
    return trainer._compute_loss(itself, None, inputs), itself._metrics["train"]


def test_a_loss_is_trls():
    """One case, so that one process imports TRL."""
    for seed, (loss_type, beta, high) in enumerate(product(TYPES, (0.0, 0.04), (0.0, 0.28))):
        options = ObjectiveConfig(loss_type=loss_type, beta=beta, clip_epsilon_high=high)
        check_by_trl(options, seed)


def check_by_trl(options, seed):
    mine, theirs = tensors(seed), tensors(seed)
    loss = ours(mine, options)
    assert loss.item() == pytest.approx(by_loops(mine, options), abs=1e-6)
    expected, metrics = by_trl(theirs, options)
    assert_close(loss, expected, rtol=0, atol=1e-6)
    loss.backward()
    expected.backward()
    assert_close(mine[0].grad, theirs[0].grad, rtol=0, atol=1e-6)
    assert mine[0].grad.abs().max() > 1e-2
    if options.beta:
        logp_BT, _, reference_BT, _, mask_BT = mine
        kl = paper.distances(ragged(logp_BT.detach(), mask_BT), ragged(reference_BT, mask_BT))
        assert metrics["kl"] == [pytest.approx(sum(map(sum, kl)) / int(mask_BT.sum()), abs=1e-6)]


@pytest.mark.parametrize("loss_type", TYPES)
@given(seed=st.integers(0, 1000), cut=st.integers(1, 5))
def test_the_parts_of_a_mean_add_up_to_the_whole(loss_type, seed, cut):
    x_BT, *_, mask_BT = tensors(seed)
    x_BT = torch.where(mask_BT, x_BT.detach(), 0.0)

    def size(mask_MT):
        return len(mask_MT), int(mask_MT.sum())

    total = 0.0
    for part in (slice(0, cut), slice(cut, None)):
        share = share_of(size(mask_BT[part]), size(mask_BT), loss_type, longest=LONGEST)
        total += share * mean_of(x_BT[part], mask_BT[part], loss_type).item()
    expected = paper.normalised(ragged(x_BT, mask_BT), loss_type=loss_type, longest=LONGEST)
    assert total == pytest.approx(expected, abs=1e-5)


def test_a_token_that_the_policy_all_but_excludes_costs_a_number():
    logp_BT = torch.tensor([[-200.0, -1.0]], requires_grad=True)
    mask_BT, options = torch.ones(1, 2, dtype=torch.bool), ObjectiveConfig(beta=1.0)
    kl_loss(logp_BT, torch.tensor([[-1.0, -1.0]]), mask_BT, options).backward()
    assert logp_BT.grad.isfinite().all()


def test_padding_of_a_kl_reaches_nothing():
    logp_BT = torch.tensor([[-1.0, math.nan]], requires_grad=True)
    mask_BT = torch.tensor([[True, False]])
    loss = kl_loss(logp_BT, torch.tensor([[-2.0, math.inf]]), mask_BT, ObjectiveConfig(beta=1.0))
    loss.backward()
    assert loss.item() == pytest.approx(math.exp(-1) + 1 - 1)
    assert logp_BT.grad.tolist() == [[pytest.approx(1 - math.exp(-1)), 0.0]]


def rates_of_transformers(kind, peak, warmup, updates):
    from transformers import get_scheduler  # more than a second

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    name = "constant_with_warmup" if kind == "constant" else kind
    schedule = get_scheduler(name, optimizer, warmup, updates)
    found = []
    for _ in range(updates):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup, first", [(0, 0), (4, 4), (0.1, 3), (25, 25)])
def test_the_rate_of_each_update_is_transformers(kind, warmup, first):
    """``warmup_steps`` below 1 is a share there too: ``TrainingArguments.get_warmup_steps``."""
    rate = LearningRate(3e-4, kind, warmup, 25)
    expected = rates_of_transformers(kind, 3e-4, first, 25)
    assert rate.at(99) == (3e-4 if kind == "constant" else 0.0)
    assert [rate.at(update) for update in range(25)] == pytest.approx(expected, rel=1e-12)
