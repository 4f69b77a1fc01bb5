"""An author that pays, as a process that can be killed at any instant."""

from pathlib import Path

from episodes import Here, Walk
from potluck.episode import Turn
from potluck.episode import text_of as text_of_turns
from potluck.exchange.base import Status
from potluck.files import derived_seed, write_atomically
from potluck.node.pace.together import Together
from potluck.node.participant import Author
from potluck.node.storage.record import Record
from potluck.reports.status import PeerLine
from potluck.rollout.base import EngineSettings
from potluck.rollout.texts.options import OpenAIOptions
from potluck.schedule import Share
from potluck.types import Problem

ROUNDS, PROBLEMS, COUNT, CONCURRENCY, LONGEST, TURNS = 4, 6, 2, 3, 50, 3
NAME = "teacher"


class Agenda:
    """Stands for the run's agenda and for its task: a round has its own problems."""

    seed = 0

    def problem(self, id):
        return Problem(id, f"What is {id}?", "")


class Room:
    """Somebody who is there, and stores what is sent, as a round is stored."""

    def __init__(self, folder):
        self.folder = folder

    def status(self):
        return Status({"north": PeerLine(live=True)})

    def send(self, round, completions):
        texts = "\n".join(f"{c.problem_id} {c.index} {c.text}" for c in completions)
        write_atomically(self.folder / f"round-{round}", texts.encode())


def pay(url, folder, begun, plays):
    """Write all rounds not stored yet, and set ``begun`` before them; ``plays``: episodes."""
    (node := Path(folder) / NAME).mkdir(parents=True, exist_ok=True)
    settings = EngineSettings(
        LONGEST, LONGEST, node=NAME, folder=Path(folder), notify=print,
        environment=Here(Walk) if plays else None,
    )  # fmt: skip
    options = OpenAIOptions(url=url, model=NAME, concurrency=CONCURRENCY, budget_tokens=10**9)
    author = Author(
        name=NAME, pace=Together(Agenda(), NAME, 1, 0.0, 0.0), exchange=Room(node),
        record=Record(node, run="x", node=NAME), deadline_s=60.0, progress=lambda *told: None,
        task=Agenda(), engine=options.open(settings),
    )  # fmt: skip
    begun.set()
    for round in range(ROUNDS):
        if not (node / f"round-{round}").exists():
            author.generate_and_send(round, [Share(id, NAME, COUNT) for id in problems_of(round)])


def problems_of(round):
    return [f"{round}{place}" for place in range(PROBLEMS)]


def turn_of(seed, turns):
    """What a stand-in writes behind so many turns: the last one ends the game."""
    return f"{seed} " + ("x" if turns == TURNS - 1 else "a")


def text_of(round, place, index, plays):
    """The text that a stand-in writes: it repeats the question and the seed of the request."""
    of_round = derived_seed(f"{Agenda.seed}/{round}/{NAME}/write")
    if plays:
        seeds = [derived_seed(f"{of_round}/{place}/{index}/{at}") >> 32 for at in range(TURNS)]
        return text_of_turns([Turn(turn_of(seed, at)) for at, seed in enumerate(seeds)])
    seed = derived_seed(f"{of_round}/{place}/0") >> 32
    return f"What is {round}{place}? {seed} {index}"
