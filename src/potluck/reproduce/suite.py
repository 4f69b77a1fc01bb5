"""What ``experiments/`` holds: which runs there are, and what they are to show.

    experiments/settings.toml            how a run can be set: f-tis, alone, half, horizontal ...
    experiments/tiny.toml, paper.toml    a scale: its families of models, and their pairs
    experiments/fig01_nois/              one folder per figure and table of the paper:
        experiment.toml                  its pairs and settings
        expected.toml                    the paper's claim as a statement that can fail
        notes.md                         what a person says of the result
        RESULTS.md                       what came out; written by ``potluck reproduce``
    experiments/cells/tiny/*.json        every run that was done, see result.py

reading.py reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from potluck.types import PotluckError

Scale = Literal["tiny", "paper"]
SCALES: tuple[Scale, ...] = ("tiny", "paper")
MOST_SEEDS = 1000
"""0 to 999: a slip of the finger asks for more."""


class ExperimentError(PotluckError):
    """An experiment that is not there, or a file of it that cannot be used."""


class Setting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to run a pair, [NAME] in settings.toml."""

    title: str
    """As a legend names it."""
    alone: bool = False
    """Whether each model runs by itself; else the whole pair runs together."""
    problems: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Of the recipe's problems per round, the share that is written."""
    set: tuple[str, ...] = ()
    """What it changes in the recipe, as ``potluck run --set`` takes it."""


class Family(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models that work on one task, [family.NAME] of a scale."""

    title: str
    """Of the task, as a page names it."""
    model: Mapping[str, str]
    """Of each model's name, the table that describes it: ``FILE#NODE``, a node of a recipe."""
    pair: Mapping[str, Annotated[tuple[str, ...], Meta(min_length=2)]]
    """Names of the models that work together. The first is the smaller, or the general one."""


class ScaleFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """tiny.toml, paper.toml."""

    seeds: Annotated[int, Meta(ge=2, le=MOST_SEEDS)] = 5
    """Seeds 0, 1, ... of every cell."""
    bases: str = ""
    """The script that makes the base models, called with the folder of those that are missing:
    ``python SCRIPT FOLDER --only NAME``. Empty: they come from the Hub."""
    family: Mapping[str, Family]


class ExperimentFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """experiment.toml."""

    title: str
    figure: str
    """Of the paper: "1", "Table 2"; empty: the paper has none, it is ours."""
    settings: tuple[str, ...]
    pairs: Mapping[Scale, tuple[str, ...]]
    """Of each scale, ``FAMILY.PAIR``."""


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement of expected.toml: an interval of paired differences, and where it has to lie.

    The difference is ``setting`` minus ``than``, of one model of a pair, seed by seed.
    """

    id: str
    text: str
    """The claim as a person says it."""
    setting: str
    than: str
    node: Literal["each", "any", "first", "second", "weaker", "stronger", "second minus first"] = (
        "each"
    )
    """Whose. First and second as the pair names them; weaker and stronger by what ``than``
    reaches in this measure, in the mean; "second minus first": the second's difference minus
    the first's."""
    measure: Literal["greedy", "sampled", "out-of-distribution"] = "greedy"
    """Accuracy of greedy answers on validation problems, mean reward of the completions that
    the model samples in training, or greedy accuracy out of distribution."""
    when: Literal["early", "end"] = "end"
    """Over the first half of the rounds in the mean (of greedy accuracy without the start), or at
    the end."""
    lies: Literal["below", "above", "within", "not below"]
    """below: < -margin; above: > margin; within: from -margin to margin; not below: >= -margin."""
    margin: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Accuracy, 0..1."""
    over: Literal["each pair", "mean of pairs"] = "each pair"
    """Whether every pair has to show it, or each family's pairs in the mean, seed by seed."""


class ExpectedFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """expected.toml."""

    claim: tuple[Claim, ...]
    changes: tuple[str, ...] = ()
    """What was changed after the first run: date, what, and why."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A figure or table."""

    name: str
    """Its folder: fig01_nois."""
    title: str
    figure: str
    settings: tuple[str, ...]
    pairs: Mapping[Scale, tuple[str, ...]]
    claims: tuple[Claim, ...]
    changes: tuple[str, ...]
    notes: str


@dataclass(frozen=True, slots=True)
class Suite:
    """All of ``experiments/``."""

    folder: Path
    settings: Mapping[str, Setting]
    scales: Mapping[Scale, ScaleFile]
    experiments: tuple[Experiment, ...]
    """In the order of their names."""

    def chosen(self, name: str) -> Experiment:
        """The experiment that ``name`` begins: fig04 is fig04_f-tis-size.

        Raises:
            ExperimentError: none does, or several do.
        """
        found = [e for e in self.experiments if e.name == name or e.name.startswith(name)]
        exact = [e for e in found if name in (e.name, e.name.partition("_")[0])]
        if len(exact or found) == 1:
            return (exact or found)[0]
        there = ", ".join(e.name.partition("_")[0] for e in self.experiments)
        raise ExperimentError(f"there is no experiment {name!r}; there are {there}")

    def pair(self, scale: Scale, pair: str) -> tuple[str, ...]:
        """The models of ``FAMILY.PAIR``."""
        family, _, name = pair.partition(".")
        return self.scales[scale].family[family].pair[name]
