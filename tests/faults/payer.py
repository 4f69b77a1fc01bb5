"""An author that pays, as a process that can be killed at any instant."""

from pathlib import Path

from openai import AsyncOpenAI  # noqa: F401  what forks this has it

from potluck.exchange.base import PeerStatus, Status
from potluck.files import derived_seed, write_atomically
from potluck.node.author import Author
from potluck.node.pace.together import Together
from potluck.node.storage.record import Record
from potluck.rollout.texts.base import TextSettings
from potluck.rollout.texts.options import OpenAIOptions
from potluck.schedule import Share
from potluck.types import Problem, Sampling

ROUNDS, PROBLEMS, COUNT, CONCURRENCY, LONGEST = 4, 6, 2, 3, 50
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
        return Status({"north": PeerStatus(live=True)})

    def send(self, round, completions):
        texts = "\n".join(f"{c.problem_id} {c.index} {c.text}" for c in completions)
        write_atomically(self.folder / f"round-{round}", texts.encode())


def pay(url, folder, begun):
    """Write all rounds that are not stored yet; ``begun`` is set before the first of them."""
    (node := Path(folder) / NAME).mkdir(parents=True, exist_ok=True)
    settings = TextSettings(
        node=NAME, folder=Path(folder), max_new_tokens=LONGEST, sampling=Sampling(), notify=print
    )
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


def text_of(round, place, index):
    """The text that a stand-in writes: it repeats the question and the seed of the request."""
    of_round = derived_seed(f"{Agenda.seed}/{round}/{NAME}/write")
    seed = derived_seed(f"{of_round}/{place}/0") >> 32
    return f"What is {round}{place}? {seed} {index}"
