"""Selection of the groups that are learned from, and the counts of all that is left out.

A completion of any author is read as a row of this node's model. All that depends on a tokenizer is
in ``read``: the prompt's template, ids of the same tokenizer or text of any other, special tokens,
lengths, the stop token. What cannot be read exactly is left out, and counted with its reason.

An episode is played again in this node's environment, whose observations and rewards count.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain
from time import perf_counter
from typing import Literal

import numpy as np

from potluck.config import SamplingConfig
from potluck.episode import (
    Environment,
    EnvironmentFailed,
    Turn,
    acted,
    digest_of,
    text_of,
    turns_in,
)
from potluck.model import Reader
from potluck.model.prompt import opens_otherwise
from potluck.model.stop_texts import end_of_stop_text
from potluck.types import Completion, Episode, Observed, Problem, Row

REPLAY_S = 30.0
"""Seconds on the clock that the episodes of one author are replayed in a round."""
ALL_REPLAYS_S, FEW_REPLAYS_S = 120.0, 2.0
"""Seconds of all other authors' replays in a round, after which each of them has ``FEW_REPLAYS_S``
in place of ``REPLAY_S``: no number of slow authors holds a round up, nor keeps the others out."""

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


UnreadReason = Literal[
    "no log-probabilities", "no text", "unknown token", "inexact text", "other opening",
    "special token", "stop token", "stop text", "too long", NotReplayed,
]  # fmt: skip
"""Why a completion cannot be read: docs/tokenizers.md; of an episode: docs/environments.md."""
Read = Callable[[Completion], Row | UnreadReason]


@dataclass(frozen=True, slots=True)
class Selection:
    """Groups to learn from, and counts as in ``RoundReport``; a completion is in one at most."""

    groups: tuple[tuple[Row, ...], ...]
    """Members' in the order of the round's problems, each stranger's, then late ones, by round."""
    unasked: int
    unreadable: Mapping[tuple[str, UnreadReason], int]
    """Number of completions of an author that cannot be read, for each reason; late ones too."""
    too_few: int
    late: int = 0
    late_used: int = 0
    over_share: int = 0
    past_rewards: tuple[tuple[float, ...], ...] = ()
    """Rewards of this node's earlier completions that each group is compared with as well."""
    over_intake: int = 0
    staleness: float | None = None
    joint_share: float | None = None


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
        if author != self.me and self.environment.grade == "own":
            return "own environment"
        within_s = self._left_s(author)
        if within_s <= 0:
            return "replay time"
        begun_s = perf_counter()
        refused: NotReplayed | None = None
        try:
            heard = acted(turns, completion.end)
            episode = self.environment.replay(problem, heard, completion, within_s=within_s)
            digests = b"".join(map(digest_of, episode.observations))
            if not completion.observed.startswith(digests[: len(completion.observed)]):
                refused = "other observation"
            elif not _ended(completion, len(turns), episode, most):
                refused = "other end"
            if refused:
                # Whatever made it differ may be left in the process.
                self.environment.begin_anew(author)
                return refused
            observed = observe(episode)
            return "too long" if observed is None else (episode, observed)
        except EnvironmentFailed:
            is_over = perf_counter() - begun_s >= within_s
            return "replay time" if is_over else "environment failed"
        finally:
            self._spent_s[author] += perf_counter() - begun_s

    def _left_s(self, author: str) -> float:
        """Return the seconds on the clock that an author's episodes may still take this round."""
        if author == self.me:
            return math.inf
        spent_s = sum(seconds for name, seconds in self._spent_s.items() if name != self.me)
        bound_s = REPLAY_S if spent_s < ALL_REPLAYS_S else FEW_REPLAYS_S
        return bound_s - self._spent_s[author]


def read(
    completion: Completion,
    problem: Problem,
    model: Reader,
    limits: SamplingConfig,
    *,
    needs_logp: bool = False,
    replays: Replays | None = None,
) -> Row | UnreadReason:
    """Read a completion with the model's tokenizer.

    Ids of the model's own tokenizer are taken as they are; ``end`` decides what a completion may
    earn, so they must confirm it: "stop" is a stop token or a stop text at the end, and there is
    none anywhere else. A text beside them must be what they say: nodes of other tokenizers read
    that. A text alone is encoded, exactly, and the model's own stop token put behind it if it has
    ended otherwise than by a stop text. No log-probability of another tokenizer's tokens is
    kept, as its tokens are others.
    ``needs_logp``: the method reads the author's log-probabilities.

    With ``replays`` the task has an environment, and a completion is an episode. What was said in
    it is made here; its text is that of its turns, in no model's own syntax.
    """
    if bool(completion.turns) != (replays is not None):
        return "no episode"
    prompt_P = model.prompt(problem)
    most = limits.max_total_tokens  # and no position that the model has not
    room = budget = min(most, model.context or most) - len(prompt_P)
    is_foreign = completion.tokenizer not in (b"", model.tokenizer_digest)
    if as_text := is_foreign or not len(completion.token_T):
        if needs_logp:
            return "no log-probabilities"
        parts = _spelled(completion, problem, model)
        if isinstance(parts, str):
            return parts
        if not all(parts):
            return "stop token"
        token_T = np.array([*chain.from_iterable(parts)], np.int32)
        turns = tuple(map(len, parts)) if replays else ()
        completion = replace(completion, token_T=token_T, logp_T=None, tokenizer=b"", turns=turns)
    else:  # A text that others were to write in max_new_tokens of theirs may have more here.
        budget = min(budget, limits.max_new_tokens)
    token_T = completion.token_T
    ends_T = np.zeros(len(token_T), bool)
    ends_T[np.cumsum(completion.turns or [len(token_T)]) - 1] = True
    by_text = completion.end == "stop" and _ends_by_text(completion, model)
    ends_T[-1] = completion.end != "length" and not by_text
    if not (token_T < model.vocabulary).all():
        return "unknown token"
    if (np.isin(token_T, list(model.stop_ids)) != ends_T).any():
        return "stop token"
    words_T = token_T[:-1] if ends_T[-1] else token_T
    if model.holds_stop_text(token_T[:-1]) or model.holds_stop_text(words_T) != by_text:
        return "stop text"
    if len(token_T) > budget:
        return "too long"
    if needs_logp and completion.logp_T is None:
        return "no log-probabilities"
    if replays:
        return _played(completion, problem, model, replays, room)
    if not as_text and completion.text not in (None, model.said(completion, problem)):
        is_other = opens_otherwise(completion.text or "", model.opening(problem))
        return "other opening" if is_other else "inexact text"
    return Row(completion, prompt_P, token_T, model.answer(problem, token_T))


def _ends_by_text(completion: Completion, model: Reader) -> bool:
    """Tell whether a completion that is over says that a stop text has ended it."""
    is_answer = not completion.turns
    return bool(model.stop_texts) and is_answer and completion.token_T[-1] not in model.stop_ids


def _spelled(
    completion: Completion, problem: Problem, model: Reader
) -> list[list[int]] | UnreadReason:
    """Find the ids of a completion's text, turn by turn, each with a stop token if its author ended
    it so."""
    if completion.text is None:
        return "no text"
    if not completion.turns:
        # What this model's prompt has opened already, it does not write again.
        opening = model.opening(problem)
        if not completion.text.startswith(opening):
            return "other opening"
        said = completion.text.removeprefix(opening)
        ends_in = end_of_stop_text(said, model.stop_texts)
        if ends_in is None and end_of_stop_text(completion.text, model.stop_texts):
            return "stop text"  # its author has cut it within what this prompt opens
        ids = model.encode(model.prompt(problem), said)
        if ids is None:
            return "inexact text"
        if model.special_ids.intersection(ids):
            return "special token"
        # A text that ends in a stop text carries its end with it.
        by_token = completion.end == "stop" and not model.holds_stop_text(ids)
        return [[*ids, model.stop_id] if by_token else ids]
    turns = turns_in(completion.text) or ()
    if len(turns) != len(completion.turns):  # which the wire bounds; a turn takes time to spell
        return "inexact text"
    parts = [ids for turn in turns if (ids := model.ids_of(turn)) is not None]
    if len(parts) < len(turns):
        return "inexact text"
    last = parts[-1] if completion.end == "length" else [*parts[-1], model.stop_id]
    return [*([*ids, model.stop_id] for ids in parts[:-1]), last]


def _played(
    completion: Completion, problem: Problem, model: Reader, replays: Replays, room: int
) -> Row | UnreadReason:
    """Read an episode whose ids are the model's; ``room`` is for all behind its prompt."""
    parts = np.split(completion.token_T, list(accumulate(completion.turns))[:-1])
    turns = [model.turn_of(part) for part in parts]
    if completion.text not in (None, text_of(turns)):
        return "inexact text"
    observe = partial(observed_by, model, completion.turns, room)
    found = replays.replay(completion, problem, turns, observe)
    if isinstance(found, str):
        return found
    episode, observed = found
    text = "\n".join(turn.content for turn in turns)
    written = replace(completion, text=text_of(turns))
    return Row(written, model.prompt(problem), written.token_T, text, observed, episode)


def _ended(completion: Completion, turns: int, episode: Episode, most: int) -> bool:
    """Return whether a replay ended as the completion says, and not before."""
    last = turns - (completion.end == "length")
    if len(episode.observations) != last:
        return False
    if completion.end == "length":
        return not episode.done
    return completion.end == ("stop" if episode.done else "turns" if turns == most else "room")


def observed_by(
    model: Reader, turns: Sequence[int], room: int, episode: Episode
) -> Observed | None:
    """Make what a model reads between these turns; None if both together exceed ``room``."""
    room -= sum(turns)
    made = []
    for at, heard in zip(accumulate(turns[:-1]), episode.observations, strict=False):
        ids = model.observed_ids(heard)
        room -= len(ids)
        if room < 0:
            return None
        made.append((at, ids))
    return tuple(made)


def readable_rows(
    came: Iterable[Completion], read: Read
) -> tuple[list[Row], Counter[tuple[str, UnreadReason]]]:
    """Return the rows of what can be read; count the rest by author and reason."""
    rows, unreadable = [], Counter[tuple[str, UnreadReason]]()
    for completion in came:
        row = read(completion)
        if isinstance(row, Row):
            rows.append(row)
        else:
            unreadable[completion.author, row] += 1
    return rows, unreadable
