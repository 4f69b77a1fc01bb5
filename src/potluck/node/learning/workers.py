"""Work that several processes of one node share: the leader's side and the followers'."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from potluck.model.sharding import ShardedModel
from potluck.node.learning.group import (
    Begin,
    Generate,
    Learn,
    ProcessGroup,
    ProcessGroupError,
    SamplerSettings,
    Save,
    Stop,
    TorchGroup,
)
from potluck.node.learning.learner import Learner
from potluck.node.storage import checkpoint
from potluck.rollout.base import GreedySampler, Progress, RandomSampler, RolloutRequest, Sampler
from potluck.rollout.options import EngineOptions, EngineSettings
from potluck.types import Completion, PotluckError


class Interrupted(KeyboardInterrupt):
    """A follower was told by a signal to stop, and the leader was not."""


@dataclass(frozen=True, eq=False, slots=True)
class DistributedEngine:
    """Engine with a copy of the model in each process: the leader's side.

    A request goes to one process, so that a prompt is read once. ``progress`` tells of the
    leader's own part until the others are done too.
    """

    processes: ProcessGroup
    policy: ShardedModel
    engine: EngineOptions
    settings: EngineSettings

    @property
    def server_mismatch(self) -> None:
        """None: no server writes."""

    def with_limits(self, *, max_new_tokens: int, max_total_tokens: int) -> "DistributedEngine":
        """Return the same engine with other limits: for an evaluation."""
        settings = replace(
            self.settings, max_new_tokens=max_new_tokens, max_total_tokens=max_total_tokens
        )
        return replace(self, settings=settings)

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        sampler: Sampler,
        *,
        author: str,
        progress: Progress,
    ) -> list[Completion]:
        drawn = _settings_of(sampler, self.processes.size)
        command = Generate(tuple(requests), drawn, author, self.engine, self.settings)
        self.processes.broadcast(command)
        return generate_together(self.processes, self.policy, command, progress)


def generate_together(
    processes: ProcessGroup, policy: ShardedModel, command: Generate, progress: Progress
) -> list[Completion]:
    """Write all requests, each process its part; return the completions in order, on every process.
    Raise what stopped one of them, once none writes any more: its own error first."""
    replica = policy.replica(getattr(torch, command.settings.dtype))
    engine = command.engine.build(replica, command.settings)
    mine, part, error = command.requests[processes.rank :: processes.size], [], None
    try:
        sampler = _sampler_of(command.sampler, processes.rank, replica.device)
        part = engine.generate(mine, sampler, author=command.author, progress=progress)
    except (Exception, Interrupted) as caught:
        error = caught
    del engine, replica
    policy.empty_cache()
    parts = processes.all_gather((part, _picklable(error, processes.rank)))
    if error:
        raise error
    total = sum(request.count for request in command.requests)
    progress(total, total)  # where the leader may find that it is to stop
    for _, trouble in parts:
        if trouble:
            raise trouble
    written = [iter(part) for part, _ in parts]
    return [
        next(written[place % processes.size])
        for place, request in enumerate(command.requests)
        for _ in range(request.count)
    ]


def run_worker(
    processes: TorchGroup,
    make_learners: Callable[[int], Mapping[str, Learner]],
    interrupted: Callable[[], bool],
) -> object:
    """Obey the leader's commands until ``Stop``; return its outcome.

    An error that all share reaches the leader as well, which decides about it. ``make_learners``
    returns the learners by name, as they were after so many rounds.
    """
    learners: Mapping[str, Learner] = {}

    def progress(done: int, total: int) -> None:
        if interrupted():
            raise Interrupted

    while True:
        command = processes.receive()
        try:
            match command:
                case Begin(first=first):
                    learners = make_learners(first)
                case Generate():
                    policy = learners[command.settings.node].policy
                    assert isinstance(policy, ShardedModel)
                    generate_together(processes, policy, command, progress)
                case Learn(node=node, batch=batch, seed=seed, round=round):
                    torch.manual_seed(seed + processes.rank)
                    learners[node].learn(batch, lambda done, total: None, round=round)
                case Save(node=node):
                    learner = learners[node]
                    checkpoint.full_state(learner.policy, learner.optimizer, keep=False)
                case Stop(outcome=outcome):
                    return outcome
                case _:
                    raise AssertionError(f"a follower cannot {command!r}")
        except (PotluckError, Interrupted):
            continue


def _picklable(error: BaseException | None, rank: int) -> BaseException | None:
    if error is None or isinstance(error, PotluckError | Interrupted):
        return error
    return ProcessGroupError(f"process {rank}: {type(error).__name__}: {error}")


def _settings_of(sampler: Sampler, size: int) -> SamplerSettings | None:
    match sampler:
        case GreedySampler():
            return None
        case RandomSampler(generator=dice):
            # From the generator, so that two writings with one of them differ, as elsewhere.
            seeds = torch.randint(2**62, (size,), generator=dice, device=dice.device).tolist()
            return SamplerSettings(tuple(seeds), sampler.sampling)
        case _:
            raise ProcessGroupError(
                f"several processes cannot draw by {type(sampler).__name__}; they can by "
                f"RandomSampler and GreedySampler"
            )


def _sampler_of(settings: SamplerSettings | None, rank: int, device: torch.device) -> Sampler:
    if settings is None:
        return GreedySampler()
    generator = torch.Generator(device).manual_seed(settings.seeds[rank])
    return RandomSampler(generator, settings.sampling)
