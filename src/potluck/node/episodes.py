"""Episodes of any author, as a node reads them: played again in an environment of its own, from
which alone come what a model reads between its turns, and the reward."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter
from typing import Literal

import numpy as np

from potluck.episode import Environment, EnvironmentFailed, Turn, acted, digest_of, turns_in
from potluck.model import Reader
from potluck.types import Completion, Episode, Observed, Problem

REPLAY_S = 30.0
"""Seconds of replays of one author in a round, after which no other one begins."""

NotReplayed = Literal[
    "no episode", "own environment", "replay time", "environment failed", "other observation",
    "other end",
]  # fmt: skip
"""Why an episode is not what its author says, or cannot be found to be.

    no episode            it has turns and the task no environment, or the task has one and it none
    own environment       another author's, of an environment that is of grade "own"
    replay time           its author's episodes of the round took their time to replay before it
    environment failed    the environment raised, hung or broke a limit
    other observation     the environment said something else here than to its author
    other end             it goes on or ends where it did not here, or has more than max_turns
"""
BY_REPLAY: frozenset[NotReplayed] = frozenset(
    ("replay time", "environment failed", "other observation", "other end")
)


@dataclass(frozen=True, slots=True)
class Replays:
    """A node's environment, and the time that others' episodes took in it in one round."""

    environment: Environment
    me: str
    _spent_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def replay(
        self,
        completion: Completion,
        problem: Problem,
        turns: Sequence[Turn],
        observe: Callable[[Episode], Observed | None],
    ) -> tuple[Episode, Observed] | NotReplayed | Literal["too long"]:
        """Play the turns of a completion, and compare what its author says of how it went.
        ``observe`` makes what the model reads in it, None if it is too long."""
        author, most = completion.author, self.environment.max_turns
        if len(turns) > most:
            return "other end"
        if author != self.me:
            if self.environment.grade == "own":
                return "own environment"
            if self._spent_s[author] > REPLAY_S:
                return "replay time"
        begun_s = perf_counter()
        try:
            heard = acted(turns, completion.end)
            episode = self.environment.replay(problem, heard, completion)
            digests = b"".join(map(digest_of, episode.observations))
            if not completion.observed.startswith(digests[: len(completion.observed)]):
                return "other observation"
            if not _ended(completion, len(turns), episode, most):
                return "other end"
            observed = observe(episode)
            return "too long" if observed is None else (episode, observed)
        except EnvironmentFailed:
            return "environment failed"
        finally:
            self._spent_s[author] += perf_counter() - begun_s


def _ended(completion: Completion, turns: int, episode: Episode, most: int) -> bool:
    """Return whether a replay ended as the completion says, and not before."""
    last = turns - (completion.end == "length")
    if len(episode.observations) != last:
        return False
    if completion.end == "length":
        return not episode.done
    return completion.end == ("stop" if episode.done else "turns" if turns == most else "room")


def spelled_turns(completion: Completion, model: Reader) -> list[list[int]] | None:
    """Find the ids of an episode's turns in a model's own syntax, each with its stop token but the
    last of one that ended by "length"; None if they are not exactly these."""
    turns = turns_in(completion.text or "")
    if turns is None or len(turns) != len(completion.turns):
        return None
    parts = []
    for at, turn in enumerate(turns, 1):
        if (ids := model.ids_of(turn)) is None:
            return None
        is_cut = at == len(turns) and completion.end == "length"
        parts.append(ids if is_cut else [*ids, model.stop_id])
    return parts


def turns_of(completion: Completion, model: Reader) -> list[Turn]:
    """Read the turns of an episode whose ids are of the model's tokenizer."""
    parts = np.split(completion.token_T, list(accumulate(completion.turns))[:-1])
    return [model.turn_of(part) for part in parts]


def observed_by(
    model: Reader, turns: Sequence[int], room: int, episode: Episode
) -> Observed | None:
    """Make what a model reads between turns of these lengths; None where it has more tokens, turns
    included, than ``room``."""
    room -= sum(turns)
    made = []
    for at, heard in zip(accumulate(turns[:-1]), episode.observations, strict=False):
        ids = model.observed_ids(heard)
        room -= len(ids)
        if room < 0:
            return None
        made.append((at, ids))
    return tuple(made)
