"""The demo's result: as nouns, in words, and as one HTML file that needs nothing else.

run folders --summarise--> Result --> summary.json, picture, table
run folders and Result --> report.html: the page of ``potluck watch`` with its data inside
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from potluck.files import write_atomically
from potluck.show.terminal.text import decimal, label
from potluck.show.web.kept import keep
from potluck.show.web.page import kept_page
from potluck.show.web.views import KeptTable

COLUMNS = ("written", "sampled reward", "greedy", "four digits")
"""Titles of ``Outcome.cells``."""
EXPLAINED = (
    "Compared: the share of right answers among those that a model samples in the second half of "
    "the rounds. One run with one seed: take differences of a few hundredths for noise; "
    "docs/results.md has more seeds.",
    "First, each model practised alone: it wrote every answer itself, and learned from these. Then "
    "alone with half of the problems, so with half of the writing. Last, both together with LWS: "
    "each wrote half of the answers to every problem, and learned from its own and from the right "
    "ones of the other, weighed by how likely it is to write them itself.",
    "How to go on: `potluck new my-run.toml` writes a recipe to edit, with your models and your "
    "task; `potluck run my-run.toml --web` trains, and shows it in a browser.",
)
"""Paragraphs behind the verdict."""
NOTE = (
    "Written: completions that the model wrote itself, in all rounds. Sampled reward: the share of "
    "right answers among them, in the second half of the rounds. Greedy: the share of problems "
    "solved at the end when it always takes the likeliest token, on problems that no model trains "
    "on; four digits: the same on longer numbers than training has (out of distribution)."
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of one model under one setting."""

    written: int
    """Completions that it wrote itself, in all rounds."""
    sampled: tuple[float, ...]
    """Mean reward of these completions, for each round; the first is the base model's. 0..1."""
    greedy: float | None
    """Greedy accuracy at the end, on problems that no model trains on. 0..1."""
    out_of_distribution: float | None
    """The same on a kind of problem that training does not have."""

    @property
    def late(self) -> float:
        """Mean of ``sampled`` over the second half of the rounds."""
        half = self.sampled[len(self.sampled) // 2 :]
        return sum(half) / len(half)

    @property
    def cells(self) -> list[str]:
        """The numbers as tables show them, in the order of COLUMNS."""
        shares = (self.late, self.greedy, self.out_of_distribution)
        return [f"{self.written:,}", *(decimal(share, 2) for share in shares)]


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that the demo has measured: the content of summary.json."""

    seed: int
    rounds: int
    seconds: float
    """Duration of the whole demo."""
    nodes: Mapping[str, Mapping[str, Outcome]]
    """node -> setting -> outcome; the settings are "alone", "half" and "lws"."""


def verdict(result: Result) -> list[str]:
    """Say what the numbers show, a sentence for each node; computed, so it is always true."""
    return [_verdict_on(node, outcomes) for node, outcomes in result.nodes.items()]


def _verdict_on(node: str, outcomes: Mapping[str, Outcome]) -> str:
    lws, alone, half = (outcomes[setting] for setting in ("lws", "alone", "half"))
    return (
        f"`{node}` with LWS: {_gap(lws, alone)} alone, {_gap(lws, half)} half; "
        f"it wrote {lws.written:,} completions, alone {alone.written:,}."
    )


def _gap(one: Outcome, other: Outcome) -> str:
    """Compare the numbers as the tables show them, so that a reader can check the sentence."""
    gap = round(round(one.late, 2) - round(other.late, 2), 2)
    return f"{decimal(abs(gap), 2)} {'above' if gap > 0 else 'below'}" if gap else "level with"


def write_report(result: Result, runs: Mapping[str, Path], path: Path) -> None:
    """Write the page of the runs, kept in a file: the finding, its table, and all that happened."""
    time = f"; all of it took {result.seconds:.0f} seconds" if result.seconds else ""
    rounds = f"{result.rounds} {'round' if result.rounds == 1 else 'rounds'}"
    kept, _ = keep(
        runs,
        title="Does it help to learn from each other?",
        lead=[*verdict(result), *EXPLAINED, f"{rounds} of training in each setting{time}."],
        table=KeptTable(
            title="In numbers",
            columns=["model", "setting", *COLUMNS],
            rows=[
                [node, label(setting), *outcome.cells]
                for node, outcomes in result.nodes.items()
                for setting, outcome in outcomes.items()
            ],
            note=NOTE,
        ),
        labels={run: _label(run) for run in runs},
    )
    write_atomically(path, kept_page(kept).encode())


def _label(run: str) -> str:
    """Name one of the demo's runs.

    >>> _label("lws"), _label("half-small")
    ('LWS: both together', 'half: small')
    """
    setting, _, node = run.partition("-")
    return f"{label(setting)}: {node or 'both together'}"
