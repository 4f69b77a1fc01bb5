"""Work that several processes of one node share: the leader's side and the followers'."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from potluck.model.sharding import ShardedModel
from potluck.node.learning.base import Learning
from potluck.node.learning.batch import Batch
from potluck.node.learning.group import ProcessGroup, ProcessGroupError
from potluck.node.learning.learner import Learner
from potluck.node.storage import checkpoint
from potluck.rollout.base import (
    Engine,
    EngineSettings,
    GreedySampler,
    Progress,
    RandomSampler,
    RolloutRequest,
    Sampler,
)
from potluck.rollout.options import EngineOptions
from potluck.types import Completion, PotluckError, Sampling


@dataclass(frozen=True, slots=True)
class Order:
    """All that a process needs to write its part of some requests."""

    requests: tuple[RolloutRequest, ...]
    author: str
    engine: EngineOptions
    settings: EngineSettings
    sampling: Sampling | None
    """None: greedy."""
    seeds: tuple[int, ...]
    """Seed of each process, instead of the one generator of ``RandomSampler``."""


class Interrupted(KeyboardInterrupt):
    """A follower was told by a signal to stop, and the leader was not."""


@dataclass(frozen=True, eq=False)
class DistributedEngine(Engine):
    """Engine with a copy of the model in each process: the leader's side.

    A request goes to one process, so that a prompt is read once. ``progress`` tells of the
    leader's own part until the others are done too.
    """

    policy: ShardedModel
    processes: ProcessGroup
    engine: EngineOptions

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        sampler: Sampler,
        *,
        author: str,
        progress: Progress,
    ) -> list[Completion]:
        sampling, seeds = None, list[int]()
        if isinstance(sampler, RandomSampler):
            # From the generator, so that two writings with one of them differ, as elsewhere.
            sampling, dice = sampler.sampling, sampler.generator
            drawn = torch.randint(2**62, (self.processes.size,), generator=dice, device=dice.device)
            seeds = drawn.tolist()
        else:
            assert isinstance(sampler, GreedySampler)
        order = Order(tuple(requests), author, self.engine, self.settings, sampling, tuple(seeds))
        self.processes.broadcast("generate", order)
        return generate_together(self.processes, self.policy, order, progress)


def generate_together(
    processes: ProcessGroup, policy: ShardedModel, order: Order, progress: Progress
) -> list[Completion]:
    """Write all requests, each process its part; return the completions in order, on every process.
    Raise what stopped one of them, once none writes any more: its own error first."""
    replica = policy.replica(getattr(torch, order.settings.dtype))
    engine = order.engine.build(replica, order.settings)
    mine, part, error = order.requests[processes.rank :: processes.size], [], None
    sampler: Sampler = GreedySampler()
    try:
        if order.sampling:
            seed = order.seeds[processes.rank]
            generator = torch.Generator(replica.device).manual_seed(seed)
            sampler = RandomSampler(generator, order.sampling)
        part = engine.generate(mine, sampler, author=order.author, progress=progress)
    except (Exception, Interrupted) as caught:
        error = caught
    del engine, replica
    policy.empty_cache()
    told = error
    if error and not isinstance(error, PotluckError | Interrupted):  # it may not travel
        told = ProcessGroupError(f"process {processes.rank}: {type(error).__name__}: {error}")
    parts = processes.all_gather((part, told))
    if error:
        raise error
    total = sum(request.count for request in order.requests)
    progress(total, total)  # where the leader may find that it is to stop
    for _, trouble in parts:
        if trouble:
            raise trouble
    written = [iter(part) for part, _ in parts]
    return [
        next(written[place % processes.size])
        for place, request in enumerate(order.requests)
        for _ in range(request.count)
    ]


def run_worker(
    processes: ProcessGroup,
    make_learners: Callable[[int], Mapping[str, Learning]],
    interrupted: Callable[[], bool],
) -> object:
    """Obey the leader's commands until "stop"; return the run's result, or its error.

    An error that all share reaches the leader as well, which decides about it. ``make_learners``
    returns the learners by name, as they were after so many rounds.
    """
    learners: Mapping[str, Learning] = {}

    def progress(done: int, total: int) -> None:
        if interrupted():
            raise Interrupted

    while True:
        command = processes.receive()
        try:
            match command:
                case "begin", int(first):
                    learners = make_learners(first)
                case "generate", Order() as order:
                    policy = learners[order.settings.node].policy
                    assert isinstance(policy, ShardedModel)
                    generate_together(processes, policy, order, progress)
                case "learn", str(node), Batch() as batch, int(seed), int(round):
                    torch.manual_seed(seed + processes.rank)  # dropout, in each another one
                    learners[node].learn(batch, lambda done, total: None, round=round)
                case "save", str(node):
                    learner = learners[node]
                    assert isinstance(learner, Learner)
                    checkpoint.full_state(learner.policy, learner.optimizer, keep=False)
                case "stop", outcome:
                    return outcome
                case _:
                    raise AssertionError(f"a follower cannot {command!r}")
        except (PotluckError, Interrupted):
            continue
