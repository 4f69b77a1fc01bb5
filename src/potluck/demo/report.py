"""The demo's result: as nouns, in words, and as one HTML file that needs nothing else.

    run folders --summarise--> Result --> summary.json, picture, table, report

The page has no script and needs no network. Its template escapes what a model wrote; the page's
own policy forbids scripts and outside addresses as well, should an escape be forgotten.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from potluck.display.text import decimal, label, printable

COLUMNS = ("written", "sampled reward", "greedy", "four digits")
"""Titles of ``Outcome.cells``."""


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
class Sample:
    """A completion that the report shows. Its texts are not safe to show as they are."""

    question: str
    text: str
    reward: float


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that the demo has measured: the content of summary.json."""

    seed: int
    rounds: int
    seconds: float
    """Duration of the whole demo."""
    nodes: Mapping[str, Mapping[str, Outcome]]
    """node -> setting -> outcome; the settings are "alone", "half" and "lws"."""
    samples: Mapping[str, Sequence[Sample]]
    """Completions of the last round together, by their author."""


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


def write_report(result: Result, picture: Path, path: Path) -> None:
    """Write the HTML report beside a drawn picture."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"printable": printable, "label": label}
    page = environment.get_template("report.html.j2").render(
        result=result,
        verdict=verdict(result),
        columns=COLUMNS,
        picture=base64.b64encode(picture.read_bytes()).decode("ascii"),
    )
    path.write_text(page, encoding="utf-8")
