"""The nouns of the system, and the root of its errors.

    Problem --engine--> Completion --exchange--> Group --pack--> Batch
    (tasks)             (rollout)                (node)          (node)

Every noun is frozen, its arrays too. A later stage returns a new value; it never
fills in a field that an earlier stage left empty, so no field is ``None`` "for now".

Shape letters, the same in every file (an array's name ends in its shape):
    G  completions in one group      B  completions in one round's batch
    T  tokens of one completion,     M  completions in one micro-batch
       padded to the longest where   N  rows that are being written just now
       stacked                       P  tokens of a prompt
    V  tokens in the vocabulary
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

import numpy as np

End = Literal["stop", "length"]
"""Why a completion ended: its model emitted a stop token, or ran out of room."""

NODE_NAME = re.compile(r"[a-z0-9-]{1,32}")
"""What a node may be called: it becomes a folder, a key on the network and a label."""


class PotluckError(Exception):
    """Whatever its user can mend: a recipe, a file, a partner. The message says how.

    PotluckError
      ConfigError      a recipe that cannot run                     (config)
      TaskError        data that cannot be read or holds nothing    (tasks)
      ModelError       a model that cannot be loaded, or not here   (rollout)
      RolloutError     no room to write, or a server that cannot    (rollout)
      NonFiniteError   a number of our own that is not finite       (node, rollout)
      RunFolderError   a run folder that is in the way              (node, processes)
      TeamError        processes of one node that cannot meet       (node)
      TrackerError     a tracker that cannot start                  (trackers)
      RunReadError     a run folder that cannot be read             (dashboard)
      DemoError        a demo that broke down                       (demo)
      ExperimentError  an experiment that cannot be used            (reproduce)
      ReplayError      a run that cannot be replayed                (replay)
      ExchangeError    what goes wrong between nodes                (exchange)
        WireError      bytes that are not a message                 (exchange)
    """


class RunFolderError(PotluckError):
    """A run folder that is in the way, or that is not what it was."""


class NonFiniteError(PotluckError):
    """A NaN or an infinity of this node's own making: going on would hide it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One question of a task, with what is needed to grade an answer to it."""

    id: str
    """Unique, and equal on every node: ``"gsm8k/train/17"``."""
    question: str
    answer: str
    system: str = ""
    """What the model is told before the question; empty where a task needs nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What one node's model wrote for one problem.

    It keeps copies of its arrays and locks them, so that nobody who held one
    before can change it after the checks.

    >>> token_T, logp_T = np.array([5, 10], np.int32), np.array([-0.5, 0.0], np.float32)
    >>> completion = Completion("sum/2+3", "north", 0, token_T, logp_T, "stop")
    >>> completion.token_T[0] = 6
    Traceback (most recent call last):
    ValueError: assignment destination is read-only
    """

    problem_id: str
    author: str
    """The node whose model sampled the tokens."""
    index: int
    """Position among its author's completions for this problem, from 0."""
    token_T: np.ndarray
    """int32 ids, >= 0, at least one; ends in the stop token if ``end`` is "stop"."""
    logp_T: np.ndarray
    """float32, ln p(token) under the author's policy when it sampled. Nats, finite, <= 0."""
    end: End

    def __post_init__(self) -> None:
        for name, dtype in (("token_T", np.int32), ("logp_T", np.float32)):
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != 1:
                expected = f"expected {dtype.__name__} of one dimension"
                self._refuse(f"{name} of {array.dtype} and shape {array.shape}", expected)
            own = array.copy()
            own.flags.writeable = False
            object.__setattr__(self, name, own)
        if len(self.token_T) != len(self.logp_T):
            count = f"{len(self.token_T)} tokens but {len(self.logp_T)} log-probabilities"
            self._refuse(count, "each token needs exactly one")
        if not len(self.token_T):
            self._refuse("no tokens", "even an empty answer holds a stop token")
        self._require(self.token_T >= 0, "token_T", "an id >= 0")
        possible_T = np.isfinite(self.logp_T) & (self.logp_T <= 0)
        self._require(possible_T, "logp_T", "a finite number <= 0 (nats)")
        if self.index < 0:
            self._refuse(f"index {self.index}", "expected a position >= 0")
        if self.end not in get_args(End):
            self._refuse(f"end {self.end!r}", f"expected one of {', '.join(get_args(End))}")

    @classmethod
    def cut(
        cls,
        problem_ids: Sequence[str],
        author: str,
        indices: Sequence[int],
        ends: Sequence[End],
        lengths: Sequence[int],
        token_X: np.ndarray,
        logp_X: np.ndarray,
    ) -> "tuple[Completion, ...]":
        """Many at once, equal to those made one by one; X: their tokens one after the other.

        All are checked in a few passes over whole arrays, and are views of one locked copy:
        each of them keeps the arrays of all in memory.

        Raises:
            ValueError: what making them one by one raises, or the lists are not of one length,
                or the lengths do not add up to the arrays'.
        """
        counts = {len(problem_ids), len(indices), len(ends), len(lengths)}
        whole = len(token_X) == len(logp_X) == sum(lengths) and min(lengths, default=0) >= 0
        if len(counts) > 1 or not whole:
            raise ValueError(
                f"{len(problem_ids)} problems, {len(indices)} indices, {len(ends)} ends and "
                f"{len(lengths)} lengths of {sum(lengths)} tokens in all do not fit "
                f"{len(token_X)} ids and {len(logp_X)} log-probabilities"
            )
        token_X, logp_X = token_X.copy(), logp_X.copy()
        token_X.flags.writeable = logp_X.flags.writeable = False
        stops = list(accumulate(lengths))
        parts = [slice(stop - length, stop) for stop, length in zip(stops, lengths, strict=True)]
        rows = list(zip(problem_ids, indices, parts, ends, strict=True))
        if not _possible(indices, ends, lengths, token_X, logp_X):
            # The first that is wrong says so itself.
            return tuple(
                cls(problem_id, author, index, token_X[part], logp_X[part], end)
                for problem_id, index, part, end in rows
            )
        made = []
        for problem_id, index, part, end in rows:
            one = object.__new__(cls)
            object.__setattr__(one, "problem_id", problem_id)
            object.__setattr__(one, "author", author)
            object.__setattr__(one, "index", index)
            object.__setattr__(one, "token_T", token_X[part])
            object.__setattr__(one, "logp_T", logp_X[part])
            object.__setattr__(one, "end", end)
            made.append(one)
        return tuple(made)

    def __eq__(self, other: object) -> bool:
        """Equal in every field, arrays element by element (what ``eq=True`` cannot do)."""
        if not isinstance(other, Completion):
            return NotImplemented
        return (
            (self.problem_id, self.author, self.index, self.end)
            == (other.problem_id, other.author, other.index, other.end)
            and np.array_equal(self.token_T, other.token_T)
            and np.array_equal(self.logp_T, other.logp_T)
        )

    def _require(self, holds_T: np.ndarray, name: str, expected: str) -> None:
        if not holds_T.all():
            at = int(holds_T.argmin())
            self._refuse(f"{name}[{at}] = {getattr(self, name)[at]}", f"expected {expected}")

    def _refuse(self, found: str, way_out: str) -> None:
        who = f"completion {self.index} of {self.problem_id!r} by {self.author!r}"
        raise ValueError(f"{who} has {found}; {way_out}")


def _possible(
    indices: Sequence[int],
    ends: Sequence[End],
    lengths: Sequence[int],
    token_X: np.ndarray,
    logp_X: np.ndarray,
) -> bool:
    """Whether all that ``Completion`` requires of one holds for many. No NaN passes ``<``."""
    if token_X.dtype != np.int32 or logp_X.dtype != np.float32 or token_X.ndim + logp_X.ndim != 2:
        return False
    if not lengths:
        return True
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        return bool(
            min(lengths) > 0
            and min(indices) >= 0
            and set(ends) <= set(get_args(End))
            and token_X.min() >= 0
            and -np.inf < logp_X.min()
            and logp_X.max() <= 0
        )


@dataclass(frozen=True, slots=True)
class Group:
    """All completions of one problem, from every node, with this node's rewards."""

    problem: Problem
    completions: tuple[Completion, ...]
    """[G] in the one order that every node derives: by author, then by index."""
    rewards: tuple[float, ...]
    """[G] graded here. Rewards are never taken from a peer."""
