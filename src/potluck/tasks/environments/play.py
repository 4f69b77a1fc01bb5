"""Episodes that are being written, spread over processes: a step in one holds up no other."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from potluck.confined import Confined
from potluck.episode import EnvironmentFailed, Step, Turn
from potluck.tasks.environments.process import Process, step_of
from potluck.types import Episode, Problem

Made = TypeVar("Made")


class Source(Protocol):
    """The environment that is played."""

    def begin(self, process: Process, key: int, problem: Problem) -> None: ...

    def remember(
        self, problem: Problem, turns: Sequence[Turn], episode: Episode, author: str, index: int
    ) -> None: ...

    def give_back(self, processes: Sequence[Process]) -> None: ...


@dataclass
class Live:
    """An episode, wherever it is."""

    problem: Problem
    index: int
    home: Confined | None = None
    """Process in which it is; None: in none."""
    failed: EnvironmentFailed | None = None
    turns: list[Turn] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


class HostedPlay:
    """Episodes in some processes, each with a thread that waits for it. An episode stays in its
    process; where that ended, it is played again, to where it was, in the next one."""

    def __init__(self, source: Source, author: str, processes: Sequence[Process]) -> None:
        self._source, self._author, self._processes = source, author, processes
        self._threads = [ThreadPoolExecutor(1, "environment") for _ in processes]
        self._live: dict[int, Live] = {}
        self._asked: dict[int, Future[Step]] = {}

    def begin(self, episode: int, problem: Problem, index: int = 0) -> None:
        live = Live(problem, index)
        self._soon(episode, live, lambda process: None).result()
        self._live[episode] = live

    def act(self, episode: int, turn: Turn) -> None:
        live = self._live[episode]

        def acted(process: Process) -> Step:
            step = step_of(process.ask("act", episode, msgspec.to_builtins(turn)))
            live.turns.append(turn)
            live.steps.append(step)
            return step

        self._asked[episode] = self._soon(episode, live, acted)

    def answered(self, wait_s: float) -> list[tuple[int, Step | EnvironmentFailed]]:
        wait(self._asked.values(), wait_s)
        answers: list[tuple[int, Step | EnvironmentFailed]] = []
        for episode in [episode for episode, asked in self._asked.items() if asked.done()]:
            try:
                answers.append((episode, self._asked.pop(episode).result()))
            except EnvironmentFailed as error:
                answers.append((episode, error))
        return answers

    def finish(self, episode: int) -> Episode:
        if asked := self._asked.pop(episode, None):
            with suppress(EnvironmentFailed):
                asked.result()
        live = self._live.pop(episode)
        paid = self._soon(episode, live, lambda process: process.ask("finish", episode)).result()
        made = ended(live.steps, len(live.turns), paid)
        self._source.remember(live.problem, live.turns, made, self._author, live.index)
        return made

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        for episode in [episode for episode, asked in self._asked.items() if asked.running()]:
            self._processes[episode % len(self._processes)].kill()
        for thread in self._threads:
            thread.shutdown()
        self._live.clear()
        self._asked.clear()
        self._source.give_back(self._processes)
        self._processes = ()

    def _soon(self, episode: int, live: Live, do: Callable[[Process], Made]) -> "Future[Made]":
        """Have the thread of the episode's process do something where the episode is."""
        process = self._processes[at := episode % len(self._processes)]

        def done() -> Made:
            if live.failed:
                raise live.failed
            try:
                if live.home is None or live.home is not process.running:
                    self._play_again(process, episode, live)
                return do(process)
            except EnvironmentFailed as error:
                live.failed = error
                raise

        return self._threads[at].submit(done)

    def _play_again(self, process: Process, episode: int, live: Live) -> None:
        self._source.begin(process, episode, live.problem)
        turns = msgspec.to_builtins(live.turns)
        if [step_of(process.ask("act", episode, turn)) for turn in turns] != live.steps:
            raise EnvironmentFailed(f"{live.problem.id} went on otherwise when it was played again")
        live.home = process.running


def ended(steps: Sequence[Step], turns: int, paid: tuple[float, int, int]) -> Episode:
    """Make the episode of its steps and of what ``host.py`` says to "finish"."""
    reward, calls, errors = paid
    # What was done before the last turn was not ended by it.
    done = bool(steps) and steps[-1].done and len(steps) == turns
    return Episode(tuple(step.observations for step in steps), done, reward, calls, errors)
