"""An episode of several turns against one answer of as many tokens.

Both sides write 48 completions behind the same prompts. An episode reads what the environment says
between its turns as well, and waits for it; this one answers at once. Turns end at random, so rows
part, and their lengths are forced on the single answers: in one contender as many tokens as are
sampled or read, which the bound is of, in another as many as are sampled.

And the share of a round of recipes/maze.toml that it takes to play others' episodes again. Both
nodes do their rounds in one process, where what one has played the other would find in memory; so
nothing is remembered of own episodes here, and each is replayed once, as by the other node.

    python benchmarks/turns.py [--quick]
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import harness
import torch
from harness import ForcedDraw, Row, Workload
from torch import Tensor

from potluck.config import load
from potluck.episode import Step, Turn
from potluck.launch.in_process import run
from potluck.model import LanguageModel
from potluck.node.participant import Clock
from potluck.reports.events import Event, RoundDone
from potluck.rollout.base import EngineSettings, RandomSampler, Sampler
from potluck.rollout.hf import HFEngine
from potluck.tasks.environments.hosted import HostedEnvironment
from potluck.types import Completion, Episode, Observation, Problem

AT_MOST = 1.2
MAZE = Path(__file__).parents[1] / "recipes" / "maze.toml"


class Talk:
    """An environment, and its own play, that says so many words to every turn and never is done."""

    grade = "replay"

    def __init__(self, turns: int, words: int) -> None:
        self.max_turns, self._asked = turns, list[int]()
        said = " ".join(f"w{word}" for word in range(words))
        self._step = Step((Observation(said),), done=False)

    def open(self, author: str = "") -> "Talk":
        return self

    def begin(self, episode: int, problem: Problem, index: int = 0) -> None:
        pass

    def act(self, episode: int, turn: Turn) -> None:
        self._asked.append(episode)

    def answered(self, wait_s: float) -> list[tuple[int, Step]]:
        asked, self._asked = self._asked, []
        return [(episode, self._step) for episode in asked]

    def finish(self, episode: int) -> Episode:
        return Episode((), False, 0.0)

    def close(self) -> None:
        pass


class EndingDraw:
    """Draws as ``sampler`` does, but each row stops with one probability, and not otherwise."""

    def __init__(self, sampler: Sampler, mean: int, stop: int) -> None:
        self._draw, self._mean, self._stop = sampler, mean, stop
        self._dice = torch.Generator().manual_seed(1)

    def __call__(self, logits_NV: Tensor) -> tuple[Tensor, Tensor]:
        logits_NV[:, self._stop] = -torch.inf
        token_N, logp_N = self._draw(logits_NV)
        ends_N = torch.rand(len(token_N), generator=self._dice) < 1 / self._mean
        return token_N.masked_fill(ends_N, self._stop), logp_N.masked_fill(ends_N, 0.0)


def measure(quick: bool) -> tuple[list[Row], object]:
    policy, rows, raw = harness.language_model(), [], {}
    for turns, mean, words in [(2, 3, 2)] if quick else [(4, 8, 4), (4, 16, 4), (4, 32, 4)]:
        asked = harness.workload(4, 12, prompt=12 if quick else 163, longest=8, mean=4)
        play = writer(policy, asked, Talk(turns, words), mean)
        written = play()
        sampled = [len(c.token_T) for c in written]
        # The last token of a turn is read with what is observed, and that of an answer never.
        whole = [len(c.token_T) + (words + 1) * (len(c.turns) - 1) for c in written]
        title = f"{turns} turns of {mean} tokens, {words} observed"
        contenders = {"episodes": timed(play)}
        for name, each in {"as many tokens": whole, "as many sampled": sampled}.items():
            single = writer(policy, Workload(asked.name, asked.requests, tuple(each)), None, mean)
            assert [len(c.token_T) for c in single()] == each, "lengths were not forced"
            contenders[name] = timed(single)
        s = harness.take_turns(contenders, 1 if quick else 3, title)
        ratio, bare = (harness.ratio(s["episodes"], s[name]) for name in [*contenders][1:])
        rows.append(Row(f"{title}: to one answer of as many tokens", *ratio, at_most=AT_MOST))
        rows.append(Row(f"{title}: of as many sampled tokens, none read", *bare))
        raw[title] = {"sampled": sum(sampled), "observed": sum(whole) - sum(sampled), "seconds": s}
    shares, raw["maze"] = replay_shares(rounds=1 if quick else 5)
    what = "maze: playing others' episodes again, of a round"
    rows.append(Row(what, *shares, unit="%", at_most=5))
    return rows, raw


def replay_shares(rounds: int) -> tuple[tuple[float, float, float], dict[str, float]]:
    """Percent of all nodes' seconds in which episodes are replayed, of a whole run and the least
    and the most of one round; and the seconds."""
    overrides = [f"rounds={rounds}", "evaluation.problems=0", "evaluation.out_of_distribution=0"]
    clock, replay = ReplayClock(), HostedEnvironment.replay

    def replayed(*given: Any) -> Episode:
        with Clock() as replaying:
            episode = replay(*given)
        clock.replaying_s += replaying.seconds
        return episode

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(HostedEnvironment, "replay", replayed),
        mock.patch.object(HostedEnvironment, "remember"),
    ):
        run(load(MAZE, overrides), Path(folder) / "run", display=clock)
    each = [100 * clock.replays_s[round] / clock.rounds_s[round] for round in clock.rounds_s]
    replays_s, rounds_s = sum(clock.replays_s.values()), sum(clock.rounds_s.values())
    seconds = {"replays": replays_s, "rounds": rounds_s}
    return (100 * replays_s / rounds_s, min(each), max(each)), seconds


class ReplayClock:
    """Display that adds up, by round, the seconds of all nodes, and those of replays in them."""

    def __init__(self) -> None:
        self.replaying_s = 0.0
        """Seconds of replays since a node was done with a round."""
        self.replays_s, self.rounds_s = (
            defaultdict[int, float](float),
            defaultdict[int, float](float),
        )

    def show(self, event: Event) -> None:
        if isinstance(event, RoundDone):
            self.rounds_s[event.report.round] += sum(event.report.seconds.values())
            self.replays_s[event.report.round] += self.replaying_s
            self.replaying_s = 0.0


def writer(
    policy: LanguageModel, work: Workload, environment: Talk | None, mean: int
) -> Callable[[], list[Completion]]:
    engine, stop = (
        HFEngine(policy, EngineSettings(1024, 4096, environment=environment)),
        policy.tokenizer.eos_token_id,
    )

    def write() -> list[Completion]:
        plain = RandomSampler(torch.Generator().manual_seed(0))
        single = ForcedDraw(plain, work.length_N, stop)
        sampler = EndingDraw(plain, mean, stop) if environment else single
        return engine.generate(work.requests, sampler, author="bench", progress=lambda *_: None)

    return write


def timed(write: Callable[[], list[Completion]]) -> Callable[[], float]:
    """A contender, in seconds of the processor: nothing here is waited for, and machines are
    busy."""

    def spent_s() -> float:
        begun_s = time.process_time()
        write()
        return time.process_time() - begun_s

    return spent_s


if __name__ == "__main__":
    harness.run("turns", measure)
