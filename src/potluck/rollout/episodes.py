"""Episodes of one writing: between an engine, its model's syntax and an environment.

An engine samples a turn, hands it over (``wrote``), and goes on with other rows until it hears what
the environment said (``heard``). All that bounds an episode is decided here.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from potluck.episode import Environment, EnvironmentFailed, Step, Turn, digest_of, text_of
from potluck.model.policy import LanguageModel
from potluck.rollout.base import RolloutError
from potluck.types import Completion, End, Problem

PATIENCE_S = 1.0  # longest wait for the answer to a turn while other rows could be written
POLL_S = 0.005


@dataclass(slots=True)
class _Unfinished:
    problem: Problem
    index: int
    tokens: int  # that it may still sample, in all its turns
    room: int  # tokens that still fit behind it, sampled or read
    turns: list[Turn] = field(default_factory=list)
    token_ids: list[np.ndarray] = field(default_factory=list)
    logps: list[np.ndarray] = field(default_factory=list)
    observed: bytes = b""


class Episodes:
    """Episodes by number, from their beginning until they are taken."""

    def __init__(self, policy: LanguageModel, environment: Environment, author: str) -> None:
        self._policy, self._author, self._most_turns = policy, author, environment.max_turns
        self._play = environment.open(author)
        self.close = self._play.close
        self._open: dict[int, _Unfinished] = {}
        self._asked_s: dict[int, float] = {}
        self._written: dict[int, Completion] = {}
        self._failed: dict[int, EnvironmentFailed] = {}

    def begin(self, episode: int, problem: Problem, index: int, *, tokens: int, room: int) -> None:
        """Begin an episode of at most so many sampled tokens, and ``room`` for all behind the
        prompt; raise RolloutError if its environment cannot be reset."""
        try:
            self._play.begin(episode, problem, index)
        except EnvironmentFailed as error:
            raise RolloutError(f"no episode of {problem.id!r} can begin: {error}") from error
        self._open[episode] = _Unfinished(problem, index, tokens, room)

    def is_open(self, episode: int) -> bool:
        return episode in self._open

    def left(self, episode: int) -> int:
        """Count the tokens that the turn may have."""
        one = self._open[episode]
        return min(one.tokens, one.room)

    def wrote(self, episode: int, token_ids: Sequence[int], logps: Sequence[float]) -> bool:
        """Take a turn, which ends in a stop token or has all tokens that it may have. Return
        whether it is answered: else the episode is over."""
        one, policy = self._open[episode], self._policy
        one.tokens -= len(token_ids)
        one.room -= len(token_ids)
        one.token_ids.append(np.array(token_ids, np.int32))
        one.logps.append(np.array(logps, np.float32))
        one.turns.append(policy.turn_of(one.token_ids[-1]))
        if token_ids[-1] not in policy.stop_ids:
            self._end(episode, "length")
            return False
        self._play.act(episode, one.turns[-1])
        self._asked_s[episode] = time.monotonic()
        return True

    def heard(self, wait_s: float) -> dict[int, np.ndarray | None]:
        """Return the ids that each answered episode reads before its next turn, its last token
        first; None: it is over. Wait up to ``wait_s`` for all answers."""
        news = {}
        for episode, answer in self._play.answered(wait_s):
            del self._asked_s[episode]
            news[episode] = self._go_on(episode, answer)
        return dict(sorted(news.items()))

    def heard_in_time(self) -> dict[int, np.ndarray | None]:
        """Wait for the answers to the newest turns up to PATIENCE_S, and return all that came.

        So a writing repeats to the bit where the environment is faster. A slower turn holds up the
        other rows once, and is then looked for and not waited for.
        """
        news: dict[int, np.ndarray | None] = {}
        while self._asked_s:
            news |= self.heard(POLL_S)
            newest_s = max(self._asked_s.values(), default=0.0)
            if time.monotonic() >= newest_s + PATIENCE_S:
                break
        return dict(sorted(news.items()))

    def take(self, episodes: Iterable[int], notify: Callable[[str], None]) -> list[Completion]:
        """Return those of some episodes, all over, in which the environment did not fail. The
        others are told of: nobody could play them again."""
        taken, failed = [], []
        for episode in episodes:
            try:
                if episode in self._failed:
                    raise self._failed[episode]
                self._play.finish(episode)
                taken.append(self._written[episode])
            except EnvironmentFailed as error:
                failed.append(error)
        if failed:
            count, first = f"{len(failed)} of {len(failed) + len(taken)} episodes", failed[0]
            notify(f"{self._author}: {count} are left out, as their environment failed: {first}")
        return taken

    def _go_on(self, episode: int, answer: Step | EnvironmentFailed) -> np.ndarray | None:
        if isinstance(answer, EnvironmentFailed):
            del self._open[episode]
            self._failed[episode] = answer
            return None
        one, last = self._open[episode], self._open[episode].token_ids[-1][-1]
        if answer.done or len(one.turns) == self._most_turns:
            self._end(episode, "stop" if answer.done else "turns")
            return None
        ids = self._policy.observed_ids(answer.observations)
        one.room -= len(ids)
        if self.left(episode) < 1:
            self._end(episode, "room")
            return None
        one.observed += digest_of(answer.observations)
        return np.array([last, *ids], np.int32)

    def _end(self, episode: int, end: End) -> None:
        one = self._open.pop(episode)
        self._written[episode] = Completion(
            one.problem.id,
            self._author,
            one.index,
            np.concatenate(one.token_ids, dtype=np.int32),
            np.concatenate(one.logps, dtype=np.float32),
            end,
            text=text_of(one.turns),
            turns=tuple(map(len, one.token_ids)),
            observed=one.observed,
        )
