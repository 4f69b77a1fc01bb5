"""A stand-in for an environment: a game of plain Python, played in this process, turn by turn.

    environment = Here(Walk)                 as ``task.environment``; it replays, and counts resets
    environment = Here(Walk, max_turns=3)
    environment.holds["p0"] = Event()        what is said to turns of that problem waits for it
    environment.fails = {"p1": 2}            EnvironmentFailed instead of an answer to its 2nd turn;
                                             0: it cannot be reset

A game has ``reset(problem) -> str``, which the questions of problems do not repeat, and
``step(text) -> (text, reward, done)``; the reward of an episode is the sum.
"""

from dataclasses import dataclass, field, replace

from potluck.episode import EnvironmentFailed, Step, text_of
from potluck.types import Episode, Observation


class Walk:
    """Says, in tiny's letters, what it heard last and how often; an "x" ends it, pays 1 a turn."""

    def reset(self, problem):
        self.turns = 0
        return f"walk{len(problem.question)}"

    def step(self, text):
        self.turns += 1
        return f"{text[-2:]}+{self.turns}" * (1 + len(text) % 3), 1.0, "x" in text


@dataclass
class Here:
    """An Environment (``potluck.episode``) over a class of games."""

    game: type = Walk
    max_turns: int = 16
    grade: str = "replay"
    holds: dict = field(default_factory=dict)
    fails: dict = field(default_factory=dict)
    played: dict = field(default_factory=dict)
    opened: list = field(default_factory=list)
    replays: int = 0
    begun_anew: list = field(default_factory=list)

    def open(self, author=""):
        self.opened.append(PlayHere(self))
        return self.opened[-1]

    def begin_anew(self, author):
        self.begun_anew.append(author)

    def replay(self, problem, turns, written=None, *, within_s=None):
        known = self.played.get((problem.id, text_of(turns)))
        if known:
            return known
        if self.grade == "own":
            raise EnvironmentFailed(f"{problem.id} was not played here")
        self.replays += 1
        play = PlayHere(self)
        play.begin(0, problem)
        for turn in turns:
            if play.open[0].done:  # before the last turn, which did not end it
                return replace(play.finish(0), done=False)
            play.act(0, turn)
            ((_, answer),) = play.answered(0)
            if isinstance(answer, EnvironmentFailed):
                raise answer
        return play.finish(0)


@dataclass
class Open:
    """One episode."""

    problem: object
    game: object
    turns: list = field(default_factory=list)
    said: list = field(default_factory=list)
    reward: float = 0.0
    done: bool = False


class PlayHere:
    """A Play: answers are there at once, but for those that an event holds back."""

    def __init__(self, environment):
        self.environment, self.open, self.waiting, self.closed = environment, {}, [], False

    def begin(self, episode, problem, index=0):
        if self.environment.fails.get(problem.id) == 0:
            raise EnvironmentFailed(f"the game of {problem.id} raised in reset: KeyError")
        game = self.environment.game()
        game.reset(problem)
        self.open[episode] = Open(problem, game)

    def act(self, episode, turn):
        one = self.open[episode]
        assert not one.done, "it was over"
        assert episode not in dict(self.waiting), "it has not been answered"
        one.turns.append(turn)
        if self.environment.fails.get(one.problem.id) == len(one.turns):
            self.waiting.append((episode, EnvironmentFailed("step took more than 5 s")))
            return
        text, reward, one.done = one.game.step(turn.content)
        one.reward += reward
        one.said.append((Observation(text),))
        self.waiting.append((episode, Step(one.said[-1], one.done)))

    def answered(self, wait_s):
        held = []
        for episode, answer in self.waiting:
            event = self.environment.holds.get(self.open[episode].problem.id)
            if event is not None and not event.wait(wait_s):
                held.append((episode, answer))
        come = [each for each in self.waiting if each not in held]
        self.waiting = held
        return come

    def finish(self, episode):
        one = self.open.pop(episode)
        self.waiting = [each for each in self.waiting if each[0] != episode]
        ended = Episode(tuple(one.said), one.done, one.reward)
        self.environment.played[one.problem.id, text_of(one.turns)] = ended
        return ended

    def close(self):
        self.open, self.closed = {}, True
