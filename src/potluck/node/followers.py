"""What several processes of one participant do together, on the leader's side and the others'."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from potluck.node import checkpoint
from potluck.node.learner import Learner
from potluck.node.team import Begin, Dice, Learn, Processes, Save, Stop, Team, TeamError, Write
from potluck.rollout import Draw, Greedy, HFEngine, Order, Progress, Sampled
from potluck.rollout.sharding import ShardedModel
from potluck.types import Completion, PotluckError


class BrokenOff(KeyboardInterrupt):
    """A follower was told by a signal to stop, and the leader was not."""


@dataclass(frozen=True, eq=False, slots=True)
class TeamEngine:
    """Writes with a copy of the model in each process: the leader's side.

    An order goes to one process, so that a prompt is read once. ``progress`` tells of the
    leader's own part until the others are done too.
    """

    team: Team
    node: str
    language: ShardedModel
    max_new_tokens: int
    max_total_tokens: int
    dtype: torch.dtype
    rows: int

    def limited_to(self, *, max_new_tokens: int, max_total_tokens: int) -> "TeamEngine":
        """The same with other limits: for an evaluation."""
        return replace(self, max_new_tokens=max_new_tokens, max_total_tokens=max_total_tokens)

    def write(
        self, orders: Sequence[Order], draw: Draw, *, author: str, progress: Progress
    ) -> list[Completion]:
        write = Write(
            node=self.node,
            orders=tuple(orders),
            dice=_dice(draw, self.team.size),
            author=author,
            max_new_tokens=self.max_new_tokens,
            max_total_tokens=self.max_total_tokens,
            dtype=self.dtype,
            rows=self.rows,
        )
        self.team.call(write)
        return write_together(self.team, self.language, write, progress)


def write_together(
    team: Team, language: ShardedModel, write: Write, progress: Progress
) -> list[Completion]:
    """All that was ordered, in order, on every process.

    Raises:
        whatever stopped one of them, once none writes any more: its own first.
    """
    replica = language.replica(write.dtype)
    engine = HFEngine(
        replica,
        max_new_tokens=write.max_new_tokens,
        max_total_tokens=write.max_total_tokens,
        dtype=write.dtype,
        rows=write.rows,
    )
    mine, part, error = write.orders[team.rank :: team.size], [], None
    try:
        draw = _draw(write.dice, team.rank, replica.device)
        part = engine.write(mine, draw, author=write.author, progress=progress)
    except (Exception, BrokenOff) as caught:
        error = caught
    del engine, replica
    language.give_memory_back()
    parts = team.gather((part, _told(error, team.rank)))
    if error:
        raise error
    total = sum(order.count for order in write.orders)
    progress(total, total)  # where the leader may find that it is to stop
    for _, trouble in parts:
        if trouble:
            raise trouble
    written = [iter(part) for part, _ in parts]
    return [
        next(written[place % team.size])
        for place, order in enumerate(write.orders)
        for _ in range(order.count)
    ]


def follow(
    team: Processes,
    make_learners: Callable[[int], Mapping[str, Learner]],
    interrupted: Callable[[], bool],
) -> object:
    """Does what the leader calls, until it stops; returns the outcome that it tells.

    What goes wrong in common, it knows as well, and decides about.

    Args:
        make_learners: of the rounds that they have behind them, by name.
    """
    learners: Mapping[str, Learner] = {}

    def progress(done: int, total: int) -> None:
        if interrupted():
            raise BrokenOff

    while True:
        command = team.listen()
        try:
            match command:
                case Begin(first=first):
                    learners = make_learners(first)
                case Write(node=node):
                    language = learners[node].language
                    assert isinstance(language, ShardedModel)
                    write_together(team, language, command, progress)
                case Learn(node=node, batch=batch, seed=seed):
                    torch.manual_seed(seed + team.rank)
                    learners[node].learn(batch, lambda done, total: None)
                case Save(node=node):
                    learner = learners[node]
                    checkpoint.whole_state(learner.language, learner.optimizer, keep=False)
                case Stop(outcome=outcome):
                    return outcome
                case _:
                    raise AssertionError(f"a follower cannot {command!r}")
        except (PotluckError, BrokenOff):
            continue


def _told(error: BaseException | None, rank: int) -> BaseException | None:
    """``error`` as another process can have it."""
    if error is None or isinstance(error, PotluckError | BrokenOff):
        return error
    return TeamError(f"process {rank}: {type(error).__name__}: {error}")


def _dice(draw: Draw, size: int) -> Dice | None:
    match draw:
        case Greedy():
            return None
        case Sampled(generator=dice, temperature=temperature, top_k=top_k, top_p=top_p):
            # From the generator, so that two writings with one of them differ, as elsewhere.
            seeds = torch.randint(2**62, (size,), generator=dice, device=dice.device).tolist()
            return Dice(tuple(seeds), temperature, top_k, top_p)
        case _:
            raise TeamError(
                f"several processes cannot draw by {type(draw).__name__}; they can by Sampled "
                f"and Greedy"
            )


def _draw(dice: Dice | None, rank: int, device: torch.device) -> Draw:
    if dice is None:
        return Greedy()
    generator = torch.Generator(device).manual_seed(dice.seeds[rank])
    return Sampled(generator, dice.temperature, dice.top_k, dice.top_p)
