"""The on-policy gradient: where GRPO would lead a model by completions of its very own."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from msgspec.structs import replace as changed
from torch import Tensor

from potluck.config import METHODS
from potluck.node import Learner, Node, pack
from potluck.rollout import Order, Sampled
from potluck.rollout.lora import trained
from potluck.types import Group

Gradient = list[Tensor | None]
"""Of every trained parameter, in main memory; None of one that the loss does not reach."""


def fresh_groups(node: Node, round: int, problem_ids: Sequence[str], *, take: int) -> list[Group]:
    """A whole group of each problem by the node's model as it is now, graded.

    Args:
        take: which of the round's; each is drawn by itself. Methods draw alike, so those that
            have not parted yet are held against the same estimates.
    """
    raw = f"{node.agenda.seed}/{round}/{node.name}/on-policy/{take}".encode()
    seed = int.from_bytes(hashlib.sha256(raw).digest()[:8], "little") >> 1
    language, size, sampling = node.learner.language, node.agenda.group_size, node.sampling
    dice = torch.Generator(language.device).manual_seed(seed)
    draw = Sampled(dice, sampling.temperature, sampling.top_k, sampling.top_p)
    problems = [node.task.problem(id) for id in problem_ids]
    orders = [Order(problem, size) for problem in problems]
    written = node.engine.write(orders, draw, author=node.name, progress=_silent)
    groups = []
    for problem, at in zip(problems, range(0, len(written), size), strict=True):
        group = tuple(written[at : at + size])
        rewards = node.task.rewards(
            [problem] * size, group, [language.text(c.token_T) for c in group]
        )
        groups.append(Group(problem, group, tuple(rewards)))
    return groups


def on_policy_gradient(learner: Learner, groups: Sequence[Group]) -> Gradient | None:
    """That of plain GRPO on the model's own ``groups``, unclipped: weight 1, no filter.

    Moves neither the weights nor the optimiser's state. None where no completion has an advantage.
    """
    plain = changed(learner.objective, **METHODS["nois"], updates_per_round=1)
    still = _Still(trained(learner.language.network), {})
    looking = replace(learner, optimizer=still, objective=plain, gradient_clip_norm=math.inf)
    batch = pack(groups, learner.language.prompt, scale=plain.advantage_scale)
    torch.manual_seed(0)  # dropout, where there is any; a node seeds anew before it learns
    with first_gradient(still) as caught:
        looking.learn(batch, _silent)
    return caught[0] if caught else None


@contextmanager
def first_gradient(optimizer: torch.optim.Optimizer) -> Iterator[list[Gradient]]:
    """The gradient of the first step that is taken inside, once it is; else nothing."""
    caught: list[Gradient] = []

    def catch(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not caught:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            caught.append([None if p.grad is None else p.grad.cpu().clone() for p in parameters])

    hook = optimizer.register_step_pre_hook(catch)
    try:
        yield caught
    finally:
        hook.remove()


def cosine(a: Gradient | None, b: Gradient | None) -> float | None:
    """<a, b> / (|a| |b|), -1..1; None where one of the two is zero, so points nowhere.

    >>> cosine([torch.tensor([3.0]), torch.tensor([4.0])], [torch.tensor([1.0]), None])
    0.6
    """
    if a is None or b is None:
        return None
    product = math.sqrt(_dot(a, a) * _dot(b, b))
    return _dot(a, b) / product if product else None


def _dot(a: Gradient, b: Gradient) -> float:
    return sum(
        float(x.double().flatten() @ y.double().flatten())
        for x, y in zip(a, b, strict=True)
        if x is not None and y is not None
    )


class _Still(torch.optim.Optimizer):
    """Takes no step."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        pass


def _silent(done: int, total: int) -> None: ...
