"""Nouns of the system, and the root of its errors.

    Problem --engine--> Completion --exchange, read--> Row --grade--> Group --pack--> Batch
    (tasks)             (rollout)                      (node)         (node)          (node)

Every noun is frozen, its arrays too: a later stage returns a new value.

Shape letters, the same in every file (an array's name ends in its shape):
    G  completions in one group      B  completions in one round's batch
    P  tokens of a prompt            M  completions in one micro-batch
    V  tokens in the vocabulary      N  rows that are being written just now
    T  tokens of one completion, padded to the longest where stacked
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import Literal, NoReturn, get_args

import msgspec
import numpy as np

End = Literal["stop", "length", "turns", "room"]
"""Cause of a completion's end: a stop token, with which an episode was over; no room for its model;
or an episode was cut behind a turn, as it had no turns left, or no room for its environment."""
SINGLE_ENDS: frozenset[End] = frozenset(("stop", "length"))
"""Ends of a completion that is no episode."""
OUT_OF_ROOM: frozenset[End] = frozenset(("length", "room"))
"""Ends that earn at most 0 (``docs/paper-notes.md``, decision 8): which length is too long only
its author can know, so it could end there where its reward is highest."""

ChatTemplate = Literal["model", "none"]
"""Whether a prompt goes through the model's own chat template."""
OBSERVED_BYTES = 2
"""Bytes of a digest of an observation."""
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
NODE_NAME = re.compile(r"[a-z0-9-]{1,32}")
"""Pattern of a node's name, which becomes a folder, a key on the network and a label."""


class PotluckError(Exception):
    """Base of all errors that a user can mend; the message says how. Each room derives its own."""


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
    """System prompt, before the question; empty where a task needs none."""
    tools: str = ""
    """Tools of an environment, as a JSON list of schemas; empty: there are none."""

    @property
    def messages(self) -> list[dict[str, str]]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.question}]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn: the policy at a temperature, of all tokens or of the likeliest ones."""

    temperature: float = 1.0
    top_k: int = 0
    """0: all tokens, as ``top_p`` of 1."""
    top_p: float = 1.0

    @property
    def truncates(self) -> bool:
        return self.top_k > 0 or self.top_p < 1

    def __str__(self) -> str:
        return f"temperature {self.temperature:g}, top_k {self.top_k} and top_p {self.top_p:g}"


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """One answer that one node's model wrote to one problem. It keeps locked copies of its arrays,
    so that nothing changes them after the checks."""

    problem_id: str
    author: str
    index: int
    """Position among its author's completions for this problem, from 0."""
    token_T: np.ndarray
    """int32 ids, >= 0; the stop token is last if ``end`` is "stop". Empty only beside a text."""
    logp_T: np.ndarray | None
    """float32 ln p(token) of the author's sampling policy: nats, finite, <= 0; None: not told."""
    end: End
    text: str | None = None
    """The completion as text, without a stop token, for other tokenizers; None: none was told."""
    tokenizer: bytes = b""
    """Fingerprint of the tokenizer that ``token_T`` is of; empty: the reader's own."""
    turns: tuple[int, ...] = ()
    """Lengths of an episode's turns, which make up ``token_T``: each ends in a stop token, but for
    the last of one that ended by "length". Empty: one answer, without an environment."""
    observed: bytes = b""
    """A digest for each turn that another follows, of what its author's environment said
    (``episode.digest_of``). A hint, never trusted."""

    def __post_init__(self) -> None:
        if self.logp_T is not None and np.size(self.token_T) != np.size(self.logp_T):
            raise ValueError(
                f"{_name(self.index, self.problem_id, self.author)} has {np.size(self.token_T)} "
                f"tokens but {np.size(self.logp_T)} log-probabilities; each token needs exactly one"
            )
        arrays = _checked(
            (self.problem_id,), self.author, (self.index,), (self.end,), (np.size(self.token_T),),
            self.token_T, self.logp_T, (self.text,), ((self.turns, self.observed),),
        )  # fmt: skip
        for name, array in zip(("token_T", "logp_T"), arrays, strict=True):
            object.__setattr__(self, name, array)

    @classmethod
    def cut(
        cls,
        problem_ids: Sequence[str],
        author: str,
        indices: Sequence[int],
        ends: Sequence[End],
        lengths: Sequence[int],
        token_X: np.ndarray,
        logp_X: np.ndarray | None,
        texts: Sequence[str | None] = (),
        tokenizer: bytes = b"",
        episodes: Sequence[tuple[tuple[int, ...], bytes]] = (),
    ) -> "tuple[Completion, ...]":
        """Make many at once, equal to those made one by one, in a few passes over whole arrays.

        ``token_X`` and ``logp_X`` are of all, one completion after the other; ``texts``, and
        ``episodes`` (turns, and what was observed), have one for each or are empty. Each completion
        is a view that keeps the arrays of all in memory. Raise ValueError if one is wrong, or lists
        and arrays do not fit each other."""
        texts = texts or [None] * len(lengths)
        episodes = episodes or [((), b"")] * len(lengths)
        columns = problem_ids, indices, ends, lengths, texts, episodes
        counts = set(map(len, columns))
        told = len(token_X if logp_X is None else logp_X)
        adds_up = len(token_X) == told == sum(lengths) and min(lengths, default=0) >= 0
        if len(counts) > 1 or not adds_up:
            raise ValueError(
                f"{len(problem_ids)} problems, {len(indices)} indices, {len(ends)} ends and "
                f"{len(lengths)} lengths of {sum(lengths)} tokens in all do not fit "
                f"{len(token_X)} ids and {'no' if logp_X is None else told} log-probabilities"
            )
        token_X, logp_X = _checked(
            problem_ids, author, indices, ends, lengths, token_X, logp_X, texts, episodes
        )
        stops = list(accumulate(lengths))
        parts = [slice(stop - length, stop) for stop, length in zip(stops, lengths, strict=True)]
        token_T = map(token_X.__getitem__, parts)
        logp_T = repeat(None) if logp_X is None else map(logp_X.__getitem__, parts)
        own = (problem_ids, repeat(author), indices, token_T, logp_T, ends)
        turns, observed = zip(*episodes, strict=True) if episodes else ((), ())
        fields = (*own, texts, repeat(tokenizer), turns, observed)
        completions = tuple(object.__new__(cls) for _ in lengths)
        # Not through __init__, which would check and copy each of them again.
        for slot, column in zip(cls.__slots__, fields, strict=True):
            write = getattr(cls, slot).__set__
            for completion, value in zip(completions, column, strict=False):
                write(completion, value)
        return completions

    def __eq__(self, other: object) -> bool:
        """Compare every field, arrays element by element (``eq=True`` cannot)."""
        if not isinstance(other, Completion):
            return NotImplemented
        mine, theirs = (
            (c.problem_id, c.author, c.index, c.end, c.text, c.tokenizer, c.turns, c.observed)
            for c in (self, other)
        )
        return (
            mine == theirs
            and np.array_equal(self.token_T, other.token_T)
            and np.array_equal(np.asarray(self.logp_T), np.asarray(other.logp_T))
        )


def _checked(
    problem_ids: Sequence[str],
    author: str,
    indices: Sequence[int],
    ends: Sequence[End],
    lengths: Sequence[int],
    token_X: np.ndarray,
    logp_X: np.ndarray | None,
    texts: Sequence[str | None],
    episodes: Sequence[tuple[tuple[int, ...], bytes]],
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return locked copies of the arrays; raise ValueError if one is not as ``Completion`` says."""

    def refuse(row: int, found: str, expected: str) -> NoReturn:
        name = _name(indices[row], problem_ids[row], author)
        raise ValueError(f"{name} has {found}; {expected}")

    def refuse_first(wrong_X: np.ndarray, name: str, array_X: np.ndarray, expected: str) -> None:
        at = int(wrong_X.argmax())
        row = int(np.searchsorted(np.cumsum(lengths), at, side="right"))
        refuse(row, f"{name}[{at - sum(lengths[:row])}] = {array_X[at]}", f"expected {expected}")

    token_X, logp_X = _locked(token_X), None if logp_X is None else _locked(logp_X)
    if not lengths:
        return token_X, logp_X
    for name, array_X, dtype in (("token_T", token_X, np.int32), ("logp_T", logp_X, np.float32)):
        if array_X is not None and (array_X.dtype != dtype or array_X.ndim != 1):
            expected = f"expected {dtype.__name__} of one dimension"
            refuse(0, f"{name} of {array_X.dtype} and shape {array_X.shape}", expected)
    for row, (length, text) in enumerate(zip(lengths, texts, strict=True)):
        if text is None:
            if not length:
                refuse(row, "no tokens", "even an empty answer holds a stop token")
        elif LONE_SURROGATE.search(text):
            refuse(row, "a text with half a surrogate pair", "expected what UTF-8 can say")
    if len(token_X) and token_X.min() < 0:
        refuse_first(token_X < 0, "token_T", token_X, "an id >= 0")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        if logp_X is not None and not (possible_X := np.isfinite(logp_X) & (logp_X <= 0)).all():
            refuse_first(~possible_X, "logp_T", logp_X, "a finite number <= 0 (nats)")
    if (least := min(indices)) < 0:
        refuse(indices.index(least), f"index {least}", "expected a position >= 0")
    if unknown := set(ends) - set(get_args(End)):
        row = next(row for row, end in enumerate(ends) if end in unknown)
        refuse(row, f"end {ends[row]!r}", f"expected one of {', '.join(get_args(End))}")
    for row, (turns, observed) in enumerate(episodes):
        if turns and (sum(turns) != lengths[row] or min(turns) < min(1, lengths[row])):
            refuse(row, f"turns of {turns} tokens", f"expected {lengths[row]} in all, none empty")
        if len(observed) != OBSERVED_BYTES * max(0, len(turns) - 1):
            found = f"{len(turns)} turns and {len(observed)} bytes observed"
            refuse(row, found, f"expected {OBSERVED_BYTES} between two turns")
        if not turns and ends[row] not in SINGLE_ENDS:
            refuse(row, f"end {ends[row]!r} and no turns", "expected an episode")
    return token_X, logp_X


def _locked(array_X: np.ndarray) -> np.ndarray:
    array_X = array_X.copy()
    array_X.flags.writeable = False
    return array_X


def _name(index: int, problem_id: str, author: str) -> str:
    return f"completion {index} of {problem_id!r} by {author!r}"


class Observation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message of the environment."""

    content: str
    tool: str = ""
    """Tool that answers; empty: the environment speaks as the user."""


@dataclass(frozen=True, slots=True)
class Episode:
    """How an environment of this node went on with a model's turns: never received from a peer."""

    observations: tuple[tuple[Observation, ...], ...]
    """Its messages behind each turn, the last one included; fewer if it was done before."""
    done: bool
    """True: it ended the episode with the last turn."""
    reward: float
    calls: int = 0
    """Tool calls; ``errors`` are those of them that raised or named no tool."""
    errors: int = 0


Observed = tuple[tuple[int, np.ndarray], ...]
"""Texts of an environment within a completion, as a model reads them: int32 ids, each with the
number of sampled tokens before them. No array of T has them: they are read, never learned from."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A completion as one model reads it: all that depends on that model's tokenizer."""

    completion: Completion
    prompt_P: np.ndarray
    """int32 ids of what the model reads before the completion."""
    token_T: np.ndarray
    """int32 ids of the completion in the model's own vocabulary."""
    text: str
    """The completion as the grader sees it: special tokens left out. Of an episode the contents of
    its turns, a line each; ``completion.text`` then has the turns (``episode.text_of``)."""
    observed: Observed = ()
    episode: Episode | None = None
    """Course of an episode in this node's own environment."""


@dataclass(frozen=True, slots=True)
class Group:
    """The completions of one problem, from every node, with this node's rewards."""

    problem: Problem
    rows: tuple[Row, ...]
    """[G]: in step by author, then index, on every node alike; at an own pace own rows first."""
    rewards: tuple[float, ...]
    """[G] graded here. Rewards are never taken from a peer."""
    parts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """[G] for each reward function, what it returned, before its weight."""
    past_rewards: tuple[float, ...] = ()
    """Rewards of this node's completions of the problem in an earlier round: they count in mean and
    standard deviation, and are not learned from again (``node/pace/free.py``)."""
