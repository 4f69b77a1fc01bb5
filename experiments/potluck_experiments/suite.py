"""The files that describe the experiments, read and checked.

settings.toml has the ways to run a pair, each scale's file its families of models and their pairs.
A folder a figure or table has experiment.toml, expected.toml and notes.md, a person's remarks.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from potluck import PotluckError

Scale = Literal["tiny", "drawn", "words", "real", "paper"]
Measure = Literal["greedy", "sampled", "pass@8", "out-of-distribution"]
When = Literal["early", "late", "end"]
Lies = Literal["below", "above", "within", "not below"]
ClaimNode = Literal[
    "each", "first", "second", "third", "fourth", "weaker", "stronger", "second minus first"
]
SCALES: tuple[Scale, ...] = ("tiny", "drawn", "words", "real", "paper")
OF_MINUTES: tuple[Scale, ...] = ("real", "paper")
"""Scales whose cells take minutes or hours: a stopped one goes on from its checkpoint."""
INDEX = "{index}"


class ExperimentError(PotluckError):
    """An experiment that does not exist, or a file of it that cannot be used."""


class Setting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to run a pair, [NAME] in settings.toml."""

    title: str
    meaning: str = ""  # Explanation that a legend adds to the title
    alone: bool = False
    """Whether each model runs by itself; else the models of a pair run together."""
    together: tuple[tuple[Annotated[int, Meta(ge=0)], ...], ...] = ()
    """Places in the pair, from 0, of the models of each run; empty: all of them are one run."""
    problems: Annotated[float, Meta(gt=0, le=1)] = 1.0  # Share of the recipe's problems per round
    beside: str = ""
    """Node that writes for those of each run and learns nothing, ``FILE#NODE``; empty: none."""
    set: tuple[str, ...] = ()  # Changes of the recipe, as ``potluck run --set`` takes them

    @property
    def legend(self) -> str:
        return f"{self.title}: {self.meaning}" if self.meaning else self.title


class Family(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models that work on one task, [family.NAME] of a scale."""

    title: str
    model: Mapping[str, str]  # The recipe of each model: ``FILE#NODE``, a node of a recipe
    pair: Mapping[str, Annotated[tuple[str, ...], Meta(min_length=1)]]
    """Models that work together, or one. The first is the smaller, or the general one."""

    def alone_as(self, model: str) -> str:
        """Return the first name of the same model: alone, a second name need not run again."""
        return next(name for name, table in self.model.items() if table == self.model[model])

    def runs(self, setting: Setting, models: Sequence[str]) -> list[dict[str, str]]:
        """Return the runs of a pair: each model's name in the pair, and that in the run. There are
        none where the setting is about more models."""
        if setting.alone:
            return [{model: self.alone_as(model)} for model in models]
        places = setting.together or (tuple(range(len(models))),)
        if max(chain.from_iterable(places)) >= len(models):
            return []
        return [{models[at]: models[at] for at in each} for each in places]


class ScaleFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """tiny.toml, drawn.toml, words.toml, real.toml, paper.toml."""

    seeds: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Seeds 0, 1, ... of every cell. Verdicts use these and no others."""
    fewest_seeds: Annotated[int, Meta(ge=0)] = 0
    """Seeds from which on a pair counts, by the seeds that both settings have; 0: all of them."""
    unit: Literal["seed", "base pair"] = "seed"
    """Independent observation of a claim. Base pair: pairs are drawn, many of a family."""
    bases: str = ""
    """Script that makes the base models: ``SCRIPT FOLDER --only NAME``. Empty: the Hub has them."""
    base_s: Annotated[float, Meta(ge=0)] = 0.0
    """Core seconds that it takes for one."""
    indices: tuple[int, ...] = ()
    """Numbers that ``{index}`` stands for in names of models and pairs: one of each a number."""
    rate: Mapping[str, Annotated[float, Meta(gt=0)]] = field(default_factory=dict)
    """Factor on the learning rates of the recipes, by setting; of others it is 1."""
    family: Mapping[str, Family]


class ExperimentFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """experiment.toml."""

    title: str
    figure: str  # Figure of the paper: "1", "Table 2"; empty: our own question
    settings: tuple[str, ...]
    pairs: Mapping[Scale, tuple[str, ...]]  # ``FAMILY.PAIR`` names, for each scale


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement of expected.toml: the interval of a mean difference, and where it has to lie.

    The difference is ``setting`` minus ``than``, averaged over the models that it is about, of all
    pairs of the experiment.
    """

    id: str
    text: str
    setting: str
    than: str
    kinds: tuple[str, ...] = ()  # Families that it is about, at the scale drawn; empty: all
    node: ClaimNode = "each"
    """Models that it is about. First to fourth as the pair names them; weaker and stronger by
    the mean of ``than`` in this measure; "second minus first" compares the two differences."""
    measure: Measure = "greedy"
    """Accuracy of greedy answers to validation problems or out of distribution; mean reward of
    the completions sampled in training; pass@8 of the first 100 validation problems."""
    when: When = "end"  # Mean over a half of the rounds, or at the end
    lies: Lies
    """below: < -margin; above: > margin; within: from -margin to margin; not below: >= -margin."""
    margin: Annotated[float, Meta(ge=0, le=1)] = 0.0  # Accuracy, 0..1
    primary: bool = False
    """Whether it is among the few that results.md puts first, and corrects for their number."""


class ExpectedFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """expected.toml."""

    claims: tuple[Claim, ...] = field(name="claim")
    changes: tuple[str, ...] = ()  # Changes after the first run: date, change, and reason


class Experiment(ExperimentFile, frozen=True, kw_only=True):
    """A figure or table: the contents of its files; ``name`` is its folder, fig01_nois."""

    name: str
    claims: tuple[Claim, ...]
    changes: tuple[str, ...]
    notes: str

    @property
    def short(self) -> str:
        """fig01 of fig01_nois."""
        return self.name.partition("_")[0]


@dataclass(frozen=True, slots=True)
class Suite:
    """All experiments of a folder, by name."""

    folder: Path
    settings: Mapping[str, Setting]
    scales: Mapping[Scale, ScaleFile]
    experiments: tuple[Experiment, ...]

    def find(self, name: str) -> Experiment:
        """Return the experiment whose name begins with ``name``: fig04 is fig04_size."""
        found = [e for e in self.experiments if e.name.startswith(name)]
        found = [e for e in found if name in (e.name, e.short)] or found
        if len(found) == 1:
            return found[0]
        there = ", ".join(e.short for e in self.experiments)
        raise ExperimentError(f"there is no experiment {name!r}; there are {there}")

    def pairs(self, scale: Scale) -> list[str]:
        """Return all ``FAMILY.PAIR`` of a scale, in its order."""
        families = self.scales[scale].family.items()
        return [f"{name}.{pair}" for name, family in families for pair in family.pair]

    def family(self, scale: Scale, pair: str) -> Family:
        """Return the family of ``FAMILY.PAIR``, or of ``FAMILY``."""
        return self.scales[scale].family[pair.partition(".")[0]]

    def models(self, scale: Scale, pair: str) -> tuple[str, ...]:
        """Return the models of ``FAMILY.PAIR``."""
        return self.family(scale, pair).pair[pair.partition(".")[2]]


def read_suite(folder: Path) -> Suite:
    """Read and check all files of the folder."""
    if not (folder / "settings.toml").is_file():
        raise ExperimentError(
            f"{folder} holds no experiments; run this in a clone of the repository, or name its "
            f"folder with --experiments"
        )
    settings = _read(folder / "settings.toml", dict[str, Setting])
    scales = {s: _written_out(_read(folder / f"{s}.toml", ScaleFile)) for s in SCALES}
    files = sorted(folder.glob("*/experiment.toml"), key=lambda f: (f.parent.name.find("_"), f))
    suite = Suite(folder, settings, scales, tuple(_experiment(file) for file in files))
    _require_names(suite)
    return suite


def _written_out(scale: ScaleFile) -> ScaleFile:
    """Return the file with one entry for each index in place of those with ``{index}``."""
    families = {}
    for name, family in scale.family.items():
        every = [(key, i) for key in family.model for i in _indices(key, scale)]
        model = {_numbered(key, i): _numbered(family.model[key], i) for key, i in every}
        pairs = [(key, i) for key in family.pair for i in _indices(key, scale)]
        pair = {
            _numbered(key, i): tuple(_numbered(node, i) for node in family.pair[key])
            for key, i in pairs
        }
        families[name] = replace(family, model=model, pair=pair)
    return replace(scale, family=families)


def _indices(key: str, scale: ScaleFile) -> Sequence[int]:
    return scale.indices if INDEX in key else (0,)


def _numbered(text: str, index: int) -> str:
    return text.replace(INDEX, str(index))


def _experiment(file: Path) -> Experiment:
    expected, notes = file.with_name("expected.toml"), file.with_name("notes.md")
    text = _text(notes).strip() if notes.exists() else ""
    said = asdict(_read(file, ExperimentFile)) | asdict(_read(expected, ExpectedFile))
    return Experiment(name=file.parent.name, notes=text, **said)


def _require_names(suite: Suite) -> None:
    """Refuse names that no file defines, and claims that nothing measures."""
    for scale in suite.scales:
        where = f"{suite.folder / scale}.toml: [rate]"
        _require(where, "setting", suite.scales[scale].rate, suite.settings)
        for name, _, pair in (known.partition(".") for known in suite.pairs(scale)):
            family = suite.family(scale, name)
            where = f"{suite.folder / scale}.toml: [family.{name}.pair] {pair}"
            _require(where, "model", family.pair[pair], family.model)
            if len(set(family.pair[pair])) < len(family.pair[pair]):
                raise ExperimentError(
                    f"{where} names a model twice; give it a second name in "
                    f"[family.{name}.model], as an A/A pair has"
                )
    for experiment in suite.experiments:
        place = suite.folder / experiment.name
        _require(f"{place}/experiment.toml", "setting", experiment.settings, suite.settings)
        for scale, pairs in experiment.pairs.items():
            _require(f"{place}/experiment.toml", "pair", pairs, suite.pairs(scale))
            for pair, name in product(pairs, experiment.settings):
                setting, models = suite.settings[name], suite.models(scale, pair)
                if not suite.family(scale, pair).runs(setting, models):
                    raise ExperimentError(
                        f"{place}/experiment.toml: the setting {name!r} is about more than the "
                        f"{len(models)} models of {pair!r}; see its 'together'"
                    )
        ids = [claim.id for claim in experiment.claims]
        if len(set(ids)) < len(ids):
            raise ExperimentError(f"{place}/expected.toml has two claims of one id: {ids}")
        for claim in experiment.claims:
            where = f"{place}/expected.toml: claim {claim.id!r}"
            _require(where, "setting", (claim.setting, claim.than), experiment.settings)
            families = {p.partition(".")[0] for its in experiment.pairs.values() for p in its}
            _require(where, "family", claim.kinds, sorted(families))
            if claim.measure in ("pass@8", "out-of-distribution") and claim.when != "end":
                raise ExperimentError(
                    f"{where} is about {claim.measure} accuracy {claim.when}, which is only "
                    f'measured at the end; write when = "end"'
                )


def _require(where: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            there = ", ".join(known)
            raise ExperimentError(f"{where} names the {kind} {name!r}; there are {there}")


TABLES = Setting, Family, ScaleFile, ExperimentFile, Claim, ExpectedFile
KEYS = sorted({key for table in TABLES for key in table.__struct_encode_fields__})
Kind = TypeVar("Kind")


def _read(path: Path, kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(tomllib.loads(_text(path), parse_float=_finite), kind)
    except (ValueError, RecursionError) as error:
        unknown = re.search(r"unknown field `([^`]*)`", str(error))
        near = difflib.get_close_matches(unknown[1], KEYS, 1) if unknown else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ExperimentError(f"cannot read {path}: {error}{hint}") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ExperimentError(f"there is no {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(f"cannot read {path}: {error}; write it as UTF-8") from None


def _finite(text: str) -> float:
    """Refuse NaN, which would pass every bound."""
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is no finite number")
    return float(text)
